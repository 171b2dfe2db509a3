"""Structured matrices: SciPy's constructors of special matrices.

In:   a size, or vectors along the last axis; leading dims are a stack of vectors.
Out:  the matrix, or a stack of matrices. Matrices of a size alone are computed exactly, or in float64, and rounded once.
Laws: a matrix of vectors is a gather, or a sum of gathers, so derivatives, batching and sharding follow from gathers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim, as_size, max_dim
from weft._engine.numpy import creation, manipulation as mp, selection, ufuncs as uf
from weft._engine.numpy.promote import (
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    concrete,
    inexact,
)
from weft._engine.ops import layout
from weft._engine.util import dtypes
from weft._engine.util.errors import OutOfMemoryError
from weft._engine.util.source import guard_all

__all__ = [
    "circulant", "companion", "convolution_matrix", "dft", "fiedler", "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert",
    "invhilbert", "invpascal", "leslie", "pascal", "toeplitz",
]  # fmt: skip


# --- of vectors


def _vector(name: str, argument: str, a: Any) -> Any:
    a = array_of(name, a)
    if a.ndim == 0:
        raise ValueError(f"{name}: {argument} must be at least 1-dimensional, got a scalar.")
    return a


def _stack(*vectors: Any) -> list:
    """Return the vectors broadcast to common leading dims."""
    lead = broadcast_shapes(*[v.shape[:-1] for v in vectors])
    return [broadcast_to_shape(v, (*lead, v.shape[-1])) for v in vectors]


def _empty(rows: int, columns: int, dtype: Any = np.float64) -> np.ndarray:
    """Allocate a matrix before its elements are computed, so that a matrix beyond memory fails at once."""
    try:
        return np.empty((rows, columns), dtype)
    except ValueError:
        raise OutOfMemoryError(
            f"a matrix of shape ({rows}, {columns}) has more bytes than memory has addresses"
        ) from None


def _places(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(rows, SymbolicDim) and not isinstance(columns, SymbolicDim):
        _empty(max(rows, 0), max(columns, 0))
    return layout.index_range(rows, int)[:, None], layout.index_range(columns, int)[None, :]


def toeplitz(c, r: Any = None):
    """The matrix with first column `c` and first row `r` (the conjugate of `c` by default) that is constant along diagonals.

    >>> weft.scipy.linalg.toeplitz(np.array([1, 2]), np.array([1, 5, 6])).tolist()
    [[1, 5, 6], [2, 1, 5]]
    """
    c = mp.atleast_1d(array_of("toeplitz", c))
    c, r = _stack(c, uf.conjugate(c) if r is None else mp.atleast_1d(array_of("toeplitz", r)))
    values = mp.concatenate([mp.flip(c, -1), r[..., 1:]], -1)
    i, j = _places(c.shape[-1], r.shape[-1])
    return values[..., c.shape[-1] - 1 - i + j]


def hankel(c, r: Any = None):
    """The matrix with first column `c` and last row `r` (default zeros), constant along antidiagonals; the corner is taken from `c`.

    >>> weft.scipy.linalg.hankel(np.array([1, 2]), np.array([9, 5, 6])).tolist()
    [[1, 2, 5], [2, 5, 6]]
    """
    c = _vector("hankel", "c", c)
    c, r = _stack(c, creation.zeros_like(c) if r is None else _vector("hankel", "r", r))
    i, j = _places(c.shape[-1], r.shape[-1])
    return mp.concatenate([c, r[..., 1:]], -1)[..., i + j]


def circulant(c):
    """The matrix with first column `c` whose columns are rotations of it, each down by one more.

    >>> weft.scipy.linalg.circulant(np.array([1, 2, 3])).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    c = mp.atleast_1d(array_of("circulant", c))
    i, j = _places(c.shape[-1], c.shape[-1])
    return c[..., (i - j) % max_dim(c.shape[-1], 1)]


