"""Loop nests: which dims are loops, which one is the vector, and what one task does.

In:   scalar code (`lowering.lower.Lowered`).
Out:  `loop_nest.build`: a Loops kernel.
Laws: every size is right; what is split, tiled or unrolled computes the same values. A choice depends on sizes, strides and
      the machine's record, never on the name of an operation.
Next: `access_analysis` tells what a nest touches, `loop_nest` builds it; the others are one strategy each: `transpose_tiling`,
      `outer_reduction`, `loop_splitting`, `unroll_by_residue`, `dim_collapsing`, `prefetch`, `bounds_check_elimination`.
"""
