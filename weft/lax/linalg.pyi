"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.ops.linalg import (
    cholesky, cholesky_p, eig, eig_p, eigh, eigh_p, lu, lu_p, lu_pivots_to_permutation, lu_pivots_to_permutation_p, qr, qr_p, svd, svd_p,
    triangular_solve, triangular_solve_p,
)

__all__ = [
    "cholesky", "cholesky_p", "eig", "eig_p", "eigh", "eigh_p", "lu", "lu_p", "lu_pivots_to_permutation", "lu_pivots_to_permutation_p",
    "qr", "qr_p", "svd", "svd_p", "triangular_solve", "triangular_solve_p",
]
