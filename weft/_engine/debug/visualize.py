"""Pictures of shardings: boxes in a terminal (in colour, through rich), HTML in a notebook, plain text when piped.

In:  a shape of any rank and a sharding.
Out: text on standard output, or a display in the notebook.

An array of one or two dims is one picture. A 0-d array is one box. Of higher ranks, the last two dims are drawn once
for each tile of the leading dims. Next to read: `weft._engine.debug.device_tiles`, which finds the devices of every tile.
"""

import html
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from textwrap import wrap
from typing import Any

from weft._engine.debug.device_tiles import Tiling, tile
from weft._engine.debug.inspect_sharding import inspect_array_sharding
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record

Color = tuple[int, int, int]
ColorMap = Callable[[float], tuple[float, ...]]

# Distinct, calm backgrounds with legible black or white text; they repeat after the last.
PALETTE: tuple[Color, ...] = (
    (57, 106, 177), (218, 124, 48), (62, 150, 81), (204, 37, 41), (107, 76, 154), (146, 36, 40), (148, 139, 61),
    (83, 81, 84), (114, 147, 203), (225, 151, 76), (132, 186, 91), (211, 94, 96), (144, 103, 167), (171, 104, 87),
    (204, 194, 16), (128, 133, 133),
)  # fmt: skip

MOST_PICTURES = 64  # of one array; a line states how many are omitted
LINES_PER_PICTURE = 10
CHARACTER_ASPECT = 2.5  # height of a terminal character over its width


@record
class Box:
    """One tile of a picture: its text, its colour and its size in characters."""

    text: str
    color: Color
    height: int
    width: int


@record
class Picture:
    """A grid of boxes with an optional heading; or lines of a listing if boxes do not fit."""

    heading: str
    rows: tuple[tuple[Box, ...], ...]
    listing: tuple[str, ...] = ()


