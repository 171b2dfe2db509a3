"""The inner loops of matmul for AVX-512 in assembly.

LLVM takes milliseconds to compile them, microseconds to assemble them.

In:   the name of a micro-kernel, packing function or epilogue.
Out:  a module with inline assembly that computes the same bits as the function of the same name in
      `codegen.gemm`.
Next: `gemm_asm`.
"""
