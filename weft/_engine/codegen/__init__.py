"""Native code: Loops kernels and Programs to machine code, through textual LLVM IR. Only this package imports llvmlite.

In:   an `ir.program.Program`, or Loops kernels.
Out:  `program.program.compile_program`: a native program with one entry.
Laws: LLVM runs no pass pipeline: vectorization, unrolling and instruction order are ours. Equal code is compiled once, and kept
      on disk under a key of its text, the machine, LLVM's version and the sources of this package.
      Rooms import downward only:

      program     whole programs: the entry, compilation order, drafts that are replaced by optimized code
      gemm        matmul; `gemm.avx512` its inner loops in assembly
      kernel      Loops kernels
      library     native routines (FFTs, sorts, copies) and calls of LAPACK
      vector      operations and math functions on registers, scalar or vector
      runtime     the thread pool, the heap and native dispatch (`.ll` files beside them)
      ir          writers of LLVM IR
      toolchain   LLVM, the linker, the disk cache

Next: `program.program`, then `kernel.kernel_emitter`.
"""
