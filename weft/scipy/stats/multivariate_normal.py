"""The normal distribution of vectors."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.numpy.promote import all_inexact, concrete
from weft._engine.util.source import guard_all
from weft.scipy import linalg


def logpdf(x, mean, cov, allow_singular: bool | None = None):
    """The logarithm of the density at the vectors in the last dim of `x`."""
    if allow_singular is not None:
        raise NotImplementedError(
            "multivariate_normal.logpdf: allow_singular is not supported; the covariance must be regular."
        )
    x, mean, cov = map(concrete, all_inexact("multivariate_normal.logpdf", x, mean, cov))
    if not mean.shape:
        return -0.5 * wnp.square(x - mean) / cov - 0.5 * (math.log(2 * math.pi) + wnp.log(cov))
    n = mean.shape[-1]
    if not cov.shape:
        cov = cov * wnp.eye(n, dtype=cov.dtype)
    if cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal.logpdf: the covariance must be of shape (..., {n}, {n}), got {cov.shape}."
        )
    root = wnp.linalg.cholesky(cov)
    delta = x - mean
    batch = wnp.broadcast_shapes(delta.shape[:-1], root.shape[:-2])
    root = wnp.broadcast_to(root, (*batch, n, n))
    z = linalg.solve_triangular(root, wnp.broadcast_to(delta, (*batch, n))[..., None], lower=True)[
        ..., 0
    ]
    log_det = wnp.sum(wnp.log(wnp.diagonal(root, axis1=-2, axis2=-1)), -1)
    return -0.5 * wnp.sum(z * z, -1) - 0.5 * n * math.log(2 * math.pi) - log_det


def pdf(x, mean, cov):
    """The density at the vectors in the last dim of `x`."""
    return wnp.exp(logpdf(x, mean, cov))


guard_all(globals())
