"""A process between ranks and their coordinator that forwards the connections of each rank, and
holds, delays, damages or breaks them.

In:   the number of ranks, and the address of the coordinator; or a coordinator that runs in that
      process, as in a launcher.
Out:  `Network.addresses`, at which each rank reaches the coordinator; commands that change links.
Laws: one thread forwards. A link that is held buffers its data, as TCP would send it again: only a
      reset loses data.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 1 << 16


@dataclass
class Link:
    """The state of a rank's link; directions are "up", to the coordinator, and "down"."""

    listener: socket.socket
    held: set[str] = field(default_factory=set)
    corrupted: set[str] = field(default_factory=set)  # directions whose next bytes are damaged
    delay: float = 0.0
    refuses: bool = False
    pairs: list[Pair] = field(default_factory=list)


@dataclass
class Stream:
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    direction: str
    under_way: deque[tuple[float, bytes]] = field(default_factory=deque)
    is_open: bool = True


@dataclass
class Pair:
    """A forwarded connection."""

    streams: list[Stream]

    def close(self, is_reset: bool = False) -> None:
        for stream in self.streams:
            stream.is_open = False
            with contextlib.suppress(OSError):
                if is_reset:
                    stream.source.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                stream.source.close()


class Forwarder:
    """The thread that forwards the connections of all links to `target`, and obeys commands that
    arrive as lines of JSON."""

    def __init__(
        self, links: list[Link], target: tuple[str, int], commands: int, replies: int
    ) -> None:
        self._links, self._target, self._commands, self._replies = links, target, commands, replies
        self._arrived = b""
        os.set_blocking(commands, False)

    def run(self) -> None:
        """Forward until the command connection is closed by its other end."""
        while True:
            waiting = self._find_waiting()
            with selectors.DefaultSelector() as selector:
                selector.register(self._commands, selectors.EVENT_READ)
                for source in waiting:
                    selector.register(source, selectors.EVENT_READ, waiting[source])
                ready = selector.select(0.01 if any(link.delay for link in self._links) else 0.05)
            for key, _ in ready:
                if key.data is None:
                    if not self._obey():
                        return
                elif isinstance(key.data, Link):
                    self._accept(key.data)
                else:
                    self._read(*key.data)
            self._send_due()

    def _find_waiting(self) -> dict[socket.socket, Any]:
        """Return the sockets that can be read now. Bytes of held directions stay in the system's
        buffers."""
        sockets: dict[socket.socket, Any] = {}
        for link in self._links:
            link.pairs = [
                pair
                for pair in link.pairs
                if any(stream.is_open or stream.under_way for stream in pair.streams)
            ]
            if not link.refuses and not link.held >= {"up", "down"}:
                sockets[link.listener] = link
            for pair in link.pairs:
                sockets.update(
                    {
                        stream.source: (link, pair, stream)
                        for stream in pair.streams
                        if stream.is_open and stream.direction not in link.held
                    }
                )
        return sockets

    def _accept(self, link: Link) -> None:
        client, _ = link.listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            Pair([Stream(client, client, "up")]).close(is_reset=True)
            return
        for one in (client, server):
            one.settimeout(2.0)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.pairs.append(Pair([Stream(client, server, "up"), Stream(server, client, "down")]))

    def _read(self, link: Link, pair: Pair, stream: Stream) -> None:
        if not stream.is_open:
            return
        try:
            data = stream.source.recv(_CHUNK)
        except OSError:
            pair.close()
            return
        if stream.direction in link.corrupted and data:
            link.corrupted.discard(stream.direction)
            data = data[:-1] + bytes([data[-1] ^ 0xFF])
        stream.under_way.append((time.monotonic() + link.delay, data))
        if not data:
            stream.is_open = False

    def _send_due(self) -> None:
        now = time.monotonic()
        for link in self._links:
            for pair in link.pairs:
                for stream in pair.streams:
                    while (
                        stream.under_way
                        and stream.under_way[0][0] <= now
                        and stream.direction not in link.held
                    ):
                        _, data = stream.under_way.popleft()
                        try:
                            stream.target.sendall(data) if data else stream.target.shutdown(
                                socket.SHUT_WR
                            )
                        except OSError:
                            pair.close()
                            break

    def _obey(self) -> bool:
        data = os.read(self._commands, _CHUNK)
        self._arrived += data
        *lines, self._arrived = self._arrived.split(b"\n")
        for line in lines:
            self._do(**json.loads(line))
            os.write(self._replies, b".")
        return bool(data)

    def _do(self, rank: int, op: str, **options: Any) -> None:
        link = self._links[rank]
        if op == "hold":
            link.held = set(options["directions"])
        elif op == "delay":
            link.delay = options["seconds"]
        elif op == "corrupt":
            link.corrupted = set(options["directions"])
        elif op == "reset":
            for pair in link.pairs:
                pair.close(is_reset=True)
        elif op == "refuse":
            link.refuses = True
            link.listener.close()
            for pair in link.pairs:
                pair.close(is_reset=True)
        else:
            raise ValueError(op)


class Network:
    """The links of `size` ranks to the coordinator at the port `port` of this machine; with
    `serves`, this process runs the coordinator."""

    def __init__(
        self, size: int, port: int, serves: bool, heartbeat_timeout: float, secret: bytes = b""
    ) -> None:
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
        self.addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in listeners]
        self.port = port
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._commands)
            os.close(self._replies)
            try:
                _serve(listeners, port, serves, heartbeat_timeout, secret, commands, replies)
            finally:
                os._exit(0)
        for one in listeners:
            one.close()
        os.close(commands)
        os.close(replies)
        os.read(self._replies, 1)  # the coordinator runs here

    def do(self, rank: int, op: str, **options: Any) -> None:
        """Change the link of a rank, and return when the change is complete."""
        os.write(self._commands, json.dumps({"rank": rank, "op": op, **options}).encode() + b"\n")
        if not os.read(self._replies, 1):
            raise RuntimeError("the network has ended")

    def close(self) -> None:
        """End the process, with its coordinator if it has one."""
        os.close(self._commands)
        os.close(self._replies)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _serve(
    listeners: list[socket.socket],
    port: int,
    serves: bool,
    heartbeat_timeout: float,
    secret: bytes,
    commands: int,
    replies: int,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if serves:
        from weft._engine.processes.coordinator import Coordinator
        from weft._engine.processes.host_identity import machine

        Coordinator(
            f"127.0.0.1:{port}", len(listeners), heartbeat_timeout, secret=secret, machine=machine()
        ).start()
    os.write(replies, b".")
    Forwarder(
        [Link(listener) for listener in listeners], ("127.0.0.1", port), commands, replies
    ).run()
