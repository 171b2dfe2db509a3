"""Loop nests: the loops of a kernel, the vectorized dim, and the work of one task.

In:   scalar code (`lowering.lower.LoweredGroup`).
Out:  `loop_nest.build`: a Loops kernel.
Laws: every size is supported; splitting, tiling and unrolling do not change values. Choices depend on sizes, strides and the
      machine model, never on the name of an operation.
Next: `access_analysis` finds the memory accesses of a nest, `loop_nest` builds it. Each other module is one strategy: `transpose_tiling`,
      `outer_reduction`, `loop_splitting`, `unroll_by_residue`, `dim_collapsing`, `prefetch`, `bounds_check_elimination`.
"""
