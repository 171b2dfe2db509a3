"""Writers of LLVM IR, and the types and values that they write.

In:   what to compute, instruction by instruction.
Out:  the text of LLVM functions.
Next: `scalar_types` spells types; `scoped_writer` places values in scopes, for kernels;
      `ir_writer` writes functions with loops, for matmuls and routines;
      `values` says how a value varies over a vector loop; `gemm_types` and `microkernels` hold what all of matmul shares.
"""
