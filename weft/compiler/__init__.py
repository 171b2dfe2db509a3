"""From a program on dense arrays to a schedule of kernels.

In:   a simplified jaxpr without collectives, in which mesh axes are leading dims.
Out:  `schedule.schedule.Scheduled`: a `ir.program.Program` of kernels (Loops), matmuls and library calls over planned buffers.
Laws: nothing here knows of LLVM or of a machine's instructions; each stage is a function from one IR to another, so it can be
      printed, checked and run by its evaluator (`ir.loops_eval`). Rooms import downward only:

      schedule    steps in order, with the memory that each value has
      rewrite     jaxpr to smaller or simpler jaxpr
      kernels     equations that have kernels or steps of their own: scatters, scans, library calls, Fourier transforms
      loops       scalar code to loop nests: dims, vectors, tasks
      lowering    a group of equations to scalar code
      fusion      which equations share a kernel

Next: `fusion` for what becomes a kernel, `schedule.schedule` for the whole way.
"""
