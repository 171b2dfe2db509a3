"""Which transport carries out which plan.

In:   plans.
Out:  handles and requests that know their transport, so that one pair of native functions serves all.
Laws: the choice depends on the plan and on where the ranks are, so all ranks choose alike. Ranks of one machine exchange through shared
      memory; others through MPI where all ranks are in one MPI job, else over TCP.
Next: `shared_memory`, `mpi`, `tcp`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weft.processes import mpi
from weft.processes.mpi import MpiTransport
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
        self._mpi: MpiTransport | None = None
        self._find_mpi()
        self._handles: dict[CollectivePlan, int] = {}
        self._calls: tuple[Any, Any] | None = None

    def _find_mpi(self) -> None:
        """Enter MPI if that is of use, and all ranks can."""
        own = self._processes
        if self._wanted != "mpi" and (self._wanted != "auto" or len(set(own.hosts)) == 1 or not all(own.client.facts["mpi"])):
            return
        MPI = mpi.begin()
        world = mpi.world(MPI, own)
        places = own.client.barrier("weft/mpi", own.collective_timeout, brings=[world.Get_size(), world.Get_rank()])
        if all(size == own.size for size, _ in places):
            self._mpi = MpiTransport(own, self._natives, MPI, world, tuple(rank for _, rank in places))
        elif self._wanted == "mpi":
            sizes = sorted({size for size, _ in places})
            raise ValueError(f"config.process_transport is mpi, but MPI sees {sizes} processes where there are {own.size}: start them by "
                             "the mpiexec of the library that mpi4py uses, or by srun with its support. After a failure MPI needs ULFM "
                             "(Open MPI's `mpiexec --with-ft ulfm`).")

    def transport_of(self, plan: CollectivePlan) -> Transport:
        """Who carries out a plan."""
        if self._wanted in ("auto", "shared_memory") and self._window.takes(plan):
            return self._window
        if self._wanted == "shared_memory":
            raise ValueError(f"config.process_transport is shared_memory, which cannot carry out {plan}: its ranks are on several "
                             "machines, or its reduction has no native code. Set it to auto.")
        if self._mpi is not None and self._mpi.takes(plan):
            return self._mpi
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
        self._limit(deadline)
        try:
            status = self._native()[1](request)
        finally:
            self._limit(None)
        if status != DONE:
            self._processes.raise_failure()

    def _limit(self, deadline: float | None) -> None:
        self._window.deadline = self._tcp.deadline = deadline
        if self._mpi is not None:
            self._mpi.deadline = deadline

    def entry_points(self) -> dict[str, int]:
        found = self._natives.symbols()
        return {"start": found["weft_collective_start"], "wait": found["weft_collective_wait"]}

    def close(self) -> None:
        self._window.close()
        if self._mpi is not None:
            self._mpi.close()
        self._tcp.close()

    def parts(self) -> list[Transport]:
        return [self._window, self._tcp, *([self._mpi] if self._mpi is not None else [])]

    def awaits(self) -> str:
        """What this rank waits for just now."""
        return self._window.awaits() or (self._mpi.awaits() if self._mpi is not None else "")

    def _native(self) -> tuple[Any, Any]:
        if self._calls is None:
            found = self.entry_points()
            self._calls = ctypes.cast(found["start"], START), ctypes.cast(found["wait"], WAIT)
        return self._calls
