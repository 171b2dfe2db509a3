"""Linear algebra with SciPy's names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft._engine.api.autodiff import jvp
from weft._engine.control.cond import cond
from weft._engine.control.scan import scan
from weft._engine.ir.symbolic import min_dim
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
from weft._engine.ops import layout, linalg as la
from weft._engine.scipy.matrix_functions import (
    as_matrix,
    eigh_tridiagonal,
    funm,
    hessenberg,
    polar,
    qr_multiply,
    rsf2csf,
    schur,
    solve_sylvester,
    sqrtm,
)
from weft._engine.scipy.structured import (
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all, warn_user
from weft.numpy import linalg

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det", "dft", "eigh",
    "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert", "hessenberg",
    "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal", "polar", "qr", "qr_multiply",
    "rsf2csf", "schur", "solve", "solve_sylvester", "solve_triangular", "sqrtm", "svd", "toeplitz",
]  # fmt: skip


def _pair(a: Any, b: Any) -> list:
    return [concrete(x) for x in promote_dtypes_inexact(value(as_matrix(a)), value(as_matrix(b)))]


def det(a, overwrite_a: bool = False, check_finite: bool = True):
    """Determinants of square matrices."""
    return linalg.det(a)


def inv(a, overwrite_a: bool = False, check_finite: bool = True):
    """Inverses of square matrices."""
    return linalg.inv(a)


def cholesky(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """Return the upper (or `lower`) triangular factor of a positive definite matrix, whose other triangle is not read.

    >>> weft.scipy.linalg.cholesky(np.array([[4.0, 2.0], [99.0, 5.0]])).tolist()
    [[2.0, 1.0], [0.0, 2.0]]
    """
    a = concrete(inexact("cholesky", as_matrix(a)))
    if not lower and a.ndim > 1:
        a = uf.conjugate(mp.matrix_transpose(a))
    return linalg.cholesky(a, upper=not lower, symmetrize_input=False)


def cho_factor(
    a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple:
    """Return a Cholesky factor and whether it is lower, for `cho_solve`."""
    return cholesky(a, lower), lower


def _system(api: str, a: Any, b: Any) -> tuple:
    """Return square matrices `a` and right sides `b` as columns, with equal leading dims, and True if `b` held vectors.

    `b` holds vectors if it has one dim, or (deprecated) one dim fewer than `a` and a matching last size.
    """
    a, b = _pair(a, b)
    if a.ndim < 2 or b.ndim < 1 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"{api}: expected square matrices and at least one right side, got shapes {tuple(a.shape)} and {tuple(b.shape)}."
        )
    n = a.shape[-1]
    vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape[-1] == n)
    if vectors and b.ndim > 1:
        warn_user(
            f"{api}: b of shape {tuple(b.shape)} is taken as one vector for each matrix of a, of shape {tuple(a.shape)}. This is "
            "deprecated: say b[..., None], and take [..., 0] of the result.",
            FutureWarning,
        )
    b = b[..., None] if vectors else b
    if b.shape[-2] != n:
        raise ValueError(
            f"{api}: the matrices have {quantity(n, 'row')} and b has {b.shape[-2]}: shapes {tuple(a.shape)} and {tuple(b.shape)}. Both "
            "must have the same number of rows."
        )
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return *[broadcast_to_shape(x, (*lead, *x.shape[-2:])) for x in (a, b)], vectors


def solve_triangular(
    a,
    b,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
):
    """Solve `a @ x == b` for triangular `a`; `trans` 1 or 'T' solves with its transpose, 2 or 'C' with its adjoint."""
    if trans not in (0, "N", 1, "T", 2, "C"):
        raise ValueError(
            f"solve_triangular: trans must be 0, 1 or 2 (or 'N', 'T', 'C'), got {trans!r}."
        )
    a, b, vector = _system("solve_triangular", a, b)
    x = la.triangular_solve(
        a,
        b,
        left_side=True,
        lower=lower,
        transpose_a=trans not in (0, "N"),
        conjugate_a=trans in (2, "C"),
        unit_diagonal=unit_diagonal,
    )
    return x[..., 0] if vector else x


def cho_solve(c_and_lower: tuple, b, overwrite_b: bool = False, check_finite: bool = True):
    """Solve `a @ x == b`, given the Cholesky factor of `a`."""
    c, lower = c_and_lower
    c, b, vector = _system("cho_solve", c, b)
    first = solve_triangular(c, b, trans=0 if lower else 2, lower=lower)
    x = solve_triangular(c, first, trans=2 if lower else 0, lower=lower)
    return x[..., 0] if vector else x


def solve(
    a,
    b,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
):
    """Solve `a @ x == b`; `assume_a='pos'` states that `a` is positive definite."""
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower), b)
    if assume_a not in ("gen", "sym", "her"):
        raise ValueError(f"solve: assume_a must be 'gen', 'sym', 'her' or 'pos', got {assume_a!r}.")
    return linalg.solve(a, b)


def lu_factor(a, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """Return L and U packed in one matrix, and the row exchanges, for `lu_solve`."""
    packed, pivots, _ = la.lu(concrete(inexact("lu_factor", as_matrix(a))))
    return packed, pivots


def lu_solve(
    lu_and_piv: tuple, b, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
):
    """Solve `a @ x == b`, given the LU factors of `a`; `trans` 1 solves with its transpose, 2 with its adjoint."""
    packed, pivots = lu_and_piv
    if np.ndim(packed) < 2 or np.ndim(pivots) < 1 or np.ndim(b) < 1:
        raise ValueError(
            f"lu_solve: `lu_and_piv` must hold a matrix and a vector, and `b` have a dim; got ranks {np.ndim(packed)}, "
            f"{np.ndim(pivots)} and {np.ndim(b)}."
        )
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}.")
    packed, b, vector = _system("lu_solve", packed, b)
    order = la.lu_pivots_to_permutation(pivots, packed.shape[-1])
    order = broadcast_to_shape(order, (*packed.shape[:-2], order.shape[-1]))
    rows = lambda x, order: selection.take_along_axis(x, order[..., None], -2, mode="clip")
    if trans == 0:
        x = solve_triangular(
            packed, solve_triangular(packed, rows(b, order), lower=True, unit_diagonal=True)
        )
    else:
        from weft._engine.numpy.sorting import argsort

        x = solve_triangular(
            packed, solve_triangular(packed, b, trans), trans, lower=True, unit_diagonal=True
        )
        x = rows(x, argsort(order))
    return x[..., 0] if vector else x


def lu(a, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """Return P, L and U with `P @ L @ U == a`; with `permute_l`, P @ L and U."""
    a = concrete(inexact("lu", as_matrix(a)))
    packed, _, order = la.lu(a)
    m, n = a.shape[-2:]
    k = min_dim(m, n)
    lower = uf.add(creation.tril(packed, -1)[..., :, :k], creation.eye(m, k, dtype=a.dtype))
    upper = creation.triu(packed)[..., :k, :]
    p = creation.astype(uf.equal(layout.index_range(m)[:, None], order[..., None, :]), a.dtype)
    return (precise_matmul(p, lower), upper) if permute_l else (p, lower, upper)


def qr(
    a,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
):
    """Return Q and R; mode 'full', 'economic', or 'r' for R only; with `pivoting` also the order of columns."""
    if mode not in ("full", "economic", "r"):
        raise ValueError(f"qr: mode must be 'full', 'economic' or 'r', got {mode!r}.")
    out = la.qr(
        concrete(inexact("qr", as_matrix(a))), pivoting=pivoting, full_matrices=mode != "economic"
    )
    return out[1:] if mode == "r" else out


def svd(
    a,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
):
    """Return U, singular values and Vh; only the singular values unless `compute_uv`."""
    out = linalg.svd(as_matrix(a), full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def eigh(
    a,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: Any = None,
    type: int = 1,
    check_finite: bool = True,
):  # noqa: A002
    """Return eigenvalues and eigenvectors of a symmetric or Hermitian matrix."""
    if b is not None or eigvals is not None or type != 1:
        raise NotImplementedError(
            "scipy.linalg.eigh: only the plain problem, with all eigenvalues, is implemented."
        )
    values, vectors = linalg.eigh(as_matrix(a), UPLO="L" if lower else "U")
    return values if eigvals_only else (values, vectors)


#: the degree of the Pade approximant of exp, and the largest 1-norm that keeps its error below the dtype's rounding
_PADE = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


def _pade(a, degree: int) -> tuple:
    """Return U and V, the odd and the even terms of the numerator: exp(a) is approximately (V - U)^-1 (V + U)."""
    c = [
        math.comb(degree, k) * math.factorial(2 * degree - k) / math.factorial(2 * degree)
        for k in range(degree + 1)
    ]
    one = creation.eye(a.shape[-1], dtype=a.dtype)
    square = precise_matmul(a, a)
    odd, even, power = one * c[1] + square * c[3], one + square * c[2], square
    for k in range(4, degree, 2):
        power = precise_matmul(power, square)
        odd, even = odd + power * c[k + 1], even + power * c[k]
    return precise_matmul(a, odd), even


def expm(A, *, upper_triangular: bool = False, max_squarings: int = 16):
    """Return the exponential of a square matrix, or of each of a stack; NaN if it needs more than `max_squarings` squarings.

    Scaling, a Pade approximant, squaring: N. J. Higham, "The Scaling and Squaring Method for the Matrix Exponential
    Revisited", SIAM Journal on Matrix Analysis and Applications 26 (2005).
    """
    a = concrete(inexact("expm", A))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"expm: expected a square matrix or a stack of them, got shape {tuple(a.shape)}."
        )
    if a.size == 0:
        return a
    dtype = a.dtype
    a = creation.astype(a, np.float32) if dtype.itemsize == 2 else a
    real = np.finfo(a.dtype).dtype
    degree, largest = _PADE[real.itemsize]
    norm = uf.abs(a).sum(-2).max(-1)
    halvings = uf.ceil(uf.log2(uf.maximum(norm / largest, 1)))  # avoid the logarithm of 0
    odd, even = _pade(a * uf.exp2(-halvings)[..., None, None], degree)
    approximant = (
        solve_triangular(even - odd, even + odd)
        if upper_triangular
        else linalg.solve(even - odd, even + odd)
    )
    # NaN must not determine the number of squarings of the others
    possible = halvings <= max_squarings
    most = selection.where(possible, halvings, 0).max()

    def step(x, i):
        return cond(
            i < most,
            lambda x: selection.where((i < halvings)[..., None, None], precise_matmul(x, x), x),
            lambda x: x,
            x,
        ), None

    result = scan(step, approximant, np.arange(max_squarings, dtype=real))[0]
    return creation.astype(selection.where(possible[..., None, None], result, np.nan), dtype)


def expm_frechet(A, E, *, method: str | None = None, compute_expm: bool = True):  # noqa: N803
    """Return `expm(A)` and its derivative in the direction `E`; only the derivative unless `compute_expm`. `method` has no effect.

    Raises ValueError unless both are square matrices, or stacks of them, of one shape.

    >>> weft.scipy.linalg.expm_frechet(np.zeros((1, 1)), np.full((1, 1), 2.0))[1].tolist()
    [[2.0]]
    """
    a, e = _pair(A, E)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape != e.shape:
        raise ValueError(
            f"expm_frechet: A and E must be square matrices of one shape, got {tuple(a.shape)} and {tuple(e.shape)}."
        )
    value_and_derivative = jvp(expm, (a,), (e,))
    return value_and_derivative if compute_expm else value_and_derivative[1]


def block_diag(*arrs):
    """Return a block-diagonal matrix of the given matrices."""
    blocks = [mp.atleast_2d(array_of("block_diag", a)) for a in arrs] or [creation.zeros((1, 0))]
    columns = sum(b.shape[1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        rows.append(padding.pad(b, ((0, 0), (at, columns - at - b.shape[1]))))
        at += b.shape[1]
    return mp.concatenate(rows, 0)


guard_all(globals())
