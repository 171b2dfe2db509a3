"""The coordinator: the list of a job's processes, their keys and values, barriers and failures.

It runs in one thread, in the launcher or in process 0, computes nothing and takes no part in
collectives. Its clients are `client.Client`s, one for each rank.

A rank fails if it reports an exception, if its connection ends and its process does not answer a
probe, or if it is silent for `heartbeat_timeout` and does not answer. A busy process answers
(`liveness`). A connection that breaks while the process is alive may be restored within
`heartbeat_timeout`: pending requests and answers are repeated. All other ranks are notified of a
failure immediately. Every pending request has a deadline; its error lists the ranks that arrived
and the absent ones.

After a failure the remaining ranks may continue together under new numbers, if they outnumber the
ranks whose end is unproven: of the two sides of a broken network at most one continues.
"""

from __future__ import annotations

import secrets
import socket
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft._engine.processes import liveness
from weft._engine.processes.addresses import open_listeners
from weft._engine.processes.connections import (
    TICK_S,
    Connection,
    ConnectionServer,
    raise_file_limit,
)
from weft._engine.processes.wire import dump_table
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record

#: the final barrier, at which ranks wait that have nothing more to do
FINAL_BARRIER = "weft/last"
#: seconds that others may wait for a rank at the final barrier: its data may still be in transit
LEAVE_GRACE_S = 2.0
#: minimum seconds that ranks wait, before they continue, for the proof that others have ended
PROOF_S = 5.0
#: seconds, beyond two heartbeat timeouts, within which survivors must connect to a coordinator's successor
EXPECTED_S = 10.0


@record(frozen=False, eq=False)
class _Peer:
    """A rank; its connection is None while it is broken."""

    rank: int
    token: str
    facts: dict[str, Any]
    connection: Connection | None = None
    heard: float = 0.0
    answered_probe: float = 0.0
    is_probed: bool = False
    lost_at: float = 0.0
    left: bool = False
    progress: str = ""
    waits_for: str = ""
    reached_last: float = float("inf")
    incarnation: int = 0
    pending: set[int] = field(default_factory=set)
    answers: dict[int, tuple[dict[str, Any], bytes]] = field(default_factory=dict)


@record(frozen=False, eq=False)
class _WaitingRequest:
    """A request whose answer is deferred."""

    peer: _Peer
    number: int
    deadline: float
    limit: float


@record(frozen=False, eq=False)
class _Barrier:
    """The ranks that arrived at a barrier, with their values."""

    ranks: tuple[int, ...]
    arrived: dict[int, Any]
    waiting: list[_WaitingRequest]


@record(frozen=False, eq=False)
class _StackQuery:
    """A request for the stacks of absent ranks."""

    waiting: _WaitingRequest
    asked: set[int]
    answers: dict[int, Any]