def visualize_sharding(
    shape: Sequence[int],
    sharding: Any,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> None:
    """Show which devices hold which part of an array of `shape` under `sharding`.

    `scale` stretches the picture; `min_width` (with borders) and `max_width` bound its boxes and its whole width in characters;
    `color_map` maps a number in [0, 1] to red, green, blue in [0, 1], as matplotlib's colour maps do.
    """
    pictures = draw(tile(shape, sharding), scale, min_width, max_width, color_map)
    show_html = _notebook_display()
    if show_html is not None:
        show_html("\n".join(to_html(picture, use_color) for picture in pictures))
    elif use_color and sys.stdout.isatty():
        _print_rich(pictures)
    else:
        for picture in pictures:
            print("\n".join(to_text(picture)))


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Show which devices hold which part of the array `arr`; keywords as in `visualize_sharding`.

    Inside a compiled function, the picture is shown at compile time, with the sharding that the
    compiler chose.
    """
    inspect_array_sharding(
        arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs)
    )


def draw(
    tiling: Tiling,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> list[Picture]:
    """Return the pictures of a tiling, one for each tile of the dims before the last two."""
    leading = list(product(*map(range, tiling.counts[:-2])))
    colors = _colors(tiling, color_map)
    pictures = []
    for outer in leading[:MOST_PICTURES]:
        heading = _format_heading(tiling, outer) if outer else ""
        pictures.append(_draw_plane(tiling, outer, heading, colors, scale, min_width, max_width))
    if len(leading) > MOST_PICTURES:
        pictures.append(
            Picture(
                "",
                (),
                (f"… {quantity(len(leading) - MOST_PICTURES, 'more picture')} of this array",),
            )
        )
    return pictures


def _draw_plane(
    tiling: Tiling,
    outer: tuple[int, ...],
    heading: str,
    colors: dict[tuple[int, ...], Color],
    scale: float,
    min_width: int,
    max_width: int,
) -> Picture:
    inner = tiling.counts[len(outer) :]
    sizes = tiling.shape[len(outer) :]
    n_rows, n_columns = (1,) * (2 - len(inner)) + inner
    if n_columns * (4 + 1) + 1 > max_width:
        return Picture(heading, (), tuple(_list_tiles(tiling, outer, max_width)))

    longest = max(len(tiling.label(outer + cell)) for cell in product(*map(range, inner)))
    box_height, box_width = _box_size(sizes, n_rows, n_columns, scale)
    widths = _fit_widths(max(box_width, min_width - 2, longest), n_columns, max_width)
    rows = []
    for row in range(n_rows):
        cells = [outer + (row, column)[2 - len(inner) :] for column in range(n_columns)]
        texts = [tiling.label(cell) for cell in cells]
        height = max(box_height, *(len(_wrap(text, width)) for text, width in zip(texts, widths)))
        rows.append(
            tuple(
                Box(text, colors[tiling.holders.get(cell, ())], height, width)
                for cell, text, width in zip(cells, texts, widths)
            )
        )
    return Picture(heading, tuple(rows))


def _box_size(sizes: Sequence[int], n_rows: int, n_columns: int, scale: float) -> tuple[int, int]:
    """Height and width in characters of every box, near the true proportions of the array, borders left out.

    A vector is drawn as one line, the shorter the more elements it has.
    """
    lines = LINES_PER_PICTURE * scale
    aspect = sizes[1] / max(sizes[0], 1) if len(sizes) == 2 else 1 / max(*sizes, 1) if sizes else 0
    height = max(1, int(lines / n_rows) - 1) if len(sizes) == 2 else 1
    return height, int(int(lines * aspect) * CHARACTER_ASPECT / n_columns) - 2


def _fit_widths(width: int, n_columns: int, max_width: int) -> list[int]:
    """Widths of the boxes of a line, cut so that they and their borders fit `max_width`; the first are the wider ones.

    >>> _fit_widths(10, 2, 80), _fit_widths(90, 2, 80)
    ([10, 10], [39, 38])
    """
    free = max_width - n_columns - 1
    if width * n_columns <= free:
        return [width] * n_columns
    each, more = divmod(free, n_columns)
    return [each + (column < more) for column in range(n_columns)]


def _colors(tiling: Tiling, color_map: ColorMap | None) -> dict[tuple[int, ...], Color]:
    """A colour for every distinct set of devices, in order of the lowest device."""
    groups = sorted(set(tiling.holders.values()))
    colors: dict[tuple[int, ...], Color] = {(): (230, 230, 230)}
    for i, group in enumerate(groups):
        if color_map is None:
            colors[group] = PALETTE[i % len(PALETTE)]
        else:
            red, green, blue = (
                round(255 * part) for part in color_map(i / max(len(groups) - 1, 1))[:3]
            )
            colors[group] = (red, green, blue)
    return colors


def _format_heading(tiling: Tiling, outer: tuple[int, ...]) -> str:
    spans = [f"{start}:{stop}" for start, stop in tiling.bounds(outer)]
    return f"[{', '.join([*spans, ':', ':'])}]"


def _list_tiles(tiling: Tiling, outer: tuple[int, ...], max_width: int) -> Iterator[str]:
    inner = tiling.counts[len(outer) :]
    for cell in product(*map(range, inner)):
        spans = ", ".join(
            f"{start}:{stop}" for start, stop in tiling.bounds(outer + cell)[len(outer) :]
        )
        yield f"[{spans}]  {tiling.label(outer + cell)}"[:max_width]


def _wrap(text: str, width: int) -> list[str]:
    """Break a label at spaces and commas so that it fits the width."""
    if len(text) <= width:
        return [text]
    return [line.replace(", ", ",") for line in wrap(text.replace(",", ", "), width)]


# --- plain text ---


def to_text(picture: Picture) -> list[str]:
    """The lines of a picture in box-drawing characters.

    >>> box = Box("CPU 0", (0, 0, 0), 1, 7)
    >>> print("\\n".join(to_text(Picture("", ((box, box),)))))
    ┌───────┬───────┐
    │ CPU 0 │ CPU 0 │
    └───────┴───────┘
    """
    return ["".join(text for text, _ in line) for line in _lines(picture)]


def _lines(picture: Picture) -> Iterator[list[tuple[str, Color | None]]]:
    """The lines of a picture as runs of text, each with its background (None on borders)."""
    if picture.heading:
        yield [(picture.heading, None)]
    for entry in picture.listing:
        yield [(entry, None)]
    last = len(picture.rows) - 1
    for i, row in enumerate(picture.rows):
        yield [(_border(row, "┌┬┐" if i == 0 else "├┼┤"), None)]
        contents = [_box_lines(box) for box in row]
        for parts in zip(*contents):
            line: list[tuple[str, Color | None]] = [("│", None)]
            for box, part in zip(row, parts):
                line += [(part, box.color), ("│", None)]
            yield line
        if i == last:
            yield [(_border(row, "└┴┘"), None)]


def _border(row: tuple[Box, ...], corners: str) -> str:
    left, middle, right = corners
    return left + middle.join("─" * box.width for box in row) + right


def _box_lines(box: Box) -> list[str]:
    lines = _wrap(box.text, box.width)
    above = (box.height - len(lines)) // 2
    below = box.height - len(lines) - above
    return [
        (" " * ((box.width - len(line)) // 2) + line).ljust(box.width)
        for line in [""] * above + lines + [""] * below
    ]


# --- terminal and notebook ---


def _print_rich(pictures: list[Picture]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for picture in pictures:
        for line in _lines(picture):
            text = Text(no_wrap=True, overflow="ignore")
            for part, color in line:
                text.append(
                    part,
                    style=f"{text_color(color)} on rgb({','.join(map(str, color))})"
                    if color
                    else "",
                )
            console.print(text)


def text_color(background: Color) -> str:
    """Return black or white, whichever is legible on `background`."""
    red, green, blue = background
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "white"


def to_html(picture: Picture, use_color: bool = True) -> str:
    """A picture as an HTML table."""
    parts = [f"<div>{html.escape(picture.heading)}</div>" if picture.heading else ""]
    parts += [f"<div>{html.escape(line)}</div>" for line in picture.listing]
    if picture.rows:
        body = "".join(
            f"<tr>{''.join(_html_cell(box, use_color) for box in row)}</tr>" for row in picture.rows
        )
        parts.append(f'<table style="border-collapse: collapse">{body}</table>')
    return "".join(parts)


def _html_cell(box: Box, use_color: bool) -> str:
    style = (
        f"width: {box.width}ch; height: {box.height}lh; text-align: center; border: 1px solid gray"
    )
    if use_color:
        style += f"; background-color: rgb{box.color}; color: {text_color(box.color)}"
    return f'<td style="{style}">{html.escape(box.text)}</td>'


def _notebook_display() -> Callable[[str], object] | None:
    """Return the function that displays HTML here, or None outside a notebook.

    IPython in a terminal counts as a terminal.
    """
    ipython = sys.modules.get("IPython")
    shell = (
        ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    )
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    return lambda text: display(HTML(text))