def companion(a):
    """The matrix whose characteristic polynomial has the coefficients `a`, the highest first, divided by `a[0]`.

    Raises ValueError for fewer than two coefficients.

    >>> weft.scipy.linalg.companion(np.array([1.0, -3.0, 2.0])).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    a = mp.atleast_1d(concrete(inexact("companion", a)))
    n = a.shape[-1] - 1
    if n < 1:
        raise ValueError(
            f"companion: The length of `a` along the last axis must be at least 2; got shape {tuple(a.shape)}."
        )
    first = -a[..., 1:] / a[..., :1]
    below = broadcast_to_shape(creation.eye(n - 1, n, dtype=a.dtype), (*a.shape[:-1], n - 1, n))
    return mp.concatenate([first[..., None, :], below], -2)


def fiedler(a):
    """The matrix of the distances `abs(a[i] - a[j])`.

    >>> weft.scipy.linalg.fiedler(np.array([1, 4, 6])).tolist()
    [[0, 3, 5], [3, 0, 2], [5, 2, 0]]
    """
    a = mp.atleast_1d(array_of("fiedler", a))
    return uf.abs(a[..., :, None] - a[..., None, :])


def fiedler_companion(a):
    """A matrix with five diagonals and the characteristic polynomial of `companion(a)`.

    M. Fiedler, "A note on companion matrices", Linear Algebra and its Applications 372 (2003). Raises ValueError without coefficients.

    >>> weft.scipy.linalg.fiedler_companion(np.array([1.0, -6.0, 11.0, -6.0])).tolist()
    [[6.0, -11.0, 1.0], [1.0, 0.0, 0.0], [0.0, 6.0, 0.0]]
    """
    a = mp.atleast_1d(concrete(inexact("fiedler_companion", a)))
    n = a.shape[-1] - 1
    if n < 0:
        raise ValueError(
            f"fiedler_companion: requires the last axis of `a` to have nonzero length, got shape {tuple(a.shape)}."
        )
    if n == 0:
        return creation.zeros((*a.shape[:-1], 0, 0), a.dtype)
    coefficient, ones = np.zeros((n, n), np.int32), np.zeros((n, n))
    coefficient[0, 0] = 1
    ones[1:2, 0] = 1
    for k in range(n - 1):  # rows and columns alternate
        across = lambda width, k=k: (k, k + width) if k % 2 == 0 else (k + width, k)
        coefficient[across(1)] = k + 2
        if k + 2 < n:
            ones[across(2)] = 1
    return selection.where(
        coefficient > 0, (-a / a[..., :1])[..., coefficient], creation.asarray(ones, a.dtype)
    )


def leslie(f, s):
    """The matrix of a population by age: the birth rates `f` in the first row, the survival rates `s` below the diagonal.

    Raises ValueError unless `f` has at least two entries and `s` one less.

    >>> weft.scipy.linalg.leslie(np.array([0.5, 2.0, 1.0]), np.array([0.25, 0.75])).tolist()
    [[0.5, 2.0, 1.0], [0.25, 0.0, 0.0], [0.0, 0.75, 0.0]]
    """
    f, s = (mp.atleast_1d(array_of("leslie", x)) for x in (f, s))
    n = f.shape[-1]
    if n < 2:
        raise ValueError(
            f"leslie: The length of f along the last axis must be at least 2; got shape {tuple(f.shape)}."
        )
    if s.shape[-1] != n - 1:
        raise ValueError(
            f"leslie: Incorrect lengths for f and s: s must have one entry less along the last axis than f; got f shape "
            f"{tuple(f.shape)} and s shape {tuple(s.shape)}."
        )
    f, s = _stack(f, s)
    below = selection.where(
        np.eye(n - 1, n, dtype=bool), s[..., :, None], creation.zeros((), s.dtype)
    )
    return mp.concatenate([f[..., None, :], below], -2)


def convolution_matrix(a, n: int, mode: str = "full"):
    """The matrix A with `n` columns and `A @ v == convolve(a, v, mode)`; `mode` is 'full', 'same' or 'valid'.

    Raises ValueError for an empty `a`, a size below one, another mode.

    >>> weft.scipy.linalg.convolution_matrix(np.array([1, 2]), 2).tolist()
    [[1, 0], [2, 1], [0, 2]]
    """
    a, n = _vector("convolution_matrix", "a", a), operator.index(n)
    m = a.shape[-1]
    if n <= 0:
        raise ValueError(f"convolution_matrix: n must be a positive integer; got {n}.")
    if m == 0:
        raise ValueError(
            f"convolution_matrix: len(a) must be at least 1; got shape {tuple(a.shape)}."
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"convolution_matrix: mode must be one of 'full', 'valid', 'same'; got {mode!r}."
        )
    short = min(m, n) - 1
    above, below = {
        "full": (0, 0),
        "same": (short // 2, short - short // 2),
        "valid": (short, short),
    }[mode]
    i, j = _places(m + n - 1 - above - below, n)
    at = i + above - j
    return selection.where(
        (at >= 0) & (at < m), a[..., np.clip(at, 0, m - 1)], creation.zeros((), a.dtype)
    )


# --- of a size


def _real(matrix: np.ndarray) -> Any:
    return creation.asarray(matrix, dtypes.canonicalize_dtype(np.float64))


def _round(n: int, element: Callable[[int, int], int]) -> np.ndarray:
    """The n × n matrix of the integers `element(i, j)` of any size, as floats, the largest as infinities."""
    out = _empty(n, n)
    for i in range(n):
        for j in range(n):
            k = element(i, j)
            try:
                out[i, j] = k
            except OverflowError:
                out[i, j] = math.copysign(math.inf, k)
    return out


def hilbert(n: int):
    """The matrix with the elements 1 / (i + j + 1), which is hard to invert.

    >>> weft.scipy.linalg.hilbert(2).round(3).tolist()
    [[1.0, 0.5], [0.5, 0.3330000042915344]]
    """
    i, j = _places(as_size(n), as_size(n))
    return _real(1 / (i + j + 1))


def invhilbert(n: int):
    """The inverse of `hilbert(n)`, whose elements are integers; each is rounded once.

    >>> weft.scipy.linalg.invhilbert(2).tolist()
    [[4.0, -6.0], [-6.0, 12.0]]
    """
    n = max(operator.index(n), 0)

    def element(i: int, j: int) -> int:
        size = (
            (i + j + 1)
            * math.comb(n + i, n - j - 1)
            * math.comb(n + j, n - i - 1)
            * math.comb(i + j, i) ** 2
        )
        return -size if (i + j) % 2 else size

    return _real(_round(n, element))


def _binomials(n: int) -> np.ndarray:
    """The lower triangle of binomial coefficients i over j."""
    return _round(n, math.comb)


def _pascal_kind(name: str, kind: str | None) -> str:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(
            f"{name}: Expected kind to be one of: ['symmetric', 'lower', 'upper']; got {kind}"
        )
    return kind or "symmetric"


def pascal(n: int, kind: str | None = None):
    """Pascal's triangle as a matrix: 'symmetric' (the default), with its rows along antidiagonals, or a 'lower' or 'upper' triangle.

    >>> weft.scipy.linalg.pascal(3).tolist(), weft.scipy.linalg.pascal(2, "lower").tolist()
    ([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]], [[1.0, 0.0], [1.0, 1.0]])
    """
    n, kind = max(operator.index(n), 0), _pascal_kind("pascal", kind)
    if kind == "symmetric":
        return _real(_round(n, lambda i, j: math.comb(i + j, i)))
    return _real(_binomials(n) if kind == "lower" else _binomials(n).T)


def invpascal(n: int, kind: str | None = None):
    """The inverse of `pascal(n, kind)`, whose elements are integers.

    >>> weft.scipy.linalg.invpascal(2).tolist()
    [[2.0, -1.0], [-1.0, 1.0]]
    """
    n, kind = max(operator.index(n), 0), _pascal_kind("invpascal", kind)
    lower = _binomials(n)
    i, j = _places(n, n)
    sign = np.where((i + j) % 2, -1.0, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        # (+ 0.0: zeros without a sign)
        return _real(
            sign * {"lower": lower, "upper": lower.T, "symmetric": lower.T @ lower}[kind] + 0.0
        )


def hadamard(n: int, dtype: Any = int):
    """Sylvester's matrix of 1 and -1 with orthogonal rows; ValueError unless `n` is a power of 2.

    >>> weft.scipy.linalg.hadamard(2).tolist()
    [[1, 1], [1, -1]]
    """
    n = operator.index(n)
    if n < 1 or n & (n - 1):
        raise ValueError(f"hadamard: n must be a positive power of 2; got {n}.")
    matrix = _empty(n, n, np.int8)
    matrix[:1, :1], size = 1, 1
    while size < n:
        block = matrix[:size, :size]
        (
            matrix[:size, size : 2 * size],
            matrix[size : 2 * size, :size],
            matrix[size : 2 * size, size : 2 * size],
        ) = block, block, -block
        size *= 2
    return creation.asarray(matrix, dtypes.canonicalize_dtype(dtype))


def helmert(n: int, full: bool = False):
    """Helmert's orthonormal contrasts, n - 1 rows that sum to zero; with `full`, below a row of equal elements.

    >>> weft.scipy.linalg.helmert(2, full=True).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377], [0.7070000171661377, -0.7070000171661377]]
    """
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"helmert: n must be a positive integer; got {n}.")
    i, j = _places(n, n)
    k = np.maximum(i, 1)
    matrix = np.where(
        i == 0,
        1 / np.sqrt(n),
        np.where(j < i, 1.0, np.where(j == i, -i, 0.0)) / np.sqrt(k * (k + 1.0)),
    )
    return _real(matrix if full else matrix[1:])


def dft(n: int, scale: str | None = None, *, dtype: Any = None):
    """The matrix of the discrete Fourier transform: `dft(n) @ x == fft(x)`; `scale` 'n' or 'sqrtn' divides it by that.

    Raises ValueError for another scale, and for a dtype that is not complex.

    >>> weft.scipy.linalg.dft(2).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (-1+0j)]]
    """
    n = max(operator.index(n), 0)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"dft: scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    kind = dtypes.canonicalize_dtype(np.complex128 if dtype is None else dtype)
    if not dtypes.issubdtype(kind, np.complexfloating):
        raise ValueError(f"dft: dtype must be a complex floating-point type; got {kind.name}.")
    i, j = _places(n, n)
    roots = np.array([_root(k, n) for k in range(n)], np.complex128)
    return creation.asarray(
        roots[i * j % max(n, 1)] / {None: 1, "n": max(n, 1), "sqrtn": math.sqrt(max(n, 1))}[scale],
        kind,
    )


def _root(k: int, n: int) -> complex:
    """exp(-2 pi i k / n), without the error of a large angle, and exact at multiples of a quarter turn."""
    quarter, remainder = divmod(4 * k, n)
    angle = math.pi / 2 * remainder / n
    return complex(math.cos(angle), -math.sin(angle)) * (1, -1j, -1, 1j)[quarter] + 0


guard_all(globals())
