"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

import numpy as np
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.contraction import PrecisionLike
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike, DTypeLike

class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Array
    R: Array
class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, and right singular vectors as rows."""

    U: Array
    S: Array
    Vh: Array
class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array
class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array
class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> SVDResult: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(
    a: ArrayLike, mode: Literal["reduced", "complete", "full", "raw"] = "reduced"
) -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: str) -> Any: ...
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult: ...
def eig(a: ArrayLike) -> EigResult: ...
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult: ...
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    r"""Return the lower triangular L with L @ L.conj().T == a (or its adjoint, if `upper`)."""
def cond(x: ArrayLike, p: str | float | None = None) -> Array:
    r"""Return the condition number of a matrix."""
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    r"""Return the cross product of 3-vectors along `axis`."""
def det(a: ArrayLike) -> Array:
    r"""Return the determinants of square matrices."""
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    r"""Return the diagonals of matrices in the last two dims."""
def eigvals(a: ArrayLike) -> Array:
    r"""Return complex eigenvalues of a square matrix."""
def eigvalsh(a: ArrayLike, UPLO: str | None = 'L', *, symmetrize_input: bool = True) -> Array:
    r"""Return the eigenvalues of a symmetric or Hermitian matrix, ascending."""
def inv(a: ArrayLike) -> Array:
    r"""Return inverses of square matrices."""
def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False) -> tuple[Array, Array, Array, Array]:
    r"""Return the least-squares solution of a @ x = b."""
def matmul(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the matrix product of the last two dims, broadcast over the others."""
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: str | float = 'fro') -> Array:
    r"""Return the norm of matrices in the last two dims: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""
def matrix_power(a: ArrayLike, n: int) -> Array:
    r"""Return a power of `a` by repeated squaring; negative powers are powers of the inverse."""
def matrix_rank(M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False, tol: ArrayLike | None = None) -> Array:
    r"""Return the number of singular values above `rtol` (also called `tol`) times the largest."""
def matrix_transpose(x: ArrayLike, /) -> Array:
    r"""Return `x` with its last two dims exchanged."""
def multi_dot(arrays: Array | np.ndarray | Sequence[ArrayLike], *, precision: PrecisionLike | None = None) -> Array:
    r"""Return the product of several matrices in the cheapest order."""
def norm(x: ArrayLike, ord: str | float | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    r"""Return the norm of a vector or a matrix, depending on the number of axes."""
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    r"""Return all products of elements of two flattened arrays."""
def pinv(a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None) -> Array:
    r"""Return Moore-Penrose inverses."""
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    r"""Return the x with `a @ x == b`."""
def svdvals(x: ArrayLike, /) -> Array:
    r"""Return singular values in descending order."""
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[Any] = 2, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the product over chosen dims of both arrays."""
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    r"""Return the inverse of `a` as a map from its last dims to its first `ind` dims."""
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    r"""Return the x with `tensordot(a, x, x.ndim) == b`."""
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    r"""Return the sums of the diagonals of matrices in the last two dims."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return dot products along `axis`, broadcast over the other dims."""
def vector_norm(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: str | float = 2) -> Array:
    r"""Return the norm of order `ord` of vectors along `axis`, or of all elements as one vector."""

__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "vecdot", "vector_norm",
]
