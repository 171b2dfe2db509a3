"""Small helpers for text layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def align(rows: Iterable[Sequence[Any] | str], indent: str = "", gap: str = "  ") -> list[str]:
    """Write rows of cells as lines with aligned columns; a row that is a string stands as it is.

    >>> align([('x', 'f32[8]', 'small'), ('weights', 'f32[8,128]', 'large')])
    ['x        f32[8]      small', 'weights  f32[8,128]  large']
    """
    rows = [row if isinstance(row, str) else [str(cell) for cell in row] for row in rows]
    widths: list[int] = []
    for row in rows:
        if not isinstance(row, str):
            widths += [0] * (len(row) - len(widths))
            widths[: len(row)] = [max(width, len(cell)) for width, cell in zip(widths, row, strict=False)]
    lines = []
    for row in rows:
        text = row if isinstance(row, str) else gap.join(f"{cell:{width}}" for cell, width in zip(row, widths))
        lines.append(f"{indent}{text}".rstrip())
    return lines


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Write a count with its noun.

    >>> plural(1, 'leaf', 'leaves'), plural(2, 'leaf', 'leaves'), plural(3, 'dim')
    ('1 leaf', '2 leaves', '3 dims')
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def human_bytes(count: float) -> str:
    """Write a number of bytes with a binary unit.

    >>> human_bytes(512), human_bytes(1536), human_bytes(3 << 30)
    ('512 B', '1.5 KiB', '3 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.3g} {unit}" if abs(count) < 1000 else f"{count:.0f} {unit}"


def human_seconds(seconds: float) -> str:
    """Write a time with a unit that keeps it readable.

    >>> human_seconds(2.5e-6), human_seconds(0.0123), human_seconds(75.0)
    ('2.5 µs', '12.3 ms', '75 s')
    """
    for scale, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if abs(seconds) < scale * 1000:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"
