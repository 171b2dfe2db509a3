"""What native code needs at run time: threads, memory, and the call from Python.

In:   LLVM IR in the `.ll` files beside these modules.
Out:  addresses of native functions: `pool` (fork and join), `heap` (buffers), `dispatch` (a compiled function's `__call__`), `queue`
      (programs that run while their callers go on), `symbols` (functions of other libraries that code names).
Laws: the caller of the pool takes part in the work and never waits for a worker that has claimed nothing; nested calls run
      inline; a forked child starts workers when it first needs them.
Next: `pool`.
"""
