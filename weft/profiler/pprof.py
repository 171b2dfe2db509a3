"""The profile format of pprof: a gzipped protocol-buffer message, encoded in this module.

In:   samples: a stack of function names (innermost first), one number per value type, labels.
Out:  bytes for `pprof` and compatible tools.

A message is a sequence of fields: a key (field number * 8 + wire type), then a number of seven bits
per byte (type 0), or a length and that many bytes (type 2). Texts are indices into one string
table, whose first entry is empty.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# field numbers of the messages Profile, ValueType, Sample, Label, Location, Line and Function
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRINGS, _TIME, _DEFAULT_TYPE = 1, 2, 4, 5, 6, 9, 14


@dataclass(frozen=True)
class Sample:
    """The `values` at one stack, in the order of the profile's types, with text `labels`."""

    stack: tuple[str, ...]
    values: tuple[int, ...]
    labels: Mapping[str, str]


def encode(
    types: Sequence[tuple[str, str]], samples: Sequence[Sample], default_type: str = ""
) -> bytes:
    """Encode the profile of `samples`, whose values are of `types` (name, unit)."""
    texts: dict[str, int] = {"": 0}
    text = lambda s: texts.setdefault(s, len(texts))
    functions = {
        name: i for i, name in enumerate(dict.fromkeys(n for s in samples for n in s.stack), 1)
    }
    body = b"".join(
        message(_SAMPLE_TYPE, number(1, text(name)), number(2, text(unit))) for name, unit in types
    )
    for s in samples:
        labels = [message(3, number(1, text(k)), number(2, text(v))) for k, v in s.labels.items()]
        body += message(
            _SAMPLE, _pack(1, [functions[n] for n in s.stack]), _pack(2, s.values), *labels
        )
    for name, i in functions.items():
        body += message(_LOCATION, number(1, i), message(4, number(1, i)))
        body += message(_FUNCTION, number(1, i), number(2, text(name)))
    body += number(_TIME, time.time_ns()) + number(_DEFAULT_TYPE, text(default_type))
    body += b"".join(message(_STRINGS, s.encode()) for s in texts)
    return gzip.compress(body)


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def message(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _pack(field: int, values: Sequence[int]) -> bytes:
    return message(field, *map(_varint, values))
