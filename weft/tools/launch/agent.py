"""The launcher's agent on another host: it starts, watches and kills the ranks of its host.

In:   requests of the launcher: start, signal, end.
Out:  the ranks' output, exit codes and errors.
Laws: when the launcher's connection closes, or is silent for longer than the launcher said, the
      agent kills its ranks and ends; if the agent dies, the system ends them. It never waits for
      the network while it watches them. Nothing secret is on its command line.
Next: `remote_host` is the launcher's end.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from weft._engine.util.threads import DaemonThread
from weft._version import __version__
from weft.tools.launch.local_host import LocalHost, Receive, StartRequest
from weft.tools.launch.pipe_link import greet

HEARTBEAT_S = 1.0
_POLL_S = 0.02
#: number of unsent output bytes at which ranks wait for the launcher
_MOST_OUTPUT = 4 << 20
#: seconds to send the last frames
_FLUSH_S = 2.0
#: exit status of an agent that the launcher refuses
CANNOT_START = 2
#: seconds of silence after which the launcher is considered lost, before it has started ranks
_IDLE_S = 120.0


class FrameLink(Protocol):
    """An authenticated connection."""

    def send(self, table: dict[str, Any], data: bytes = b"") -> None: ...
    def receive(self, timeout: float) -> list[tuple[dict[str, Any], bytes]] | None: ...


class Outbox:
    """A queue of frames that a thread sends: the main thread never waits for the network."""

    def __init__(self, link: FrameLink) -> None:
        self._link = link
        self._frames: deque[tuple[dict[str, Any], bytes]] = deque()
        self._size = 0
        self._is_idle = True
        self._changed = threading.Condition()
        self.is_closed = False
        DaemonThread(self._send_frames)

    def send(self, table: dict[str, Any], data: bytes = b"", *, waits: bool = False) -> None:
        """Send a frame; with `waits`, first wait while too many bytes are unsent."""
        with self._changed:
            while waits and self._size > _MOST_OUTPUT and not self.is_closed:
                self._changed.wait(1.0)
            self._frames.append((table, data))
            self._is_idle = False
            self._size += len(data)
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait up to `seconds` until all frames are sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle or self.is_closed, seconds)

    def close(self) -> None:
        """Drop unsent frames."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _send_frames(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._frames or self.is_closed)
                if self.is_closed:
                    return
                table, data = self._frames.popleft()
            try:
                self._link.send(table, data)
            except OSError:
                self.close()
                return
            with self._changed:
                self._size -= len(data)
                self._is_idle = not self._frames
                self._changed.notify_all()


class Agent:
    """Serves one launcher; `receive` takes the ranks' output, by default to the launcher."""

    def __init__(self, link: FrameLink, receive: Receive | None = None, **facts: Any) -> None:
        self._link, self._outbox = link, Outbox(link)
        self._receive = receive or self._send_output
        self._facts = facts
        self._host: LocalHost | None = None
        self._unreported: set[int] = set()
        self._is_ending = False
        self._silence = _IDLE_S
        #: the exit status of the program, once the launcher has sent it
        self.status: int | None = None
        self.refusal = ""  # the launcher's reason to refuse this agent

    def serve(self, stops: Callable[[Agent], bool] = lambda agent: False) -> None:
        """Serve until the launcher's connection closes, or until `stops`, a poll, returns True."""
        self._outbox.send({"op": "hello", **describe_host(), **self._facts})
        heard = ticked = next_heartbeat = time.monotonic()
        try:
            while not self._outbox.is_closed and self.status is None:
                frames = self._link.receive(_POLL_S)
                now = time.monotonic()
                heard += max(0.0, now - ticked - 1.0)  # this process itself was suspended
                ticked = now
                if frames is not None:
                    heard = now
                    for table, _ in frames:
                        self._handle(table)
                elif now - heard > self._silence:
                    return
                self._report_ends()
                if stops(self):
                    self._outbox.flush(_FLUSH_S)
                    return
                if now >= next_heartbeat:
                    next_heartbeat = now + HEARTBEAT_S
                    self._outbox.send({"op": "heartbeat"})
        except (OSError, KeyError, TypeError, ValueError):
            return
        finally:
            self._outbox.close()
            if self._host is not None:
                self._host.kill()

    def signal(self, number: int) -> None:
        """Send a signal to all ranks of this host, and exclude it from the next start."""
        self._outbox.send({"op": "leaves"})
        if self._host is not None:
            self._host.signal(list(self._unreported), number)

    @property
    def is_running(self) -> bool:
        """True if ranks run here."""
        return bool(self._unreported)

    def _handle(self, table: dict[str, Any]) -> None:
        op = table["op"]
        if op == "start":
            self._start(table)
        elif op == "signal" and self._host is not None:
            self._host.signal(table["ranks"], table["number"])
        elif op == "close" and self._host is not None:
            self._host.close_stream(table["stream"])
        elif op == "end" and self._host is not None:
            self._host.kill()
            self._is_ending = True
        elif op == "end":
            self._outbox.send({"op": "ended"})
        elif op == "refused":
            self.refusal, self.status = table["why"], CANNOT_START
        elif op == "finish":
            self.status = table["status"]

    def _start(self, table: dict[str, Any]) -> None:
        self._silence = table["silence"]
        ranks, environment = tuple(table["ranks"]), table["environment"]
        command = (sys.executable, *table["command"][1:])
        self._host = LocalHost(self._receive)
        self._unreported = set(ranks)
        try:
            self._host.start(StartRequest(command, ranks, environment, True))
        except OSError as error:
            self._unreported.clear()
            self._outbox.send({"op": "cannot start", "why": f"{error.filename}: {error.strerror}"})

    def _send_output(self, rank: int, stream: int, data: bytes) -> None:
        table = {"op": "output", "rank": rank, "stream": stream}
        self._outbox.send(table, data, waits=True)

    def _report_ends(self) -> None:
        host = self._host
        if host is None:
            return
        for rank in list(self._unreported):
            code = host.exit_code(rank)
            if code is not None:
                self._unreported.discard(rank)
                table = {"op": "exit", "rank": rank, "code": code}
                self._outbox.send(table, host.error_data(rank))
        if self._is_ending and host.is_drained():
            self._is_ending = False
            self._outbox.send({"op": "ended"})
            host.close()
            self._host = None


def describe_host() -> dict[str, Any]:
    """Return the facts about this host that the launcher compares and uses."""
    client = os.environ.get("SSH_CONNECTION", "").split()
    return {
        "host": socket.gethostname(),
        "weft": __version__,
        "python": platform.python_version(),
        "launcher address": client[0] if client else "",
    }


def _ignore(number: int, frame: Any) -> None:
    """Ignore a signal: the launcher decides. (Ranks would inherit SIG_IGN.)"""


def main() -> int:
    """Serve the launcher on standard input and output."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _ignore)
    outgoing = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not mix with frames
    try:
        link = greet(sys.stdin.fileno(), outgoing)
    except (OSError, KeyError, ValueError):
        return 1
    Agent(link).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
