"""The connection of a rank to the coordinator.

One daemon thread reads the connection and sends heartbeats with the progress of this rank. A pending
request ends at its deadline, when a failure is reported, or at a signal. If the connection breaks while
the coordinator's process is alive, the client reconnects within `heartbeat_timeout` and repeats the
pending requests.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft._engine.processes import failures, liveness, wire
from weft._engine.processes.liveness import ProbeResponder
from weft._engine.util.errors import ProcessFailureError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.threads import DaemonThread

#: seconds after a request's own deadline during which its answer may still arrive
_SLACK_S = 5.0
_CONNECT_S = 10.0
#: maximum number of characters of a report: stacks, or the text of an exception
_MAX_REPORT = 1 << 18


class AuthenticationError(ConnectionError):
    """The coordinator has another secret."""


class Link:
    """An authenticated connection to the coordinator at `address`.

    Raises AuthenticationError if the secrets differ, OSError if no connection is possible within
    `timeout` seconds.
    """

    def __init__(self, address: str, secret: bytes, timeout: float) -> None:
        self._reader, self._writer = wire.FrameReader(), wire.FrameWriter()
        self._sending = threading.Lock()
        self.is_closed = False
        self.socket = socket.create_connection(wire.host_and_port(address), timeout=timeout)
        try:
            if self.socket.getsockname() == self.socket.getpeername():
                raise ConnectionRefusedError("no process listens")  # TCP connected to itself
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.settimeout(0.5)
            self._authenticate(secret, time.monotonic() + timeout)
        except BaseException:
            self.socket.close()
            raise

    def _authenticate(self, secret: bytes, until: float) -> None:
        own = wire.make_challenge()
        challenges = bytes.fromhex(self._read_reply("challenge", until)["bytes"]) + own
        proof = wire.prove(secret, "process", challenges).hex()
        self.send({"op": "prove", "bytes": own.hex(), "proof": proof})
        if not wire.is_proof(
            self._read_reply("proved", until)["proof"], secret, "coordinator", challenges
        ):
            raise AuthenticationError("the coordinator does not have the secret")
        self._reader.authenticate(wire.derive_key(secret, "coordinator", challenges))
        self._writer.authenticate(wire.derive_key(secret, "process", challenges))

    def _read_reply(self, op: str, until: float) -> dict[str, Any]:
        while time.monotonic() < until:
            for table, _ in self.receive(0.5) or ():
                if table["op"] == "refused":
                    raise AuthenticationError("the coordinator has another secret")
                if table["op"] != op:
                    raise wire.ForeignDataError(f"expected {op!r}")
                return table
        raise TimeoutError("the coordinator does not answer")

    def send(
        self,
        table: dict[str, Any],
        data: bytes = b"",
        timeout: float = 10.0,
        is_cancelled: Callable[[], bool] = bool,
    ) -> None:
        """Send a frame. Raises TimeoutError after `timeout` seconds or once `is_cancelled()` is true."""
        until = time.monotonic() + timeout
        with self._sending:
            view = memoryview(self._writer.pack(table, data))
            while view:
                try:
                    view = view[self.socket.send(view) :]
                except TimeoutError:
                    if self.is_closed or is_cancelled() or time.monotonic() > until:
                        raise

    def receive(self, timeout: float) -> list[tuple[dict[str, Any], bytes]] | None:
        """Return the frames that arrive within `timeout` seconds; None if no data arrives.

        Raises ConnectionError if the peer has closed the connection.
        """
        if not liveness.wait_readable(self.socket, timeout):
            return None
        arrived = self.socket.recv(1 << 18)
        if not arrived:
            raise ConnectionResetError("the connection was closed")
        return list(self._reader.feed(arrived))

    def shutdown(self) -> None:
        """Shut down the connection; the thread that reads it gets an end of file."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class _PendingAnswer:
    """A pending request and its answer."""

    __slots__ = ("data", "done", "request", "table", "until")

    def __init__(self, request: tuple[dict[str, Any], bytes], timeout: float) -> None:
        self.request = request
        self.done = threading.Event()
        self.until = time.monotonic() + timeout + _SLACK_S
        self.table: dict[str, Any] | None = None
        self.data = b""

    def wait(self) -> bool:
        """Wait for the answer or the end of the connection; return False if the deadline passes."""
        while not self.done.wait(max(0.0, self.until - time.monotonic())):
            if time.monotonic() >= self.until:
                return False
        return True


