"""Planned devices of a machine that does not exist: programs are compiled for them but not run.

In:   the number of processes, and the number of devices per process.
Out:  devices for meshes and shardings of `ShapeDtypeStruct`s; the CPU backend's stages of a program, from which `weft.explain` counts
      the traffic of devices, the exchanges of processes, and the bytes that a process holds.
Laws: the program of process 0 is compiled; other processes have equal programs. Arrays have no values: running and reading raise
      RuntimeError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Backend, Device, LoadedLocalProgram, LocalProgram, Stage


class PlannedBackend(Backend):
    """The devices of `processes` processes, `processes_per_host` on each host."""

    platform = "cpu"
    has_values = False

    def __init__(self, processes: int, devices_per_process: int, processes_per_host: int) -> None:
        super().__init__()
        self.processes_per_host = processes_per_host
        self._devices = tuple(
            [
                Device(rank * devices_per_process + i, self, rank, i)
                for rank in range(processes)
                for i in range(devices_per_process)
            ]
        )

    def process_index(self) -> int:
        return 0

    def process_count(self) -> int:
        return self._devices[-1].process_index + 1

    def host_of(self, rank: int) -> int:
        """Return the number of the host of a process."""
        return rank // self.processes_per_host

    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> Any:
        return _NOTHING

    def get(self, buffer: Any, spec: ArraySpec) -> np.ndarray:
        raise _no_machine()

    def lower(self, program: LocalProgram, stage: Stage) -> Any:
        from weft._engine.backends.cpu import compile  # lazy: imports the whole compiler

        return compile.lower(program, stage)

    def compile(self, program: LocalProgram, lowered: Any, stage: Stage) -> LoadedLocalProgram:
        return PlannedProgram(program, lowered)


class PlannedProgram(LoadedLocalProgram):
    """A program that can be explained but not run."""

    def __init__(self, program: LocalProgram, lowered: Any) -> None:
        scheduled = lowered.scheduled
        self.exchanges = program.owners is not None
        self.aliases, self.kernel_count = scheduled.aliases, scheduled.kernel_count
        self.temporary_bytes = scheduled.program.arena_bytes
        self.constant_bytes = sum([c.nbytes for c in scheduled.consts])

    def run(self, buffers: list[Any]) -> list[Any]:
        raise _no_machine()


class _NoBuffer:
    """A placeholder for memory."""


_NOTHING = _NoBuffer()


def _no_machine() -> RuntimeError:
    return RuntimeError(
        "planned devices do not exist: programs for them can be compiled and explained, not run, and arrays on them have "
        "no values. Use weft.devices() to run."
    )


def planned_devices(
    processes: int, devices_per_process: int = 1, processes_per_host: int = 1
) -> list[Device]:
    """Return devices of a machine that does not exist, in order of their processes; `weft.explain` shows the traffic of a program on it.

    Raises ValueError for less than one process, device per process or process per host.

    >>> mesh = weft.sharding.Mesh(np.array(weft.distributed.planned_devices(1024)), ("data",))
    >>> rows = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("data"))
    >>> batch = weft.ShapeDtypeStruct((4096, 64), np.float32, sharding=rows)
    >>> explained = weft.explain(lambda x: (x ** 2).sum(0), batch)
    >>> explained.process_bytes, [(r.kind, r.processes, r.messages) for r in explained.exchanges]
    (511, [('all_reduce sum', 1024, 2046)])
    """
    for what, count in (
        ("processes", processes),
        ("devices_per_process", devices_per_process),
        ("processes_per_host", processes_per_host),
    ):
        if count < 1:
            raise ValueError(f"planned_devices: {what} must be at least 1, got {count}.")
    return PlannedBackend(processes, devices_per_process, processes_per_host).devices()
