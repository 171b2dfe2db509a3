"""Matmul: native functions generated per combination of types, generic in every size and stride.

In:   `ir.program.Gemm` steps.
Out:  a function's name, the words of its descriptor, and the native function.
Laws: a result is rounded once, from the accumulator's type; its bits do not depend on the number of
      threads.
Next: `gemm` is the interface; `gemm_plan` decides variant, blocking and packing; `gemm_tile` is the
      driver; `gemm_micro` has the micro-kernels; `assembler_modules` lists the functions that exist in
      assembly (`avx512`, `avx2`).
"""
