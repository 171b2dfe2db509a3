"""Messages between a client and the coordinator: a small table of plain values, and bytes.

In:   a socket, a dict that JSON can hold, bytes.
Out:  frames: two lengths, the table as JSON, the bytes.
Laws: nothing that comes from the network is executed. A frame larger than `MOST` is refused: whoever sent it is no client.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

_LENGTHS = struct.Struct("<II")
MOST = 1 << 30


class ForeignData(ConnectionError):
    """What arrived was not written by `pack`."""


def pack(table: dict[str, Any], data: bytes = b"") -> bytes:
    """One frame.

    >>> reader = Frames()
    >>> list(reader.feed(pack({"op": "put"}, b"value")))
    [({'op': 'put'}, b'value')]
    """
    head = json.dumps(table, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(head), len(data)), head, data))


class Frames:
    """Takes bytes as they arrive and gives whole frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, arrived: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The frames that `arrived` completes. Raises ForeignData where they cannot be one."""
        self._held += arrived
        while len(self._held) >= _LENGTHS.size:
            head, data = _LENGTHS.unpack_from(self._held)
            end = _LENGTHS.size + head + data
            if end > MOST:
                raise ForeignData("a frame is too large")
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTHS.size : end])
            del self._held[:end]
            try:
                table = json.loads(body[:head])
            except ValueError:
                table = None
            if not isinstance(table, dict):
                raise ForeignData("a frame is no table")
            yield table, body[head:]


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address; ValueError if it is none.

    >>> host_and_port("10.0.0.1:1234"), host_and_port("[::1]:80")
    (('10.0.0.1', 1234), ('::1', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"an address is a host and a port, as in 10.0.0.1:1234, got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_alive(address: str) -> bool:
    """Whether the process may live that listens at `address`: its machine does not say that nobody does."""
    try:
        socket.create_connection(host_and_port(address), timeout=2.0).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
