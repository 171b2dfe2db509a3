"""Several processes that run one program: `initialize` in each of them, before anything else of weft is used.

In:   the coordinator's address, the number of processes and this process's number; launchers set them in the environment.
Out:  one set of devices: `weft.devices()` lists the devices of all processes, `weft.local_devices()` the devices of this process.
Laws: every process runs the same program. If one fails, the others raise `weft.errors.ProcessFailureError`; none waits forever.
Next: `processes` has the coordinator, the transports and the failures.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from weft._engine import processes
from weft._engine.backends.base import describe_versions, have_devices, keep_devices_of
from weft._engine.backends.planned_devices import planned_devices
from weft._engine.processes.launchers import PREEMPTED
from weft._engine.util.config import config, num_virtual_devices
from weft._engine.util.errors import describe
from weft._engine.util.source import guard_all

__all__ = ["PREEMPTED", "initialize", "is_initialized", "planned_devices", "shrink", "shutdown"]


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int | None = None,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Connect this process, number `process_id` of `num_processes`, to the others. Process 0 serves the coordinator at
    `coordinator_address`, a host and a port that all can reach.

    Missing arguments are read from WEFT_COORDINATOR_ADDRESS, WEFT_NUM_PROCESSES and WEFT_PROCESS_ID (or JAX_...), else
    from the launcher: `cluster_detection_method` is "slurm", "ompi", "pmi" (MPICH and others), "k8s" or "mpi4py"; by
    default the first launcher whose variables are set is used, and "deactivate" disables the detection. Every process
    has its own virtual devices (`local_device_ids` is accepted without effect: JAX has it for GPUs). A process that is
    silent for `heartbeat_timeout_seconds`, by default `config.heartbeat_timeout`, counts as failed. Under `weft launch`
    and `weft run` the processes are connected before the program begins, and the program's first call returns at once.

    Raises RuntimeError if it is called twice or after the first use of a device; ValueError for missing or inconsistent
    arguments; ProcessFailureError if the other processes do not connect within `initialization_timeout` seconds.

    >>> weft.distributed.initialize("localhost:1234", 2, 2)
    Traceback (most recent call last):
        ...
    ValueError: initialize: process_id is a number from 0 to 1, got 2.
    """
    shared = processes.current()
    if shared is not None:
        if (
            not shared.is_launched
            or num_processes not in (None, shared.size)
            or process_id not in (None, shared.rank)
        ):
            raise RuntimeError("distributed.initialize should only be called once.")
        shared.is_launched = False
        return
    from weft._engine.processes import launchers, state

    if slice_index is not None and partition_index is None:
        warnings.warn(
            "`slice_index` has been deprecated. Please use `partition_index` instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        partition_index = slice_index
    cluster = launchers.detect_environment(
        cluster_detection_method, coordinator_address, num_processes, process_id
    )
    size = _number("num_processes", cluster.size, 1, None)
    rank = _number("process_id", cluster.rank, 0, size - 1)
    if cluster.address is None and cluster.share is None:
        raise ValueError(
            "initialize: coordinator_address should be defined: a host and a port of process 0, as in 10.0.0.1:1234."
        )
    if have_devices():
        raise RuntimeError(
            describe(
                "distributed.initialize",
                "it must be called before any use of a device.",
                [],
                None,
                "This includes any computation, but also calls of weft.devices, weft.device_put and others.",
                "Call it first.",
            )
        )
    bind = (
        coordinator_bind_address
        or os.environ.get("WEFT_COORDINATOR_BIND_ADDRESS")
        or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    )
    heartbeat = (
        config.heartbeat_timeout
        if heartbeat_timeout_seconds is None
        else float(heartbeat_timeout_seconds)
    )
    index = next(
        (
            int(text)
            for name in ("WEFT", "JAX")
            if (text := os.environ.get(f"{name}_PARTITION_INDEX"))
        ),
        None,
    )
    state.join(
        cluster.address,
        rank,
        size,
        num_virtual_devices(),
        serve=rank == 0 and not cluster.is_served,
        bind_address=bind,
        share=cluster.share,
        start=cluster.start,
        initialization_timeout=float(initialization_timeout),
        heartbeat_timeout=heartbeat,
        collective_timeout=config.collective_timeout,
        shutdown_timeout=float(shutdown_timeout_seconds),
        partition=index if partition_index is None else partition_index,
        natives=_NativeCollectives(),
        transport=config.process_transport,
        plugins=describe_versions(),
    )


class _NativeCollectives:
    """Loads the native code for collectives when the first collective is planned."""

    def symbols(self) -> dict[str, int]:
        from weft._engine.codegen.library import process_calls

        return process_calls.symbols()

    def combine(self, op: str, dtype: str, kind: str = "plain") -> int:
        from weft._engine.codegen.library import process_reduction

        return process_reduction.combine(op, dtype)[kind]

    def liveness(self) -> dict[str, int]:
        from weft._engine.codegen.library import process_calls

        return process_calls.liveness_symbols()

    def mpi(self, handle: str) -> dict[str, int]:
        from weft._engine.codegen.library import process_calls

        return process_calls.mpi_symbols(handle)


def is_initialized() -> bool:
    """Return True if this process is connected to others, by `initialize` or by its launcher.

    >>> weft.distributed.is_initialized()
    False
    """
    return processes.current() is not None


def shutdown() -> None:
    """Wait until all processes call `shutdown`, then disconnect; do nothing in a single process. A process that exits disconnects by itself.

    Raises ProcessFailureError if a process failed, or did not call this within `shutdown_timeout_seconds`.

    >>> weft.distributed.shutdown()
    """
    if processes.current() is not None:
        from weft._engine.processes import state

        state.leave()


def shrink() -> tuple[int, ...]:
    """Continue in place with the processes that survive a failure. All survivors call this; it returns their previous numbers, in
    the order of their new ones. In a single process it does nothing.

    Processes are renumbered from 0; devices keep their ids, and `weft.devices()` has the remaining ones. Arrays on devices of this
    process alone stay valid. Arrays over several processes can be moved by `weft.device_put` onto a mesh of the remaining devices, or
    read by `process_allgather`, if a survivor has a replica of every block; all survivors make the same call. Old meshes have no
    other use.

    If a process failed in the middle of a step, some survivors may have finished the step and others not: keep the state of the
    previous step until all of them have finished (docs/processes.md shows a program).

    Raises ProcessFailureError if a survivor does not call this within `config.collective_timeout`, if this process itself was declared
    failed, or if the coordinator does not answer and may still run. It runs in `weft launch`, or in process 0 under other launchers;
    when that process has died, the first survivor takes over.

    >>> weft.distributed.shrink()
    (0,)
    """
    before = processes.current()
    if before is None:
        return (0,)
    from weft._engine.processes import state

    survivors = state.shrink()
    keep_devices_of(survivors, before.rank, before.first_numbers)
    return survivors


def _number(name: str, value: Any, least: int, most: int | None) -> int:
    if value is None:
        what = (
            "Number of processes"
            if name == "num_processes"
            else "The process id of the current process"
        )
        raise ValueError(
            f"initialize: {what} must be defined: give {name}, or start under a launcher."
        )
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"initialize: {name} is an integer, got {value!r} of type {type(value).__name__}."
        )
    if value < least or (most is not None and value > most):
        raise ValueError(
            f"initialize: {name} is a number from {least}{'' if most is None else f' to {most}'}, got {value}."
        )
    return value


guard_all(globals())
