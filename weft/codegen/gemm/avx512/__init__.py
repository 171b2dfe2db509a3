"""The inner loops of matmul for AVX-512, in assembler: LLVM takes milliseconds to compile what takes microseconds to assemble.

In:   the name of a microkernel, packing function or epilogue.
Out:  a module with inline assembler that does what the function of the same name in `codegen.gemm` does, bit by bit.
Next: `gemm_asm`.
"""