def rejoin_survivors(
    address: str, secret: bytes, rank: int, facts: dict[str, Any], until: float
) -> tuple[int, tuple[int, ...]] | None:
    """Rejoin the surviving ranks at the successor of a lost coordinator: see `Client.shrink`.

    Returns None if the process at `address` ends first, or cannot be reached.
    """
    request = {
        "op": "shrink",
        "rank": rank,
        "token": secrets.token_hex(16),
        "facts": facts,
        "number": 1,
        "lowest": 1,
    }
    while time.monotonic() < until:
        try:
            link = Link(address, secret, _CONNECT_S)
            try:
                return _wait_to_shrink(link, request, until)
            finally:
                link.shutdown()
                link.socket.close()
        except OSError:
            # until the successor serves, its probe responder closes connections at this address
            if liveness.probe(address) != liveness.ANSWERS:
                return None
        time.sleep(0.05)
    raise failures.of_rank({"rank": -1, "kind": "coordinator", "text": "not answered"}, "shrink")


def _wait_to_shrink(
    link: Link, request: dict[str, Any], until: float
) -> tuple[int, tuple[int, ...]]:
    timeout, next_heartbeat = until - time.monotonic(), 0.0
    link.send({**request, "timeout": timeout})
    while time.monotonic() < until + _SLACK_S:
        if time.monotonic() >= next_heartbeat:
            next_heartbeat = time.monotonic() + 1.0
            link.send({"op": "heartbeat"})
        for table, _ in link.receive(0.2) or ():
            if table["op"] == "answer":
                return _parse_shrink_answer(table, timeout)
    raise TimeoutError("the coordinator does not answer")


def _parse_shrink_answer(table: dict[str, Any], timeout: float) -> tuple[int, tuple[int, ...]]:
    """Return the new number of this rank and the former numbers of all ranks, or raise the error."""
    if table["ok"]:
        return table["rank"], tuple(table["ranks"])
    if table["why"] == "minority":
        raise failures.of_minority(table["left"], table["unproven"])
    if table["why"] == "failed":
        raise failures.of_rank(table["failure"], "shrink")
    if table["why"] == "absent":
        raise failures.of_absence("shrink", timeout, table["arrived"], table["absent"])
    raise ProcessFailureError(f"distributed.shrink: {table['why']}")


