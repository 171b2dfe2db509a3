"""Collectives between ranks of one machine, through windows of shared memory, in native code.

In:   plans whose groups are on one machine; native functions from `codegen.library.process_calls`.
Out:  requests. The exchange itself is `codegen/runtime/windows.ll`, which describes its steps.
How:  each set of ranks has a window: anonymous memory of its first rank, which the others open through that process in /proc. It has
      no name in a file system, so that nothing of it remains if any process is killed.
Laws: see `transport`. While a rank waits, native code calls back 20 times per second: for signals, failures and deadlines.
Next: `transport_routes` decides which plans use this transport.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from typing import Any, Protocol

from weft._engine.processes import failures
from weft._engine.processes.collective_plan import CollectiveKind, CollectivePlan
from weft._engine.processes.transport import DONE, FAILED, WAIT, Transport
from weft._engine.util.record import record

# thresholds, measured on several machines
#: bytes of a message slot: two slots of all members fit into the caches of the cores
_EXCHANGE_SLOT_BYTES = 128 << 10
#: an all_reduce of more bytes among more than two processes is split among them
_EXCHANGE_SPLIT_BYTES = 8 << 10
#: results of at least this many bytes are written with non-temporal stores
_EXCHANGE_STREAM_BYTES = 8 << 20


_LINE = 64  # bytes of a cache line: the words of two ranks are in different lines
_CHANNELS = 4
_WORDS = 16  # number of words before the channels' words
_GATHER, _REDUCE, _SCATTER, _EXCHANGE, _FROM, _TWO_PHASE = range(6)


class NativeFunctions(Protocol):
    """Access to the native functions, compiled on demand."""

    def symbols(self) -> dict[str, int]:
        """Return the functions of `windows.ll`: name -> address."""
        ...

    def combine(self, op: str, dtype: str, kind: str = "plain") -> int:
        """Return the address of a reduction: `plain`, `stream` for large results, or `mpi` with the signature of MPI's own."""
        ...

    def liveness(self) -> dict[str, int]:
        """Return the functions of `liveness.ll`: name -> address."""
        ...

    def mpi(self, handle: str) -> dict[str, int]:
        """Return the functions of `mpi.ll` for MPI handles of the type `handle`: name -> address."""
        ...


@record(frozen=False, eq=False)
class _Window:
    """A window in the address space of one of its members."""

    ranks: tuple[int, ...]
    memory: Any
    words: Any
    base: int
    #: channel -> ((request, awaited count), clock, limit in seconds)
    clocks: Any