class Coordinator:
    """A server for `size` ranks at `address`; `start` begins, `stop` ends.

    `notify` is called with every failure, and with the ranks that continue. `confirm_end`, called in
    the thread of this coordinator with the first number of a rank, returns whether that rank has
    certainly ended; the launcher kills it, which takes at most `proof_s` seconds. `machine`
    identifies this machine, on which the coordinator checks processes itself. A successor of a lost
    coordinator gets its `listener`, the facts of the former ranks and the addresses of the
    `expected` ones.

    >>> coordinator = Coordinator("127.0.0.1:0", 2)
    >>> coordinator.start(); coordinator.stop()
    """

    def __init__(
        self,
        address: str | Sequence[str],
        size: int,
        heartbeat_timeout: float = 10.0,
        notify: Callable[[dict[str, Any]], None] | None = None,
        listener: socket.socket | None = None,
        expected: Mapping[int, str] | None = None,
        secret: bytes = b"",
        machine: str | None = None,
        confirm_end: Callable[[int], bool] | None = None,
        proof_s: float = 0.0,
        former_facts: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        raise_file_limit(2 * size + 64, f"the connections of {quantity(size, 'process')}")
        self.heartbeat_timeout = heartbeat_timeout
        self._notify, self._machine = notify, machine
        self._confirm_end, self._proof_s = confirm_end, max(PROOF_S, proof_s)
        if listener is not None:
            listeners = [listener]
        else:
            listeners = open_listeners((address,) if isinstance(address, str) else tuple(address))
        self.port: int = listeners[0].getsockname()[1]
        self._restart(size)
        self._former_facts = former_facts
        #: the original number of each rank
        self._first_numbers = list(range(size))
        #: survivors of a lost coordinator that have not connected yet, and their addresses
        self._expected = dict(expected or {})
        self._expected_until = time.monotonic() + 2 * heartbeat_timeout + EXPECTED_S
        self._tokens: dict[str, _Peer] = {}
        self._numbers = 0
        self._server = ConnectionServer(listeners, secret, self)

    def _restart(self, size: int) -> None:
        self.size = size
        self._ranks: dict[int, _Peer] = {}
        self._values: dict[str, bytes] = {}
        self._getting: dict[str, list[_WaitingRequest]] = {}
        self._joining: list[_WaitingRequest] = []
        self._has_begun = False
        self._disagreement = ""
        #: processes that were notified of the disagreement
        self._refused: set[int] = set()
        self._barriers: dict[str, _Barrier] = {}
        self._live_queries: dict[tuple[int, ...], list[_WaitingRequest]] = {}
        self._stack_queries: dict[int, _StackQuery] = {}
        self._shrinking: dict[int, _WaitingRequest] = {}
        self._proof_until = float("inf")
        self._former_facts: Mapping[str, Sequence[Any]] | None = None
        #: ranks at the final barrier; the others have not been notified of them yet
        self._leaving: list[int] = []
        self.failures: list[dict[str, Any]] = []

    # ---- life
    def start(self) -> None:
        """Serve in a thread."""
        self._server.start()

    def stop(self, patience: float = 0.0) -> None:
        """Close all connections; wait at most `patience` seconds for ranks that have not left.

        If the processes disagree, also wait for late ones, to notify them of it.
        """
        until = time.monotonic() + patience
        while self._is_awaited() and time.monotonic() < until:
            time.sleep(0.002)
        self._server.stop()

    def _is_awaited(self) -> bool:
        if self._disagreement:
            return len(self._refused) < self.size
        return any(not peer.left for peer in list(self._ranks.values()))

    @property
    def has_disagreement(self) -> bool:
        """Whether the start failed because a process expects another number of processes."""
        return bool(self._disagreement)

    # ---- connections
    def receive(self, connection: Connection, table: dict[str, Any], data: bytes) -> None:
        """Handle a frame."""
        peer: _Peer | None = connection.peer
        if peer is None:
            self._identify(connection, table)
            return
        if peer.connection is not connection:
            raise ValueError("a connection that was replaced")
        peer.heard = time.monotonic()
        if table["op"] in self._MESSAGES:
            self._MESSAGES[table["op"]](self, peer, table)
            return
        number = table["number"]
        if number in peer.answers:
            answer, value = peer.answers[number]
            self._send(peer, answer, value)
        elif self._ranks.get(peer.rank) is not peer:
            raise ValueError("a request of a process that takes no part any more")
        elif number not in peer.pending:
            for answered in [one for one in peer.answers if one < table["lowest"]]:
                del peer.answers[answered]
            peer.pending.add(number)
            self._handle_request(self._waiting_request(peer, table), table, data)

    def _waiting_request(self, peer: _Peer, table: dict[str, Any]) -> _WaitingRequest:
        limit = min(float(table.get("timeout", 600.0)), 1e9)
        return _WaitingRequest(peer, table["number"], time.monotonic() + limit, limit)

    def _identify(self, connection: Connection, table: dict[str, Any]) -> None:
        """Handle the first frame of a connection, which identifies the process."""
        if table["op"] == "heartbeat":
            return
        token = str(table["token"])
        if table["op"] == "resume":
            self._resume(connection, self._tokens.get(token))
            return
        if table["op"] not in ("join", "shrink"):
            raise ValueError("a request of an unknown process")
        peer = _Peer(int(table["rank"]), token, dict(table["facts"]), heard=time.monotonic())
        peer.connection, connection.peer = connection, peer
        self._tokens[token] = peer
        waiting = self._waiting_request(peer, table)
        peer.pending.add(waiting.number)
        if table["op"] == "join":
            self._join(waiting, int(table["size"]))
        elif peer.rank in self._expected:
            self._ranks[peer.rank] = peer
            self._ask_to_shrink(waiting)
        else:
            self._refuse(waiting, f"process {peer.rank} is not expected here")

    def _resume(self, connection: Connection, peer: _Peer | None) -> None:
        if peer is None:
            self._server.send(connection, {"op": "resumed", "ok": False})
            return
        before, peer.connection, connection.peer = peer.connection, connection, peer
        if before is not None:
            before.peer = None
            self._server.close(before)
        peer.heard = time.monotonic()
        self._send(peer, {"op": "resumed", "ok": True})
        if self._ranks.get(peer.rank) is not peer:
            return
        if self.failures:
            self._send(peer, {"op": "failed", **self.failures[0]})
        ended_ranks = [
            rank for rank, one in self._ranks.items() if one.reached_last != float("inf")
        ]
        if ended_ranks:
            self._send(peer, {"op": "leaves", "ranks": ended_ranks})

    def handle_disconnect(self, connection: Connection) -> None:
        """Handle the end of a connection: its process may have ended, or may reconnect."""
        peer: _Peer | None = connection.peer
        if peer is None or peer.connection is not connection:
            return
        peer.connection, peer.lost_at = None, time.monotonic()
        if self._ranks.get(peer.rank) is not peer:
            return
        if peer.left:
            return
        self._probe(peer)

    def _probe(self, peer: _Peer) -> None:
        address = peer.facts.get("successor")
        if address is None:
            self._take_probe(peer, liveness.REFUSED)
        elif not peer.is_probed:
            peer.is_probed = True
            self._server.probe(address, lambda result: self._take_probe(peer, result))

    def _take_probe(self, peer: _Peer, result: str) -> None:
        peer.is_probed = False
        now = time.monotonic()
        if result == liveness.ANSWERS:
            peer.answered_probe = now
        if self._ranks.get(peer.rank) is not peer or peer.left:
            return
        if peer.connection is None:
            if result == liveness.REFUSED:
                self._end(peer)
            elif now - peer.lost_at > self.heartbeat_timeout:
                self._fail(peer.rank, "silent", f"{now - peer.heard:.1f}")
                peer.left = True
        elif self._is_silent(peer, now):
            self._fail(peer.rank, "silent", f"{now - peer.heard:.1f}")

    def _end(self, peer: _Peer) -> None:
        self._fail(peer.rank, "ended", "")
        peer.left = True

    def _is_silent(self, peer: _Peer, now: float, ahead: float = 0.0) -> bool:
        silence = now - max(peer.heard, peer.answered_probe)
        return silence > max(self.heartbeat_timeout - ahead, self.heartbeat_timeout / 2)

    def _send(self, peer: _Peer, table: dict[str, Any], data: bytes = b"") -> None:
        if peer.connection is not None:
            self._server.send(peer.connection, table, data)

    def _answer(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes = b"") -> None:
        peer = waiting.peer
        peer.waits_for = ""
        peer.pending.discard(waiting.number)
        answer = {"op": "answer", "number": waiting.number, **table}
        peer.answers[waiting.number] = answer, data
        self._send(peer, answer, data)

    def _refuse(self, waiting: _WaitingRequest, why: str, **facts: Any) -> None:
        self._answer(waiting, {"ok": False, "why": why, **facts})

    def _send_to_all(self, table: dict[str, Any], except_rank: int = -1) -> None:
        for rank, peer in list(self._ranks.items()):
            if rank != except_rank and not peer.left:
                self._send(peer, table)

    # ---- messages from ranks
    def _take_heartbeat(self, peer: _Peer, table: dict[str, Any]) -> None:
        peer.progress = str(table.get("progress", ""))
        self._send(peer, {"op": "heartbeat"})

    def _take_stacks(self, peer: _Peer, table: dict[str, Any]) -> None:
        query = self._stack_queries.get(table["query"])
        if query is not None:
            query.answers[peer.rank] = {"stack": table["stack"], "at": table.get("at", "")}
            self._report_stacks(table["query"])

    def _take_leave(self, peer: _Peer, table: dict[str, Any]) -> None:
        peer.left = True
        self._shrink()
        self._report_live()

    _MESSAGES = {"heartbeat": _take_heartbeat, "stacks": _take_stacks, "leave": _take_leave}

    # ---- requests of ranks
    def _handle_request(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        request = self._REQUESTS.get(table["op"])
        if request is None:
            self._refuse(waiting, f"unknown request {table['op']!r}")
        else:
            request(self, waiting, table, data)

    def _put(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        is_kept = not (table.get("first") and table["key"] in self._values)
        if is_kept:
            self._set_value(table["key"], data)
        self._answer(waiting, {"ok": is_kept})

    def _set_value(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for getter in self._getting.pop(key, ()):
            self._answer(getter, {"ok": True}, value)

    def _add(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        try:
            total = int(self._values.get(table["key"], b"0")) + table["by"]
        except ValueError:
            self._refuse(waiting, "its value is not a whole number")
            return
        self._set_value(table["key"], str(total).encode())
        self._answer(waiting, {"ok": True, "sum": total})

    def _get(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        key = table["key"]
        if key in self._values:
            self._answer(waiting, {"ok": True}, self._values[key])
        elif table.get("now"):
            self._refuse(waiting, "missing")
        else:
            waiting.peer.waits_for = f"the key {key!r}"
            self._getting.setdefault(key, []).append(waiting)

    def _delete(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        below = table["key"] + "/"
        keys = [key for key in self._values if key == table["key"] or key.startswith(below)]
        for key in keys:
            del self._values[key]
        self._answer(waiting, {"ok": True, "count": len(keys)})

    def _list_keys(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        keys = sorted(key for key in self._values if key.startswith(table["prefix"]))
        values = [self._values[key] for key in keys] if table.get("values") else []
        sizes = [len(value) for value in values]
        self._answer(waiting, {"ok": True, "keys": keys, "sizes": sizes}, b"".join(values))

    def _ask_live(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        waiting.peer.waits_for = f"the processes {table['ranks']} to ask which of them live"
        self._live_queries.setdefault(tuple(table["ranks"]), []).append(waiting)
        self._report_live()

    def _take_error(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        self._fail(waiting.peer.rank, "raised", table["text"])
        self._answer(waiting, {"ok": True})

    def _report_live(self) -> None:
        """Answer liveness queries, once all live ranks of a query have made it."""
        remaining = self._active_ranks()
        for ranks, waiting in list(self._live_queries.items()):
            live = [rank for rank in ranks if rank in remaining]
            if {one.peer.rank for one in waiting} >= set(live):
                del self._live_queries[ranks]
                incarnations = [(rank, self._ranks[rank].incarnation) for rank in live]
                for one in waiting:
                    self._answer(one, {"ok": True, "live": incarnations})

    # ---- the beginning
    def _join(self, waiting: _WaitingRequest, size: int) -> None:
        rank = waiting.peer.rank
        if self._disagreement:
            self._refused.add(rank)
            self._refuse(waiting, self._disagreement)
            return
        if size != self.size or not 0 <= rank < self.size:
            self._refuse_size(waiting, size)
            return
        known = self._ranks.get(rank)
        if known is not None:
            where = f"{known.facts['host']}, process {known.facts['pid']}"
            self._refuse(
                waiting,
                f"there is a process {rank} already ({where}); give each its own process_id",
            )
            return
        waiting.peer.incarnation = secrets.randbits(62)
        self._ranks[rank] = waiting.peer
        if self.failures:
            self._refuse(waiting, "failed", failure=self.failures[0])
            return
        waiting.peer.waits_for = "the others to start"
        self._joining.append(waiting)
        if len(self._ranks) == self.size:
            self._begin()

    def _refuse_size(self, waiting: _WaitingRequest, size: int) -> None:
        """Refuse all processes if one expects another number of them, unless they have begun."""
        facts = waiting.peer.facts
        why = (
            f"process {waiting.peer.rank} of {size} ({facts['host']}, process {facts['pid']}) does "
            f"not fit: the coordinator serves {quantity(self.size, 'process')}, whose numbers begin at 0"
        )
        self._refuse(waiting, why)
        if self._has_begun:
            return
        self._disagreement = why
        self._refused = {one.peer.rank for one in [waiting, *self._joining]}
        for other in self._joining:
            self._refuse(other, why)
        self._joining.clear()

    def _begin(self) -> None:
        self._has_begun = True
        names = self._ranks[0].facts
        facts = {
            name: [self._ranks[rank].facts.get(name) for rank in range(self.size)] for name in names
        }
        answer = zlib.compress(dump_table(facts), 1)
        for waiting in self._joining:
            self._answer(waiting, {"ok": True}, answer)
        self._joining.clear()

    # ---- barriers
    def _arrive(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        name, rank = table["name"], waiting.peer.rank
        ranks = tuple(table["ranks"] or range(self.size))
        barrier = self._barriers.get(name) or _Barrier(ranks, {}, [])
        why = self._find_misuse(barrier, name, ranks, rank)
        if why:
            self._refuse(waiting, why)
            return
        self._barriers[name] = barrier
        if name == FINAL_BARRIER:
            waiting.peer.reached_last = time.monotonic()
            self._leaving.append(rank)
        lost = [failure for failure in self.failures if failure["rank"] in ranks]
        if lost:
            if not barrier.waiting:
                del self._barriers[name]
            self._refuse(waiting, "failed", failure=lost[0])
            return
        barrier.arrived[rank] = table.get("brings")
        barrier.waiting.append(waiting)
        waiting.peer.waits_for = f"the barrier {name!r}"
        if len(barrier.arrived) == len(ranks):
            self._open_barrier(name, barrier)

    def _find_misuse(self, barrier: _Barrier, name: str, ranks: tuple[int, ...], rank: int) -> str:
        if rank not in ranks:
            return f"the processes {list(ranks)} meet there, and this is process {rank}"
        if not all(0 <= member < self.size for member in ranks):
            return (
                f"some of the processes {list(ranks)} do not exist: "
                f"numbers go from 0 to {self.size - 1}"
            )
        if barrier.ranks != ranks:
            return f"other processes called the barrier {name!r} with the processes {list(barrier.ranks)}"
        return ""

    def _open_barrier(self, name: str, barrier: _Barrier) -> None:
        del self._barriers[name]
        if name == FINAL_BARRIER:
            self._leaving = []
        brought = [barrier.arrived[member] for member in barrier.ranks]
        has_values = any(one is not None for one in brought)
        packed = zlib.compress(dump_table({"brought": brought}), 1) if has_values else b""
        for waiter in barrier.waiting:
            self._answer(waiter, {"ok": True}, packed)

    # ---- going on without failed ranks
    def _request_shrink(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        self._ask_to_shrink(waiting)

    def _ask_to_shrink(self, waiting: _WaitingRequest) -> None:
        rank = waiting.peer.rank
        lost = next((failure for failure in self.failures if failure["rank"] == rank), None)
        if lost is not None:
            self._refuse(waiting, "failed", failure=lost)
            return
        if not self._shrinking and self._notify is not None:
            self._notify({"kind": "shrinks"})
        self._shrinking[rank] = waiting
        self._expected.pop(rank, None)
        waiting.peer.waits_for = "the others to continue"
        self._shrink()

    def _active_ranks(self) -> list[int]:
        """Return the ranks that have neither failed nor left."""
        lost = {failure["rank"] for failure in self.failures}
        present = [rank for rank, peer in self._ranks.items() if rank not in lost and not peer.left]
        return sorted({*present, *self._expected})

    def _shrink(self) -> None:
        """Start over with the remaining ranks, once all have requested it and they may continue."""
        remaining = self._active_ranks()
        if not self._shrinking or any(rank not in self._shrinking for rank in remaining):
            return
        unproven = [
            rank
            for rank in range(self.size)
            if rank not in remaining and not self._is_end_proven(rank)
        ]
        if len(remaining) <= len(unproven):
            self._wait_for_proof(remaining, unproven)
            return
        requests = [self._shrinking[rank] for rank in remaining]
        lost_peers = [peer for rank, peer in self._ranks.items() if rank not in remaining]
        self._restart(len(remaining))
        self._first_numbers = [self._first_numbers[rank] for rank in remaining]
        for rank, waiting in enumerate(requests):
            waiting.peer.left = True  # it joins again under its new number
            self._answer(waiting, {"ok": True, "rank": rank, "ranks": remaining})
        for peer in lost_peers:
            self._tokens.pop(peer.token, None)  # it must not reconnect and wait for an answer
            if peer.connection is not None:
                self._server.close(peer.connection)
        if self._notify is not None:
            self._notify({"kind": "shrunk", "ranks": remaining})

    def _is_end_proven(self, rank: int) -> bool:
        """Return whether a rank has certainly ended, so that it cannot continue in another group."""
        peer = self._ranks.get(rank)
        kinds = {failure["kind"] for failure in self.failures if failure["rank"] == rank}
        if kinds & {"raised", "left"} or (peer is not None and peer.left and not kinds):
            return True
        if self._confirm_end is not None:
            return self._confirm_end(self._first_numbers[rank])
        facts = self._facts_of(rank)
        if self._machine is None or facts.get("machine") != self._machine:
            return False
        return liveness.kill_if_stopped(facts["pid"])

    def _facts_of(self, rank: int) -> Mapping[str, Any]:
        if rank in self._ranks:
            return self._ranks[rank].facts
        if self._former_facts is None:
            return {}
        return {name: values[rank] for name, values in self._former_facts.items()}

    def _wait_for_proof(self, left: list[int], unproven: list[int]) -> None:
        now = time.monotonic()
        self._proof_until = min(self._proof_until, now + self._proof_s)
        if now < self._proof_until:
            return
        for waiting in self._shrinking.values():
            self._refuse(waiting, "minority", left=left, unproven=unproven)
        self._shrinking.clear()
        self._proof_until = float("inf")

    # ---- absent ranks
    def _ask_stacks(self, waiting: _WaitingRequest, table: dict[str, Any], data: bytes) -> None:
        self._numbers += 1
        asked = {
            rank for rank in table["ranks"] if rank in self._ranks and not self._ranks[rank].left
        }
        waiting.deadline = min(waiting.deadline, time.monotonic() + 2.0)
        self._stack_queries[self._numbers] = _StackQuery(waiting, asked, {})
        for rank in asked:
            self._send(self._ranks[rank], {"op": "stacks", "query": self._numbers})
        self._report_stacks(self._numbers)

    def _report_stacks(self, number: int, is_late: bool = False) -> None:
        query = self._stack_queries[number]
        if len(query.answers) < len(query.asked) and not is_late:
            return
        del self._stack_queries[number]
        now = time.monotonic()
        report = {}
        for rank in query.asked:
            peer = self._ranks[rank]
            report[rank] = {
                "stack": "",
                "at": "",
                **query.answers.get(rank, {}),
                "answers": rank in query.answers,
                "progress": peer.progress,
                "silent": now - peer.heard,
                "host": peer.facts["host"],
                "pid": peer.facts["pid"],
            }
        self._answer(query.waiting, {"ok": True, "report": report})

    # ---- failures
    def _failure_of(self, rank: int, kind: str, text: str) -> dict[str, Any]:
        facts = self._ranks[rank].facts
        return {
            "rank": rank,
            "kind": kind,
            "text": text,
            "host": facts["host"],
            "pid": facts["pid"],
        }

    def _fail(self, rank: int, kind: str, text: str) -> None:
        if any(failure["rank"] == rank for failure in self.failures):
            return
        failure = self._failure_of(rank, kind, text)
        self.failures.append(failure)
        if len(self.failures) == 1:  # clients keep only the first failure
            is_notified = kind == "silent"
            self._send_to_all({"op": "failed", **failure}, except_rank=-1 if is_notified else rank)
        if self._notify is not None:
            self._notify(failure)
        self._refuse_waiting(failure)
        self._shrink()
        self._report_live()

    def _refuse_waiting(self, failure: dict[str, Any]) -> None:
        """Refuse all requests that wait for a rank that has failed."""
        for name, barrier in list(self._barriers.items()):
            if failure["rank"] in barrier.ranks:
                del self._barriers[name]
                for waiter in barrier.waiting:
                    self._refuse(waiter, "failed", failure=failure)
        getting = [waiter for getters in self._getting.values() for waiter in getters]
        for waiter in [*self._joining, *getting]:
            self._refuse(waiter, "failed", failure=failure)
        self._joining.clear()
        self._getting.clear()

    # ---- deadlines
    def tick(self, now: float, elapsed: float) -> None:
        """Detect silent ranks and overdue requests; pauses of this thread do not count as silence."""
        if self._leaving:
            self._send_to_all({"op": "leaves", "ranks": self._leaving})
            self._leaving = []
        pause = max(0.0, elapsed - 4 * TICK_S)
        for peer in list(self._ranks.values()):
            peer.heard += pause
            peer.lost_at += pause
            is_suspect = peer.connection is None or self._is_silent(peer, now, liveness.PROBE_S)
            if is_suspect and not peer.left:
                self._probe_silent(peer)
        self._find_late_joins(now)
        self._find_late_getters(now)
        self._find_late_live_queries(now)
        self._find_late_barriers(now)
        self._find_late_shrinking(now)
        for number, query in list(self._stack_queries.items()):
            if now > query.waiting.deadline:
                self._report_stacks(number, is_late=True)

    def _probe_silent(self, peer: _Peer) -> None:
        if any(failure["rank"] == peer.rank for failure in self.failures):
            return
        if peer.facts.get("successor") is None and peer.connection is not None:
            self._take_probe(peer, liveness.SILENT)  # it has no responder
        else:
            self._probe(peer)

    def _find_late_joins(self, now: float) -> None:
        late = [waiting for waiting in self._joining if now > waiting.deadline]
        missing = [rank for rank in range(self.size) if rank not in self._ranks] if late else []
        for waiting in late:
            self._joining.remove(waiting)
            facts = {"arrived": sorted(self._ranks), "refused": self._server.refused}
            self._refuse(waiting, "absent", absent=missing, **facts)

    def _find_late_getters(self, now: float) -> None:
        for key, getters in list(self._getting.items()):
            for waiting in [one for one in getters if now > one.deadline]:
                getters.remove(waiting)
                self._refuse(waiting, "late")
            if not getters:
                self._getting.pop(key, None)

    def _find_late_live_queries(self, now: float) -> None:
        for ranks, waiters in list(self._live_queries.items()):
            arrived = {waiting.peer.rank for waiting in waiters}
            for waiting in [one for one in waiters if now > one.deadline]:
                waiters.remove(waiting)
                absent = [r for r in self._active_ranks() if r in ranks and r not in arrived]
                self._refuse(waiting, "absent", absent=absent, arrived=sorted(arrived))
            if not waiters:
                self._live_queries.pop(ranks, None)

    def _find_late_barriers(self, now: float) -> None:
        for name, barrier in list(self._barriers.items()):
            absent = [rank for rank in barrier.ranks if rank not in barrier.arrived]
            present = [rank for rank in absent if rank in self._ranks]
            finished = [
                rank for rank in present if now - self._ranks[rank].reached_last > LEAVE_GRACE_S
            ]
            if finished and name != FINAL_BARRIER:
                failure = self._failure_of(finished[0], "left", "")
                for waiter in barrier.waiting:
                    self._refuse(waiter, "failed", failure=failure)
                barrier.waiting.clear()
            for waiter in [request for request in barrier.waiting if now > request.deadline]:
                if any(self._ranks[rank].progress for rank in present):
                    waiter.deadline = now + waiter.limit
                    extended = {"number": waiter.number, "seconds": waiter.limit}
                    self._send(waiter.peer, {"op": "extended", **extended})
                    continue
                barrier.waiting.remove(waiter)
                self._refuse(waiter, "absent", absent=absent, arrived=sorted(barrier.arrived))
            if not barrier.waiting:
                self._barriers.pop(name, None)

    def _find_late_shrinking(self, now: float) -> None:
        if self._expected and now > self._expected_until:
            self._expected.clear()
        if self._shrinking:
            self._shrink()
        for rank, waiting in list(self._shrinking.items()):
            if now > waiting.deadline:
                arrived = sorted(self._shrinking)
                del self._shrinking[rank]
                absent = [one for one in self._active_ranks() if one not in arrived]
                self._refuse(waiting, "absent", absent=absent, arrived=arrived)

    _REQUESTS: Mapping[str, Callable[..., None]] = {
        "put": _put,
        "add": _add,
        "get": _get,
        "delete": _delete,
        "keys": _list_keys,
        "barrier": _arrive,
        "shrink": _request_shrink,
        "live": _ask_live,
        "error": _take_error,
        "absent": _ask_stacks,
    }
