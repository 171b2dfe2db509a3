"""Probes that tell a busy process from one that has ended, is stopped or cannot be reached.

Each process listens at an address of its own and closes every connection immediately. Native code
answers without the GIL: a process that spends minutes in a host callback answers, a stopped one
(SIGSTOP) does not. A refused connection usually means that the process has ended, but a firewall may
refuse it too; so a refusal detects a failure, but does not prove that the process has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable

from weft._engine.processes.wire import host_and_port
from weft._engine.util.threads import DaemonThread

#: results of a probe
ANSWERS, REFUSED, SILENT = "answers", "refused", "silent"
PROBE_S = 2.0


class ProbeResponder:
    """A listener that answers probes at an address of this process until `stop`.

    `function` is the address of the native `weft_answer_probes`; None answers in Python.
    """

    def __init__(self, host: str, function: int | None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener: socket.socket | None = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(1024)
        self.address = "[{}]:{}".format(*self._listener.getsockname()[:2])
        self._stop = ctypes.c_int64(0)
        self._thread: DaemonThread | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_to_parent)
        self._start(function)

    def _start(self, function: int | None) -> None:
        assert self._listener is not None
        if function is None:
            self._thread = DaemonThread(self._answer)
            return
        answer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(function)
        self._thread = DaemonThread(answer, self._listener.fileno(), ctypes.addressof(self._stop))

    def _answer(self) -> None:
        while not self._stop.value and self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.accept()[0].close()

    def _leave_to_parent(self) -> None:
        """Close the copy of the listener in a forked child, which must not answer for its parent."""
        if self._listener is not None:
            os.close(self._listener.detach())
            self._listener = None

    def stop(self) -> socket.socket | None:
        """Stop answering; return the listener, for a coordinator that is to serve at its address."""
        listener, self._listener = self._listener, None
        if listener is not None and self._thread is not None:
            self._stop.value = 1
            try:
                socket.create_connection(host_and_port(self.address), timeout=PROBE_S).close()
            except OSError:
                listener.shutdown(socket.SHUT_RDWR)  # this machine has lost the address
            self._thread.join()
        return listener

    def close(self) -> None:
        """Stop answering, and close the listener."""
        listener = self.stop()
        if listener is not None:
            listener.close()


class Probe:
    """A nonblocking probe: create it, then call `read_result` whenever `socket` is ready."""

    def __init__(self, address: str) -> None:
        host, port = host_and_port(address)
        self.deadline = time.monotonic() + PROBE_S
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self._is_connected = False
        self.result: str | None = None
        try:
            self.socket.connect((host, port))
        except BlockingIOError:
            pass
        except OSError as error:
            self._finish(_result_of(error))

    def read_result(self) -> str | None:
        """Return the result, or None if it is not known yet."""
        if self.result is None:
            self._read()
        if self.result is None and time.monotonic() > self.deadline:
            self._finish(SILENT)
        return self.result

    def _read(self) -> None:
        try:
            self.socket.recv(64)  # end of file, or the challenge of a coordinator at this address
            self._finish(ANSWERS)
        except BlockingIOError:
            pass
        except OSError as error:
            # a connection that was established and then reset counts as answered
            self._finish(ANSWERS if self._is_connected else _result_of(error))
        if self.result is None and not self._is_connected:
            with contextlib.suppress(OSError):
                self.socket.getpeername()
                self._is_connected = True

    def _finish(self, result: str) -> None:
        self.result = result
        self.socket.close()


def _result_of(error: OSError) -> str:
    return REFUSED if isinstance(error, ConnectionRefusedError) else SILENT


def probe_all(addresses: Iterable[str]) -> list[str]:
    """Return the result of a probe for each address; wait at most `PROBE_S` seconds for all."""
    probes = [Probe(address) for address in addresses]
    while None in [attempt.read_result() for attempt in probes]:
        time.sleep(0.002)
    return [attempt.result or SILENT for attempt in probes]


def probe(address: str) -> str:
    """Return whether the process at `address` answers; wait at most `PROBE_S` seconds."""
    return probe_all([address])[0]


def wait_readable(connection: socket.socket, seconds: float) -> bool:
    """Wait at most `seconds` until a socket has data or has ended; return False on timeout."""
    waiting = select.poll()  # select.select is limited to 1,024 descriptors
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


def has_ended(pid: int) -> bool:
    """Return whether process `pid` of this machine does not exist or is a zombie."""
    return _state_of(pid) in ("", "Z", "X")


def kill_if_stopped(pid: int) -> bool:
    """Kill a process of this machine if it is stopped by a signal; return whether it has ended."""
    if _state_of(pid) in ("T", "t"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: has_ended(pid), 1.0)
    return has_ended(pid)


def _state_of(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
    return ""


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds, at most `seconds` seconds; return whether it holds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
