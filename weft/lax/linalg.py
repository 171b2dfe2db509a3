"""Factorizations and triangular solves with their own semantics, on stacks of matrices."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.lax.decompositions": "cholesky_update qdwh symmetric_product tridiagonal_solve",
        "weft._engine.ops.linalg": """
        cholesky cholesky_p eig eig_p eigh eigh_p lu lu_p lu_pivots_to_permutation lu_pivots_to_permutation_p qr qr_p svd svd_p
        triangular_solve triangular_solve_p
    """,
        "weft._engine.ops.matrix_operands": "EigImplementation EighImplementation SvdAlgorithm",
        "weft._engine.ops.matrix_forms": """
        hessenberg hessenberg_p householder_product householder_product_p ormqr ormqr_p schur schur_p tridiagonal tridiagonal_p
        tridiagonal_solve_p
    """,
    },
    guards=True,
)
