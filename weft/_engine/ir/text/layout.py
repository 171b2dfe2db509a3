"""Text laid out in lines of a given width: documents of strings, lists, groups, nests and breaks.

A group is written on one line if all of it fits there; else its own breaks become new lines, indented by the nests around them, and
the groups in it are asked again. Notes are written at the ends of their lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Break(NamedTuple):
    """A new line, or `flat` where the group around it fits on one line."""

    flat: str = " "


class Nest(NamedTuple):
    """The lines inside start two columns further to the right."""

    inside: Any


class Group(NamedTuple):
    """All on one line, if it fits."""

    inside: Any
    width: int


class Note(NamedTuple):
    """A comment at the end of the line."""

    text: str


class Mark(NamedTuple):
    """A place in the text that belongs to `thing`."""

    thing: Any


def group(*inside: Any) -> Group:
    return Group(inside, _width(inside))


def join(separator: Any, items: Iterable[Any]) -> list[Any]:
    result: list[Any] = []
    for item in items:
        result += [separator, item] if result else [item]
    return result


def _width(doc: Any) -> int:
    """The columns of a document that is written on one line."""
    if isinstance(doc, str):
        return len(doc)
    if isinstance(doc, Break):
        return len(doc.flat)
    if isinstance(doc, Group):
        return doc.width
    if isinstance(doc, (Note, Mark)):
        return 0
    return sum(map(_width, doc))


def render(doc: Any, width: int = 80, marks: list[tuple[int, int, Any]] | None = None) -> str:
    """The document as text. Lines and columns of its marks, from 0, are added to `marks` with what belongs there.

    >>> print(render(group("[", Nest([Break(""), join(Break(), ["one", "two"])]), Break(""), "]"), 8))
    [
      one
      two
    ]
    """
    out: list[str] = []
    notes: list[str] = []
    line = column = 0
    rest: list[tuple[int, bool, Any]] = [(0, False, doc)]
    while rest:
        indent, flat, doc = rest.pop()
        if isinstance(doc, str):
            out.append(doc)
            column += len(doc)
        elif isinstance(doc, Break):
            if flat:
                out.append(doc.flat)
                column += len(doc.flat)
            else:
                out += [*notes, "\n" + " " * indent]
                notes.clear()
                line, column = line + 1, indent
        elif isinstance(doc, Note):
            notes.append(("; " if notes else "  # ") + doc.text)
        elif isinstance(doc, Mark):
            if marks is not None:
                marks.append((line, column, doc.thing))
        elif isinstance(doc, Nest):
            rest.append((indent + 2, flat, doc.inside))
        elif isinstance(doc, Group):
            rest.append((indent, flat or column + doc.width <= width, doc.inside))
        else:
            rest += [(indent, flat, part) for part in reversed(doc)]
    return "".join(out + notes)
