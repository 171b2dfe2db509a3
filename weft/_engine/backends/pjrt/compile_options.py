"""Encoding of XLA's CompileOptionsProto without protobuf: weft needs nine of its fields.

In:   the ids of the devices, one replica each, and the user's `compiler_options`.
Out:  the serialized message.
Source: xla/pjrt/proto/compile_options.proto, xla/xla_data.proto (field numbers below).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

#: field numbers of CompileOptionsProto
_BUILD_OPTIONS, _ENV_OPTION_OVERRIDES = 3, 7
#: field numbers of ExecutableBuildOptionsProto
_DEVICE_ORDINAL, _NUM_REPLICAS, _NUM_PARTITIONS, _DEVICE_ASSIGNMENT = 1, 4, 5, 9


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _override(value: bool | int | float | str) -> bytes:
    """Return the fields of an OptionOverrideProto: a string, a bool, an int or a double."""
    if isinstance(value, bool):
        return _number(2, int(value))
    if isinstance(value, int):
        return _number(3, value)
    if isinstance(value, float):
        return _varint(4 << 3 | 1) + struct.pack("<d", value)
    return _message(1, value.encode())


def encode_compile_options(
    device_ids: Sequence[int], overrides: Mapping[str, bool | int | float | str]
) -> bytes:
    """Return the serialized options of a program that runs as one replica on each device."""
    replicas = len(device_ids)
    assignment = _number(1, replicas) + _number(2, 1)  # DeviceAssignmentProto: 1 computation
    assignment += _message(3, _message(1, b"".join(map(_varint, device_ids))))
    build = _number(_DEVICE_ORDINAL, -1) + _number(_NUM_REPLICAS, replicas)
    build += _number(_NUM_PARTITIONS, 1) + _message(_DEVICE_ASSIGNMENT, assignment)
    encoded = _message(_BUILD_OPTIONS, build)
    for name, value in sorted(overrides.items()):
        entry = _message(1, name.encode()) + _message(2, _override(value))
        encoded += _message(_ENV_OPTION_OVERRIDES, entry)
    return encoded
