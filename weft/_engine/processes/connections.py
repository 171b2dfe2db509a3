"""One thread that accepts, authenticates and serves the connections of a coordinator.

A new connection gets a challenge. Until it has proved that it has the job's secret it may send 4 KiB
within 5 seconds, and there are at most 64 such connections; more wait in the system's queue. Invalid
data ends the connection on which it arrived, and no other.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft._engine.processes import wire
from weft._engine.processes.liveness import Probe
from weft._engine.util.threads import DaemonThread

TICK_S = 0.2
MAX_STRANGERS, STRANGER_S = 64, 5.0


class Connection:
    """A connection; once it is authenticated, `peer` is the handler's object for it."""

    __slots__ = ("challenges", "is_trusted", "opened", "out", "peer", "reader", "socket", "writer")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.opened = time.monotonic()
        self.reader, self.writer = wire.FrameReader(), wire.FrameWriter()
        self.out = bytearray()
        self.challenges = wire.make_challenge()
        self.is_trusted = False
        self.peer: Any = None


class FrameHandler(Protocol):
    """The callbacks of a `ConnectionServer`, called in its thread."""

    def receive(self, connection: Connection, table: dict[str, Any], data: bytes) -> None:
        """Handle a frame of an authenticated connection."""

    def handle_disconnect(self, connection: Connection) -> None:
        """Handle the end of an authenticated connection."""

    def tick(self, now: float, elapsed: float) -> None:
        """Do periodic work; called about every `TICK_S`, `elapsed` seconds after the last call."""


class ConnectionServer:
    """A server for the connections to `listeners`; `start` begins, `stop` ends."""

    def __init__(
        self, listeners: Sequence[socket.socket], secret: bytes, handler: FrameHandler
    ) -> None:
        self._listeners, self._secret, self._handler = listeners, secret, handler
        self._unauthenticated: dict[Connection, None] = {}
        self._probes: dict[Probe, Callable[[str], None]] = {}
        #: the number of connections that were refused because they had another secret
        self.refused = 0
        self._stops = False
        self._thread: DaemonThread | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._is_accepting = False
        for listener in listeners:
            listener.setblocking(False)
        self._set_accepting(True)

    # ---- life
    def start(self) -> None:
        """Serve in a thread."""
        self._thread = DaemonThread(self._serve)

    def stop(self) -> None:
        """End the thread, and close all connections."""
        self._stops = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b".")
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        ticked = time.monotonic()
        try:
            while not self._stops:
                for key, events in self._selector.select(0.02 if self._probes else TICK_S):
                    self._serve_event(key, events)
                self._read_probes()
                now = time.monotonic()
                if now - ticked >= TICK_S:
                    self._expel_strangers(now)
                    self._handler.tick(now, now - ticked)
                    ticked = now
        finally:
            self._close_all()

    def _serve_event(self, key: selectors.SelectorKey, events: int) -> None:
        if isinstance(key.data, Connection):
            self._talk(key.data, events)
        elif key.fileobj in self._listeners:
            self._accept(key.fileobj)  # type: ignore[arg-type]

    def _close_all(self) -> None:
        """Close all connections; first read them to the end, as unread bytes would discard sent frames."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                with contextlib.suppress(OSError):
                    key.data.socket.shutdown(socket.SHUT_WR)
                    while key.data.socket.recv(1 << 18):
                        pass
                key.data.socket.close()
        for one in [*self._listeners, *[probe.socket for probe in self._probes]]:
            one.close()
        self._wake_in.close()
        self._wake_out.close()
        self._selector.close()

    # ---- new connections
    def _set_accepting(self, accepts: bool) -> None:
        if accepts == self._is_accepting:
            return
        self._is_accepting = accepts
        for listener in self._listeners:
            if accepts:
                self._selector.register(listener, selectors.EVENT_READ)
            else:
                self._selector.unregister(listener)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while len(self._unauthenticated) < MAX_STRANGERS:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(accepted)
                self._unauthenticated[connection] = None
                self._selector.register(accepted, selectors.EVENT_READ, connection)
                self.send(connection, {"op": "challenge", "bytes": connection.challenges.hex()})
        self._set_accepting(len(self._unauthenticated) < MAX_STRANGERS)

    def _expel_strangers(self, now: float) -> None:
        for connection in list(self._unauthenticated):
            if now - connection.opened > STRANGER_S:
                self.close(connection)

    def _authenticate(self, connection: Connection, table: dict[str, Any]) -> None:
        challenges = connection.challenges + bytes.fromhex(table["bytes"])
        if not wire.is_proof(table["proof"], self._secret, "process", challenges):
            self.refused += 1
            self.send(connection, {"op": "refused"})
            raise wire.ForeignDataError("a wrong proof")
        proof = wire.prove(self._secret, "coordinator", challenges).hex()
        self.send(connection, {"op": "proved", "proof": proof})
        connection.reader.authenticate(wire.derive_key(self._secret, "process", challenges))
        connection.writer.authenticate(wire.derive_key(self._secret, "coordinator", challenges))
        connection.is_trusted = True
        self._forget_stranger(connection)

    def _forget_stranger(self, connection: Connection) -> None:
        self._unauthenticated.pop(connection, None)
        self._set_accepting(len(self._unauthenticated) < MAX_STRANGERS)

    # ---- frames
    def _talk(self, connection: Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if not events & selectors.EVENT_READ:
            return
        try:
            arrived = connection.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            arrived = b""
        try:
            if not arrived:
                raise ConnectionError("closed")
            for table, data in connection.reader.feed(arrived):
                if connection.is_trusted:
                    self._handler.receive(connection, table, data)
                else:
                    self._authenticate(connection, table)
        except Exception:  # a frame that cannot be handled ends its connection, not this thread
            self.close(connection)

    def send(self, connection: Connection, table: dict[str, Any], data: bytes = b"") -> None:
        """Send a frame, or queue what the network does not accept yet."""
        connection.out += connection.writer.pack(table, data)
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        try:
            while connection.out:
                sent = connection.socket.send(connection.out)
                del connection.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            connection.out.clear()  # the read side will detect that the connection has ended
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.modify(connection.socket, events, connection)

    def close(self, connection: Connection) -> None:
        """End a connection; notify the handler if it was authenticated."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self._forget_stranger(connection)
        if connection.is_trusted:
            self._handler.handle_disconnect(connection)

    # ---- probes
    def probe(self, address: str, take: Callable[[str], None]) -> None:
        """Probe a process; call `take` with the result in this thread."""
        attempt = Probe(address)
        self._probes[attempt] = take
        if attempt.result is None:
            self._selector.register(attempt.socket, selectors.EVENT_READ, attempt)

    def _read_probes(self) -> None:
        for attempt, take in list(self._probes.items()):
            known = attempt.result is not None
            if not known:
                descriptor = attempt.socket.fileno()
                if attempt.read_result() is None:
                    continue
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(descriptor)
            del self._probes[attempt]
            take(attempt.result or "")


def raise_file_limit(needed: int, purpose: str) -> None:
    """Raise this process's limit of open files and connections to at least `needed`.

    Every process may raise its limit, usually 1,024, up to its hard limit; OSError if that is lower.

    >>> raise_file_limit(16, "a test")
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(
            f"{purpose} need {needed} open files, and this process may have {hard} "
            f"(its hard limit): raise it (ulimit -Hn {needed}, or LimitNOFILE= of its service)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
