"""Linear algebra with NumPy's names: factorizations, solutions, norms, determinants."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, NamedTuple

import numpy as np

from weft._engine.control.cond import cond as cond_of
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ir.symbolic import max_dim
from weft._engine.numpy import (
    creation,
    manipulation as mp,
    products,
    promote,
    reductions as rd,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.products import matmul, outer, precise_matmul, tensordot, vecdot
from weft._engine.ops import layout, linalg as la, matrix_forms
from weft._engine.ops.arithmetic import stop_gradient
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError
from weft._engine.util.messages.quantities import quantity

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    __module__ = "weft.numpy.linalg"

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, and right singular vectors as rows."""

    __module__ = "weft.numpy.linalg"

    U: Any
    S: Any
    Vh: Any


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    __module__ = "weft.numpy.linalg"

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    __module__ = "weft.numpy.linalg"

    eigenvalues: Any
    eigenvectors: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    __module__ = "weft.numpy.linalg"

    sign: Any
    logabsdet: Any


def _matrix(api: str, a, square: bool = False):
    a = promote.concrete(promote.inexact(api, a))
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ShapeError(
            f"linalg.{api} takes {'square ' if square else ''}matrices: shape [..., {'n, n' if square else 'm, n'}], "
            f"got {tuple(a.shape)}."
        )
    return a


def _adjoint(a):
    return uf.conjugate(mp.matrix_transpose(a))


def _eps(dtype) -> float:
    return float(dtypes.finfo(dtypes.to_real_dtype(dtype)).eps)


# ---- factorizations


def cholesky(a, *, upper: bool = False, symmetrize_input: bool = True):
    """Return the lower triangular L with L @ L.conj().T == a (or its adjoint, if `upper`).

    The result is NaN unless `a` is positive definite.

    Without `symmetrize_input` only the lower triangle is read, even with `upper`.
    """
    lower = la.cholesky(_matrix("cholesky", a, square=True), symmetrize_input=symmetrize_input)
    return _adjoint(lower) if upper else lower


def qr(a, mode: str = "reduced"):
    """Return orthonormal Q and upper triangular R with Q @ R == a.

    `mode` is 'reduced', 'complete', 'r' for R alone, or 'raw': the transpose of R with the
    reflectors of Q below its diagonal, and their scalar factors (`weft.lax.linalg.ormqr` multiplies
    by such a Q).
    """
    if mode not in ("reduced", "r", "full", "complete", "raw"):
        raise ValueError(
            f"Unsupported QR decomposition mode {mode!r}; use 'reduced', 'complete', 'r' or 'raw'."
        )
    if mode == "raw":
        packed, taus = matrix_forms.geqrf(_matrix("qr", a))
        return QRResult(mp.matrix_transpose(packed), taus)
    q, r = la.qr(_matrix("qr", a), full_matrices=mode in ("full", "complete"))
    return r if mode == "r" else QRResult(q, r)


def svd(
    a,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index=None,
) -> Any:
    """Return U, S, Vh with `(U * S) @ Vh == a` for the reduced form; only S unless `compute_uv`.

    `subset_by_index` is a pair of numbers: singular values from the first number on, before the
    second one, in descending order. Raise ValueError if it is combined with `full_matrices`.
    """
    a = _matrix("svd", a)
    if subset_by_index is not None and full_matrices:
        raise ValueError("linalg.svd: full_matrices and subset_by_index cannot both be set.")
    if hermitian and subset_by_index is not None:
        raise NotImplementedError(
            "linalg.svd: subset_by_index of a hermitian matrix is not supported; slice the result instead."
        )
    if hermitian:
        return _hermitian_svd(a, compute_uv)
    out = la.svd(
        a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index
    )
    return SVDResult(*out) if compute_uv else out


def _hermitian_svd(a, compute_uv: bool):
    vectors, values = la.eigh(a)
    size = uf.abs(values)
    order = mp.flip(_argsort(size), -1)
    s = selection.take_along_axis(size, order, -1)
    if not compute_uv:
        return s
    v = selection.take_along_axis(vectors, order[..., None, :], -1)
    sign = selection.take_along_axis(uf.sign(values), order, -1)
    u = uf.multiply(v, mp.expand_dims(selection.where(sign == 0, 1, sign), -2))
    return SVDResult(u, s, _adjoint(v))


