"""Writers of LLVM IR, with the types and values that they use.

In:   descriptions of instructions, one after another.
Out:  the text of LLVM functions.
Next: `scalar_types` maps scalar types to LLVM types; `scoped_writer` places instructions in scopes,
      for kernels; `ir_writer` writes functions with loops, for matmuls and library routines;
      `values` describes how a value varies over a vector loop; `gemm_types` and `microkernels` hold
      the definitions that all matmul modules share.
"""
