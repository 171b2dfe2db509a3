"""The compiler from programs on dense arrays to schedules of kernels.

In:   a simplified jaxpr without collectives, whose mesh axes are leading dims.
Out:  `schedule.schedule.Scheduled`: a `ir.program.ScheduledProgram` of kernels (Loops), matmuls and library calls over assigned buffers.
Laws: nothing here depends on LLVM or on a machine's instructions. Each stage maps one IR to another that can be printed,
      checked and evaluated (`ir.loops_eval`). A package imports only from packages below it in this list:

      schedule    orders the steps and assigns buffers to values
      rewrite     rewrites a jaxpr into a simpler jaxpr
      kernels     builds kernels and steps of equations that do not fuse: scatters, prefix scans, library calls, FFTs
      loops       builds loop nests around scalar code: dims, vectors, tasks
      lowering    lowers fused groups of equations to scalar code
      fusion      groups equations into kernels

Next: `fusion` for the grouping into kernels, `schedule.schedule` for the whole sequence.
"""
