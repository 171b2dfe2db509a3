"""Native code: compiles Loops kernels and programs to machine code through textual LLVM IR.

In:   an `ir.program.ScheduledProgram`, or Loops kernels.
Out:  `program.program.compile_program`: a native program with one entry.
Laws: LLVM runs no pass pipeline: this package vectorizes, unrolls and orders instructions itself.
      Equal code is compiled once and cached on disk under a digest of its text, the machine, LLVM's
      version and the sources of this package. Only this package imports llvmlite. The packages
      below import each other downward only:

      program     whole programs: the entry, the order of compilation, drafts
      gemm        matmul; `gemm.avx512` its inner loops in assembly
      kernel      Loops kernels
      library     native routines (FFTs, sorts, copies) and calls of LAPACK
      vector      operations and math functions on registers, scalar or vector
      runtime     the thread pool, the heap and native dispatch, with their `.ll` files
      ir          writers of LLVM IR
      toolchain   LLVM, the linker, the disk cache

Next: `program.program`, then `kernel.kernel_emitter`.
"""
