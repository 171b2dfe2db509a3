"""NumPy's linear algebra on stacks of matrices."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.numpy.linalg": """
        cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power matrix_rank
        matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve trace vecdot
        vector_norm
        EighResult EigResult QRResult SVDResult SlogdetResult
    """,
    },
    guards=True,
)
