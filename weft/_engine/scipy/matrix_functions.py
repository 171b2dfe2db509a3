"""Matrix decompositions and functions with SciPy's names: Schur and Hessenberg forms, polar factors, roots, Sylvester's equation.

In:   matrices, or stacks of them whose leading dims broadcast.
Laws: functions use the complex Schur form, column by column, with one triangular solve for each column. The Schur form has
      no derivative here; `expm`, `expm_frechet`, `polar`, `qr_multiply`, `eigh_tridiagonal` have derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.api.vmap import vmap
from weft._engine.control.loops import fori_loop
from weft._engine.lax.decompositions import qdwh
from weft._engine.numpy import creation, manipulation as mp, padding, selection, ufuncs as uf
from weft._engine.numpy.products import precise_matmul
from weft._engine.numpy.promote import (
    array_of,
    broadcast_shapes,
    broadcast_to_shape,
    concrete,
    inexact,
    promote_dtypes_inexact,
    value,
)
from weft._engine.ops import linalg as la, matrix_forms
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all
from weft.numpy import linalg

__all__ = [
    "eigh_tridiagonal",
    "funm",
    "hessenberg",
    "polar",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "solve_sylvester",
    "sqrtm",
]


def as_matrix(a: Any) -> Any:
    """Return a matrix, or a list of its rows, as an array."""
    return creation.asarray(a) if isinstance(a, (list, tuple)) else a


def _square(name: str, argument: str, a: Any) -> Any:
    a = concrete(inexact(name, a))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"{name}: {argument} must be a square matrix or a stack of them, got shape {tuple(a.shape)}."
        )
    return a


def _adjoint(a: Any) -> Any:
    return uf.conjugate(mp.swapaxes(a, -1, -2))


def _each(f: Callable, *stacks: Any) -> Any:
    """Map `f` over the matrices of stacks whose leading dims broadcast."""
    lead = broadcast_shapes(*[x.shape[:-2] for x in stacks])
    for _ in lead:
        f = vmap(f)
    return f(*[broadcast_to_shape(x, (*lead, *x.shape[-2:])) for x in stacks])


def _complex(a: Any) -> Any:
    return creation.astype(a, dtypes.to_complex_dtype(a.dtype))


# --- forms


def schur(a, output: str = "real") -> tuple:
    """Return T and a unitary Z with `a == Z @ T @ Z^H`; T is triangular, up to 2 x 2 blocks for conjugate pairs if it is real.

    `output` 'complex' returns a complex triangular T. Raises ValueError for another `output` and for non-square matrices.

    >>> t, z = weft.scipy.linalg.schur(np.array([[0.0, 1.0], [-1.0, 0.0]]), output="complex")
    >>> np.sort(np.diagonal(t).imag).round(3).tolist()
    [-1.0, 1.0]
    """
    if output not in ("real", "complex"):
        raise ValueError(
            f"schur: Expected 'output' to be either 'real' or 'complex', got output={output!r}."
        )
    a = _square("schur", "a", a)
    return tuple(matrix_forms.schur(_complex(a) if output == "complex" else a))


def hessenberg(a, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """Return H, zero below its first subdiagonal, with `a == Q @ H @ Q^H`; with `calc_q` also the unitary Q.

    >>> h, q = weft.scipy.linalg.hessenberg(np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]), calc_q=True)
    >>> bool(wnp.allclose(q @ h @ q.T, np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]), atol=1e-4)), float(h[2, 0])
    (True, 0.0)
    """
    a = _square("hessenberg", "a", a)
    n = a.shape[-1]
    if n < 2:
        return (a, broadcast_to_shape(creation.eye(n, dtype=a.dtype), a.shape)) if calc_q else a
    packed, taus = matrix_forms.hessenberg(a)
    h = creation.triu(packed, -1)
    if not calc_q:
        return h
    inner = matrix_forms.householder_product(packed[..., 1:, :-1], taus)
    pads = [(0, 0)] * (a.ndim - 2) + [(1, 0)] * 2
    corner = np.zeros((n, n), bool)
    corner[0, 0] = True
    return h, selection.where(corner, creation.ones((), a.dtype), padding.pad(inner, pads))


def rsf2csf(T, Z, check_finite: bool = True) -> tuple:  # noqa: N803
    """Return the complex Schur form of a real Schur form `T`, `Z`: rotations remove the subdiagonal from the last row up.

    Raises ValueError for matrices that are not square or have different sizes.

    >>> a = np.array([[0.0, 3.0, 3.0], [0.0, 1.0, 2.0], [2.0, 0.0, 1.0]])
    >>> t, z = weft.scipy.linalg.rsf2csf(*weft.scipy.linalg.schur(a))
    >>> bool(wnp.allclose(z @ t @ z.conj().T, a, atol=1e-4)), float(abs(wnp.tril(t, -1)).max())
    (True, 0.0)
    """
    t, z = (_square("rsf2csf", name, as_matrix(x)) for name, x in (("T", T), ("Z", Z)))
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(
            f"rsf2csf: T and Z must have one size, got shapes {tuple(t.shape)} and {tuple(z.shape)}."
        )
    t, z = (_complex(x) for x in promote_dtypes_inexact(t, z))
    return _each(_rotate, t, z)


def _complex_schur(a: Any) -> tuple:
    """Return the complex Schur form of a matrix.

    For a real matrix it is computed from the real form, so that real eigenvalues have no imaginary part: rounding would put them on either
    side of a function's branch cut.
    """
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        return tuple(matrix_forms.schur(a))
    return _rotate(*(_complex(x) for x in matrix_forms.schur(a)))


def _rotate(t: Any, z: Any) -> tuple:
    n, eps, at = t.shape[-1], np.finfo(t.dtype).eps, np.arange(t.shape[-1])

    def rotate(step, column_pair):
        t, z = column_pair
        m = n - 1 - step
        a, b, c, d = t[m - 1, m - 1], t[m - 1, m], t[m, m - 1], t[m, m]
        half = (a - d) / 2
        root = uf.sqrt(half * half + b * c)
        # an eigenvalue of the block, less d
        mu = half + selection.where((uf.conjugate(half) * root).real < 0, -root, root)
        size = uf.sqrt(uf.abs(mu) ** 2 + uf.abs(c) ** 2)
        needed = uf.abs(c) > eps * (uf.abs(a) + uf.abs(d))
        size = selection.where(needed, size, 1)
        cos, sin = selection.where(needed, mu / size, 1), selection.where(needed, c / size, 0)
        upper, lower = t[m - 1], t[m]
        there = at >= m - 1
        t = t.at[m - 1].set(
            selection.where(there, uf.conjugate(cos) * upper + uf.conjugate(sin) * lower, upper)
        )
        t = t.at[m].set(selection.where(there, cos * lower - sin * upper, lower))
        t = _rotate_columns(t, m, cos, sin, at <= m)
        return t.at[m, m - 1].set(0), _rotate_columns(z, m, cos, sin, at >= 0)

    return fori_loop(0, n - 1, rotate, (t, z))


def _rotate_columns(x: Any, m: Any, cos: Any, sin: Any, rows: Any) -> Any:
    """Return `x` times the adjoint of the rotation of columns m - 1 and m, in the given `rows`."""
    left, right = x[:, m - 1], x[:, m]
    x = x.at[:, m - 1].set(selection.where(rows, cos * left + sin * right, left))
    return x.at[:, m].set(
        selection.where(rows, uf.conjugate(cos) * right - uf.conjugate(sin) * left, right)
    )


# --- factors


def polar(
    a,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple:
    """Return U with orthonormal columns (or rows) and a positive semidefinite P: `a == U @ P`, or `a == P @ U` for `side` 'left'.

    `method` 'qdwh' iterates (`lax.linalg.qdwh`, with `eps` and `max_iterations`) and needs at least as many rows as columns,
    or for 'left' at least as many columns as rows; 'svd' has no restriction. Raises ValueError for another side or
    method, NotImplementedError for shapes that the iteration does not support.

    >>> u, p = weft.scipy.linalg.polar(np.array([[0.0, -2.0], [2.0, 0.0]]))
    >>> bool(wnp.allclose(p, 2 * wnp.eye(2), atol=1e-5))
    True
    """
    a = concrete(inexact("polar", as_matrix(a)))
    if a.ndim < 2:
        raise ValueError(
            f"polar: The input `a` must be at least a 2-D array, got shape {tuple(a.shape)}."
        )
    if side not in ("right", "left"):
        raise ValueError(
            f"polar: The argument `side` must be either 'right' or 'left', got {side!r}."
        )
    if method == "svd":
        u, s, vh = linalg.svd(a, full_matrices=False)
        unitary = precise_matmul(u, vh)
        vectors = _adjoint(vh) if side == "right" else u
        return unitary, precise_matmul(
            vectors * creation.astype(s, a.dtype)[..., None, :], _adjoint(vectors)
        )
    if method != "qdwh":
        raise ValueError(
            f"polar: Unknown polar decomposition method {method!r}. Use 'qdwh' or 'svd'."
        )
    tall = a if side == "right" else _adjoint(a)
    if tall.shape[-2] < tall.shape[-1]:
        raise NotImplementedError(
            f"polar: method='qdwh' takes at least as many rows as columns with side='right' and at most as many with "
            f"side='left', got shape {tuple(a.shape)} with side={side!r}. Use method='svd'."
        )
    u, p = _each(lambda x: qdwh(x, eps=eps, max_iterations=max_iterations)[:2], tall)
    return (u, p) if side == "right" else (_adjoint(u), p)


def qr_multiply(
    a,
    c,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple:
    """Return `c @ Q` (or `Q @ c` for `mode` 'left') and R of `a == Q @ R`; with `pivoting` also the order of columns.

    Q has as many columns as R has rows; with `conjugate` its conjugate is used. A vector `c` is a row, with 'left' a column.
    Raises ValueError for another mode and for shapes that do not fit.

    >>> product, r = weft.scipy.linalg.qr_multiply(np.array([[3.0], [4.0]]), np.array([3.0, 4.0]))
    >>> np.abs(product).round(3).tolist(), np.abs(r).round(3).tolist()
    ([5.0], [[5.0]])
    """
    if mode not in ("right", "left"):
        raise ValueError(f"qr_multiply: mode must be 'right' or 'left', got {mode!r}.")
    a, c = (concrete(x) for x in promote_dtypes_inexact(value(a), value(c)))
    if a.ndim < 2 or c.ndim < 1:
        raise ValueError(
            f"qr_multiply: a must be a matrix and c have a dim, got shapes {tuple(a.shape)} and {tuple(c.shape)}."
        )
    vector = c.ndim == 1
    matrix = c if not vector else c[:, None] if mode == "left" else c[None, :]
    needed, num_rows = (
        (min(a.shape[-2:]), matrix.shape[-2]) if mode == "left" else (a.shape[-2], matrix.shape[-1])
    )
    if needed != num_rows:
        product = "Q @ c" if mode == "left" else "c @ Q"
        raise ValueError(
            f"qr_multiply: Array shapes are not compatible for {product}: a has shape {tuple(a.shape)}, so "
            f"{needed} {'rows' if mode == 'left' else 'columns'} of c are expected, but it has {num_rows}."
        )
    q, *rest = la.qr(a, pivoting=pivoting, full_matrices=False)
    q = uf.conjugate(q) if conjugate else q
    product = precise_matmul(q, matrix) if mode == "left" else precise_matmul(matrix, q)
    return (product[..., 0] if mode == "left" else product[..., 0, :]) if vector else product, *rest


def eigh_tridiagonal(
    d,
    e,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
):
    """Return eigenvalues, ascending, and eigenvectors of the Hermitian matrix with diagonal `d` and superdiagonal `e`.

    `select` 'i' returns the eigenvalues with positions `select_range[0]` to `select_range[1]`, inclusive. It calls `eigh` on
    the dense matrix, to full precision: `tol` and `key`, options of iterative methods, have no effect.
    Raises TypeError for other dtypes than float32 and float64 (or complex), or different ones; ValueError for another
    `select` or a range out of bounds; NotImplementedError for `select` 'v', whose result size depends on the values.

    >>> weft.scipy.linalg.eigh_tridiagonal(np.array([2.0, 2.0]), np.array([1.0]), eigvals_only=True).round(3).tolist()
    [1.0, 3.0]
    """
    d, e = (array_of("eigh_tridiagonal", x) for x in (d, e))
    if d.ndim != 1 or e.shape != (max(d.shape[0] - 1, 0),):
        raise TypeError(
            f"eigh_tridiagonal: d must be a vector and e one that is shorter by one, got shapes {tuple(d.shape)} and "
            f"{tuple(e.shape)}."
        )
    if d.dtype != e.dtype:
        raise TypeError(
            f"eigh_tridiagonal: diagonal and off-diagonal values must have same dtype, got {d.dtype.name} and {e.dtype.name}."
        )
    if d.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            f"eigh_tridiagonal: Only float32 and float64 inputs, and complex ones of them, are supported, got {d.dtype.name}."
        )
    if select not in ("a", "i", "v"):
        raise ValueError(
            f"eigh_tridiagonal: select must have a value in {{'a', 'i', 'v'}}, got {select!r}."
        )
    if select == "v":
        raise NotImplementedError(
            "eigh_tridiagonal(..., select='v') is not implemented. Select by positions, 'i'."
        )
    n = d.shape[0]
    low, high = 0, n - 1
    if select == "i":
        if select_range is None:
            raise ValueError("eigh_tridiagonal: for select='i', select_range must be specified.")
        low, high = (int(x) for x in select_range)
        if not 0 <= low <= high < n:
            raise ValueError(
                f"eigh_tridiagonal: select_range must be positions in order, from 0 up to {n - 1}, got {tuple(select_range)}."
            )
    a = selection.diag(d) + selection.diag(e, 1) + selection.diag(uf.conjugate(e), -1)
    vectors, values = la.eigh(a, symmetrize_input=False)
    values, vectors = values[low : high + 1], vectors[:, low : high + 1]
    return values if eigvals_only else (values, vectors)


# --- functions


def _by_columns(t: Any, diagonal: Any, shift: Callable, right: Callable) -> Any:
    """Compute a triangular matrix X with a known diagonal, column by column.

    The part x of column j above the diagonal solves `(shift(X, j)) x = right(X, j)`; `shift` returns a triangular matrix,
    whose first j rows and columns are used and have no zero on the diagonal.
    """
    at = np.arange(t.shape[-1])

    def column(j, x):
        inside = at < j
        matrix = selection.where(
            inside[:, None] & inside[None, :], shift(x, j), creation.eye(t.shape[-1], dtype=t.dtype)
        )
        part = selection.where(inside, right(x, j), 0)
        solution = la.triangular_solve(matrix, part[:, None], left_side=True)[:, 0]
        return x.at[:, j].add(selection.where(inside, solution, 0))

    return fori_loop(1, t.shape[-1], column, selection.diag(diagonal))


def sqrtm(A, blocksize: int = 1):  # noqa: N803
    """Return the principal square root, complex, of a matrix or each of a stack: `sqrtm(A) @ sqrtm(A) == A`; NaN if there is none.

    A. Björck and S. Hammarling, "A Schur method for the square root of a matrix", Linear Algebra and its Applications 52 (1983).
    Raises NotImplementedError for other values of `blocksize` than 1.

    >>> weft.scipy.linalg.sqrtm(np.array([[4.0, 1.0], [0.0, 9.0]])).real.round(3).tolist()
    [[2.0, 0.20000000298023224], [0.0, 3.0]]
    """
    if blocksize > 1:
        raise NotImplementedError(
            "sqrtm: Blocked version is not implemented yet. Leave blocksize out."
        )
    return _each(_sqrtm, _square("sqrtm", "A", A))


def _sqrtm(a: Any) -> Any:
    t, z = _complex_schur(a)
    roots = uf.sqrt(selection.diagonal(t))
    sums = roots[:, None] + roots[None, :]

    def shift(x, j):
        both = sums[:, j]
        return x + selection.diag(selection.where(both == 0, 1, both) - selection.diagonal(x))

    root = _by_columns(t, roots, shift, lambda x, j: t[:, j])
    root = selection.where(
        (sums == 0) & (root != 0) & ~np.eye(a.shape[-1], dtype=bool), np.nan, root
    )
    return precise_matmul(precise_matmul(z, root), _adjoint(z))


def funm(A, func: Callable, disp: bool = True):  # noqa: N803
    """Return the function `func` of numbers applied to a square matrix, by its eigenvalues; with `disp` False also an error estimate.

    The result is complex. Parlett's recurrence: G. H. Golub and C. F. Van Loan, "Matrix Computations", section 9.1. It loses
    accuracy if eigenvalues nearly coincide. Raises ValueError unless `A` is a square matrix.

    >>> weft.scipy.linalg.funm(np.array([[1.0, 1.0], [0.0, 2.0]]), wnp.square).real.round(3).tolist()
    [[1.0, 3.0], [0.0, 4.0]]
    """
    a = _square("funm", "A", as_matrix(A))
    if a.ndim != 2:
        raise ValueError(f"funm: expected square array_like input, got shape {tuple(a.shape)}.")
    t, z = _complex_schur(a)
    values = selection.diagonal(t)
    gaps = values[:, None] - values[None, :]

    def shift(x, j):
        gap = gaps[:, j]
        return t + selection.diag(selection.where(gap == 0, -1, gap) - values)

    inner = _by_columns(
        t,
        creation.astype(func(values), t.dtype),
        shift,
        lambda x, j: precise_matmul(x, _above(t, j)) - t[:, j] * x[j, j],
    )
    result = precise_matmul(precise_matmul(z, inner), _adjoint(z))
    if disp:
        return result
    eps, above = np.finfo(t.dtype).eps, np.triu(np.ones(t.shape, bool), 1)
    least = uf.minimum(uf.abs(t[0, 0]), selection.where(above, uf.abs(gaps), np.inf).min())
    least = selection.where(least == 0, eps, least)
    error = uf.minimum(1, uf.maximum(eps, eps / least * uf.abs(creation.triu(t, 1)).sum(0).max()))
    return result, selection.where(uf.isfinite(result).all(), error, np.inf)


def _above(t: Any, j: Any) -> Any:
    return selection.where(np.arange(t.shape[-1]) < j, t[:, j], 0)


def solve_sylvester(A, B, C, *, method: str = "schur", tol: float = 1e-8):  # noqa: N803
    """Return the X with `A @ X + X @ B == C`; NaN if an eigenvalue of `A` and an eigenvalue of `B` add up to less than `tol`.

    `method` 'schur' reduces both matrices to triangular form (R. H. Bartels and G. W. Stewart, Communications of the ACM 15,
    1972); 'eigen' diagonalizes them, faster and less accurate. Raises ValueError for another method and for invalid shapes.

    >>> weft.scipy.linalg.solve_sylvester(np.array([[2.0]]), np.array([[3.0]]), np.array([[10.0]])).round(3).tolist()
    [[2.0]]
    """
    if method not in ("schur", "eigen"):
        raise ValueError(
            f"solve_sylvester: Unrecognized method {method!r}. The two valid methods are either 'schur' or 'eigen'."
        )
    a, b, c = (concrete(x) for x in promote_dtypes_inexact(value(A), value(B), value(C)))
    if (
        min(a.ndim, b.ndim, c.ndim) < 2
        or a.shape[-1] != a.shape[-2]
        or b.shape[-1] != b.shape[-2]
        or c.shape[-2:] != (a.shape[-1], b.shape[-1])
    ):
        raise ValueError(
            f"solve_sylvester: Incompatible shapes for Sylvester equation: A: {tuple(a.shape)}, B: {tuple(b.shape)}, "
            f"C: {tuple(c.shape)}. They must be (m, m), (n, n) and (m, n)."
        )
    x = _each(lambda a, b, c: _sylvester(a, b, c, method, tol), *map(_complex, (a, b, c)))
    return x if dtypes.issubdtype(c.dtype, np.complexfloating) else x.real


def _sylvester(a: Any, b: Any, c: Any, method: str, tol: float) -> Any:
    if method == "eigen":
        (left, u), (right, v) = linalg.eig(a), linalg.eig(b)
        sums = left[:, None] + right[None, :]
        y = linalg.solve(u, precise_matmul(c, v)) / selection.where(sums == 0, 1, sums)
        x = linalg.solve(v.T, precise_matmul(u, y).T).T
    else:
        (r, u), (s, v) = matrix_forms.schur(a), matrix_forms.schur(b)
        sums = selection.diagonal(r)[:, None] + selection.diagonal(s)[None, :]
        f = precise_matmul(precise_matmul(_adjoint(u), c), v)

        def column(k, y):
            diagonal = selection.where(sums[:, k] == 0, 1, sums[:, k])
            matrix = r + selection.diag(diagonal - selection.diagonal(r))
            part = f[:, k] - precise_matmul(y, _above(s, k))
            return y.at[:, k].set(la.triangular_solve(matrix, part[:, None], left_side=True)[:, 0])

        y = fori_loop(0, f.shape[1], column, creation.zeros_like(f))
        x = precise_matmul(precise_matmul(u, y), _adjoint(v))
    return selection.where((uf.abs(sums) < tol).any(), np.nan, x)


guard_all(globals())