def _argsort(x):
    from weft._engine.numpy.sorting import argsort

    return argsort(x)


def svdvals(x, /):
    """Return singular values in descending order."""
    return svd(x, compute_uv=False)


def eigh(a, UPLO: str | None = None, symmetrize_input: bool = True):
    """Return eigenvalues, ascending, and eigenvectors of a symmetric or Hermitian matrix."""
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L' or 'U', got {UPLO!r}.")
    vectors, values = la.eigh(
        _matrix("eigh", a, square=True), lower=UPLO != "U", symmetrize_input=symmetrize_input
    )
    return EighResult(values, vectors)


def eigvalsh(a, UPLO: str | None = "L", *, symmetrize_input: bool = True):
    """Return the eigenvalues of a symmetric or Hermitian matrix, ascending."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a):
    """Return complex eigenvalues and right eigenvectors of a square matrix."""
    values, vectors = la.eig(_matrix("eig", a, square=True), compute_left_eigenvectors=False)
    return EigResult(values, vectors)


def eigvals(a):
    """Return complex eigenvalues of a square matrix."""
    return la.eig(
        _matrix("eigvals", a, square=True),
        compute_left_eigenvectors=False,
        compute_right_eigenvectors=False,
    )[0]


# ---- determinants and solutions


def slogdet(a, *, method: str | None = None):
    """Return the sign and the logarithm of the absolute value of determinants."""
    if method not in (None, "lu", "qr"):
        raise ValueError(f"linalg.slogdet: method must be None, 'lu' or 'qr', got {method!r}.")
    a = _matrix("slogdet", a, square=True)
    if method == "qr":
        q, r = la.qr(a)
        diagonal_ = selection.diagonal(r, 0, -2, -1)
        sign = uf.multiply(stop_gradient(slogdet(q).sign), rd.prod(uf.sign(diagonal_), -1))
        return SlogdetResult(sign, rd.sum(uf.log(uf.abs(diagonal_)), -1))
    packed, pivots, _ = la.lu(a)
    diagonal_ = selection.diagonal(packed, 0, -2, -1)
    sign = uf.multiply(_parity(pivots, a.dtype), rd.prod(uf.sign(diagonal_), -1))
    return SlogdetResult(sign, rd.sum(uf.log(uf.abs(diagonal_)), -1))


def _parity(pivots, dtype):
    """Return 1 if the number of row exchanges is even, else -1."""
    n = pivots.shape[-1]
    moved = rd.sum(uf.not_equal(pivots, layout.index_range(n, pivots.dtype)), -1)
    return creation.astype(uf.subtract(1, uf.multiply(uf.remainder(moved, 2), 2)), dtype)


def det(a):
    """Return the determinants of square matrices.

    >>> float(det(wnp.array([[1., 2.], [3., 4.]])))
    -2.0
    """
    a = _matrix("det", a, square=True)
    n = a.shape[-1]
    at = lambda i, j: a[..., i, j]
    minor = lambda i, j, k, l: uf.subtract(
        uf.multiply(at(i, k), at(j, l)), uf.multiply(at(i, l), at(j, k))
    )
    if n == 2:
        return minor(0, 1, 0, 1)
    if n == 3:
        terms = [
            uf.multiply(at(0, c), minor(1, 2, *[k for k in range(3) if k != c])) for c in range(3)
        ]
        return uf.add(uf.subtract(terms[0], terms[1]), terms[2])
    return _det(a)


def _lu_det(a):
    packed, pivots, _ = la.lu(a)
    return uf.multiply(_parity(pivots, a.dtype), rd.prod(selection.diagonal(packed, 0, -2, -1), -1))


_det = custom_jvp(_lu_det)


@_det.defjvp
def _det_jvp(primals, tangents):
    (a,), (t,) = primals, tangents
    return _det(a), rd.sum(uf.multiply(mp.matrix_transpose(_adjugate(a)), t), (-2, -1))


def _adjugate(a):
    """Return adjugate matrices, from the inverse unless a matrix is singular or nearly so."""
    packed, _, _ = la.lu(a)
    pivots = uf.abs(selection.diagonal(packed, 0, -2, -1))
    n = a.shape[-1]
    regular = uf.greater(rd.min(pivots, -1), uf.multiply(rd.max(pivots, -1), n * _eps(a.dtype)))[
        ..., None, None
    ]
    safe = selection.where(regular, a, creation.eye(n, dtype=a.dtype))
    by_inverse = uf.multiply(_lu_det(safe)[..., None, None], inv(safe))
    return cond_of(
        rd.all(regular),
        lambda: by_inverse,
        lambda: selection.where(regular, by_inverse, _svd_adjugate(a)),
    )


def _svd_adjugate(a):
    """Return the adjugate by singular values, which may be 0."""
    u, s, vh = la.svd(a)
    n = a.shape[-1]
    others = rd.prod(
        selection.where(creation.eye(n, dtype=bool), creation.ones((), s.dtype), s[..., None, :]),
        -1,
    )
    phase = uf.multiply(_lu_det(u), _lu_det(vh))[..., None]
    return precise_matmul(
        uf.multiply(_adjoint(vh), uf.multiply(phase, others)[..., None, :]), _adjoint(u)
    )


def solve(a, b):
    """Return the x with `a @ x == b`.

    A one-dimensional `b` is a vector, others are (stacks of) matrices.

    `a` has shape (..., n, n); leading dims broadcast, and the dtype is floating or complex.
    Singular matrices give infinities or NaN.
    Raises ValueError for shapes that do not fit.

    >>> solve(wnp.array([[2., 0.], [0., 4.]]), wnp.array([2., 2.]))
    Array([1. , 0.5], dtype=float32)
    """
    a, b = [
        promote.concrete(x)
        for x in promote.promote_dtypes_inexact(promote.value(a), promote.value(b))
    ]
    a = _matrix("solve", a, square=True)
    if not b.ndim or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(
            f"linalg.solve: a has shape {tuple(a.shape)}, b {tuple(b.shape)}; their rows must be equal in number."
        )
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    lead = promote.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    packed, _, order = la.lu(a)
    packed = promote.broadcast_to_shape(packed, (*lead, *a.shape[-2:]))
    order = promote.broadcast_to_shape(order, (*lead, a.shape[-1]))
    b = selection.take_along_axis(
        promote.broadcast_to_shape(b, (*lead, *b.shape[-2:])), order[..., None], -2, mode="clip"
    )
    x = la.triangular_solve(packed, b, left_side=True, lower=True, unit_diagonal=True)
    x = la.triangular_solve(packed, x, left_side=True, lower=False)
    return x[..., 0] if vector else x


def inv(a):
    """Return inverses of square matrices."""
    a = _matrix("inv", a, square=True)
    return solve(
        a, promote.broadcast_to_shape(creation.eye(a.shape[-1], dtype=a.dtype), tuple(a.shape))
    )


def pinv(a, rtol=None, hermitian: bool = False, *, rcond=None):
    """Return Moore-Penrose inverses.

    Singular values below `rtol` (also called `rcond`) times the largest count as zero.

    Raises ValueError if both names are given.
    """
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified.")
    a = _matrix("pinv", a)
    rtol = rcond if rtol is None else rtol
    return _pinv(
        a, 10.0 * max_dim(*a.shape[-2:]) * _eps(a.dtype) if rtol is None else rtol, hermitian
    )


def _svd_pinv(a, rtol, hermitian):
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    cutoff = uf.multiply(mp.expand_dims(rtol, -1), s[..., :1])
    s = selection.where(uf.greater(s, cutoff), s, np.inf)
    return precise_matmul(
        _adjoint(vh), uf.divide(_adjoint(u), creation.astype(s, a.dtype)[..., None])
    )


_pinv = custom_jvp(_svd_pinv, nondiff_argnums=(2,))


@_pinv.defjvp
def _pinv_jvp(hermitian, primals, tangents):
    """Return the derivative of a pseudoinverse of constant rank.

    It needs no derivatives of singular vectors.

    Singular vectors of equal singular values have no derivative.

    G. H. Golub and V. Pereyra, "The Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate",
    SIAM Journal on Numerical Analysis 10 (1973).
    """
    (a, rtol), (t, _) = primals, tangents
    p = _pinv(a, rtol, hermitian)
    if hermitian:  # the nearest Hermitian matrix
        a, t = (uf.divide(uf.add(x, _adjoint(x)), 2) for x in (a, t))
    is_wide = a.shape[-2] < a.shape[-1]
    slope = _adjoint(_pinv_slope(*map(_adjoint, (a, t, p)))) if is_wide else _pinv_slope(a, t, p)
    return p, slope


def _pinv_slope(a, t, p):
    """Return the derivative of `p`, the pseudoinverse of `a`, for the tangent `t` of `a`.

    The order of the products suits more rows than columns.
    """
    th, ph = _adjoint(t), _adjoint(p)
    rows = precise_matmul(th, ph)
    along = uf.add(
        uf.subtract(rows, precise_matmul(p, precise_matmul(a, rows))),
        uf.negative(precise_matmul(p, t)),
    )
    return uf.add(
        precise_matmul(along, p),
        precise_matmul(
            precise_matmul(p, ph), uf.subtract(th, precise_matmul(precise_matmul(th, a), p))
        ),
    )


def lstsq(a, b, rcond=None, *, numpy_resid: bool = False):
    """Return the least-squares solution of a @ x = b.

    The result is the x that minimizes |b - a @ x|, the squared residuals, the rank of `a` and its singular values.
    """
    a, b = [
        promote.concrete(x)
        for x in promote.promote_dtypes_inexact(promote.value(a), promote.value(b))
    ]
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"linalg.lstsq takes a matrix, and a vector or matrix of as many rows, got {tuple(a.shape)}, {tuple(b.shape)}."
        )
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    m, n = a.shape
    rcond = _eps(a.dtype) * max_dim(m, n) if rcond is None else rcond
    u, s, vh = svd(a, full_matrices=False)
    keep = uf.logical_and(uf.greater(s, 0), uf.greater_equal(s, uf.multiply(rcond, s[:1])))
    rank = rd.sum(keep)
    inverse = selection.where(keep, uf.divide(1, selection.where(keep, s, 1)), 0)
    x = precise_matmul(
        _adjoint(vh),
        uf.multiply(creation.astype(inverse, a.dtype)[:, None], precise_matmul(_adjoint(u), b)),
    )
    residual = uf.subtract(b, precise_matmul(a, x))
    residuals = rd.sum(uf.real(uf.multiply(residual, uf.conjugate(residual))), 0)
    if numpy_resid:
        residuals = (
            residuals if int(rank) == n < m else creation.asarray(np.zeros(0, residuals.dtype))
        )
    return x[:, 0] if vector else x, residuals, rank, s


def matrix_rank(M, rtol=None, *, hermitian: bool = False, tol=None):
    """Return the number of singular values above `rtol` (also called `tol`) times the largest.

    With `hermitian` they are computed from the eigenvalues.

    >>> int(matrix_rank(wnp.ones((3, 3)), hermitian=True))
    1
    """
    M = promote.concrete(promote.inexact("matrix_rank", M))
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    if M.ndim < 2:
        return creation.astype(rd.any(uf.not_equal(M, 0)), dtypes.default_int_dtype())
    s = uf.abs(eigvalsh(M)) if hermitian else svdvals(M)
    rtol = tol if rtol is None else rtol
    rtol = max_dim(*M.shape[-2:]) * _eps(M.dtype) if rtol is None else rtol
    return rd.sum(
        uf.greater(
            s, uf.multiply(mp.expand_dims(rtol, -1), rd.max(s, -1, keepdims=True, initial=0))
        ),
        -1,
    )


def matrix_power(a, n: int):
    """Return a power of `a` by repeated squaring; negative powers are powers of the inverse."""
    a = promote.array_of("matrix_power", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TypeError(f"linalg.matrix_power takes square matrices, got shape {tuple(a.shape)}.")
    n = operator.index(n)
    if n == 0:
        return promote.broadcast_to_shape(creation.eye(a.shape[-1], dtype=a.dtype), tuple(a.shape))
    a, n = (inv(a), -n) if n < 0 else (a, n)
    result = None
    while n:
        if n & 1:
            result = a if result is None else matmul(result, a)
        n >>= 1
        a = matmul(a, a) if n else a
    return result


# ---- norms


def _size(x):
    """Return squared absolute values, as real numbers."""
    return (
        uf.real(uf.multiply(x, uf.conjugate(x)))
        if dtypes.issubdtype(x.dtype, np.complexfloating)
        else uf.square(x)
    )


def vector_norm(x, /, *, axis=None, keepdims: bool = False, ord=2):  # noqa: A002
    """Return the norm of order `ord` of vectors along `axis`, or of all elements as one vector."""
    x = promote.concrete(promote.inexact("vector_norm", x))
    if ord is None or (not isinstance(ord, str) and ord == 2):
        return uf.sqrt(rd.sum(_size(x), axis, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order {ord!r} for vectors.")
    size = uf.abs(x)
    if ord == math.inf:
        return rd.max(size, axis, keepdims=keepdims, initial=0)
    if ord == -math.inf:
        return rd.min(size, axis, keepdims=keepdims, initial=math.inf)
    if ord == 0:
        return rd.sum(uf.not_equal(x, 0), axis, dtype=size.dtype, keepdims=keepdims)
    if ord == 1:
        return rd.sum(size, axis, keepdims=keepdims)
    return uf.power(rd.sum(uf.power(size, ord), axis, keepdims=keepdims), 1 / ord)


def _matrix_norm(x, order, axes: tuple[int, int], keepdims: bool):
    row, column = [promote.canonical_axis(d, x.ndim, "linalg.norm") for d in axes]
    if row == column:
        raise ValueError(f"linalg.norm: duplicate axes in {axes}.")
    if order in (None, "fro", "f"):
        return uf.sqrt(rd.sum(_size(x), (row, column), keepdims=keepdims))
    if order in (1, -1, math.inf, -math.inf):
        inner, outer_ = (row, column) if abs(order) == 1 else (column, row)
        sums = rd.sum(uf.abs(x), inner, keepdims=True)
        result = (
            rd.max(sums, outer_, keepdims=True, initial=0)
            if order > 0
            else rd.min(sums, outer_, keepdims=True)
        )
    elif order in (2, -2, "nuc"):
        s = svd(mp.moveaxis(x, (row, column), (-2, -1)), compute_uv=False)
        largest = functools.partial(rd.max, initial=0)
        result = mp.expand_dims(
            {2: largest, -2: rd.min, "nuc": rd.sum}[order](s, -1),
            (row, column) if row < column else (column, row),
        )
    else:
        raise ValueError(f"Invalid order {order!r} for matrix norm.")
    return result if keepdims else mp.squeeze(result, (row, column))


def matrix_norm(x, /, *, keepdims: bool = False, ord="fro"):  # noqa: A002
    """Return the norm of matrices in the last two dims: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""
    return _matrix_norm(_matrix("matrix_norm", x), ord, (-2, -1), keepdims)


