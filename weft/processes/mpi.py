"""Collectives by MPI, where all ranks are in one MPI job: those of several machines.

In:   plans; the MPI library that mpi4py has loaded, whatever its maker; native code, which `codegen.library.process_calls` has.
Out:  requests. Every collective is MPI's nonblocking one; `codegen/runtime/mpi.ll` starts and tests it.
Laws: as `transport` says. No call blocks but those that make a communicator, and its ranks have met before. After a failure no function
      of MPI is called any more, not even MPI_Finalize, which would wait for the failed ranks; except with ULFM (`world`).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

from weft.processes import failures
from weft.processes.plans import CollectivePlan
from weft.processes.shared_memory import Natives
from weft.processes.transport import DONE, FAILED, WAIT, Transport
from weft.util.errors import ProcessFailureError

_MOST = (1 << 31) - 1       # counts are 32-bit integers
_REDUCE, _GATHER, _BROADCAST, _PERMUTE = range(4)
_KINDS = {"all_reduce": (_REDUCE, "MPI_Iallreduce"), "reduce_scatter": (_REDUCE, "MPI_Ireduce_scatter_block"),
          "all_gather": (_GATHER, "MPI_Iallgather"), "all_to_all": (_GATHER, "MPI_Ialltoall"), "broadcast": (_BROADCAST, "MPI_Ibcast"),
          "permute": (_PERMUTE, "MPI_Isend")}
_TYPES = {"int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T", "int64": "INT64_T", "uint8": "UINT8_T", "uint16": "UINT16_T",
          "uint32": "UINT32_T", "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE", "complex64": "C_FLOAT_COMPLEX",
          "complex128": "C_DOUBLE_COMPLEX", "bool": "UINT8_T"}
_OPS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN", "and": "BAND", "or": "BOR", "xor": "BXOR"}


def is_started_by_mpi() -> bool:
    """Whether the environment says that a launcher which MPI knows has started this process, and mpi4py is installed."""
    from importlib.util import find_spec

    launched = any(name in os.environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"))
    return launched and find_spec("mpi4py") is not None


def begin() -> Any:
    """MPI, initialized so that it does not wait for others when this process ends, and without the lock of Python, which the coordinator
    needs meanwhile."""
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    if not MPI.Is_initialized():
        _library_of(MPI).MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    return MPI


#: the communicator of all processes, once MPI is in use
_world: list[Any] = []


def world(MPI: Any, processes: Any) -> Any:
    """The communicator of all processes. After a failure it shrinks to the survivors, if MPI has ULFM: Open MPI under `mpiexec --with-ft
    ulfm`. Without ULFM it remains as it was, too large."""
    if not _world:
        _world.append(MPI.COMM_WORLD)
    elif _world[0].Get_size() != processes.size and os.environ.get("OMPI_MCA_mpi_ft_enable", "0") not in ("", "0", "false"):
        processes.barrier("weft/mpi/shrink")                # nobody uses the old one any more
        _world[0].Revoke()
        _world[0] = _world[0].Shrink()
        _world[0].Set_errhandler(MPI.ERRORS_RETURN)
    return _world[0]


class MpiTransport(Transport):
    """The transport of the ranks of one MPI job; `rank_of` says which process of the communicator `world` each rank is."""
    name = "mpi"

    def __init__(self, processes: Any, natives: Natives, MPI: Any, world: Any, rank_of: tuple[int, ...]) -> None:
        self._processes, self._natives, self._mpi, self._world, self._rank_of = processes, natives, MPI, world, rank_of
        self._handle = "i32" if MPI._sizeof(MPI.Comm) == 4 else "ptr"
        self._library = _library_of(MPI)
        self._comms: dict[tuple[int, ...], Any] = {}
        self._ops: dict[tuple[str, str], Any] = {}
        self._handles: dict[CollectivePlan, int] = {}
        self._planned: dict[int, tuple[CollectivePlan, Any, Any]] = {}
        self._lock = threading.Lock()
        self._slow = WAIT(self._while_waiting)
        self._clocks: dict[int, tuple[Any, float]] = {}
        self._awaits = ("", 0.0)
        self.deadline: float | None = None

    def takes(self, plan: CollectivePlan) -> bool:
        """Whether this transport can carry out the plan; the same answer on all ranks."""
        count = max(plan.input_count, plan.output_count)
        if plan.op is None:
            return count * plan.numpy_dtype.itemsize <= _MOST
        return count <= _MOST and (_is_mpis(plan.op, plan.dtype) or self._natives.combine(plan.op, plan.dtype) is not None)

    def plan(self, plan: CollectivePlan) -> int:
        with self._lock:
            handle = self._handles.get(plan)
            if handle is None:
                handle = self._handles[plan] = self._make(plan)
            return handle

    def _make(self, plan: CollectivePlan) -> int:
        MPI, rank, found = self._mpi, self._processes.rank, self._natives.mpi(self._handle)
        group = plan.group_of(rank)
        kind, function = _KINDS[plan.kind]
        words = (ctypes.c_int64 * 16)(found["weft_mpi_start"], found["weft_mpi_wait"], kind)
        size = plan.numpy_dtype.itemsize
        kept: list[Any] = []
        count, kind_of_data = plan.count * size, MPI.BYTE
        if plan.kind == "all_to_all":
            count //= max(len(group), 1)
        if plan.op is not None:
            kind_of_data, op = self._reduction(plan.op, plan.dtype, size)
            count = plan.count
            words[5] = MPI._handleof(op)
            kept.append(op)
        comm = self._comm(group or (rank,))
        words[3], words[4], words[6] = count, MPI._handleof(kind_of_data), MPI._handleof(comm)
        words[7], words[8], words[14] = self._address(function), self._address("MPI_Test"), self._address("MPI_Irecv")
        words[9] = ctypes.addressof(self._processes.failed_word)
        words[10] = ctypes.cast(self._slow, ctypes.c_void_p).value or 0
        words[11], words[15] = plan.count * size, plan.output_count * size
        words[12] = words[13] = -1
        if plan.kind == "broadcast":
            words[13] = group.index(rank) if group else 0
        for source, target in plan.pairs:
            if target == rank:
                words[12] = group.index(source)
            if source == rank:
                words[13] = group.index(target)
        handle = ctypes.addressof(words)
        self._planned[handle] = (plan, words, (kept, kind_of_data, comm))
        return handle

    def _reduction(self, op: str, dtype: str, size: int) -> tuple[Any, Any]:
        """MPI's datatype and reduction. Its maxima leave NaNs out and it knows no small floats: these are native functions of ours."""
        MPI = self._mpi
        if _is_mpis(op, dtype):
            name = {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(op, op) if dtype == "bool" else op
            return getattr(MPI, _TYPES[dtype]), getattr(MPI, _OPS[name])
        if (op, dtype) not in self._ops:
            data = MPI.BYTE.Create_contiguous(size).Commit()
            made = MPI.Op()
            create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(self._address("MPI_Op_create"))
            create(self._natives.combine(op, dtype, "mpi"), 1, MPI._addressof(made))
            self._ops[op, dtype] = (data, made)
        return self._ops[op, dtype]

    def _comm(self, ranks: tuple[int, ...]) -> Any:
        comm = self._comms.get(ranks)
        if comm is None:
            if len(ranks) > 1:                  # so that nobody waits in MPI for one who does not come
                self._processes.barrier(f"weft/mpi/{'.'.join(map(str, ranks))}", ranks=ranks)
            world = self._world
            comm = self._comms[ranks] = world.Create_group(world.Get_group().Incl([self._rank_of[rank] for rank in ranks]))
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        return comm

    def _address(self, function: str) -> int:
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0

    def entry_points(self) -> dict[str, int]:
        found = self._natives.mpi(self._handle)
        return {"start": found["weft_mpi_start"], "wait": found["weft_mpi_wait"]}

    def close(self) -> None:
        """Ends MPI, where no process has failed."""
        if not self._processes.failed_word.value and not self._mpi.Is_finalized():
            self._library.MPI_Finalize()        # not by mpi4py, which keeps the lock of Python

    # ---- while a rank waits
    def _while_waiting(self, request: int) -> int:
        try:
            words = (ctypes.c_int64 * 8).from_address(request)
            plan = self._planned[words[1]][0]
            others = [rank for rank in plan.group_of(self._processes.rank) if rank != self._processes.rank]
            self._awaits = (f"{plan} at {plan.what}" if plan.what else str(plan), time.monotonic())
            if words[2]:
                self._processes.wait_for_news()
                said = self._mpi.Get_error_string(words[2])
                raise ProcessFailureError(f"distributed: {plan}: MPI reports {said!r}\n  at {plan.what}")
            self._processes.check(others, plan)
            limit = self._processes.collective_timeout if self.deadline is None else self.deadline
            if self._clocks.get(request, (None, -1.0))[1] != words[6]:
                self._clocks[request] = (self._processes.clock(limit), words[6])
            if self._clocks[request][0].is_over(others):
                report = self._processes.client.report(others)
                absent = [rank for rank in others if str(plan) not in report.get(rank, {"at": ""})["at"]] or others
                arrived = [rank for rank in plan.group_of(self._processes.rank) if rank not in absent]
                report = {rank: found for rank, found in report.items() if rank in absent}
                raise failures.of_absence(str(plan), limit, arrived, absent, plan.what, report)
            return DONE
        except BaseException as error:          # KeyboardInterrupt among them
            self._processes.set_failure(error)
            return FAILED

    def awaits(self) -> str:
        """What this rank waits for just now."""
        text, seen = self._awaits
        return text if time.monotonic() - seen < 0.3 else ""


def _is_mpis(op: str, dtype: str) -> bool:
    is_float = dtype.startswith(("float", "bfloat", "complex"))
    return dtype in _TYPES and not (is_float and op not in ("sum", "prod"))


def _library_of(MPI: Any) -> ctypes.CDLL:
    """The MPI library that mpi4py has loaded."""
    import re

    with open("/proc/self/maps") as file:
        for line in file:
            path = line.split()[-1]
            if re.search(r"/libmpi[^/]*\.so[^/]*$", path) and "mpi4py" not in path:
                found = ctypes.CDLL(path)
                if hasattr(found, "MPI_Iallreduce"):
                    return found
    return ctypes.CDLL(MPI.__file__)
