"""The schedule: steps in order over assigned buffers.

In:   a simplified jaxpr and which inputs are donated.
Out:  `schedule.Scheduled`: a `ir.program.Program`, its constants, and which results reuse donated buffers.
Laws: two values share memory only if their live ranges do not overlap (`liveness`) or one is overwritten by the other at its last
      use (`buffer_aliasing`). Peak bytes are exact and known before the program runs.
Next: `schedule` is the whole sequence; `region_lowering` and `loop_carries` for control flow, `buffer_assignment` and `arena` for memory,
      `loop_outlining` turns a small loop into one kernel.
"""
