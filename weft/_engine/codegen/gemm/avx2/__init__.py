"""The inner loops of matmul for AVX2 in assembly.

In:   the name of a microkernel.
Out:  a module with inline assembly, equal bit by bit to the function of the same name in `codegen.gemm`.
Next: `register_kernels`.
"""
