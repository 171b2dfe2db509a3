"""Sparse arrays: BCOO, BCSR and formats of single matrices, their products, and functions of dense arrays applied to them.

In:   arrays of values and of indices.
Out:  sparse or dense arrays; sparse arrays are trees of arrays, which `jit`, `grad`, `vmap`, loops and shardings accept
      like other trees.
Next: `bcoo`.
"""

from weft._engine.util.source import guard_all as _guard_all
from weft.experimental.sparse import linalg as linalg
from weft.experimental.sparse.ad import (
    grad as grad,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from weft.experimental.sparse.api import (
    empty as empty,
    eye as eye,
    random_bcoo as random_bcoo,
    todense as todense,
)
from weft.experimental.sparse.base import JAXSparse as JAXSparse
from weft.experimental.sparse.bcoo import (
    BCOO as BCOO,
    bcoo_extract as bcoo_extract,
    bcoo_fromdense as bcoo_fromdense,
    bcoo_sort_indices as bcoo_sort_indices,
    bcoo_sum_duplicates as bcoo_sum_duplicates,
    bcoo_todense as bcoo_todense,
    bcoo_update_layout as bcoo_update_layout,
)
from weft.experimental.sparse.bcsr import (
    BCSR as BCSR,
    bcsr_broadcast_in_dim as bcsr_broadcast_in_dim,
    bcsr_concatenate as bcsr_concatenate,
    bcsr_dot_general as bcsr_dot_general,
    bcsr_extract as bcsr_extract,
    bcsr_fromdense as bcsr_fromdense,
    bcsr_sum_duplicates as bcsr_sum_duplicates,
    bcsr_todense as bcsr_todense,
)
from weft.experimental.sparse.convolution import (
    bcoo_conv_general_dilated as bcoo_conv_general_dilated,
)
from weft.experimental.sparse.coo import (
    COO as COO,
    coo_fromdense as coo_fromdense,
    coo_matmat as coo_matmat,
    coo_matvec as coo_matvec,
    coo_todense as coo_todense,
)
from weft.experimental.sparse.csr import (
    CSC as CSC,
    CSR as CSR,
    csr_fromdense as csr_fromdense,
    csr_matmat as csr_matmat,
    csr_matvec as csr_matvec,
    csr_todense as csr_todense,
)
from weft.experimental.sparse.products import (
    bcoo_dot_general as bcoo_dot_general,
    bcoo_dot_general_sampled as bcoo_dot_general_sampled,
    bcoo_multiply_dense as bcoo_multiply_dense,
    bcoo_multiply_sparse as bcoo_multiply_sparse,
)
from weft.experimental.sparse.shapes import (
    bcoo_broadcast_in_dim as bcoo_broadcast_in_dim,
    bcoo_concatenate as bcoo_concatenate,
    bcoo_dynamic_slice as bcoo_dynamic_slice,
    bcoo_gather as bcoo_gather,
    bcoo_reduce_sum as bcoo_reduce_sum,
    bcoo_reshape as bcoo_reshape,
    bcoo_rev as bcoo_rev,
    bcoo_slice as bcoo_slice,
    bcoo_squeeze as bcoo_squeeze,
    bcoo_transpose as bcoo_transpose,
)
from weft.experimental.sparse.transform import SparseTracer as SparseTracer, sparsify as sparsify
from weft.experimental.sparse.util import (
    CuSparseEfficiencyWarning as CuSparseEfficiencyWarning,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
)

_guard_all(globals(), [name for name in globals() if name[0] != "_"])
