"""A pretty printer: documents of strings, lists, groups, nests and breaks are formatted in lines of a given width.

A group is printed on one line if it fits. Otherwise its own breaks become new lines, indented by the nests around them, and each group
inside of it is formatted separately. Notes are printed at the ends of their lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Break(NamedTuple):
    """A new line, or the text `flat` if the enclosing group is printed on one line."""

    flat: str = " "


class Nest(NamedTuple):
    """A document whose lines are indented by two more columns."""

    inside: Any


class TextGroup(NamedTuple):
    """A document that is printed on one line if it fits. `width` is its width on one line."""

    inside: Any
    width: int


class Note(NamedTuple):
    """A comment at the end of the line."""

    text: str


class Mark(NamedTuple):
    """A position in the text that is associated with `thing`."""

    thing: Any


def group(*inside: Any) -> TextGroup:
    return TextGroup(inside, _width(inside))


def join(separator: Any, items: Iterable[Any]) -> list[Any]:
    result: list[Any] = []
    for item in items:
        result += [separator, item] if result else [item]
    return result


def _width(doc: Any) -> int:
    """Return the number of columns of a document on one line."""
    if isinstance(doc, str):
        return len(doc)
    if isinstance(doc, Break):
        return len(doc.flat)
    if isinstance(doc, TextGroup):
        return doc.width
    if isinstance(doc, (Note, Mark)):
        return 0
    return sum(map(_width, doc))


def render(doc: Any, width: int = 80, marks: list[tuple[int, int, Any]] | None = None) -> str:
    """Return the document as text. For each of its marks, (line, column, thing) is added to `marks`, counted from 0.

    >>> print(render(group("[", Nest([Break(""), join(Break(), ["one", "two"])]), Break(""), "]"), 8))
    [
      one
      two
    ]
    """
    out: list[str] = []
    notes: list[str] = []
    line = column = 0
    stack: list[tuple[int, bool, Any]] = [(0, False, doc)]
    while stack:
        indent, flat, doc = stack.pop()
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
            stack.append((indent + 2, flat, doc.inside))
        elif isinstance(doc, TextGroup):
            stack.append((indent, flat or column + doc.width <= width, doc.inside))
        else:
            stack += [(indent, flat, part) for part in reversed(doc)]
    return "".join(out + notes)