def norm(x, ord=None, axis=None, keepdims: bool = False):  # noqa: A002
    """Return the norm of a vector or a matrix, depending on the number of axes.

    >>> float(norm(wnp.array([3., 4.])))
    5.0
    """
    x = promote.concrete(promote.inexact("norm", x))
    if axis is None:
        if ord is None:
            return vector_norm(x, keepdims=keepdims)
        if x.ndim not in (1, 2):
            raise ValueError(
                f"linalg.norm: improper number of dims ({x.ndim}) for order {ord!r}; give axis."
            )
        axis = tuple(range(x.ndim))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ValueError(f"linalg.norm takes one axis (vectors) or two (matrices), got {axes}.")
    return _matrix_norm(x, ord, (axes[0], axes[1]), keepdims)


def cond(x, p=None):
    """Return the condition number of a matrix.

    For order 2 it is a ratio of singular values, else the norm times the norm of the inverse.
    """
    x = _matrix("cond", x)
    if p in (None, 2, -2):
        s = svdvals(x)
        large, small = s[..., 0], s[..., -1]
        return uf.divide(small, large) if p == -2 else uf.divide(large, small)
    x = _matrix("cond", x, square=True)
    return uf.multiply(
        _matrix_norm(x, p, (-2, -1), False), _matrix_norm(inv(x), p, (-2, -1), False)
    )


