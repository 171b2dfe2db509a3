"""The inner loops of matmul for AVX-512 in assembly: LLVM takes milliseconds to compile what takes microseconds to assemble.

In:   the name of a microkernel, packing function or epilogue.
Out:  a module with inline assembly, equal bit by bit to the function of the same name in `codegen.gemm`.
Next: `gemm_asm`.
"""
