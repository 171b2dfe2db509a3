"""Collectives over TCP, in Python: right first. Every rank sends what the others need to each of them, who compute by themselves.

In:   plans; buffers.
Out:  requests.
How:  a message goes over a connection that its sender opened, and is read at once by a thread of the receiver's into a mailbox, so that
      no two ranks wait for each other to read. It is found by its plan and the number of the start among those of that plan.
Laws: as `transport` says. All ranks make plans in any order: a plan is known by its content.
Next: `plans` computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import socket
import struct
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from weft.processes import failures
from weft.processes.plans import CollectivePlan, carry_out
from weft.processes.transport import DONE, FAILED, START, WAIT, Transport
from weft.util.record import record
from weft.util.threads import DaemonThread

_HEAD = struct.Struct("<i16sQQ")                # source, plan, number of the start, bytes


@record(frozen=False, eq=False)
class _Planned:
    """A plan, its name on the wire, and how often it was started."""
    plan: CollectivePlan
    group: tuple[int, ...]
    sources: tuple[int, ...]
    tag: bytes
    words: Any
    starts: int = 0


@record(frozen=False, eq=False)
class _Request:
    """A collective under way."""
    planned: _Planned
    number: int
    given: np.ndarray
    output: int
    words: Any


class TcpTransport(Transport):
    """The transport of a `Processes`, whose client tells the ranks' addresses."""
    name = "tcp"

    def __init__(self, processes: Any, host: str) -> None:
        self._processes = processes
        self._rank = processes.rank
        self._planned: dict[int, _Planned] = {}
        self._handles: dict[CollectivePlan, int] = {}
        self._requests: dict[int, _Request] = {}
        self._done: deque[_Request] = deque(maxlen=16)
        self.deadline: float | None = None      # of waits in native code, where another one is wanted
        self._mail: dict[tuple[int, bytes, int], bytearray] = {}
        self._arrival = threading.Condition()
        self._to: dict[int, socket.socket] = {}
        self._lock = threading.RLock()
        self._ends = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(1024)
        processes.client.put(f"weft/tcp/{self._rank}", f"{host} {self._listener.getsockname()[1]}".encode())
        DaemonThread(self._accept)
        self._callbacks = (START(self._native_start), WAIT(self._native_wait))
        self._entries = [ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks]

    # ---- what a transport does
    def plan(self, plan: CollectivePlan) -> int:
        with self._lock:
            handle = self._handles.get(plan)
            if handle is None:
                group = plan.group_of(self._rank)
                sources = group if plan.kind != "permute" else tuple(s for s, t in plan.pairs if t == self._rank)
                if plan.kind == "broadcast":
                    sources = group[:1]
                said = repr((plan.kind, plan.dtype, plan.count, plan.op, plan.groups, plan.pairs, plan.what))
                tag, words = hashlib.md5(said.encode(), usedforsecurity=False).digest(), self._words_of_plan()
                handle = self._handles[plan] = ctypes.addressof(words)
                self._planned[handle] = _Planned(plan, group, sources, tag, words)
            return handle

    def start(self, handle: int, input_address: int, output_address: int) -> int:
        self._processes.check()
        planned = self._planned[handle]
        plan, number = planned.plan, planned.starts
        planned.starts += 1
        given = _array(input_address, plan.input_count, plan.numpy_dtype)
        words = (ctypes.c_int64 * 3)(planned.words[1], self._entries[1])
        request = ctypes.addressof(words)
        self._requests[request] = _Request(planned, number, given, output_address, words)
        for target, part in self._outgoing(planned, given):
            if target != self._rank:
                self._send(target, planned, number, part)
        return request

    def wait(self, request: int, deadline: float | None = None) -> None:
        running = self._requests.pop(request)
        planned, plan = running.planned, running.planned.plan
        if not planned.group:
            if plan.kind == "permute":
                ctypes.memset(running.output, 0, plan.count * plan.numpy_dtype.itemsize)
            return
        with self._processes.waiting(plan):
            had = self._receive(running, self._processes.collective_timeout if deadline is None else deadline)
        had[self._rank] = running.given
        if plan.kind in ("reduce_scatter", "all_to_all"):
            here, size = planned.group.index(self._rank), len(planned.group)
            had = {source: _placed(part, here, size) if source != self._rank else part for source, part in had.items()}
        result = carry_out(plan, planned.group, had, self._rank)
        _array(running.output, plan.output_count, plan.numpy_dtype)[:] = result

    def entry_points(self) -> dict[str, int]:
        return {"start": self._entries[0], "wait": self._entries[1]}

    def close(self) -> None:
        self._ends = True
        for connection in [self._listener, *self._to.values()]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        with self._arrival:
            self._arrival.notify_all()

    def _words_of_plan(self) -> Any:
        """As `windows.ll` has them; where no native code is, others call the functions here."""
        natives = self._processes.natives
        if natives is None:
            return (ctypes.c_int64 * 2)(*self._entries)
        found = natives.symbols()
        return (ctypes.c_int64 * 4)(found["weft_python_start"], found["weft_python_wait"], self._entries[0])

    def _native_start(self, handle: int, input_address: int | None, output_address: int | None) -> int:
        try:
            request = self.start(handle, input_address or 0, output_address or 0)
            words = self._planned[handle].words
            if len(words) > 3:
                words[3] = request
            return request
        except BaseException as error:
            self._processes.set_failure(error)
            return -1

    def _native_wait(self, request: int) -> int:
        try:
            running = self._requests[request]
            self.wait(request, self.deadline)
            self._done.append(running)              # its words are read once more
            running.words[2] = DONE
            return DONE
        except BaseException as error:
            self._processes.set_failure(error)
            return FAILED

    # ---- messages
    def _outgoing(self, planned: _Planned, given: np.ndarray) -> list[tuple[int, np.ndarray]]:
        plan, group = planned.plan, planned.group
        if plan.kind == "permute":
            return [(target, given) for source, target in plan.pairs if source == self._rank]
        if plan.kind == "broadcast" and group[:1] != (self._rank,):
            return []
        if plan.kind in ("reduce_scatter", "all_to_all"):
            return list(zip(group, given.reshape(len(group), -1))) if group else []
        return [(member, given) for member in group]

    def _send(self, target: int, planned: _Planned, number: int, part: np.ndarray) -> None:
        body = part.tobytes()
        view = memoryview(_HEAD.pack(self._rank, planned.tag, number, len(body)) + body)
        until = time.monotonic() + self._processes.collective_timeout
        connection = self._to.get(target) or self._connect(target)
        while view:
            self._processes.check()
            try:
                view = view[connection.send(view):]
            except TimeoutError:
                if time.monotonic() > until:
                    raise self._late(planned, [target], self._processes.collective_timeout) from None
            except OSError:
                self._processes.wait_for_news()             # it ended: the coordinator says how
                raise failures.of_rank({"rank": target, "kind": "ended", "text": ""}, str(planned.plan), planned.plan.what) from None

    def _connect(self, target: int) -> socket.socket:
        host, port = self._processes.client.get(f"weft/tcp/{target}").decode().split()
        connection = socket.create_connection((host, int(port)), timeout=10.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(0.2)
        self._to[target] = connection
        return connection

    def _accept(self) -> None:
        while not self._ends:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            DaemonThread(self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        head = bytearray(_HEAD.size)
        with contextlib.suppress(OSError), connection:
            while _fill(connection, memoryview(head)):
                source, tag, number, size = _HEAD.unpack(head)
                body = bytearray(size)
                if not _fill(connection, memoryview(body)):
                    return
                with self._arrival:
                    self._mail[source, tag, number] = body
                    self._arrival.notify_all()

    def _receive(self, running: _Request, limit: float) -> dict[int, np.ndarray]:
        planned, number = running.planned, running.number
        wanted = {source: (source, planned.tag, number) for source in planned.sources if source != self._rank}
        clock = self._processes.clock(limit)
        with self._arrival:
            while any(key not in self._mail for key in wanted.values()):
                self._arrival.wait(0.1)
                absent = [source for source, key in wanted.items() if key not in self._mail]
                if not absent:
                    break
                self._processes.check(absent, planned.plan)
                if clock.is_over(absent):
                    raise self._late(planned, absent, limit)
            return {source: np.frombuffer(self._mail.pop(key), planned.plan.numpy_dtype) for source, key in wanted.items()}

    def _late(self, planned: _Planned, absent: list[int], limit: float) -> Exception:
        arrived = [rank for rank in planned.group if rank not in absent]
        return failures.of_absence(str(planned.plan), limit, arrived, absent, planned.plan.what, self._processes.client.report(absent))


def _fill(connection: socket.socket, view: memoryview) -> bool:
    while view:
        count = connection.recv_into(view)
        if not count:
            return False
        view = view[count:]
    return True


def _array(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    size = count * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype) if size else np.empty(0, dtype)


def _placed(part: np.ndarray, here: int, size: int) -> np.ndarray:
    """The part for this rank, where it stands in what its sender gave."""
    whole = np.empty((size, part.size), part.dtype)
    whole[here] = part
    return whole.reshape(-1)
