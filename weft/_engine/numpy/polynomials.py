"""Polynomials as arrays of coefficients, highest power first; window functions of signal
processing.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim, as_size, is_at_most, max_dim
from weft._engine.numpy import (
    composed,
    creation,
    manipulation as mp,
    padding,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.products import precise_matmul
from weft._engine.numpy.promote import (
    canonical_axes,
    cast,
    check_arraylike,
    concrete,
    promote_dtypes,
    promote_dtypes_inexact,
    value,
)
from weft._engine.numpy.selection import host_value
from weft._engine.ops.casting import size_as
from weft._engine.ops.layout import broadcasted_iota
from weft._engine.util import dtypes
from weft._engine.util.source import named


def _coefficients(api: str, *args) -> list:
    check_arraylike(api, *args)
    return [mp.atleast_1d(concrete(x)) for x in promote_dtypes_inexact(*[value(a) for a in args])]


def _added(a1, a2):
    """Return the sum of rows (coefficients), aligned at the end."""
    if a1.ndim == a2.ndim == 1:
        n = max(a1.shape[0], a2.shape[0])
        return uf.add(
            *[padding.pad(a, (n - a.shape[0], 0)) if a.shape[0] < n else a for a in (a1, a2)]
        )
    if a1.shape[0] == a2.shape[0]:
        return uf.add(a1, a2)
    short, long = (a1, a2) if a1.shape[0] < a2.shape[0] else (a2, a1)
    return long.at[long.shape[0] - short.shape[0] :].add(short)


def polyadd(a1, a2):
    """Return the sum of two polynomials."""
    check_arraylike("polyadd", a1, a2)
    a1, a2 = [mp.atleast_1d(concrete(x)) for x in promote_dtypes(value(a1), value(a2))]
    return _added(a1, a2)


def polysub(a1, a2):
    """Return the difference of two polynomials."""
    check_arraylike("polysub", a1, a2)
    a1, a2 = [mp.atleast_1d(concrete(x)) for x in promote_dtypes(value(a1), value(a2))]
    return _added(a1, uf.negative(a2))


def polymul(a1, a2, *, trim_leading_zeros: bool = False):
    """Return the product of two polynomials."""
    a1, a2 = _coefficients("polymul", a1, a2)
    if trim_leading_zeros:
        a1, a2 = [trim_zeros(a, "f") for a in (a1, a2)]
    a1, a2 = [a if a.shape[0] else creation.zeros(1, a.dtype) for a in (a1, a2)]
    return composed.convolve(a1, a2)


def polydiv(u, v, *, trim_leading_zeros: bool = False):
    """Return quotient and remainder of two polynomials."""
    u, v = _coefficients("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    quotient = []
    for k in range(max(0, m - n + 1)):
        d = uf.divide(u[k], v[0])
        quotient.append(d)
        if n:
            u = u.at[k + 1 : k + n + 1].add(uf.negative(uf.multiply(d, v[1:])))
        # u[k] - d * v[0] without rounding: zero, or nan where v[0] is zero
        u = u.at[k].set(uf.multiply(uf.abs(d), 0))
    q = mp.stack(quotient) if quotient else creation.zeros(1, u.dtype)
    return q, trim_zeros(u, "f") if trim_leading_zeros else u


def polyder(p, m: int = 1):
    """Return the derivative of order `m`."""
    (p,) = _coefficients("polyder", p)
    if m < 0:
        raise ValueError("Order of derivative must be positive.")
    for _ in range(m):
        n = p.shape[0]
        p = uf.multiply(p[:-1], np.arange(n - 1, 0, -1).astype(p.dtype))
    return p


def polyint(p, m: int = 1, k=None):
    """Return the integral of order `m`, with constants `k`."""
    (p,) = _coefficients("polyint", p)
    if m < 0:
        raise ValueError("Order of integral must be positive.")
    if m == 0:
        return p
    constants = mp.broadcast_to(cast(concrete(0 if k is None else k), p.dtype), (m,))
    for i in range(m):
        n = p.shape[0]
        p = mp.concatenate(
            [uf.divide(p, np.arange(n, 0, -1).astype(p.dtype)), constants[i : i + 1]]
        )
    return p


def polyfit(x, y, deg: int, rcond=None, full: bool = False, w=None, cov=False):
    """Return the coefficients of the least-squares polynomial of degree `deg` for the points."""
    from weft._engine.numpy import linalg

    x, y = _coefficients("polyfit", x, y)
    if deg < 0 or x.ndim != 1 or not x.shape[0] or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ValueError(
            f"polyfit: got x of shape {tuple(x.shape)}, y of shape {tuple(y.shape)}, deg={deg}; x is a vector, y has as many "
            "rows, deg is not negative."
        )
    order = deg + 1
    rcond = x.shape[0] * float(dtypes.finfo(x.dtype).eps) if rcond is None else rcond
    lhs, rhs = vander(x, order), y
    if w is not None:
        weights = cast(concrete(w), x.dtype)
        lhs = uf.multiply(lhs, weights[:, None])
        rhs = uf.multiply(rhs, weights[:, None] if rhs.ndim == 2 else weights)
    scale = uf.sqrt((lhs * lhs).sum(0))
    c, residuals, rank, s = linalg.lstsq(uf.divide(lhs, scale), rhs, rcond)
    c = uf.divide(c.T, scale).T
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    base = linalg.inv(precise_matmul(lhs.T, lhs))
    base = base if y.ndim == 1 else base[:, :, None]  # one matrix for each column of y
    if cov == "unscaled":
        return c, base
    if x.shape[0] <= order:
        raise ValueError(
            "the number of data points must exceed order to scale the covariance matrix"
        )
    return c, base * uf.divide(residuals, x.shape[0] - order)


_MANY = 1024


def vander(x, N: int | None = None, increasing: bool = False):
    """Return the matrix whose columns are powers of `x`."""
    (x,) = (
        _coefficients("vander", x)
        if not dtypes.issubdtype(concrete(x).dtype, np.integer)
        else (concrete(x),)
    )
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    n = x.shape[0] if N is None else operator.index(N)
    powers = range(n) if increasing else range(n)[::-1]
    if n > _MANY:  # one operation instead of one for each column
        return uf.power(
            mp.expand_dims(x, 1), creation.arange(powers.start, powers.stop, powers.step)
        )
    return (
        mp.stack([uf.power(x, k) for k in powers], 1)
        if n
        else creation.zeros((x.shape[0], 0), x.dtype)
    )


def poly(seq_of_zeros):
    """Return the monic polynomial with the given roots.

    For a matrix, it is the characteristic polynomial.
    """
    from weft._engine.numpy import linalg

    (roots_,) = _coefficients("poly", seq_of_zeros)
    if roots_.ndim == 2:
        roots_ = linalg.eigvals(roots_)
    if not roots_.shape[0]:
        return creation.ones((), roots_.dtype)
    out = creation.ones(1, roots_.dtype)
    for i in range(roots_.shape[0]):
        out = mp.concatenate([out, creation.zeros(1, out.dtype)]) - mp.concatenate(
            [creation.zeros(1, out.dtype), out * roots_[i]]
        )
    return out


def roots(p, *, strip_zeros: bool = True):
    """Return the roots of a polynomial; coefficients must be concrete unless strip_zeros is False.

    Leading zeros then stay and give NaN roots, at the end.
    """
    from weft._engine.numpy import linalg, selection

    (p,) = _coefficients("roots", p)
    zeros_, leading = 0, 0
    if strip_zeros:
        host = np.asarray(p)
        nonzero = np.nonzero(host)[0]
        if not len(nonzero):
            return creation.zeros(0, dtypes.to_complex_dtype(p.dtype))
        zeros_ = len(host) - 1 - int(nonzero[-1])
        p = p[int(nonzero[0]) : int(nonzero[-1]) + 1]
    n = p.shape[0]
    complex_dtype = dtypes.to_complex_dtype(p.dtype)
    if n < 2:
        return creation.zeros(zeros_, complex_dtype)
    if not strip_zeros:
        leading = selection.where((p != 0).any(), (p != 0).argmax(), n)
        p = mp.roll(p, -leading)
    companion = mp.concatenate([(-p[1:] / p[0])[None], creation.eye(n - 2, n - 1, dtype=p.dtype)])
    eigenvalues = linalg.eigvals(companion)
    if not strip_zeros:  # each zero that was moved to the end gave a root that is exactly zero
        eigenvalues = eigenvalues[(eigenvalues == 0).argsort(stable=True)]
        return selection.where(
            creation.arange(n - 1) < n - 1 - leading, eigenvalues, complex(np.nan, np.nan)
        )
    return mp.concatenate([eigenvalues, creation.zeros(zeros_, complex_dtype)])


def trim_zeros(filt, trim: str = "fb", axis=None):
    """Return an array without leading ('f') and trailing ('b') zero slices along `axis` (all dims).

    Its values must be concrete.

    >>> wnp.trim_zeros(wnp.array([0, 0, 1, 2, 0]))
    Array([1, 2], dtype=int32)
    """
    filt = creation.asarray(filt)
    if not filt.ndim:
        return filt
    places = np.nonzero(host_value(filt, "trim_zeros"))
    axes = canonical_axes(axis, filt.ndim, "trim_zeros")
    trim = trim.lower()

    def kept(d: int) -> slice:
        if d not in axes:
            return slice(None)
        if not len(places[d]):
            return slice(0, 0)
        return slice(
            int(places[d].min()) if "f" in trim else 0,
            int(places[d].max()) + 1 if "b" in trim else filt.shape[d],
        )

    return filt[tuple(kept(d) for d in range(filt.ndim))]


# ---- windows


def _window(name: str, shape_of_n, text: str):
    def fun(M: int):
        return _shape_of_size(shape_of_n, _points(M))

    return named(fun, name, text)


def _points(M: Any) -> Any:
    """Return the number of points as a size; floats are truncated, as in NumPy and JAX."""
    is_float = dtypes.issubdtype(getattr(M, "dtype", type(M)), np.floating) and not np.ndim(M)
    return as_size(int(M) if is_float else M)


def _shape_of_size(shape_of_n, n: int):
    """Return the window of `n` points; the window of one point is 1."""
    dtype = dtypes.default_float_dtype()
    if is_at_most(n, 1):
        return creation.ones(n, dtype)
    window = shape_of_n(broadcasted_iota(dtype, (n,), 0), max_dim(n, 2))
    return (
        window
        if not isinstance(n, SymbolicDim)
        else selection.where(size_as(n, np.int32) > 1, window, creation.ones(n, dtype))
    )


def _cosine(k, n: int, cycles: int = 1):
    return uf.cos(uf.multiply(k, 2 * math.pi * cycles / (n - 1)))


bartlett = _window(
    "bartlett",
    lambda k, n: uf.subtract(1, uf.abs(uf.divide(uf.subtract(uf.multiply(2, k), n - 1), n - 1))),
    "Return the triangular window of `M` points.",
)
hanning = _window(
    "hanning",
    lambda k, n: uf.multiply(uf.subtract(1, _cosine(k, n)), 0.5),
    "Return the Hann window of `M` points.",
)
hamming = _window(
    "hamming",
    lambda k, n: uf.subtract(0.54, uf.multiply(0.46, _cosine(k, n))),
    "Return the Hamming window of `M` points.",
)
blackman = _window(
    "blackman",
    lambda k, n: uf.add(
        uf.subtract(0.42, uf.multiply(0.5, _cosine(k, n))), uf.multiply(0.08, _cosine(k, n, 2))
    ),
    "Return the Blackman window of `M` points.",
)


def kaiser(M: int, beta):
    """Return the Kaiser window of `M` points and shape `beta`."""

    def shape_of_n(k, n):
        x = uf.subtract(uf.divide(uf.multiply(2, k), n - 1), 1)
        return uf.divide(
            uf.i0(uf.multiply(beta, uf.sqrt(uf.subtract(1, uf.square(x))))),
            uf.i0(cast(concrete(beta), k.dtype)),
        )

    return _shape_of_size(shape_of_n, _points(M))
