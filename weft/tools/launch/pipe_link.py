"""Frames between the launcher and its agent over two pipes, which ssh carries to another host.

The agent's greeting separates its frames from output of the host's shell, and contains its
versions. The launcher answers with a key, with which both ends then authenticate every frame.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import select
import threading
from typing import Any

from weft._engine.processes.wire import ForeignDataError, FrameReader, FrameWriter, derive_key
from weft._version import __version__

_GREETING = re.compile(rb"\nweft agent (\S{1,50}) (\S{1,50})\n")
_LONGEST_GREETING = 1 << 16
_CHUNK = 1 << 18


class PipeLink:
    """One end of the connection, after both have the key."""

    def __init__(self, incoming: int, outgoing: int, key: bytes, is_agent: bool) -> None:
        roles = ("agent", "launcher") if is_agent else ("launcher", "agent")
        self._incoming, self._outgoing = incoming, outgoing
        self._writer, self._reader = FrameWriter(), FrameReader()
        self._writer.authenticate(derive_key(key, roles[0], b""))
        self._reader.authenticate(derive_key(key, roles[1], b""))
        self._sending = threading.Lock()
        self._is_closed = False

    def send(self, table: dict[str, Any], data: bytes = b"") -> None:
        """Send a frame. Raise OSError if the other end has closed the connection."""
        with self._sending:
            if self._is_closed:
                raise BrokenPipeError("the connection is closed")
            _write(self._outgoing, self._writer.pack(table, data))

    def receive(self, timeout: float) -> list[tuple[dict[str, Any], bytes]] | None:
        """Return the frames that arrive within `timeout` seconds, None if nothing does.

        Raises ConnectionError at the end of the connection.
        """
        if not _wait_readable(self._incoming, timeout):
            return None
        data = os.read(self._incoming, _CHUNK)
        if not data:
            raise ConnectionResetError("the connection is closed")
        return list(self._reader.feed(data))

    def close(self) -> None:
        """Close the outgoing pipe; the other end detects the closed connection."""
        with self._sending:
            if not self._is_closed:
                self._is_closed = True
                with contextlib.suppress(OSError):
                    os.close(self._outgoing)


def greet(incoming: int, outgoing: int) -> PipeLink:
    """Return the agent's end, after the launcher's key. Raise ConnectionError if none arrives."""
    _write(outgoing, f"\nweft agent {__version__} {platform.python_version()}\n".encode())
    reader = FrameReader()
    while data := os.read(incoming, 1 << 12):
        for table, _ in reader.feed(data):
            return PipeLink(incoming, outgoing, bytes.fromhex(table["key"]), is_agent=True)
    raise ConnectionResetError("the launcher has gone")


def answer_greeting(incoming: int, outgoing: int) -> PipeLink:
    """Return the launcher's end, after the agent's greeting. Anything before it is skipped.

    Raises ConnectionError if the connection ends first, or if the agent has other versions.
    """
    begin = b""
    while (greeting := _GREETING.search(begin)) is None:
        data = os.read(incoming, 1 << 12)
        if not data or len(begin) > _LONGEST_GREETING:
            raise ConnectionResetError("the connection is closed")
        begin += data
    check_versions(greeting.group(1).decode(), greeting.group(2).decode())
    key = secrets.token_bytes(32)
    _write(outgoing, FrameWriter().pack({"key": key.hex()}))
    return PipeLink(incoming, outgoing, key, is_agent=False)


def check_versions(weft: str, python: str) -> None:
    """Raise ForeignDataError if the agent's versions differ from those here."""
    here = {"weft": __version__, "Python": platform.python_version()}
    for (name, version), remote_version in zip(here.items(), (weft, python)):
        if remote_version != version:
            raise ForeignDataError(f"{name} is {remote_version} there, and {version} here")


def _wait_readable(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000.0 * timeout))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
