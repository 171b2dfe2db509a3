"""Sparse arrays: BCOO, BCSR and the formats of matrices, their products, and functions of dense arrays run on them.

In:   arrays of values and of indices.
Out:  sparse or dense arrays; sparse ones are trees of arrays, which `jit`, `grad`, `vmap`, loops and shardings take like any other.
Next: `bcoo`.
"""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {
    "weft.experimental.sparse": "linalg",
    "weft.experimental.sparse.base": "CuSparseEfficiencyWarning JAXSparse SparseEfficiencyError SparseEfficiencyWarning",
    "weft.experimental.sparse.bcoo": """
        BCOO bcoo_extract bcoo_fromdense bcoo_sort_indices bcoo_sum_duplicates bcoo_todense bcoo_update_layout
    """,
    "weft.experimental.sparse.shapes": """
        bcoo_broadcast_in_dim bcoo_concatenate bcoo_dynamic_slice bcoo_gather bcoo_reduce_sum bcoo_reshape bcoo_rev bcoo_slice
        bcoo_squeeze bcoo_transpose
    """,
    "weft.experimental.sparse.products": """
        bcoo_dot_general bcoo_dot_general_sampled bcoo_multiply_dense bcoo_multiply_sparse
    """,
    "weft.experimental.sparse.rows": """
        BCSR COO CSC CSR bcsr_broadcast_in_dim bcsr_concatenate bcsr_dot_general bcsr_extract bcsr_fromdense bcsr_sum_duplicates
        bcsr_todense coo_fromdense coo_matmat coo_matvec coo_todense csr_fromdense csr_matmat csr_matvec csr_todense empty eye random_bcoo
        todense
    """,
    "weft.experimental.sparse.sparsifying": "SparseTracer grad jacfwd jacobian jacrev sparsify value_and_grad",
})
