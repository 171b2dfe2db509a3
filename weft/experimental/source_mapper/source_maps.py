"""Source maps of version 3: mappings and their JSON form.

In, out: a `SourceMap`, whose mappings have a group for each line of the generated text. A segment of a group has 1, 4 or 5
      numbers: column in that line, number of the source, its line, its column, number of a name.
Law:  all numbers count from 0, and are differences from the previous segment; columns of the text restart in each line.
      They are written in base 64, 5 bits per digit, the lowest first; the lowest bit of a number is its sign (VLQ).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

from weft._engine.util.record import record
from weft._engine.util.source import guard_all

Segment = tuple[int, ...]
Mappings = Sequence[Sequence[Segment]]

_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_BITS = 5
_MORE = 1 << _BITS  # set in all digits of a number but the last
#: the possible numbers of fields in a segment
_LENGTHS = (1, 4, 5)


def encode_vlq(value: int) -> bytes:
    """Encode a number in base 64.

    >>> encode_vlq(0), encode_vlq(-1), encode_vlq(16)
    (b'A', b'D', b'gB')
    """
    bits = abs(value) << 1 | (value < 0)
    digits = bytearray()
    while True:
        bits, low = bits >> _BITS, bits & (_MORE - 1)
        digits.append(_DIGITS[low | _MORE if bits else low])
        if not bits:
            return bytes(digits)


def decode_vlq(enc: Iterable[int]) -> int:
    """Decode the first number of base 64 digits. ValueError for other characters, and for an incomplete number.

    >>> decode_vlq(b"gB")
    16
    """
    value = shift = 0
    for digit in enc:
        if digit not in _VALUES:
            raise ValueError(f"decode_vlq: {chr(digit)!r} is no digit in base 64.")
        digit_value = _VALUES[digit]
        value |= (digit_value & (_MORE - 1)) << shift
        if not digit_value & _MORE:
            return -(value >> 1) if value & 1 else value >> 1
        shift += _BITS
    raise ValueError(
        "decode_vlq: the digits end in the middle of a number. Its last digit stands for less than 32."
    )


def encode_segment(seg: Segment) -> bytes:
    """Encode the numbers of a segment.

    >>> encode_segment((0, 0, 1, -1, 2))
    b'AACDE'
    """
    return b"".join(map(encode_vlq, seg))


def decode_segment(enc: Iterable[int]) -> Segment:
    """Decode the numbers of a segment. ValueError unless there are 1, 4 or 5.

    >>> decode_segment(b"AACDE")
    (0, 0, 1, -1, 2)
    """
    characters = iter(enc)
    return _check(
        "decode_segment", [decode_vlq(itertools.chain([first], characters)) for first in characters]
    )


def _check(name: str, numbers: Sequence[int]) -> Segment:
    if len(numbers) not in _LENGTHS:
        raise ValueError(
            f"{name}: a segment has 1, 4 or 5 numbers, got {len(numbers)}: {tuple(numbers)}."
        )
    return tuple(numbers)


def serialize_mappings(mappings: Mappings) -> str:
    """Return mappings as text: groups separated by semicolons, segments by commas.

    >>> serialize_mappings([[(0,), (0, 0, 0, 1)], [], [(0, 0, 1, -1, 2)]])
    'A,AAAC;;AACDE'
    """
    return ";".join(
        [",".join([encode_segment(seg).decode() for seg in group]) for group in mappings]
    )


def deserialize_mappings(mappings_str: str) -> Mappings:
    """Parse the text of mappings.

    >>> deserialize_mappings("A,AAAC;;AACDE")
    [[(0,), (0, 0, 0, 1)], [], [(0, 0, 1, -1, 2)]]
    """
    return [
        [decode_segment(seg.encode()) for seg in group.split(",") if seg]
        for group in mappings_str.split(";")
    ]


@record
class SourceMap:
    """A source map: names of files, their contents if known (else None), names, and mappings.

    >>> SourceMap.from_json('{"version": 3, "sources": ["f.py"], "names": [], "mappings": "AAAA;AACA"}').positions()
    [(0, 0, 'f.py', 0, 0), (1, 0, 'f.py', 1, 0)]
    """

    version: int
    sources: Sequence[str]
    sources_content: Sequence[str | None]
    names: Sequence[str]
    mappings: Mappings

    @classmethod
    def from_json(cls, json_data: str) -> SourceMap:
        """Parse a source map from JSON. ValueError for another version than 3, and for a missing field."""
        data = json.loads(json_data)
        missing_keys = [key for key in ("version", "sources", "mappings") if key not in data]
        if missing_keys or data["version"] != 3:
            raise ValueError(
                f"SourceMap.from_json: takes source maps of version 3, with sources and mappings; "
                f"{f'there is no {missing_keys[0]}' if missing_keys else 'the version is ' + repr(data['version'])}."
            )
        return cls(
            3,
            data["sources"],
            data.get("sourcesContent", []),
            data.get("names", []),
            deserialize_mappings(data["mappings"]),
        )

    def to_json(self) -> str:
        """Return the source map as JSON."""
        return json.dumps(
            {
                "version": self.version,
                "sources": list(self.sources),
                "sourcesContent": list(self.sources_content),
                "names": list(self.names),
                "mappings": serialize_mappings(self.mappings),
            }
        )

    def positions(self) -> list[tuple[int, int, str, int, int]]:
        """Return the mapped positions in order, counted from 0: line and column of the text, and the file, its line and column."""
        return list(self._positions())

    def _positions(self) -> Iterator[tuple[int, int, str, int, int]]:
        source = line = column = 0
        for number, group in enumerate(self.mappings):
            at = 0
            for seg in group:
                at += seg[0]
                if len(seg) > 1:
                    source, line, column = source + seg[1], line + seg[2], column + seg[3]
                    yield number, at, self.sources[source], line, column


class MappingsGenerator:
    """A builder of mappings, which converts absolute numbers to differences.

    >>> made = MappingsGenerator()
    >>> made.new_group()
    >>> made.new_segment(4, 0, 10, 8)
    >>> made.new_segment(9, 0, 11, 2)
    >>> made.mappings()
    [[(4, 0, 10, 8), (5, 0, 1, -6)]]
    """

    def __init__(self) -> None:
        self._groups: list[list[Segment]] = []
        self._last = [0] * max(_LENGTHS)

    def new_group(self) -> None:
        """Start the next line of the text."""
        self._groups.append([])
        self._last[0] = 0

    def new_segment(self, *seg: int) -> None:
        """Map a column of the line: `new_segment(column, source, line, source_column, name)`, without the name, or only the column."""
        if not self._groups:
            raise RuntimeError(
                "MappingsGenerator.new_segment: there is no current group; call new_group() first."
            )
        segment = _check("MappingsGenerator.new_segment", seg)
        self._groups[-1].append(tuple([x - last for x, last in zip(segment, self._last)]))
        self._last[: len(segment)] = segment

    def mappings(self) -> Mappings:
        """The mappings."""
        return self._groups


def map_of(lines: int, places: Iterable[tuple[int, int, str, int, int]]) -> SourceMap:
    """Return the source map of a text with `lines` lines and mapped positions `places`, in the form of `SourceMap.positions`;
    the last group is for the line after the text."""
    generator, sources, groups = MappingsGenerator(), {}, [[] for _ in range(lines + 1)]
    for number, *place in sorted(places):
        groups[number].append(place)
    for group in groups:
        generator.new_group()
        for at, file, line, column in group:
            generator.new_segment(at, sources.setdefault(file, len(sources)), line, column)
    return SourceMap(3, list(sources), [], [], generator.mappings())


guard_all(globals())
