"""Distributions whose samples are computed from samples of other distributions, without rejection."""

from __future__ import annotations

import operator

import numpy as np

from weft import numpy as wnp
from weft._engine.numpy.promote import broadcast_shapes, cast, concrete
from weft._engine.random import draws
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity


@draws._sampler()
def maxwell(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the Maxwell distribution."""
    x = draws.normal(
        draws._check_single_key(key, "maxwell"),
        (*draws._shape(shape), 3),
        draws._float(dtype, "maxwell"),
    )
    return wnp.sqrt(wnp.sum(wnp.square(x), -1))


@draws._sampler("scale")
def rayleigh(key, scale, shape=None, dtype=None):  # noqa: A002
    """Return samples of the Rayleigh distribution."""
    dtype = draws._float(dtype, "rayleigh")
    shape, (scale,) = draws._parameters(dtype, shape, scale)
    u = draws.uniform(draws._check_single_key(key, "rayleigh"), shape, dtype)
    return wnp.multiply(wnp.sqrt(wnp.multiply(wnp.log(u), -2)), scale)


@draws._sampler("b")
def pareto(key, b, shape=None, dtype=None):  # noqa: A002
    """Return samples of the Pareto distribution."""
    dtype = draws._float(dtype, "pareto")
    shape, (b,) = draws._parameters(dtype, shape, b)
    return wnp.exp(
        wnp.divide(draws.exponential(draws._check_single_key(key, "pareto"), shape, dtype), b)
    )


def weibull_min(key, scale, concentration, shape=(), dtype=None):  # noqa: A002
    """Return samples of the Weibull distribution."""
    dtype = draws._float(dtype, "weibull_min")
    u = draws.uniform(draws._check_single_key(key, "weibull_min"), draws._shape(shape), dtype)
    return wnp.multiply(
        wnp.power(wnp.negative(wnp.log1p(wnp.negative(u))), wnp.divide(1.0, concentration)), scale
    )


@draws._sampler("mean", "cov")
def multivariate_normal(key, mean, cov, shape=None, dtype=None, method: str = "cholesky"):  # noqa: A002
    """Return samples of a multivariate normal distribution.

    `dtype` is the dtype of the normal samples; `mean` and `cov` keep theirs.
    """
    mean, cov = concrete(wnp.asarray(mean)), concrete(wnp.asarray(cov))
    if mean.ndim < 1 or cov.ndim < 2:
        raise ValueError(
            f"multivariate_normal: mean must be a vector and cov a matrix, or several of them, got shapes {mean.shape} "
            f"and {cov.shape}."
        )
    promoted = dtypes.result_type(mean, cov)
    promoted = (
        promoted if dtypes.issubdtype(promoted, np.floating) else dtypes.default_float_dtype()
    )
    mean, cov = cast(mean, promoted), cast(cov, promoted)
    n, batch_shape = mean.shape[-1], broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    shape = batch_shape if shape is None else draws._shape(shape)
    if cov.shape[-2:] != (n, n) or broadcast_shapes(shape, batch_shape) != shape:
        raise ValueError(
            f"multivariate_normal: means of {quantity(n, 'number')} need covariances of shape ({n}, {n}), and both the shape of the "
            f"samples; got shapes {tuple(mean.shape)} and {tuple(cov.shape)} for samples of shape {tuple(shape)}."
        )
    raw, drawn = (
        draws._check_single_key(key, "multivariate_normal"),
        draws._float(promoted if dtype is None else dtype, "multivariate_normal"),
    )
    x = draws.normal(raw, (*shape, n), drawn)
    return wnp.add(mean, wnp.einsum("...ij,...j->...i", _root_of(cov, method), x))


def _root_of(cov, method: str):
    """Return a matrix whose product with its transpose is `cov`."""
    from weft._engine.ops import linalg

    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        vectors, values = linalg.eigh(cov)
    elif method == "svd":
        vectors, values, _ = linalg.svd(cov)
    else:
        raise ValueError(
            f"multivariate_normal: method must be one of 'cholesky', 'eigh', 'svd', got {method!r}."
        )
    return wnp.multiply(vectors, wnp.expand_dims(wnp.sqrt(values), -2))


@draws._sampler("sigma")
def lognormal(key, sigma=1.0, shape=None, dtype=None):
    """Return exponentials of normal samples with standard deviation `sigma`."""
    dtype = draws._float(dtype, "lognormal")
    shape, (sigma,) = draws._parameters(dtype, shape, sigma)
    return wnp.exp(
        wnp.multiply(draws.normal(draws._check_single_key(key, "lognormal"), shape, dtype), sigma)
    )


def double_sided_maxwell(key, loc, scale, shape=(), dtype=None):
    """Return samples of the Maxwell distribution with random sign, scaled and shifted.

    There are `shape` samples for each pair of `loc` and `scale`.
    """
    dtype = draws._float(dtype, "double_sided_maxwell")
    loc, scale = cast(concrete(loc), dtype), cast(concrete(scale), dtype)
    shape = (*draws._shape(shape), *broadcast_shapes(loc.shape, scale.shape))
    first, second = draws._split_one(draws._check_single_key(key, "double_sided_maxwell"), 2)
    signed = wnp.multiply(draws.rademacher(second, shape, dtype), maxwell(first, shape, dtype))
    return wnp.add(wnp.multiply(signed, scale), loc)


@draws._sampler("left", "mode", "right")
def triangular(key, left, mode, right, shape=None, dtype=None):
    """Return samples of the triangular distribution on [left, right] with its peak at `mode`."""
    dtype = draws._float(dtype, "triangular")
    shape, (left, mode, right) = draws._parameters(dtype, shape, left, mode, right)
    width, rise, fall = (
        wnp.subtract(right, left),
        wnp.subtract(mode, left),
        wnp.subtract(right, mode),
    )
    u = draws.uniform(draws._check_single_key(key, "triangular"), shape, dtype)
    low = wnp.add(left, wnp.sqrt(wnp.multiply(wnp.multiply(u, width), rise)))
    high = wnp.subtract(
        right, wnp.sqrt(wnp.multiply(wnp.multiply(wnp.subtract(1, u), width), fall))
    )
    return wnp.where(wnp.less(u, wnp.divide(rise, width)), low, high)


@draws._sampler("mean")
def wald(key, mean, shape=None, dtype=None):
    """Return samples of the Wald (inverse Gaussian) distribution with scale 1."""
    dtype = draws._float(dtype, "wald")
    shape, (mean,) = draws._parameters(dtype, shape, mean)
    first, second = draws._split_one(draws._check_single_key(key, "wald"), 2)
    y = wnp.square(draws.normal(first, shape, dtype))
    z = draws.uniform(second, shape, dtype)
    square = wnp.square(mean)
    root = wnp.sqrt(
        wnp.add(wnp.multiply(wnp.multiply(mean, 4), y), wnp.multiply(square, wnp.square(y)))
    )
    x = wnp.subtract(
        wnp.add(mean, wnp.multiply(wnp.multiply(square, y), 0.5)),
        wnp.multiply(wnp.multiply(mean, 0.5), root),
    )
    return wnp.where(
        wnp.less_equal(z, wnp.divide(mean, wnp.add(mean, x))), x, wnp.divide(square, x)
    )


@draws._sampler()
def orthogonal(key, n: int, shape=(), dtype=None, m: int | None = None):
    """Return uniformly distributed orthogonal matrices, n by m (square by default)."""
    from weft._engine.ops import linalg

    dtype = (
        dtypes.default_float_dtype() if dtype is None else dtypes.check_dtype(dtype, "orthogonal")
    )
    n, m = operator.index(n), operator.index(n) if m is None else operator.index(m)
    z = draws.normal(
        draws._check_single_key(key, "orthogonal"),
        (*draws._shape(shape), max(n, m), min(n, m)),
        dtype,
    )
    q, r = linalg.qr(z, full_matrices=False)
    d = wnp.diagonal(r, 0, -2, -1)
    q = wnp.multiply(q, wnp.expand_dims(wnp.divide(d, cast(wnp.abs(d), dtype)), -2))
    return wnp.matrix_transpose(q) if n < m else q
