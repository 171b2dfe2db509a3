"""Frames between processes and their coordinator, and the authentication of both ends.

A frame is two lengths, a table of plain values as JSON, and bytes. The first frames of a connection
are a challenge and response (HMAC-SHA256) that proves to each end that the other has the job's
secret. Every later frame ends with a message authentication code over a counter and its contents,
with one key for each direction: a frame that was forged, replayed, reordered or left out is detected.

Nothing that arrives is executed. `FrameReader` refuses frames above its limits before they are
parsed, and tables that are deep or hold huge numbers or texts.
"""

from __future__ import annotations

import hmac
import json
import os
import struct
from collections.abc import Iterator
from typing import Any

_LENGTHS = struct.Struct("<II")
_COUNTER = struct.Struct("<Q")
_CODE_BYTES = 16
MAX_FRAME_BYTES = 1 << 30
MAX_UNAUTHENTICATED_BYTES = 4096
_MAX_DEPTH, _MAX_VALUES, _MAX_TEXT = 16, 1 << 20, 1 << 20
_MAX_INTEGER = 1 << 63


class ForeignDataError(ConnectionError):
    """The received bytes are not a frame of this connection."""


class FrameWriter:
    """Packs frames for one direction of a connection."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._counter = 0

    def authenticate(self, key: bytes) -> None:
        """Append a code to every frame from now on."""
        self._key = key

    def pack(self, table: dict[str, Any], data: bytes = b"") -> bytes:
        """Return the bytes of one frame. They must be sent in the order of these calls.

        >>> reader = FrameReader()
        >>> list(reader.feed(FrameWriter().pack({"op": "put"}, b"value")))
        [({'op': 'put'}, b'value')]
        """
        head = dump_table(table)
        frame = b"".join((_LENGTHS.pack(len(head), len(data)), head, data))
        if self._key is None:
            return frame
        code = _code(self._key, self._counter, frame)
        self._counter += 1
        return frame + code


class FrameReader:
    """Splits the bytes of one direction of a connection into frames."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._key: bytes | None = None
        self._counter = 0

    def authenticate(self, key: bytes) -> None:
        """Expect a code at the end of every frame from now on."""
        self._key = key

    def feed(self, arrived: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the frames that `arrived` completes; raise ForeignDataError for malformed bytes."""
        self._held += arrived
        while (frame := self._next_frame()) is not None:
            yield frame

    def _next_frame(self) -> tuple[dict[str, Any], bytes] | None:
        if len(self._held) < _LENGTHS.size:
            return None
        head, data = _LENGTHS.unpack_from(self._held)
        length = _LENGTHS.size + head + data
        if length > (MAX_UNAUTHENTICATED_BYTES if self._key is None else MAX_FRAME_BYTES):
            raise ForeignDataError("a frame is too large")
        end = length + (0 if self._key is None else _CODE_BYTES)
        if len(self._held) < end:
            return None
        frame, code = bytes(self._held[:length]), bytes(self._held[length:end])
        del self._held[:end]
        if self._key is not None:
            if not hmac.compare_digest(code, _code(self._key, self._counter, frame)):
                raise ForeignDataError("a frame has a wrong authentication code")
            self._counter += 1
        return parse_table(frame[_LENGTHS.size : _LENGTHS.size + head]), frame[length - data :]


def _code(key: bytes, counter: int, frame: bytes) -> bytes:
    return hmac.digest(key, _COUNTER.pack(counter) + frame, "sha256")[:_CODE_BYTES]


def dump_table(table: dict[str, Any]) -> bytes:
    """Return a table of plain values as text that `parse_table` reads."""
    return json.dumps(table, separators=(",", ":")).encode()


def parse_table(text: bytes) -> dict[str, Any]:
    """Return a table of plain values; raise ForeignDataError for other or excessive contents."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise ForeignDataError("a frame holds no table")
    _check_limits(table)
    return table


def _check_limits(table: dict[str, Any]) -> None:
    level: list[Any] = [table]
    count = 0
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                if len(value) > _MAX_TEXT:
                    raise ForeignDataError("a string in a frame is too long")
            elif isinstance(value, int) and abs(value) >= _MAX_INTEGER:
                raise ForeignDataError("a number in a frame is too large")
        count += len(below)
        if count > _MAX_VALUES:
            raise ForeignDataError("a frame holds too many values")
        if not below:
            return
        level = below
    raise ForeignDataError("a frame is nested too deeply")


# ---- authentication


def make_challenge() -> bytes:
    """Return the random bytes of one end of a new connection."""
    return os.urandom(16)


def prove(secret: bytes, role: str, challenges: bytes) -> bytes:
    """Return the proof that the end `role` has the secret; `challenges` are the bytes of both ends."""
    return hmac.digest(secret, b"proof of the " + role.encode() + challenges, "sha256")


def is_proof(proof: object, secret: bytes, role: str, challenges: bytes) -> bool:
    """Return whether `proof`, in hexadecimal digits, is what `prove` returns."""
    expected = prove(secret, role, challenges).hex()
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(), expected.encode())


def derive_key(secret: bytes, role: str, challenges: bytes) -> bytes:
    """Return the key of the frames that the end `role` sends."""
    return hmac.digest(secret, b"key of the " + role.encode() + challenges, "sha256")


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address; raise ValueError if it is malformed.

    >>> host_and_port("10.0.0.1:1234"), host_and_port("[::1]:80")
    (('10.0.0.1', 1234), ('::1', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"an address is a host and a port, as in 10.0.0.1:1234, got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
