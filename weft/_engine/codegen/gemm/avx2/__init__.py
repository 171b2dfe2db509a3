"""The inner loops of matmul for AVX2 in assembly.

In:   the name of a micro-kernel.
Out:  a module with inline assembly that computes the same bits as the function of the same name in
      `codegen.gemm`.
Next: `register_kernels`.
"""
