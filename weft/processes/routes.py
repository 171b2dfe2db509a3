"""Which transport carries out which plan.

In:   plans.
Out:  handles and requests that know their transport, so that one pair of native functions serves all.
Laws: the choice depends on the plan and on where the ranks are, so all ranks choose alike. Ranks of one machine exchange through shared
      memory; others over TCP.
Next: `shared_memory`, `tcp`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weft.processes.plans import CollectivePlan
from weft.processes.shared_memory import Natives, SharedMemoryTransport
from weft.processes.tcp import TcpTransport
from weft.processes.transport import DONE, START, WAIT, Transport


class Routes(Transport):
    """The transport of a `Processes` whose native code there is."""
    name = "routes"

    def __init__(self, processes: Any, natives: Natives, tcp: TcpTransport, wanted: str = "auto") -> None:
        self._processes, self._natives, self._tcp = processes, natives, tcp
        self._window = SharedMemoryTransport(processes, natives)
        self._wanted = wanted
        self._handles: dict[CollectivePlan, int] = {}
        self._calls: tuple[Any, Any] | None = None

    def transport_of(self, plan: CollectivePlan) -> Transport:
        """Who carries out a plan."""
        if self._wanted in ("auto", "shared_memory") and self._window.takes(plan):
            return self._window
        if self._wanted == "shared_memory":
            raise ValueError(f"config.process_transport is shared_memory, which cannot carry out {plan}: its ranks are on several "
                             "machines, or its reduction has no native code. Set it to auto.")
        return self._tcp

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
        self._window.deadline = self._tcp.deadline = deadline
        try:
            status = self._native()[1](request)
        finally:
            self._window.deadline = self._tcp.deadline = None
        if status != DONE:
            self._processes.raise_failure()

    def entry_points(self) -> dict[str, int]:
        found = self._natives.symbols()
        return {"start": found["weft_collective_start"], "wait": found["weft_collective_wait"]}

    def close(self) -> None:
        self._window.close()
        self._tcp.close()

    def awaits(self) -> str:
        """What this rank waits for just now."""
        return self._window.awaits()

    def _native(self) -> tuple[Any, Any]:
        if self._calls is None:
            found = self.entry_points()
            self._calls = ctypes.cast(found["start"], START), ctypes.cast(found["wait"], WAIT)
        return self._calls
