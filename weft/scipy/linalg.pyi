"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Callable
from typing import Any
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike, DTypeLike

def block_diag(*arrs: ArrayLike) -> Array:
    r"""Return a block-diagonal matrix of the given matrices."""
def cho_factor(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    r"""Return a Cholesky factor and whether it is lower, for `cho_solve`."""
def cho_solve(c_and_lower: tuple[Any, ...], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    r"""Solve `a @ x == b`, given the Cholesky factor of `a`."""
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    r"""Return the upper (or `lower`) triangular factor of a positive definite matrix, whose other triangle is not read."""
def circulant(c: ArrayLike) -> Array:
    r"""The matrix with first column `c` whose columns are rotations of it, each down by one more."""
def companion(a: ArrayLike) -> Array:
    r"""The matrix whose characteristic polynomial has the coefficients `a`, the highest first, divided by `a[0]`."""
def convolution_matrix(a: ArrayLike, n: int, mode: str = 'full') -> Array:
    r"""The matrix A with `n` columns and `A @ v == convolve(a, v, mode)`; `mode` is 'full', 'same' or 'valid'."""
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    r"""Determinants of square matrices."""
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    r"""The matrix of the discrete Fourier transform: `dft(n) @ x == fft(x)`; `scale` 'n' or 'sqrtn' divides it by that."""
def eigh(a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True, eigvals: ArrayLike | None = None, type: int = 1, check_finite: bool = True) -> Any:
    r"""Return eigenvalues and eigenvectors of a symmetric or Hermitian matrix."""
def eigh_tridiagonal(d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False, select: str = 'a', select_range: tuple[float, float] | None = None, tol: float | None = None, key: ArrayLike | None = None) -> Any:
    r"""Return eigenvalues, ascending, and eigenvectors of the Hermitian matrix with diagonal `d` and superdiagonal `e`."""
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    r"""Return the exponential of a square matrix, or of each of a stack; NaN if it needs more than `max_squarings` squarings."""
def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True) -> Any:
    r"""Return `expm(A)` and its derivative in the direction `E`; only the derivative unless `compute_expm`. `method` has no effect."""
def fiedler(a: ArrayLike) -> Array:
    r"""The matrix of the distances `abs(a[i] - a[j])`."""
def fiedler_companion(a: ArrayLike) -> Array:
    r"""A matrix with five diagonals and the characteristic polynomial of `companion(a)`."""
def funm(A: ArrayLike, func: Callable[..., Any], disp: bool = True) -> Any:
    r"""Return the function `func` of numbers applied to a square matrix, by its eigenvalues; with `disp` False also an error estimate."""
def hadamard(n: int, dtype: DTypeLike | None = ...) -> Array:
    r"""Sylvester's matrix of 1 and -1 with orthogonal rows; ValueError unless `n` is a power of 2."""
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    r"""The matrix with first column `c` and last row `r` (default zeros), constant along antidiagonals; the corner is taken from `c`."""
def helmert(n: int, full: bool = False) -> Array:
    r"""Helmert's orthonormal contrasts, n - 1 rows that sum to zero; with `full`, below a row of equal elements."""
def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    r"""Return H, zero below its first subdiagonal, with `a == Q @ H @ Q^H`; with `calc_q` also the unitary Q."""
def hilbert(n: int) -> Array:
    r"""The matrix with the elements 1 / (i + j + 1), which is hard to invert."""
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    r"""Inverses of square matrices."""
def invhilbert(n: int) -> Array:
    r"""The inverse of `hilbert(n)`, whose elements are integers; each is rounded once."""
def invpascal(n: int, kind: str | None = None) -> Array:
    r"""The inverse of `pascal(n, kind)`, whose elements are integers."""
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    r"""The matrix of a population by age: the birth rates `f` in the first row, the survival rates `s` below the diagonal."""
def lu(a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, ...]:
    r"""Return P, L and U with `P @ L @ U == a`; with `permute_l`, P @ L and U."""
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    r"""Return L and U packed in one matrix, and the row exchanges, for `lu_solve`."""
def lu_solve(lu_and_piv: tuple[Any, ...], b: ArrayLike, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    r"""Solve `a @ x == b`, given the LU factors of `a`; `trans` 1 solves with its transpose, 2 with its adjoint."""
def pascal(n: int, kind: str | None = None) -> Array:
    r"""Pascal's triangle as a matrix: 'symmetric' (the default), with its rows along antidiagonals, or a 'lower' or 'upper' triangle."""
def polar(a: ArrayLike, side: str = 'right', *, method: str = 'qdwh', eps: float | None = None, max_iterations: int | None = None) -> tuple[Array, Array]:
    r"""Return U with orthonormal columns (or rows) and a positive semidefinite P: `a == U @ P`, or `a == P @ U` for `side` 'left'."""
def qr(a: ArrayLike, overwrite_a: bool = False, lwork: ArrayLike | None = None, mode: str = 'full', pivoting: bool = False, check_finite: bool = True) -> Any:
    r"""Return Q and R; mode 'full', 'economic', or 'r' for R only; with `pivoting` also the order of columns."""
def qr_multiply(a: ArrayLike, c: ArrayLike, mode: str = 'right', pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False) -> tuple[Any, ...]:
    r"""Return `c @ Q` (or `Q @ c` for `mode` 'left') and R of `a == Q @ R`; with `pivoting` also the order of columns."""
def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    r"""Return the complex Schur form of a real Schur form `T`, `Z`: rotations remove the subdiagonal from the last row up."""
def schur(a: ArrayLike, output: str = 'real') -> tuple[Array, Array]:
    r"""Return T and a unitary Z with `a == Z @ T @ Z^H`; T is triangular, up to 2 x 2 blocks for conjugate pairs if it is real."""
def solve(a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False, check_finite: bool = True, assume_a: str = 'gen') -> Array:
    r"""Solve `a @ x == b`; `assume_a='pos'` states that `a` is positive definite."""
def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = 'schur', tol: float = ...) -> Array:
    r"""Return the X with `A @ X + X @ B == C`; NaN if an eigenvalue of `A` and an eigenvalue of `B` add up to less than `tol`."""
def solve_triangular(a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, overwrite_b: bool = False, debug: ArrayLike | None = None, check_finite: bool = True) -> Array:
    r"""Solve `a @ x == b` for triangular `a`; `trans` 1 or 'T' solves with its transpose, 2 or 'C' with its adjoint."""
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    r"""Return the principal square root, complex, of a matrix or each of a stack: `sqrtm(A) @ sqrtm(A) == A`; NaN if there is none."""
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False, check_finite: bool = True, lapack_driver: str = 'gesdd') -> Any:
    r"""Return U, singular values and Vh; only the singular values unless `compute_uv`."""
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    r"""The matrix with first column `c` and first row `r` (the conjugate of `c` by default) that is constant along diagonals."""

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion",
    "convolution_matrix", "det", "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet",
    "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert", "hessenberg",
    "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal",
    "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester",
    "solve_triangular", "sqrtm", "svd", "toeplitz",
]
