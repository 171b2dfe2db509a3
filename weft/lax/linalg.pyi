"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.lax.decompositions import (
    cholesky_update, qdwh, symmetric_product, tridiagonal_solve,
)
from weft._engine.ops.linalg import (
    cholesky, cholesky_p, eig, eig_p, eigh, eigh_p, lu, lu_p, lu_pivots_to_permutation,
    lu_pivots_to_permutation_p, qr, qr_p, svd, svd_p, triangular_solve, triangular_solve_p,
)
from weft._engine.ops.matrix_forms import (
    hessenberg, hessenberg_p, householder_product, householder_product_p, ormqr, ormqr_p, schur,
    schur_p, tridiagonal, tridiagonal_p, tridiagonal_solve_p,
)
from weft._engine.ops.matrix_operands import EigImplementation, EighImplementation, SvdAlgorithm

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_p",
    "cholesky_update", "eig", "eig_p", "eigh", "eigh_p", "hessenberg", "hessenberg_p",
    "householder_product", "householder_product_p", "lu", "lu_p", "lu_pivots_to_permutation",
    "lu_pivots_to_permutation_p", "ormqr", "ormqr_p", "qdwh", "qr", "qr_p", "schur", "schur_p",
    "svd", "svd_p", "symmetric_product", "triangular_solve", "triangular_solve_p", "tridiagonal",
    "tridiagonal_p", "tridiagonal_solve", "tridiagonal_solve_p",
]
