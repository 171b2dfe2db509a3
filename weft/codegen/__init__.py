"""Native code: Loops kernels and Programs to machine code, through textual LLVM IR. Only this room imports llvmlite.

In:   an `ir.program.Program`, or Loops kernels.
Out:  `program.program.compile_program`: a native program with one entry.
Laws: LLVM runs no pass pipeline: vectors, unrolling and the order of instructions are ours. Equal code is compiled once, and
      kept on disk under a key that holds its text, the machine, LLVM's version and the sources of this room.
      Rooms import downward only:

      program     a whole program: its entry, its parts compiled in order, drafts that are replaced by optimized code
      gemm        matmul; `gemm.avx512` its inner loops in assembler
      kernel      Loops kernels
      library     routines of our own (Fourier transforms, sorts, copies) and calls of LAPACK
      vector      operations and math functions on registers, scalar or vector
      runtime     the thread pool, the heap and native dispatch (`.ll` files beside them)
      ir          writers of LLVM IR
      toolchain   LLVM, the linker, the cache on disk

Next: `program.program`, then `kernel.kernel_emitter`.
"""
