"""The Dirichlet distribution with parameters `alpha`."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.numpy.promote import all_inexact, concrete
from weft._engine.util.source import guard_all
from weft.scipy.special import gammaln, xlogy


def logpdf(x, alpha):
    """Return the logarithm of the density at `x`, whose first dim holds the components; the last component may be omitted."""
    x, alpha = map(concrete, all_inexact("dirichlet.logpdf", x, alpha))
    if alpha.ndim != 1 or not x.ndim or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(
            f"dirichlet.logpdf: alpha must have rank 1 and x as many parts, or one less; got shapes {x.shape} and "
            f"{alpha.shape}."
        )
    if x.shape[0] != alpha.shape[0]:
        x = wnp.concatenate([x, 1 - wnp.sum(x, 0, keepdims=True)], 0)
    scale = gammaln(wnp.sum(alpha)) - wnp.sum(gammaln(alpha))
    column = wnp.reshape(alpha, (-1,) + (1,) * (x.ndim - 1))
    inside = wnp.all(x > 0, 0) & (wnp.abs(wnp.sum(x, 0) - 1) < 1e-6)
    return wnp.where(
        inside, scale + wnp.sum(xlogy(column - 1, wnp.where(x > 0, x, 1)), 0), -wnp.inf
    )


def pdf(x, alpha):
    """Return the density at `x`, whose first dim holds the components; the last component may be omitted."""
    return wnp.exp(logpdf(x, alpha))


guard_all(globals())
