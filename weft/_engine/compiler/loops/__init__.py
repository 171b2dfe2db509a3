"""Loop nests: which dims are loops, which one is vectorized, and what one task does.

In:   scalar code (`lowering.lower.Lowered`).
Out:  `loop_nest.build`: a Loops kernel.
Laws: every size is correct; splitting, tiling and unrolling compute the same values. Choices depend on sizes, strides and the
      machine's record, never on the name of an operation.
Next: `access_analysis` finds what a nest accesses, `loop_nest` builds it. Each other module is one strategy: `transpose_tiling`,
      `outer_reduction`, `loop_splitting`, `unroll_by_residue`, `dim_collapsing`, `prefetch`, `bounds_check_elimination`.
"""
