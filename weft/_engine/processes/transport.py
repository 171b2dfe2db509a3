"""How collectives between processes are carried out.

In:   plans, which every rank that takes part makes in the same order; addresses of buffers, which live from start to wait.
Out:  requests; and two C functions for native code.
How:  a handle is the address of a record that begins with the addresses of the start and the wait of its transport, a request that of
      one that begins with its wait: native code calls them without asking whose they are.
Laws: `start` does not wait for other ranks, `wait` has a deadline. After a failure a transport is broken: every later start and wait
      fails with the same error, at once.
Next: `routes` chooses among them.
"""

from __future__ import annotations

import ctypes

from weft._engine.processes.plans import CollectivePlan

START = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)
#: what native `wait` returns
DONE, FAILED = 0, 1


class Transport:
    """What carries out collectives; subclasses define all methods."""

    name = ""

    def plan(self, plan: CollectivePlan) -> int:
        """The handle of a plan; it stays valid for the life of the transport. Equal plans have one handle."""
        raise NotImplementedError(f"{type(self).__name__}.plan")

    def start(self, handle: int, input_address: int, output_address: int) -> int:
        """Begin a collective; the request, for one `wait`. Both buffers belong to it until then."""
        raise NotImplementedError(f"{type(self).__name__}.start")

    def wait(self, request: int, deadline: float | None = None) -> None:
        """Wait until the output has its values; `deadline` in seconds from now. Raises ProcessFailureError."""
        raise NotImplementedError(f"{type(self).__name__}.wait")

    def entry_points(self) -> dict[str, int]:
        """Addresses of C functions, which may be called without the lock of Python: `start`, i64 (i64 handle, ptr in, ptr out), whose
        result is a request or -1, and `wait`, i32 (i64 request), whose result is DONE or not; then `Processes.raise_failure` raises."""
        raise NotImplementedError(f"{type(self).__name__}.entry_points")

    def parts(self) -> list[Transport]:
        """The transports that it is made of."""
        return [self]

    def close(self) -> None:
        """Give back what it holds. No collective is under way."""
