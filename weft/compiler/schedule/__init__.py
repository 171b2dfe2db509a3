"""The schedule: steps in order over planned buffers.

In:   a simplified jaxpr and which inputs are donated.
Out:  `schedule.Scheduled`: a `ir.program.Program`, its constants, and which outputs reuse the memory of inputs.
Laws: two values share memory only where their lives do not overlap (`liveness`) or one dies into the other
      (`buffer_aliasing`). Peak bytes are exact and known before the program runs.
Next: `schedule` is the whole way; `region_lowering` for control flow, `buffer_assignment` and `arena` for memory,
      `loop_outlining` makes a small loop one kernel.
"""
