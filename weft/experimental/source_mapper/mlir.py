"""Source maps of MLIR modules, from the locations of their operations (`loc(...)`)."""

from __future__ import annotations

import re

from weft._engine.util.source import guard_all
from weft.experimental.source_mapper.jaxpr import canonicalize_filename
from weft.experimental.source_mapper.source_maps import SourceMap, map_of

#: `#loc3 = loc(...)`
_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
#: an operation that ends with its location
_USE = re.compile(r"^(\s*)\S.* loc\((.*)\)$")
#: parts of a location in the order of the text: a file with line and column, or the name of another location
_PART = re.compile(r'("(?:[^"\\]|\\.)*"):(\d+):(\d+)|(#loc\d*)')


def create_mlir_sourcemap(mlir_dump: str) -> SourceMap:
    """Return the source map of a module, from the file locations of its operations; names and call sites are looked through.

    >>> create_mlir_sourcemap('a.b loc(#loc1)\\n#loc = loc("f.py":3:4)\\n#loc1 = loc("name"(#loc))').positions()
    [(0, 0, 'f.py', 2, 4)]
    """
    lines = mlir_dump.split("\n")
    known = {
        operation[1]: operation[2]
        for operation in map(_DEFINITION.match, lines)
        if operation is not None
    }
    places = []
    for number, line in enumerate(lines):
        operation = _USE.match(line) if not _DEFINITION.match(line) else None
        place = _resolve_location(operation[2], known) if operation is not None else None
        if operation is not None and place is not None:
            places.append((number, len(operation[1]), *place))
    return map_of(len(lines), places)


def _resolve_location(place: str, known: dict[str, str]) -> tuple[str, int, int] | None:
    """Return the first file in a location, with its line and column from 0 (columns in the text already count from 0)."""
    seen: set[str] = set()
    while True:
        part = _PART.search(place)
        if part is None:
            return None
        file, line, column, other = part.groups()
        if other is None:
            return canonicalize_filename(_unquote(file[1:-1])), max(int(line) - 1, 0), int(column)
        if other in seen or other not in known:
            return None
        seen.add(other)
        place = known[other]


def _unquote(text: str) -> str:
    r"""Return an MLIR string without escapes; an escape is a byte as two hexadecimal digits.

    >>> _unquote(r'a \22b\22 \C3\A9 \\')
    'a "b" é \\'
    """
    byte = lambda found: bytes.fromhex(found[1].decode()) if len(found[1]) == 2 else found[1]
    return re.sub(rb"\\([0-9A-Fa-f]{2}|.)", byte, text.encode()).decode()


guard_all(globals())
