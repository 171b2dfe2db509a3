"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.numpy.linalg import (
    EigResult, EighResult, QRResult, SVDResult, SlogdetResult, cholesky, cond, cross, det,
    diagonal, eig, eigh, eigvals, eigvalsh, inv, lstsq, matmul, matrix_norm, matrix_power,
    matrix_rank, matrix_transpose, multi_dot, norm, outer, pinv, qr, slogdet, solve, svd, svdvals,
    tensordot, tensorinv, tensorsolve, trace, vecdot, vector_norm,
)

__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "vecdot", "vector_norm",
]
