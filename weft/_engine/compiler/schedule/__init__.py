"""Scheduling: the order of steps, and the buffers of values.

In:   a simplified jaxpr and the numbers of donated inputs.
Out:  `schedule.Scheduled`: a `ir.program.ScheduledProgram`, its constants, and the aliases of results and donated inputs.
Laws: two values share memory only if their live ranges do not overlap (`liveness`) or one overwrites the other at its last use
      (`buffer_aliasing`). The peak memory is exact and computed before the program runs.
Next: `schedule` for the whole sequence, `region_lowering` and `loop_carries` for control flow, `buffer_assignment` and `arena` for
      memory, `loop_outlining` for small loops that become one kernel.
"""
