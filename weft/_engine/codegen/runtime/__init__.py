"""The run-time support of native code: threads, memory, and the call from Python.

In:   LLVM IR in the `.ll` files of this folder.
Out:  addresses of native functions: `pool` (fork and join), `heap` (buffers), `dispatch` (a
      compiled function's `__call__`), `queue` (asynchronous execution of programs), `symbols`
      (functions of other libraries that code refers to).
Laws: a caller of the pool takes part in the work and never waits for a worker that has claimed no
      task; nested calls run inline; a forked child starts its own workers on first use.
Next: `pool`.
"""
