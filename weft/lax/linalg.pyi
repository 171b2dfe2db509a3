"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Callable
from typing import Any
from weft._engine.ops.linalg import (
    cholesky_p, eig_p, eigh_p, lu_p, lu_pivots_to_permutation_p, qr_p, svd_p, triangular_solve_p,
)
from weft._engine.ops.matrix_forms import (
    hessenberg_p, householder_product_p, ormqr_p, schur_p, tridiagonal_p, tridiagonal_solve_p,
)
from weft._engine.ops.matrix_operands import EigImplementation, EighImplementation, SvdAlgorithm
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike

def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    r"""Return the lower triangular L with L L^H = x for positive definite x, and NaN for other x."""
def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    r"""Return the upper triangular R' with R'^T R' = R^T R + w w^T for upper triangular R."""
def eig(x: ArrayLike, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False, implementation: EigImplementation | None = None, use_magma: bool | None = None) -> list[Any]:
    r"""Return complex eigenvalues of a square matrix and, if requested, left and right eigenvectors."""
def eigh(x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None, implementation: EighImplementation | None = None) -> tuple[Array, Array]:
    r"""Return eigenvectors (as columns) and ascending eigenvalues of a Hermitian matrix."""
def hessenberg(a: ArrayLike) -> tuple[Any, ...]:
    r"""Return the Hessenberg form H = Q^H a Q of square matrices."""
def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    r"""Return the columns of the orthogonal (unitary) product of Householder reflectors."""
def lu(x: ArrayLike) -> tuple[Any, ...]:
    r"""Return the LU factors of x in one matrix, the row exchanges and their permutation."""
def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    r"""Return the permutation that the row exchanges `pivots` produce."""
def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    r"""Return Q c, or c Q unless `left`, for the square Q of the reflectors in `a` and `taus`."""
def qdwh(x: Any, *, is_hermitian: bool = False, max_iterations: int | None = None, eps: float | None = None, dynamic_shape: tuple[int, int] | None = None) -> tuple[Any, ...]:
    r"""Return the polar decomposition x = U H of a matrix with at least as many rows as columns."""
def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple[Any, ...]:
    r"""Return Q and R with Q R = x; with `pivoting`, Q R = x[:, p] and p is the third result."""
def schur(x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: Callable[..., Any] | None = None) -> Any:
    r"""Return the Schur form T = Q^H x Q of square matrices and Q, in a tuple."""
def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True, subset_by_index: tuple[int, int] | None = None, algorithm: SvdAlgorithm | None = None) -> Any:
    r"""Return U, the singular values s, descending, and V^H with U diag(s) V^H = x."""
def symmetric_product(a_matrix: Any, c_matrix: Any, *, alpha: float = ..., beta: float = ..., symmetrize_output: bool = False) -> Any:
    r"""Return `alpha * a @ a.T + beta * c` for stacks of matrices."""
def triangular_solve(a: ArrayLike, b: ArrayLike, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False, conjugate_a: bool = False, unit_diagonal: bool = False) -> Array:
    r"""Return the x with op(a) x = b (`left_side`) or x op(a) = b; b may be a vector."""
def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Any, ...]:
    r"""Return the tridiagonal form of symmetric or Hermitian matrices."""
def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    r"""Return the x with A x = b for tridiagonal A."""

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_p",
    "cholesky_update", "eig", "eig_p", "eigh", "eigh_p", "hessenberg", "hessenberg_p",
    "householder_product", "householder_product_p", "lu", "lu_p", "lu_pivots_to_permutation",
    "lu_pivots_to_permutation_p", "ormqr", "ormqr_p", "qdwh", "qr", "qr_p", "schur", "schur_p",
    "svd", "svd_p", "symmetric_product", "triangular_solve", "triangular_solve_p", "tridiagonal",
    "tridiagonal_p", "tridiagonal_solve", "tridiagonal_solve_p",
]
