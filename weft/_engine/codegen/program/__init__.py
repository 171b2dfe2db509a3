"""Whole programs: one native entry that runs kernels, matmuls, routines and control flow.

In:   an `ir.program.ScheduledProgram`.
Out:  `program_runner.NativeProgram`: loaded code, called with one array of addresses.
Laws: one call runs the whole program; a first call may run unoptimized code with the same bits
      (`tiered_compilation`).
Next: `program` (compilation and its order), `entry` (the schedule as one function), `program_runner`
      (loaded programs).
"""