class Client:
    """The connection of rank `rank` of `size`; `facts` are plain values that all ranks exchange.

    `responder` is the address of the native responder to probes (`liveness`). Raises
    ProcessFailureError if the coordinator or other ranks do not join within `timeout` seconds.
    """

    def __init__(
        self,
        address: str,
        rank: int,
        size: int,
        facts: dict[str, Any],
        timeout: float = 300.0,
        heartbeat_timeout: float = 10.0,
        secret: bytes = b"",
        responder: int | None = None,
    ) -> None:
        self.address, self.rank, self.size, self.secret = address, rank, size, secret
        self.heartbeat_timeout = heartbeat_timeout
        self.failure: dict[str, Any] | None = None
        self._is_failure_seen = False
        #: whether the coordinator runs in the process of rank 0, and ends with it
        self.is_served_by_rank = False
        #: whether the connection to the coordinator is permanently lost
        self.has_lost_coordinator = False
        #: called once, in the thread of this connection, with the first failure
        self.on_failure: Callable[[dict[str, Any]], None] | None = None
        #: returns a description of what this rank waits for, for reports to other ranks
        self.describe_waits: Callable[[], str] = str
        self.leaving: dict[int, float] = {}
        #: thread -> progress text that it reported
        self._progress: dict[int, str] = {}
        self._answers: dict[int, _PendingAnswer] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._ends = self._has_joined = False
        self._token = secrets.token_hex(16)
        began = time.monotonic()
        self._link = self._connect(began + timeout)
        self.host: str = self._link.socket.getsockname()[0]
        self.responder = ProbeResponder(self.host, responder)
        self._heard = time.monotonic()
        self._thread = DaemonThread(self._listen)
        facts = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            **facts,
            "successor": self.responder.address,
        }
        request = {"op": "join", "rank": rank, "size": size, "facts": facts, "token": self._token}
        try:
            remaining = max(1.0, timeout - (time.monotonic() - began))
            table, data = self._request(request, remaining)
            self._check(
                table,
                f"initialize of {quantity(size, 'process')}",
                timeout,
                "initialization_timeout",
            )
        except BaseException:
            self.close()
            raise
        self._has_joined = True
        self.facts: dict[str, list[Any]] = json.loads(zlib.decompress(data))

    @property
    def is_failure_seen(self) -> bool:
        """Whether the main thread has raised the failure.

        Failures seen by other threads do not count: the main thread may be computing, and then has
        to be interrupted.
        """
        return self._is_failure_seen

    @is_failure_seen.setter
    def is_failure_seen(self, value: bool) -> None:
        if not value or threading.current_thread() is threading.main_thread():
            self._is_failure_seen = value

    def _connect(self, until: float) -> Link:
        wait = 0.01
        while True:
            try:
                seconds = max(0.1, min(_CONNECT_S, until - time.monotonic()))
                return Link(self.address, self.secret, seconds)
            except AuthenticationError as error:
                raise self._make_error(
                    "and the coordinator have different secrets.",
                    str(error),
                    "All processes of a job have one secret, in WEFT_JOB_SECRET or the file "
                    "WEFT_JOB_SECRET_FILE.",
                    "Give all of them the same one; see also whether another job uses this address.",
                ) from None
            except OSError as error:
                reason = str(error)
            if time.monotonic() + wait > until:
                raise self._make_error(
                    "cannot reach the coordinator.",
                    reason,
                    "Process 0 or the launcher runs it.",
                    "See whether it runs, and whether the network lets it be reached; "
                    "initialization_timeout sets the limit in seconds.",
                )
            time.sleep(wait)
            wait = min(0.5, wait * 1.5)

    def _make_error(self, fact: str, reason: str, rule: str, advice: str) -> ProcessFailureError:
        facts: list[Any] = [("coordinator", self.address), ("reason", reason)]
        text = describe(
            "distributed.initialize", f"process {self.rank} {fact}", facts, None, rule, advice
        )
        return ProcessFailureError(text)

    # ---- requests
    def put(self, key: str, value: bytes, replaces: bool = True) -> bool:
        """Store a value under a key; return True if it was stored.

        Without `replaces` an existing value is not overwritten.
        """
        table, _ = self._request(
            {"op": "put", "key": key} if replaces else {"op": "put", "key": key, "first": True},
            60.0,
            value,
        )
        return table["ok"]

    def add(self, key: str, by: int) -> int:
        """Add `by` to the number under a key (initially 0); return the sum.

        Raises ValueError if the key has a value that is not a number.
        """
        table, _ = self._request({"op": "add", "key": key, "by": by}, 60.0)
        self._check(table, f"the key {key!r}", 60.0)
        return table["sum"]

    def get(self, key: str, timeout: float = 60.0) -> bytes:
        """Wait for the value of a key; raise ProcessFailureError if no process puts it in time."""
        table, data = self._request({"op": "get", "key": key}, timeout)
        self._check(table, f"the key {key!r}", timeout)
        return data

    def find(self, key: str) -> bytes | None:
        """Return the current value of a key, or None."""
        table, data = self._request({"op": "get", "key": key, "now": True}, 60.0)
        return data if table["ok"] else None

    def delete(self, key: str) -> int:
        """Delete a key and all keys below it (`key/...`); return their number."""
        return self._request({"op": "delete", "key": key}, 60.0)[0]["count"]

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with `prefix`."""
        return self._request({"op": "keys", "prefix": prefix}, 60.0)[0]["keys"]

    def items(self, prefix: str = "") -> list[tuple[str, bytes]]:
        """Return the keys that begin with `prefix`, with their values."""
        table, data = self._request({"op": "keys", "prefix": prefix, "values": True}, 60.0)
        ends = list(itertools.accumulate(table["sizes"], initial=0))
        return [(key, data[start:end]) for key, start, end in zip(table["keys"], ends, ends[1:])]

    def find_live(self, ranks: Iterable[int], timeout: float = 600.0) -> dict[int, int]:
        """Return the live ranks among `ranks`, each with a number unique to its process.

        Waits until all live ranks of them have called this.
        """
        members = sorted(set(ranks))
        table, _ = self._request({"op": "live", "ranks": members}, timeout)
        self._check(table, f"the question which of the processes {members} live", timeout)
        return dict(table["live"])

    def barrier(
        self,
        name: str,
        timeout: float = 600.0,
        ranks: Sequence[int] | None = None,
        value: Any = None,
        setting: str = "",
    ) -> list[Any]:
        """Wait until all ranks, or the given `ranks`, have arrived at the barrier `name`.

        Returns the value `value` of each of them, in order. `setting` is the name of the setting
        that limits the wait, for the error; by default the collectives' setting.
        """
        table, data = self._request(
            {"op": "barrier", "name": name, "ranks": list(ranks or ()), "brings": value}, timeout
        )
        self._check(table, f"the barrier {name!r}", timeout, setting)
        return json.loads(zlib.decompress(data))["brought"] if data else []

    def shrink(self, timeout: float) -> tuple[int, tuple[int, ...]]:
        """Continue without failed ranks, once all remaining ranks have called this.

        Returns the new number of this rank, and the former numbers of the remaining ranks in the
        order of their new ones. Each remaining rank must connect again.
        """
        table, _ = self._request({"op": "shrink"}, timeout)
        return _parse_shrink_answer(table, timeout)

    def heartbeat(self) -> None:
        """Send a sign of life; the thread of the connection does so at least every second."""
        progress = ", ".join(list(self._progress.values()))
        self._send({"op": "heartbeat", "progress": progress} if progress else {"op": "heartbeat"})

    def report_progress(self, text: str) -> None:
        """Report what this thread of this rank does, until it reports "".

        Ranks that wait for this rank receive the text and extend their limit.
        """
        if text:
            self._progress[threading.get_ident()] = text
        else:
            self._progress.pop(threading.get_ident(), None)

    def query_stacks(self, ranks: Iterable[int]) -> dict[int, Any]:
        """Return what each of `ranks` is doing: Python stacks, the awaited collective, progress."""
        table, _ = self._request({"op": "absent", "ranks": list(ranks)}, 3.0)
        return {int(rank): facts for rank, facts in table.get("report", {}).items()}

    def report_error(self, text: str) -> None:
        """Report to all ranks that this rank raised an exception and ends."""
        with contextlib.suppress(OSError, ProcessFailureError):
            self._request({"op": "error", "text": text[-_MAX_REPORT:]}, 1.0)

    def leave(self) -> None:
        """Report to the coordinator that this rank ends in good order."""
        with contextlib.suppress(OSError):
            self._send({"op": "leave"})

    def close(self) -> None:
        """End the connection."""
        self._ends = True
        self._link.shutdown()
        self._thread.join()
        self._link.socket.close()
        self.responder.close()

    def _request(
        self, table: dict[str, Any], timeout: float, data: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        if self.failure is not None and table["op"] in ("get", "barrier", "join"):
            self.is_failure_seen = True
            raise failures.of_rank(self.failure)
        with self._lock:
            self._number += 1
            number = self._number
            lowest = min(self._answers, default=number)
            request = {**table, "number": number, "lowest": lowest, "timeout": timeout}
            answer = self._answers[number] = _PendingAnswer((request, data), timeout)
        if self._ends or self.has_lost_coordinator:
            # the listening thread may already have released all waiters
            answer.done.set()
        try:
            # if the connection breaks, the request is repeated on a new one or the wait is ended
            with contextlib.suppress(OSError):
                self._send(request, data)
            has_ended = answer.wait()
        finally:
            self._answers.pop(number, None)
        if answer.table is not None:
            return answer.table, answer.data
        self.is_failure_seen = True
        if self.failure is not None:
            raise failures.of_rank(self.failure)
        text = "closed the connection" if has_ended else "not answered"
        raise failures.of_rank({"rank": -1, "kind": "coordinator", "text": text})

    def _check(
        self, table: dict[str, Any], waits_for: str, timeout: float, setting: str = ""
    ) -> None:
        if table["ok"]:
            return
        why = table["why"]
        if why == "failed":
            self.is_failure_seen = True
            raise failures.of_rank(table["failure"], waits_for)
        if why == "absent":
            report = (
                None if setting == "initialization_timeout" else self.query_stacks(table["absent"])
            )
            error = failures.of_absence(
                waits_for,
                timeout,
                table["arrived"],
                table["absent"],
                report=report,
                setting=setting or "WEFT_COLLECTIVE_TIMEOUT",
            )
            if refused := table.get("refused"):
                connections = f"{refused} connection{'s' * (refused > 1)}"
                error.add_note(f"The coordinator refused {connections} with another secret.")
            raise error
        if why == "late":
            raise ProcessFailureError(
                f"distributed: no process put {waits_for} within {timeout:g} seconds."
            )
        raise ValueError(f"distributed: {waits_for}: {why}")

    def _send(self, table: dict[str, Any], data: bytes = b"") -> None:
        timeout = max(10.0, self.heartbeat_timeout)
        self._link.send(table, data, timeout, lambda: self._ends or self.failure is not None)

    # ---- the thread
    def _listen(self) -> None:
        why = ""
        while not self._ends and not why:
            try:
                why = self._serve()
            except (OSError, ValueError):  # ForeignDataError among them
                if not self._ends and not self._resume():
                    why = "closed the connection"
        if not self._ends:
            self._lose_coordinator(why)
        for answer in list(self._answers.values()):
            answer.done.set()

    def _serve(self) -> str:
        """Read the connection and send heartbeats; return the reason why the coordinator is lost."""
        interval = min(1.0, self.heartbeat_timeout / 5)
        next_heartbeat = 0.0
        while not self._ends:
            now = time.monotonic()
            if now >= next_heartbeat:
                next_heartbeat = now + interval
                self.heartbeat()
            frames = self._link.receive(max(0.0, next_heartbeat - now))
            after = time.monotonic()
            if frames is not None:
                self._heard = after
                for table, data in frames:
                    self._handle(table, data)
            elif after - now > 2 * interval + 1.0:  # this process itself was suspended
                self._heard = after
            elif after - self._heard > self.heartbeat_timeout - liveness.PROBE_S:
                if self._is_coordinator_busy():
                    self._heard = time.monotonic()
                elif time.monotonic() - self._heard > self.heartbeat_timeout:
                    return f"been silent for {time.monotonic() - self._heard:.1f} seconds"
        return ""

    def _is_coordinator_busy(self) -> bool:
        """Return whether rank 0, which runs the coordinator, answers a probe."""
        return (
            self.is_served_by_rank
            and self.rank != 0
            and liveness.probe(self.facts["successor"][0]) == liveness.ANSWERS
        )

    def _resume(self) -> bool:
        """Reconnect as the same process and repeat pending requests; return True on success."""
        until = time.monotonic() + self.heartbeat_timeout
        while not self._ends and time.monotonic() < until:
            try:
                link = Link(self.address, self.secret, min(2.0, self.heartbeat_timeout))
                if self._take_over(link, until):
                    return True
                return False
            except (ConnectionRefusedError, AuthenticationError):
                return False
            except (OSError, ValueError):
                time.sleep(0.05)
        return False

    def _take_over(self, link: Link, until: float) -> bool:
        messages: list[tuple[dict[str, Any], bytes]] | None = None
        try:
            messages = self._ask_to_resume(link, until)
        finally:
            if messages is None:
                link.socket.close()
        if messages is None:
            return False
        before, self._link = self._link, link
        before.shutdown()
        before.socket.close()
        self._heard = time.monotonic()
        for number in sorted(self._answers):
            answer = self._answers.get(number)
            if answer is not None:
                self._send(*answer.request)
        for table, data in messages:
            self._handle(table, data)
        return True

    def _ask_to_resume(self, link: Link, until: float) -> list[tuple[dict[str, Any], bytes]] | None:
        """Return the frames that follow the coordinator's consent, or None if it refuses."""
        link.send({"op": "resume", "token": self._token})
        while time.monotonic() < until and not self._ends:
            frames = link.receive(0.5)
            if frames:
                # the coordinator does not know this process until it has received the join request
                is_accepted = frames[0][0].get("ok") or not self._has_joined
                return frames[1:] if is_accepted else None
        return None

    def _lose_coordinator(self, why: str) -> None:
        self.has_lost_coordinator = True
        has_ended = self.is_served_by_rank and why.startswith("closed") and self.rank != 0
        if has_ended:
            where = {"host": self.facts["host"][0], "pid": self.facts["pid"][0]}
            self._fail({"rank": 0, "kind": "ended", "text": why, **where})
        else:
            self._fail({"rank": -1, "kind": "coordinator", "text": why})

    def _handle(self, table: dict[str, Any], data: bytes) -> None:
        op = table["op"]
        if op == "answer":
            answer = self._answers.get(table["number"])
            if answer is not None:
                answer.table, answer.data = table, data
                answer.done.set()
        elif op == "extended":
            answer = self._answers.get(table["number"])
            if answer is not None:
                answer.until = time.monotonic() + table["seconds"] + _SLACK_S
        elif op == "failed":
            self._fail({name: table[name] for name in ("rank", "kind", "text", "host", "pid")})
        elif op == "leaves":
            self.leaving.update(dict.fromkeys(table["ranks"], time.monotonic()))
        elif op == "stacks":
            stack = failures.format_stacks()[:_MAX_REPORT]
            self._send(
                {
                    "op": "stacks",
                    "query": table["query"],
                    "stack": stack,
                    "at": self.describe_waits(),
                }
            )

    def _fail(self, failure: dict[str, Any]) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_failure is not None:
                self.on_failure(failure)
