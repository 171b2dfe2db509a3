"""The interface of transports, which execute collectives between processes.

In:   plans, which all participating ranks create in the same order; addresses of buffers, which stay valid from start to wait.
Out:  requests; and two C functions for native code.
How:  a handle is the address of a record that begins with the addresses of its transport's start and wait functions; a request is the
      address of a record that begins with the wait function. So native code calls them without knowing the transport.
Laws: `start` does not wait for other ranks; `wait` has a deadline. After a failure a transport is broken: every later start and wait
      fails immediately with the same error.
Next: `transport_routes` chooses the transport of a plan.
"""

from __future__ import annotations

import ctypes

from weft._engine.processes.collective_plan import CollectivePlan

START = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)
#: return values of the native `wait`
DONE, FAILED = 0, 1


class Transport:
    """An executor of collectives; subclasses define all methods."""

    name = ""

    def plan(self, plan: CollectivePlan) -> int:
        """Return the handle of a plan, valid for the life of the transport. Equal plans have one handle."""
        raise NotImplementedError(f"{type(self).__name__}.plan")

    def start(self, handle: int, input_address: int, output_address: int) -> int:
        """Start a collective; return the request for one `wait`. The request owns both buffers until then."""
        raise NotImplementedError(f"{type(self).__name__}.start")

    def wait(self, request: int, deadline: float | None = None) -> None:
        """Wait until the output is complete; `deadline` is in seconds from now. Raises ProcessFailureError."""
        raise NotImplementedError(f"{type(self).__name__}.wait")

    def entry_points(self) -> dict[str, int]:
        """Return the addresses of C functions that can be called without the GIL: `start`, i64 (i64 handle, ptr in, ptr out), which
        returns a request or -1, and `wait`, i32 (i64 request), which returns DONE or FAILED; then `Processes.raise_failure` raises."""
        raise NotImplementedError(f"{type(self).__name__}.entry_points")

    def components(self) -> list[Transport]:
        """Return the transports that this transport consists of."""
        return [self]

    def close(self) -> None:
        """Release all resources. No collective may be pending."""
