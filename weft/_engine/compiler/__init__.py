"""From a program on dense arrays to a schedule of kernels.

In:   a simplified jaxpr without collectives, whose mesh axes are leading dims.
Out:  `schedule.schedule.Scheduled`: a `ir.program.Program` of kernels (Loops), matmuls and library calls over assigned buffers.
Laws: nothing here depends on LLVM or on a machine's instructions. Each stage maps one IR to another that can be printed,
      checked and evaluated (`ir.loops_eval`). Rooms import downward only:

      schedule    steps in order, and the buffer of each value
      rewrite     jaxpr to simpler jaxpr
      kernels     equations with kernels or steps of their own: scatters, prefix scans, library calls, FFTs
      loops       scalar code to loop nests: dims, vectors, tasks
      lowering    fused groups of equations to scalar code
      fusion      which equations share a kernel

Next: `fusion` for what becomes a kernel, `schedule.schedule` for the whole sequence.
"""
