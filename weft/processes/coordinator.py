"""The coordinator: one thread that knows who is there, keeps keys and values, and sees who is missing.

In:   connections of `client.Client`s, one per rank.
Out:  answers, and news to all: that a rank failed, that one leaves. Those that are left may go on together under new numbers.
Laws: it runs in the launcher or beside rank 0, computes nothing, and takes no part in collectives. A rank fails when its connection
      closes before it said that it leaves, when it is silent for `heartbeat_timeout`, or when it reports an exception; all others are
      told at once. Everything that is waited for here has a deadline, whose error lists who arrived and who did not.
Next: `client` is the other end; `wire` has the frames.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from weft.processes.wire import ForeignData, Frames, host_and_port, is_alive, pack
from weft.util.record import record
from weft.util.threads import DaemonThread

_TICK_S = 0.2
#: the barrier at which ranks wait that have nothing more to do
LAST = "weft/last"
#: how long others may wait for a rank that came there: its messages may still be under way
LEFT_S = 2.0


def _listening(address: str) -> socket.socket:
    """A socket that is bound to `address`; OSError that names it if it is taken."""
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise OSError(error.errno, f"the coordinator cannot use the address {address}: {error.strerror}. Name one that is free "
                                   "on the machine of process 0") from None
    return found


@record(frozen=False, eq=False)
class _Peer:
    """One connection; `rank` is -1 until it said who it is."""
    socket: Any
    frames: Any
    out: Any
    rank: int = -1
    heard: float = 0.0
    left: bool = False
    facts: Any = None
    progress: str = ""
    waits_for: str = ""
    at_end: float = float("inf")                # when it came to the last barrier
    incarnation: int = 0                        # a number that no other process has had


@record(frozen=False, eq=False)
class _Waiting:
    """A request that is answered later."""
    peer: _Peer
    number: int
    deadline: float
    limit: float


@record(frozen=False, eq=False)
class _Barrier:
    """Who arrived at a barrier, with what they brought."""
    ranks: tuple[int, ...]
    arrived: Any
    waiting: Any


class Coordinator:
    """Serves `size` ranks at `address`; `start` begins, `stop` ends.

    >>> served = Coordinator("127.0.0.1:0", 2)
    >>> served.start(); served.stop()
    """

    def __init__(self, address: str, size: int, heartbeat_timeout: float = 10.0,
                 notify: Callable[[dict[str, Any]], None] | None = None, listener: socket.socket | None = None,
                 expected: Mapping[int, str] | None = None) -> None:
        self.heartbeat_timeout = heartbeat_timeout
        self._notify = notify                     # the launcher learns of failures too, and of who continues
        self._listener = _listening(address) if listener is None else listener
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._begin_anew(size)
        #: survivors of a lost coordinator, which this one succeeds, that have not come yet, and where each listens while it lives
        self._expected = dict(expected or {})
        self._numbers = 0
        self._stops = False
        self._thread: DaemonThread | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def _begin_anew(self, size: int) -> None:
        self.size = size
        self._ranks: dict[int, _Peer] = {}
        self._values: dict[str, bytes] = {}
        self._getting: dict[str, list[_Waiting]] = {}
        self._joining: list[_Waiting] = []
        self._barriers: dict[str, _Barrier] = {}
        self._ask_for_living: dict[tuple[int, ...], list[_Waiting]] = {}
        self._asked: dict[int, tuple[_Waiting, dict[int, Any], set[int]]] = {}
        self._shrinking: dict[int, _Waiting] = {}
        #: who came to the last barrier since the others were told who did
        self._leaving: list[int] = []
        self.failures: list[dict[str, Any]] = []

    # ---- life
    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = DaemonThread(self._serve)

    def stop(self, patience: float = 0.0) -> None:
        """End, and close all connections, those of ranks that have not left after `patience` seconds."""
        until = time.monotonic() + patience
        while any(not peer.left for peer in self._ranks.values()) and time.monotonic() < until:
            time.sleep(0.002)
        self._stops = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b".")
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        ticked = time.monotonic()
        while not self._stops:
            for key, events in self._selector.select(_TICK_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is not self._wake_in:
                    self._talk(key.data, events)
            now = time.monotonic()
            if now - ticked >= _TICK_S:
                self._look(now, now - ticked)
                ticked = now
        self._part()
        self._wake_out.close()
        self._selector.close()

    def _part(self) -> None:
        """Close all connections so that what was sent arrives: closed with bytes unread, a connection loses those on their way."""
        sockets = [key.fileobj for key in self._selector.get_map().values() if key.data is not None]
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_WR)  # type: ignore[union-attr]
                while one.recv(1 << 18):  # type: ignore[union-attr]
                    pass
        for one in [*sockets, self._listener, self._wake_in]:
            one.close()  # type: ignore[union-attr]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = _Peer(connection, Frames(), bytearray(), heard=time.monotonic())
                self._selector.register(connection, selectors.EVENT_READ, peer)

    def _talk(self, peer: _Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if not events & selectors.EVENT_READ:
            return
        try:
            arrived = peer.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            arrived = b""
        if not arrived:
            self._gone(peer)
            return
        peer.heard = time.monotonic()
        try:
            for table, data in peer.frames.feed(arrived):
                self._handle(peer, table, data)
        except (ForeignData, KeyError, TypeError, ValueError):
            self._gone(peer)

    def _send(self, peer: _Peer, table: dict[str, Any], data: bytes = b"") -> None:
        peer.out += pack(table, data)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            while peer.out:
                sent = peer.socket.send(peer.out)
                del peer.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            peer.out.clear()                    # reading finds out that it is gone
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.modify(peer.socket, wanted, peer)

    def _answer(self, waiting: _Waiting, table: dict[str, Any], data: bytes = b"") -> None:
        waiting.peer.waits_for = ""
        self._send(waiting.peer, {"op": "answer", "number": waiting.number, **table}, data)

    def _all(self, table: dict[str, Any], but: int = -1) -> None:
        for rank, peer in list(self._ranks.items()):
            if rank != but and not peer.left:
                self._send(peer, table)

    # ---- what ranks say
    def _handle(self, peer: _Peer, table: dict[str, Any], data: bytes) -> None:
        op, now = table["op"], time.monotonic()
        if op == "beat":
            peer.progress = table.get("progress", "")
            self._send(peer, {"op": "beat"})
            return
        if op == "stacks":
            self._has_stacks(table["query"], peer.rank, table)
            return
        if op == "leave":
            peer.left = True
            self._shrink()
            self._tell_living()
            return
        limit = min(float(table.get("timeout", 600.0)), 1e9)
        waiting = _Waiting(peer, table["number"], now + limit, limit)
        if op == "join":
            self._join(waiting, table)
        elif op == "put":
            is_kept = not (table.get("first") and table["key"] in self._values)
            if is_kept:
                self._put(table["key"], data)
            self._answer(waiting, {"ok": is_kept})
        elif op == "add":
            self._add(waiting, table["key"], table["by"])
        elif op == "get":
            if table["key"] in self._values:
                self._answer(waiting, {"ok": True}, self._values[table["key"]])
            elif table.get("now"):
                self._answer(waiting, {"ok": False, "why": "missing"})
            else:
                peer.waits_for = f"the key {table['key']!r}"
                self._getting.setdefault(table["key"], []).append(waiting)
        elif op == "delete":
            keys = [key for key in self._values if key == table["key"] or key.startswith(table["key"] + "/")]
            for key in keys:
                del self._values[key]
            self._answer(waiting, {"ok": True, "count": len(keys)})
        elif op == "keys":
            found = sorted(key for key in self._values if key.startswith(table["prefix"]))
            values = [self._values[key] for key in found] if table.get("values") else []
            self._answer(waiting, {"ok": True, "keys": found, "sizes": [len(value) for value in values]}, b"".join(values))
        elif op == "barrier":
            self._arrive(waiting, table, data)
        elif op == "shrink":
            if table.get("rank") in self._expected:
                peer.rank, peer.facts = table["rank"], table["facts"]
                self._ranks[peer.rank] = peer
            self._asks_to_shrink(waiting)
        elif op == "living":
            peer.waits_for = f"the processes {table['ranks']} to ask which of them live"
            self._ask_for_living.setdefault(tuple(table["ranks"]), []).append(waiting)
            self._tell_living()
        elif op == "error":
            self._fail(peer.rank, "raised", table["text"])
            self._answer(waiting, {"ok": True})
        elif op == "absent":
            self._ask(waiting, table["ranks"])
        else:
            self._answer(waiting, {"ok": False, "why": f"unknown request {op!r}"})

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for getter in self._getting.pop(key, ()):
            self._answer(getter, {"ok": True}, value)

    def _add(self, waiting: _Waiting, key: str, by: int) -> None:
        try:
            found = int(self._values.get(key, b"0")) + by
        except ValueError:
            self._answer(waiting, {"ok": False, "why": "its value is no whole number"})
            return
        self._put(key, str(found).encode())
        self._answer(waiting, {"ok": True, "sum": found})

    def _tell_living(self) -> None:
        """Answer those who ask which of some ranks live, where all that do have asked."""
        left = self._left()
        for ranks, waiting in list(self._ask_for_living.items()):
            living = [rank for rank in ranks if rank in left]
            if {one.peer.rank for one in waiting} >= set(living):
                del self._ask_for_living[ranks]
                found = [(rank, self._ranks[rank].incarnation) for rank in living]
                for one in waiting:
                    self._answer(one, {"ok": True, "living": found})

    def _join(self, waiting: _Waiting, table: dict[str, Any]) -> None:
        rank, size = table["rank"], table["size"]
        if size != self.size or not 0 <= rank < self.size:
            self._answer(waiting, {"ok": False, "why": f"process {rank} of {size} does not fit: the coordinator serves "
                                                       f"{self.size} processes, whose numbers begin at 0"})
            return
        known = self._ranks.get(rank)
        if known is not None:
            there = f"{known.facts['host']}, process {known.facts['pid']}"
            self._answer(waiting, {"ok": False, "why": f"there is a process {rank} already ({there}); give each its own process_id"})
            return
        waiting.peer.rank, waiting.peer.facts = rank, table["facts"]
        waiting.peer.incarnation = secrets.randbits(62)
        self._ranks[rank] = waiting.peer
        if self.failures:
            self._answer(waiting, {"ok": False, "why": "failed", "failure": self.failures[0]})
            return
        waiting.peer.waits_for = "the others to start"
        self._joining.append(waiting)
        if len(self._ranks) == self.size:
            self._begin()

    def _begin(self) -> None:
        facts = {name: [self._ranks[rank].facts[name] for rank in range(self.size)] for name in self._ranks[0].facts}
        answer = zlib.compress(pack(facts), 1)
        for waiting in self._joining:
            self._answer(waiting, {"ok": True}, answer)
        self._joining.clear()

    def _arrive(self, waiting: _Waiting, table: dict[str, Any], data: bytes) -> None:
        name, rank = table["name"], waiting.peer.rank
        ranks = tuple(table["ranks"] or range(self.size))
        if rank not in ranks:
            self._answer(waiting, {"ok": False, "why": f"the processes {list(ranks)} meet there, and this is process {rank}"})
            return
        if not all(0 <= member < self.size for member in ranks):
            self._answer(waiting, {"ok": False, "why": f"the processes {list(ranks)} are to meet there, of which some are not there: "
                                                       f"numbers go from 0 to {self.size - 1}"})
            return
        barrier = self._barriers.get(name)
        if barrier is None:
            barrier = self._barriers[name] = _Barrier(ranks, {}, [])
        if barrier.ranks != ranks:
            self._answer(waiting, {"ok": False, "why": f"others gave the barrier {name!r} the processes {list(barrier.ranks)}"})
            return
        if name == LAST:
            waiting.peer.at_end = time.monotonic()
            self._leaving.append(rank)
        lost = [failure for failure in self.failures if failure["rank"] in ranks]
        if lost:
            self._answer(waiting, {"ok": False, "why": "failed", "failure": lost[0]})
            return
        barrier.arrived[rank] = (table.get("brings"), data)
        barrier.waiting.append(waiting)
        waiting.peer.waits_for = f"the barrier {name!r}"
        if len(barrier.arrived) < len(ranks):
            return
        del self._barriers[name]
        if name == LAST:
            self._leaving = []
        brought = [barrier.arrived[member][0] for member in ranks]
        packed = zlib.compress(pack({"brought": brought}), 1) if any(one is not None for one in brought) else b""
        for waiter in barrier.waiting:
            self._answer(waiter, {"ok": True}, packed)

    # ---- going on without those that failed
    def _asks_to_shrink(self, waiting: _Waiting) -> None:
        rank = waiting.peer.rank
        lost = next((failure for failure in self.failures if failure["rank"] == rank), None)
        if lost is not None:
            self._answer(waiting, {"ok": False, "why": "failed", "failure": lost})
            return
        if not self._shrinking and self._notify is not None:
            self._notify({"kind": "shrinks"})
        self._shrinking[rank] = waiting
        self._expected.pop(rank, None)
        waiting.peer.waits_for = "the others to go on"
        self._shrink()

    def _left(self) -> list[int]:
        """The ranks that are there, and have not failed."""
        lost = {failure["rank"] for failure in self.failures}
        there = [rank for rank, peer in self._ranks.items() if rank not in lost and not peer.left]
        return sorted({*there, *self._expected})

    def _shrink(self) -> None:
        """Begin anew with the ranks that are left, once all of them have asked for it."""
        left = self._left()
        if not self._shrinking or any(rank not in self._shrinking for rank in left):
            return
        asked = [self._shrinking[rank] for rank in left]
        gone = [peer for rank, peer in self._ranks.items() if rank not in left]
        self._begin_anew(len(left))
        for rank, waiting in enumerate(asked):
            waiting.peer.left, waiting.peer.rank = True, -1         # they will come again, under their new numbers
            self._answer(waiting, {"ok": True, "rank": rank, "ranks": left})
        for peer in gone:
            self._gone(peer)
        if self._notify is not None:
            self._notify({"kind": "shrunk", "ranks": left})

    # ---- who is absent, and where it is
    def _ask(self, waiting: _Waiting, ranks: list[int]) -> None:
        self._numbers += 1
        query, now = self._numbers, time.monotonic()
        asked = {rank for rank in ranks if rank in self._ranks and not self._ranks[rank].left}
        waiting.deadline = min(waiting.deadline, now + 2.0)
        self._asked[query] = (waiting, {}, asked)
        for rank in asked:
            self._send(self._ranks[rank], {"op": "stacks", "query": query})
        self._tell_stacks(query)

    def _has_stacks(self, query: int, rank: int, table: dict[str, Any]) -> None:
        if query in self._asked:
            self._asked[query][1][rank] = {"stack": table["stack"], "at": table.get("at", "")}
            self._tell_stacks(query)

    def _tell_stacks(self, query: int, anyway: bool = False) -> None:
        waiting, have, asked = self._asked[query]
        if len(have) < len(asked) and not anyway:
            return
        del self._asked[query]
        now = time.monotonic()
        report = {}
        for rank in asked:
            peer = self._ranks[rank]
            report[rank] = {"stack": "", "at": "", **have.get(rank, {}), "answers": rank in have, "progress": peer.progress,
                            "silent": now - peer.heard,
                            "host": peer.facts["host"], "pid": peer.facts["pid"]}
        self._answer(waiting, {"ok": True, "report": report})

    # ---- what goes wrong
    def _gone(self, peer: _Peer) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.socket)
        peer.socket.close()
        if peer.rank < 0 or self._ranks.get(peer.rank) is not peer:
            return
        if not peer.left:
            self._fail(peer.rank, "ended", "")
        peer.left = True

    def _fail(self, rank: int, kind: str, text: str) -> None:
        if any(failure["rank"] == rank for failure in self.failures):
            return
        facts = self._ranks[rank].facts
        failure = {"rank": rank, "kind": kind, "text": text, "host": facts["host"], "pid": facts["pid"]}
        self.failures.append(failure)
        if len(self.failures) == 1:             # of several, a client keeps the first
            self._all({"op": "failed", **failure}, but=rank if kind != "silent" else -1)
        if self._notify is not None:
            self._notify(failure)
        self._refuse_all(failure)
        self._shrink()
        self._tell_living()

    def _refuse_all(self, failure: dict[str, Any]) -> None:
        """Answer what waits for a rank that will not come."""
        for name, barrier in list(self._barriers.items()):
            if failure["rank"] in barrier.ranks:
                del self._barriers[name]
                for waiter in barrier.waiting:
                    self._answer(waiter, {"ok": False, "why": "failed", "failure": failure})
        for waiter in [*self._joining, *[w for getters in self._getting.values() for w in getters]]:
            self._answer(waiter, {"ok": False, "why": "failed", "failure": failure})
        self._joining.clear()
        self._getting.clear()

    def _look(self, now: float, since: float) -> None:
        """Find who is silent, and what waited too long. If this thread itself stood still, nobody is to blame."""
        if self._leaving:
            self._all({"op": "leaves", "ranks": self._leaving})
            self._leaving = []
        pause = max(0.0, since - 4 * _TICK_S)
        for rank, peer in list(self._ranks.items()):
            peer.heard += pause
            if not peer.left and now - peer.heard > self.heartbeat_timeout:
                self._fail(rank, "silent", f"{now - peer.heard:.1f}")
        late = [w for w in self._joining if now > w.deadline]
        if late:
            missing = [rank for rank in range(self.size) if rank not in self._ranks]
            for waiter in late:
                self._joining.remove(waiter)
                self._answer(waiter, {"ok": False, "why": "absent", "absent": missing, "arrived": sorted(self._ranks)})
        for key, getters in list(self._getting.items()):
            for waiter in [w for w in getters if now > w.deadline]:
                getters.remove(waiter)
                self._answer(waiter, {"ok": False, "why": "late"})
            if not getters:
                self._getting.pop(key, None)
        for ranks, waiters in list(self._ask_for_living.items()):
            for waiter in [w for w in waiters if now > w.deadline]:
                arrived = {w.peer.rank for w in waiters}
                waiters.remove(waiter)
                absent = [rank for rank in self._left() if rank in ranks and rank not in arrived]
                self._answer(waiter, {"ok": False, "why": "absent", "absent": absent, "arrived": sorted(arrived)})
            if not waiters:
                self._ask_for_living.pop(ranks, None)
        for name, barrier in list(self._barriers.items()):
            left = [rank for rank in barrier.ranks if rank not in barrier.arrived and now - self._ranks[rank].at_end > LEFT_S]
            if left and name != LAST:
                facts = self._ranks[left[0]].facts
                failure = {"rank": left[0], "kind": "left", "text": "", "host": facts["host"], "pid": facts["pid"]}
                for waiter in barrier.waiting:
                    self._answer(waiter, {"ok": False, "why": "failed", "failure": failure})
                barrier.waiting.clear()
            for waiter in [w for w in barrier.waiting if now > w.deadline]:
                if any(self._ranks[rank].progress for rank in barrier.ranks if rank not in barrier.arrived and rank in self._ranks):
                    waiter.deadline = now + waiter.limit
                    continue
                barrier.waiting.remove(waiter)
                absent = [rank for rank in barrier.ranks if rank not in barrier.arrived]
                self._answer(waiter, {"ok": False, "why": "absent", "absent": absent, "arrived": sorted(barrier.arrived)})
            if not barrier.waiting:
                self._barriers.pop(name, None)
        for rank in [rank for rank, address in self._expected.items() if not is_alive(address)]:
            del self._expected[rank]
            self._shrink()
        for rank, waiter in [(rank, w) for rank, w in self._shrinking.items() if now > w.deadline]:
            arrived = sorted(self._shrinking)
            del self._shrinking[rank]
            absent = [left for left in self._left() if left not in arrived]
            self._answer(waiter, {"ok": False, "why": "absent", "absent": absent, "arrived": arrived})
        for query, (waiting, *_) in list(self._asked.items()):
            if now > waiting.deadline:
                self._tell_stacks(query, anyway=True)
