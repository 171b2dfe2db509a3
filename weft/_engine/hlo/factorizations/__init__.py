"""Matrix factorizations as programs of plain ops, for devices without LAPACK.

In:   arrays whose last two dims are matrices; all other dims are batch dims.
Out:  the results of the primitives of `ops.linalg` and `ops.matrix_forms`, computed by loops over
      columns.
Laws: `geqrf` and `householder_product` remain primitives, because every XLA compiler has them.
"""
