"""The choice of the transport that executes a plan.

In:   plans.
Out:  handles and requests that identify their transport, so that one pair of native functions serves all transports.
Laws: the choice depends only on the plan and on the hosts of the ranks, so all ranks choose alike. Ranks of one host exchange through
      shared memory and do not import MPI; others exchange through MPI.
Next: `shared_memory`, `mpi`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weft._engine.processes import mpi
from weft._engine.processes.collective_plan import CollectivePlan
from weft._engine.processes.mpi import MpiTransport
from weft._engine.processes.shared_memory import NativeFunctions, SharedMemoryTransport
from weft._engine.processes.transport import DONE, START, WAIT, Transport


class RoutingTransport(Transport):
    """A transport that delegates each plan to shared memory or MPI."""

    name = "routes"

    def __init__(
        self, processes: Any, natives: NativeFunctions, requested_transport: str = "auto"
    ) -> None:
        self._processes, self._natives = processes, natives
        self._window = SharedMemoryTransport(processes, natives)
        self._requested_transport = requested_transport
        self._mpi: MpiTransport | None = None
        self._find_mpi()
        self._handles: dict[CollectivePlan, int] = {}
        self._calls: tuple[Any, Any] | None = None

    def _find_mpi(self) -> None:
        """Start MPI if processes are on several hosts, or if the configuration requests it."""
        own = self._processes
        if self._requested_transport == "mpi" or (
            self._requested_transport == "auto" and len(set(own.hosts)) > 1
        ):
            job, rank_of = mpi.join(own)
            self._mpi = MpiTransport(own, self._natives, job, rank_of)

    def transport_of(self, plan: CollectivePlan) -> Transport:
        """Return the transport that executes a plan."""
        if self._requested_transport != "mpi" and self._window.supports(plan):
            return self._window
        if self._mpi is None:
            raise ValueError(
                f"config.process_transport is shared_memory, which cannot carry out {plan}: its ranks are on several "
                "hosts. Set it to auto."
            )
        if not self._mpi.supports(plan):
            raise ValueError(
                f"{plan} is too large for MPI, which counts the elements of a message in 32 bits. Split the array."
            )
        return self._mpi

    def plan(self, plan: CollectivePlan) -> int:
        handle = self._handles.get(plan)
        if handle is None:
            handle = self._handles[plan] = self.transport_of(plan).plan(plan)
        return handle

    def start(self, handle: int, input_address: int, output_address: int) -> int:
        request = self._native()[0](handle, input_address, output_address)
        if request <= 0:
            self._processes.raise_failure()
        return request

    def wait(self, request: int, deadline: float | None = None) -> None:
        self._limit(deadline)
        try:
            status = self._native()[1](request)
        finally:
            self._limit(None)
        if status != DONE:
            self._processes.raise_failure()

    def _limit(self, deadline: float | None) -> None:
        self._window.deadline = deadline
        if self._mpi is not None:
            self._mpi.deadline = deadline

    def entry_points(self) -> dict[str, int]:
        symbols = self._natives.symbols()
        return {"start": symbols["weft_collective_start"], "wait": symbols["weft_collective_wait"]}

    def close(self) -> None:
        self._window.close()
        if self._mpi is not None:
            self._mpi.close()

    def components(self) -> list[Transport]:
        return [self._window, *([self._mpi] if self._mpi is not None else [])]

    def awaits(self) -> str:
        """Return a description of the collective that this rank waits for; "" if none."""
        return self._window.awaits() or (self._mpi.awaits() if self._mpi is not None else "")

    def _native(self) -> tuple[Any, Any]:
        if self._calls is None:
            symbols = self.entry_points()
            self._calls = ctypes.cast(symbols["start"], START), ctypes.cast(symbols["wait"], WAIT)
        return self._calls