# ---- products and parts


def multi_dot(arrays, *, precision=None):
    """Return the product of several matrices in the cheapest order.

    The first and last may be vectors.
    """
    arrays = [promote.array_of("multi_dot", a) for a in arrays]
    if len(arrays) < 2:
        raise ValueError(f"multi_dot takes at least two arrays, got {len(arrays)}.")
    if any(a.ndim != 2 for a in arrays[1:-1]) or any(
        a.ndim not in (1, 2) for a in (arrays[0], arrays[-1])
    ):
        raise ValueError(
            "multi_dot takes matrices; only the first and last array may be one-dimensional."
        )
    letters = [(2 * i, 2 * i + 2) for i in range(len(arrays))]
    terms = [[chr(ord("a") + k // 2) for k in pair] for pair in letters]
    terms[0] = terms[0][1:] if arrays[0].ndim == 1 else terms[0]
    terms[-1] = terms[-1][:1] if arrays[-1].ndim == 1 else terms[-1]
    ends = (terms[0][:1] if arrays[0].ndim == 2 else []) + (
        terms[-1][1:] if arrays[-1].ndim == 2 else []
    )
    text = ",".join("".join(t) for t in terms) + "->" + "".join(ends)
    return products.einsum(text, *arrays, optimize="optimal", precision=precision)


def matrix_transpose(x, /):
    """Return `x` with its last two dims exchanged."""
    return mp.matrix_transpose(x)


def cross(x1, x2, /, *, axis: int = -1):
    """Return the cross product of 3-vectors along `axis`."""
    return products.cross(x1, x2, axis=axis)


def trace(x, /, *, offset: int = 0, dtype=None):
    """Return the sums of the diagonals of matrices in the last two dims."""
    return selection.trace(x, offset, -2, -1, dtype)


def diagonal(x, /, *, offset: int = 0):
    """Return the diagonals of matrices in the last two dims."""
    return selection.diagonal(x, offset, -2, -1)


def tensorinv(a, ind: int = 2):
    """Return the inverse of `a` as a map from its last dims to its first `ind` dims."""
    a = promote.array_of("tensorinv", a)
    if ind <= 0:
        raise ValueError(f"linalg.tensorinv: ind must be positive, got {ind}.")
    rows, columns = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    if math.prod(rows) != math.prod(columns):
        raise ValueError(
            f"linalg.tensorinv: the first {quantity(ind, 'dim')} and the others of {tuple(a.shape)} must have equal products."
        )
    return mp.reshape(inv(mp.reshape(a, (math.prod(rows), -1))), (*columns, *rows))


def tensorsolve(a, b, axes=None):
    """Return the x with `tensordot(a, x, x.ndim) == b`."""
    a, b = promote.array_of("tensorsolve", a), promote.array_of("tensorsolve", b)
    if axes is not None:
        axes = [promote.canonical_axis(axis, a.ndim, "tensorsolve") for axis in axes]
        a = mp.moveaxis(a, axes, range(a.ndim - len(axes), a.ndim))
    shape = tuple(a.shape[b.ndim :])
    if math.prod(shape) != b.size:
        raise ValueError(
            f"linalg.tensorsolve: a {tuple(a.shape)} is not square over the dims of b {tuple(b.shape)}."
        )
    return mp.reshape(solve(mp.reshape(a, (b.size, -1)), mp.ravel(b)), shape)