class SharedMemoryTransport(Transport):
    """The transport between ranks of one machine."""

    name = "shared_memory"

    def __init__(self, processes: Any, natives: NativeFunctions) -> None:
        self._processes, self._natives = processes, natives
        self._groups: dict[tuple[int, ...], _Window] = {}
        self._group_of: dict[int, _Window] = {}
        self._planned: dict[int, tuple[CollectivePlan, Any, Any]] = {}
        self._handles: dict[CollectivePlan, int] = {}
        self._files: list[int] = []
        self._lock = threading.Lock()
        self._wait_callback = WAIT(self._while_waiting)
        self._awaits = ("", 0.0)
        self.deadline: float | None = None

    def supports(self, plan: CollectivePlan) -> bool:
        """Return whether this transport can execute the plan; all ranks return the same."""
        if plan.kind is CollectiveKind.PERMUTE:
            ranks = {rank for pair in plan.pairs for rank in pair}
            sets = [ranks] if ranks else []
        else:
            sets = [set(group) for group in plan.groups]
        return all(len({self._processes.hosts[rank] for rank in ranks}) == 1 for ranks in sets)

    def plan(self, plan: CollectivePlan) -> int:
        with self._lock:
            handle = self._handles.get(plan)
            if handle is None:
                handle = self._handles[plan] = self._make_native_plan(plan)
            return handle

    def _make_native_plan(self, plan: CollectivePlan) -> int:
        symbols = self._natives.symbols()
        size, n = plan.numpy_dtype.itemsize, 1
        words = (ctypes.c_int64 * 11)(symbols["weft_window_start"], symbols["weft_window_wait"])
        ranks = plan.group_of(self._processes.rank)
        group = self._group(ranks or (self._processes.rank,))
        n = len(group.ranks)
        pointers = (ctypes.c_void_p * n)()
        block, piece, source = plan.count * size, _EXCHANGE_SLOT_BYTES, -1
        kind = {
            "all_gather": _GATHER,
            "all_reduce": _REDUCE,
            "reduce_scatter": _SCATTER,
            "all_to_all": _EXCHANGE,
        }.get(plan.kind, _FROM)
        if kind in (_SCATTER, _EXCHANGE):
            piece = _EXCHANGE_SLOT_BYTES // n // _LINE * _LINE
            block = block // n if kind == _EXCHANGE else block
        elif kind == _REDUCE and n > 2 and block > _EXCHANGE_SPLIT_BYTES:
            kind, piece = _TWO_PHASE, _EXCHANGE_SLOT_BYTES // (n * _LINE) * (n * _LINE)
        if plan.kind is CollectiveKind.BROADCAST:
            source = 0
        elif plan.kind is CollectiveKind.PERMUTE:
            source = next(
                (group.ranks.index(s) for s, t in plan.pairs if t == self._processes.rank), -1
            )
        steps = -(-block // piece) * (2 if kind == _TWO_PHASE else 1)
        words[2], words[3], words[4], words[6], words[7] = (
            ctypes.addressof(group.words),
            kind,
            block,
            size,
            source,
        )
        if plan.op is not None:
            streams = kind in (_REDUCE, _SCATTER) and block >= _EXCHANGE_STREAM_BYTES
            words[5] = self._natives.combine(plan.op, plan.dtype, "stream" if streams else "plain")
        words[8], words[9], words[10] = steps, piece, ctypes.addressof(pointers)
        handle = ctypes.addressof(words)
        self._planned[handle] = (plan, words, pointers)
        return handle

    def _group(self, ranks: tuple[int, ...]) -> _Window:
        group = self._groups.get(ranks)
        if group is None:
            group = self._groups[ranks] = self._window(ranks)
            self._group_of[ctypes.addressof(group.words)] = group
        return group

    def _window(self, ranks: tuple[int, ...]) -> _Window:
        n, key = len(ranks), f"weft/window/{'.'.join(map(str, ranks))}"
        head = -(-_CHANNELS * n * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE
        size = head + _CHANNELS * n * 2 * _EXCHANGE_SLOT_BYTES
        client, me = self._processes.client, self._processes.rank
        if ranks[0] == me:
            file = os.memfd_create("weft", os.MFD_CLOEXEC)
            os.ftruncate(file, size)
            client.put(key, f"/proc/{os.getpid()}/fd/{file}".encode())
        else:
            path = client.get(key, self._processes.collective_timeout).decode()
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._files.append(file)
        memory = mmap.mmap(file, size)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        words = (ctypes.c_int64 * (_WORDS + 2 * _CHANNELS))()
        words[0], words[1], words[2], words[3], words[4] = (
            base,
            n,
            ranks.index(me),
            _EXCHANGE_SLOT_BYTES,
            _CHANNELS,
        )
        words[6] = ctypes.addressof(self._processes.failed_word)
        words[7] = ctypes.cast(self._wait_callback, ctypes.c_void_p).value or 0
        words[8] = head
        return _Window(ranks, memory, words, base, {})

    def entry_points(self) -> dict[str, int]:
        symbols = self._natives.symbols()
        return {"start": symbols["weft_window_start"], "wait": symbols["weft_window_wait"]}

    def close(self) -> None:
        """Close the files; the memory stays mapped, because a thread may still use it."""
        for file in self._files:
            os.close(file)
        self._files.clear()

    # ---- while a rank waits
    def _while_waiting(self, request: int) -> int:
        try:
            words = (ctypes.c_int64 * 8).from_address(request)
            plan, group = self._planned[words[1]][0], self._group_of[self._planned[words[1]][1][2]]
            channel, count = words[5], words[6]
            counters = [
                ctypes.c_int64.from_address(
                    group.base + (channel * len(group.ranks) + i) * _LINE
                ).value
                for i in range(len(group.ranks))
            ]
            absent = [rank for rank, counter in zip(group.ranks, counters) if counter < count]
            self._awaits = (
                f"{plan} at {plan.origin}" if plan.origin else str(plan),
                time.monotonic(),
            )
            self._processes.check(absent, plan)
            known, clock, limit = group.clocks.get(channel, (None, None, 0.0))
            if known != (request, count):
                limit = (
                    self._processes.collective_timeout if self.deadline is None else self.deadline
                )
                clock = self._processes.clock(limit)
                group.clocks[channel] = ((request, count), clock, limit)
            if absent and clock.is_over(absent):
                arrived = [rank for rank in group.ranks if rank not in absent]
                report = self._processes.client.query_stacks(absent)
                raise failures.of_absence(str(plan), limit, arrived, absent, plan.origin, report)
            return DONE
        except BaseException as error:  # KeyboardInterrupt among them
            self._processes.set_failure(error)
            return FAILED

    def awaits(self) -> str:
        """Return a description of the collective that this rank waits for; "" if none."""
        text, seen = self._awaits
        return text if time.monotonic() - seen < 0.3 else ""
