"""A TCP proxy for tests: it forwards connections, and breaks, delays or drops them on request."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from weft._engine.util.threads import DaemonThread


class Proxy:
    """A proxy that forwards connections at `address` to `target` until `close`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.delay_s = 0.0
        self.connections = 0
        self.passes = threading.Event()
        self.passes.set()
        self._ends = False
        DaemonThread(self._accept)

    def _accept(self) -> None:
        while not self._ends:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._pairs.append((client, server))
                self.connections += 1
            DaemonThread(self._forward, client, server)
            DaemonThread(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.passes.wait()
                time.sleep(self.delay_s)
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Break all connections by a TCP reset, which discards data in transit."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for one in [one for pair in pairs for one in pair]:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def stop_accepting(self) -> None:
        """Refuse new connections."""
        self._ends = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Refuse new connections, and break existing ones."""
        self.stop_accepting()
        self.passes.set()
        self.reset()
