"""A rank's connection to the coordinator.

In:   the coordinator's address, this rank's number and facts.
Out:  keys and values, barriers, beats with progress, and the news that a rank failed.
Laws: one daemon thread reads and sends beats. What waits here ends with the deadline, with the news of a failure, or with a signal.
Next: `state` makes it; `failures` writes its errors.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.processes import failures
from weft.processes.wire import ForeignData, Frames, host_and_port, pack
from weft.util.errors import ProcessFailureError, describe
from weft.util.threads import DaemonThread

#: how long an answer may come after its own deadline
_SLACK_S = 5.0


class _Answer:
    """One that is waited for."""
    __slots__ = ("done", "table", "data")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.table: dict[str, Any] | None = None
        self.data = b""


def meet_anew(address: str, rank: int, facts: dict[str, Any], timeout: float) -> tuple[int, tuple[int, ...]]:
    """Ask the coordinator that succeeds one which was lost to continue with the survivors: see `Client.shrink`."""
    frames, until, beat = Frames(), time.monotonic() + timeout, 0.0
    with socket.create_connection(host_and_port(address), timeout=timeout) as connection:
        connection.sendall(pack({"op": "shrink", "rank": rank, "facts": facts, "number": 1, "timeout": timeout}))
        while time.monotonic() < until + _SLACK_S:
            if time.monotonic() >= beat:
                beat = time.monotonic() + 1.0
                connection.sendall(pack({"op": "beat"}))
            if not select.select([connection], [], [], 0.2)[0]:
                continue
            arrived = connection.recv(1 << 18)
            if not arrived:
                break
            for table, _ in frames.feed(arrived):
                if table["op"] == "answer" and table["ok"]:
                    return table["rank"], tuple(table["ranks"])
                if table["op"] == "answer":
                    raise failures.of_absence("shrink", timeout, table["arrived"], table["absent"])
    raise failures.of_rank({"rank": -1, "kind": "coordinator", "text": "not answered"}, "shrink")


class Client:
    """The connection of rank `rank` of `size`; `facts` are plain values that all ranks will know of each other.

    Raises ProcessFailureError where the coordinator or other ranks do not come within `timeout` seconds.
    """

    def __init__(self, address: str, rank: int, size: int, facts: dict[str, Any], timeout: float = 300.0,
                 heartbeat_timeout: float = 10.0) -> None:
        self.address, self.rank, self.size = address, rank, size
        self.heartbeat_timeout = heartbeat_timeout
        self.failure: dict[str, Any] | None = None
        #: whether anybody has raised it
        self.is_failure_seen = False
        self.is_served_by_rank = False          # whether the coordinator is beside rank 0, whose end is that of both
        #: called once, in the thread of this connection, with the first failure
        self.on_failure: Callable[[dict[str, Any]], None] | None = None
        #: says what this rank waits for, for the reports of others
        self.at: Callable[[], str] = str
        self.leaving: dict[int, float] = {}
        self._progress = ""
        self._answers: dict[int, _Answer] = {}
        self._number = 0
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._ends = False
        began = time.monotonic()
        self._socket = self._connect(began + timeout)
        #: listens, and nobody answers: a connection tells that this process lives; a new coordinator may serve there (`meet_anew`)
        self.successor: socket.socket | None = socket.socket(self._socket.family, socket.SOCK_STREAM)
        self.successor.bind((self._socket.getsockname()[0], 0))
        self.successor.listen(1024)
        self._heard = time.monotonic()
        self._thread = DaemonThread(self._listen)
        left = max(1.0, timeout - (time.monotonic() - began))
        host, port = self.successor.getsockname()[:2]
        facts = {"pid": os.getpid(), "host": socket.gethostname(), **facts, "successor": f"[{host}]:{port}"}
        try:
            table, data = self._request({"op": "join", "rank": rank, "size": size, "facts": facts}, left)
            self._check(table, f"initialize of {size} processes", timeout, "WEFT_INITIALIZATION_TIMEOUT")
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, list[Any]] = next(Frames().feed(zlib.decompress(data)))[0]

    def _connect(self, until: float) -> socket.socket:
        host, port = host_and_port(self.address)
        wait, said = 0.01, ""
        while True:
            try:
                found = socket.create_connection((host, port), timeout=max(0.1, min(10.0, until - time.monotonic())))
                if found.getsockname() == found.getpeername():     # a port of one's own, where nobody listens yet
                    found.close()
                    raise ConnectionRefusedError("nobody listens")
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found.settimeout(0.5)
                return found
            except OSError as error:
                said = str(error)
            if time.monotonic() + wait > until:
                raise ProcessFailureError(describe(
                    "distributed.initialize", f"process {self.rank} cannot reach the coordinator.",
                    [("coordinator", self.address), ("reason", said)], None,
                    "Process 0 serves there, or the launcher.", "See whether it runs, and whether the network lets it be reached."))
            time.sleep(wait)
            wait = min(0.5, wait * 1.5)

    # ---- requests
    def put(self, key: str, value: bytes, replaces: bool = True) -> bool:
        """Keep a value under a key, in place of one that is there if it `replaces`; whether it is kept."""
        table, _ = self._request({"op": "put", "key": key} if replaces else {"op": "put", "key": key, "first": True}, 60.0, value)
        return table["ok"]

    def add(self, key: str, by: int) -> int:
        """Add to the number under a key, 0 if there is none, and give the sum; ValueError if something else is there."""
        table, _ = self._request({"op": "add", "key": key, "by": by}, 60.0)
        self._check(table, f"the key {key!r}", 60.0)
        return table["sum"]

    def get(self, key: str, timeout: float = 60.0) -> bytes:
        """The value of a key, waited for; ProcessFailureError if nobody puts it in time."""
        table, data = self._request({"op": "get", "key": key}, timeout)
        self._check(table, f"the key {key!r}", timeout)
        return data

    def find(self, key: str) -> bytes | None:
        """The value that a key has now, or None."""
        table, data = self._request({"op": "get", "key": key, "now": True}, 60.0)
        return data if table["ok"] else None

    def delete(self, key: str) -> int:
        """Forget a key and those below it (`key/...`); how many there were."""
        return self._request({"op": "delete", "key": key}, 60.0)[0]["count"]

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so."""
        return self._request({"op": "keys", "prefix": prefix}, 60.0)[0]["keys"]

    def items(self, prefix: str = "") -> list[tuple[str, bytes]]:
        """The keys that begin so, with their values."""
        table, data = self._request({"op": "keys", "prefix": prefix, "values": True}, 60.0)
        ends = list(itertools.accumulate(table["sizes"], initial=0))
        return [(key, data[start:end]) for key, start, end in zip(table["keys"], ends, ends[1:])]

    def living(self, ranks: Iterable[int], timeout: float = 600.0) -> dict[int, int]:
        """Those of the ranks that are there once all of them have asked this, each with a number of its own."""
        asked = sorted(set(ranks))
        table, _ = self._request({"op": "living", "ranks": asked}, timeout)
        self._check(table, f"the question which of the processes {asked} live", timeout)
        return dict(table["living"])

    def barrier(self, name: str, timeout: float = 600.0, ranks: Sequence[int] | None = None, brings: Any = None) -> list[Any] | None:
        """Wait for all ranks, or for those named, to come to the barrier `name`; what each of them `brings`, in order."""
        table, data = self._request({"op": "barrier", "name": name, "ranks": list(ranks or ()), "brings": brings}, timeout)
        self._check(table, f"the barrier {name!r}", timeout)
        return next(Frames().feed(zlib.decompress(data)))[0]["brought"] if data else None

    def shrink(self, timeout: float) -> tuple[int, tuple[int, ...]]:
        """Go on without those that failed, once all others have asked for it: the new number of this rank, and the numbers that those
        who are left had, in the order of their new ones. Each of them connects anew."""
        table, _ = self._request({"op": "shrink"}, timeout)
        self._check(table, "shrink", timeout)
        return table["rank"], tuple(table["ranks"])

    def heartbeat(self) -> None:
        """Tell the coordinator that this rank lives; the connection's own thread does it every second."""
        self._send(pack({"op": "beat", "progress": self._progress} if self._progress else {"op": "beat"}))

    def progress(self, text: str) -> None:
        """Say what this rank is doing, until "" is said: others that wait for it are told, and wait on beyond their limit."""
        self._progress = text

    def report(self, ranks: Iterable[int]) -> dict[int, Any]:
        """Where those ranks are: their Python stacks, what they wait for and their progress."""
        table, _ = self._request({"op": "absent", "ranks": list(ranks)}, 3.0)
        return {int(rank): found for rank, found in table.get("report", {}).items()}

    def tell_error(self, text: str) -> None:
        """Tell all others that this rank raised an exception, and will not go on."""
        with contextlib.suppress(OSError, ProcessFailureError):
            self._request({"op": "error", "text": text}, 1.0)

    def leave(self) -> None:
        """Tell the coordinator that this rank ends as it should."""
        with contextlib.suppress(OSError):
            self._send(pack({"op": "leave"}))

    def close(self) -> None:
        """End the connection."""
        self._ends = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        if self.successor is not None:
            self.successor.close()

    def _request(self, table: dict[str, Any], timeout: float, data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        if self.failure is not None and table["op"] in ("get", "barrier", "join"):
            self.is_failure_seen = True
            raise failures.of_rank(self.failure)
        answer = _Answer()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = answer
        try:
            self._send(pack({**table, "number": number, "timeout": timeout}, data))
            arrived = answer.done.wait(timeout + _SLACK_S)
        finally:
            self._answers.pop(number, None)
        if answer.table is not None:
            return answer.table, answer.data
        self.is_failure_seen = True
        if self.failure is not None:
            raise failures.of_rank(self.failure)
        raise failures.of_rank({"rank": -1, "kind": "coordinator", "text": "closed the connection" if arrived else "not answered"})

    def _check(self, table: dict[str, Any], waits_for: str, timeout: float, setting: str = "") -> None:
        if table["ok"]:
            return
        why = table["why"]
        if why == "failed":
            self.is_failure_seen = True
            raise failures.of_rank(table["failure"], waits_for)
        if why == "absent":
            report = self.report(table["absent"]) if not setting else None
            raise failures.of_absence(waits_for, timeout, table["arrived"], table["absent"], report=report)
        if why == "late":
            raise ProcessFailureError(f"distributed: nobody put {waits_for} within {timeout:g} seconds.")
        raise ValueError(f"distributed: {waits_for}: {why}")

    def _send(self, frame: bytes) -> None:
        view, until = memoryview(frame), time.monotonic() + max(10.0, self.heartbeat_timeout)
        with self._sending:
            while view:
                try:
                    view = view[self._socket.send(view):]
                except TimeoutError:
                    if self._ends or self.failure is not None or time.monotonic() > until:
                        raise

    # ---- the thread
    def _listen(self) -> None:
        frames, interval = Frames(), min(1.0, self.heartbeat_timeout / 5)
        beat, why = 0.0, "closed the connection"
        while not self._ends:
            try:
                now = time.monotonic()
                if now >= beat:
                    beat = now + interval
                    self.heartbeat()
                ready, _, _ = select.select([self._socket], [], [], max(0.0, beat - now))
                arrived = self._socket.recv(1 << 18) if ready else None
                if arrived == b"":
                    break
                after = time.monotonic()
                if arrived:
                    self._heard = after
                    for table, data in frames.feed(arrived):
                        self._handle(table, data)
                elif after - now > 2 * interval + 1.0:      # this process itself stood still
                    self._heard = after
                elif after - self._heard > self.heartbeat_timeout:
                    why = f"been silent for {after - self._heard:.1f} seconds"
                    break
            except (OSError, ForeignData, ValueError):
                break
        if not self._ends:
            ended = self.is_served_by_rank and why.startswith("closed") and self.rank != 0
            where = {"host": self.facts["host"][0], "pid": self.facts["pid"][0]} if ended else {}
            self._fail({"rank": 0 if ended else -1, "kind": "ended" if ended else "coordinator", "text": why, **where})
        for answer in list(self._answers.values()):
            answer.done.set()

    def _handle(self, table: dict[str, Any], data: bytes) -> None:
        op = table["op"]
        if op == "answer":
            answer = self._answers.get(table["number"])
            if answer is not None:
                answer.table, answer.data = table, data
                answer.done.set()
        elif op == "failed":
            self._fail({name: table[name] for name in ("rank", "kind", "text", "host", "pid")})
        elif op == "leaves":
            self.leaving.update(dict.fromkeys(table["ranks"], time.monotonic()))
        elif op == "stacks":
            self._send(pack({"op": "stacks", "query": table["query"], "stack": failures.stacks(), "at": self.at()}))

    def _fail(self, failure: dict[str, Any]) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_failure is not None:
                self.on_failure(failure)
