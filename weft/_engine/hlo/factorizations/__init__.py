"""Matrix factorizations as programs of plain ops, for devices without LAPACK.

In:   arrays whose last two dims are matrices; all dims before them are a batch.
Out:  the results of the primitives of `ops.linalg` and `ops.matrix_forms`, from loops over columns.
Laws: `geqrf` and `householder_product` are used as primitives; every XLA compiler has them.
"""
