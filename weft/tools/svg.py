"""SVG drawings of reports: values as they are sharded, and pictures that stand alone.

In:   shapes and placements; elements of a picture.
Out:  `Plane`s, which pages and pictures put in their places; a file that needs nothing else, light or dark as the reader's system is.

A value is drawn as its last two dims, once for each tile of the leading dims, cut into the tiles that devices hold. A tile has the
color of the lowest device that holds it, so values with equal colors have equal layouts. Its text is the devices that hold it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from weft._engine.debug.device_tiles import spell_ids
from weft._engine.debug.visualize import PALETTE, text_color
from weft._engine.partition.reshard import Placement
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record

#: name -> color in light and in dark mode
COLORS = {
    "ink": ("#1c1e21", "#e4e6e9"),
    "paper": ("#ffffff", "#16181b"),
    "soft": ("#6a7078", "#989fa8"),
    "rule": ("#d8dce1", "#33383f"),
    "bar": ("#396ab1", "#7293cb"),
}
#: pixels: maximal width, maximal and minimal height of a plane; maximal width of all planes of a value; gap between planes
WIDEST, HIGHEST, LOWEST, ROW, GAP = 96, 64, 14, 240, 3
#: tiles of one value; finer ones are only counted
MOST_TILES = 256
#: pixels: width of a character and height of a line in the list of a tile's devices
_CHARACTER, _LINE = 5.4, 9


@record
class Plane:
    """The drawing of the last two dims of a value: its size in pixels, and its tiles as SVG elements."""

    width: float
    height: float
    tiles: str
    is_partial: bool


class Drawings:
    """Draws values on one mesh; equal drawings are made once. `sizes` are the mesh axes, `ids` its devices."""

    def __init__(self, sizes: Mapping[Any, int], ids: Sequence[int], least_tile: float = 3.0):
        self.sizes, self.ids, self.least_tile = sizes, ids, least_tile
        self._planes: dict[tuple[tuple[int, ...], Placement], list[Plane]] = {}

    def counts(self, place: Placement) -> list[int]:
        """Return the number of tiles along each dim."""
        return [math.prod(self.sizes[a] for a in axes) for axes in place.dims]

    def planes(self, shape: tuple[int, ...], place: Placement) -> list[Plane]:
        """Return the planes of a value; none if it has too many tiles."""
        key = (shape, place)
        if key not in self._planes:
            self._planes[key] = self._draw(shape, place)
        return self._planes[key]

    def __call__(self, shape: tuple[int, ...], place: Placement) -> str:
        """Return a value for an HTML page."""
        planes = self.planes(shape, place)
        if not planes:
            return f'<span class="line">{quantity(math.prod(self.counts(place)), "tile")}</span>'
        dashed = ' class="partial"'
        return "".join(
            f'<svg width="{p.width:.0f}" height="{p.height:.0f}" viewBox="0 0 {p.width:.0f} {p.height:.0f}"'
            f"{dashed if p.is_partial else ''}>{p.tiles}</svg>"
            for p in planes
        )

    def _draw(self, shape: tuple[int, ...], place: Placement) -> list[Plane]:
        counts = self.counts(place)
        if math.prod(counts) > MOST_TILES:
            return []
        holders = self._holders(place)
        leading = list(product(*map(range, counts[:-2])))
        width, height = self._size(shape, counts, len(leading))
        rows, columns = ([1, 1, *counts])[-2:]
        inner_rank = min(2, len(counts))
        is_partial = bool(place.partial)
        planes: list[Plane] = []
        for outer in leading:
            tiles: list[str] = []
            for row, column in product(range(rows), range(columns)):
                ids = holders[(*outer, *(row, column)[2 - inner_rank :])]
                box = (
                    column * width / columns,
                    row * height / rows,
                    width / columns,
                    height / rows,
                )
                tiles.append(self._tile(ids, box, is_partial))
            planes.append(Plane(width, height, "".join(tiles), is_partial))
        return planes

    def _tile(
        self, ids: Sequence[int], box: tuple[float, float, float, float], is_partial: bool
    ) -> str:
        """Return the rectangle of a tile, with its devices as a text if they fit and the text can be read."""
        x, y, width, height = box
        color = PALETTE[self.ids.index(ids[0]) % len(PALETTE)]
        devices = spell_ids(sorted(ids), most_listed=2)
        title = f"device{'s'[: len(ids) > 1]} {devices}"
        rectangle = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="rgb({",".join(map(str, color))})"><title>{title}</title></rect>'
        )
        if is_partial or len(devices) * _CHARACTER > width - 2 or height < _LINE:
            return rectangle
        middle = f'x="{x + width / 2:.1f}" y="{y + height / 2 + _LINE / 3:.1f}"'
        return f'{rectangle}<text class="ids" {middle} style="fill: {text_color(color)}">{devices}</text>'

    def _size(
        self, shape: Sequence[int], counts: Sequence[int], planes: int
    ) -> tuple[float, float]:
        """Return the width and height of a plane, one of `planes` equal ones."""
        rows, columns = ([1, 1, *counts])[-2:]
        height, width = ([1, 1, *shape])[-2:]
        ratio = min(2.0, max(0.25, height / max(1, width)))
        widest = min(WIDEST, HIGHEST / ratio, max(LOWEST, ROW / planes - GAP))
        w = max(widest, self.least_tile * columns)
        return w, max(LOWEST, min(HIGHEST, widest * ratio), self.least_tile * rows)

    def _holders(self, place: Placement) -> dict[tuple[int, ...], list[int]]:
        """Return the devices that hold each tile."""
        devices_by_block: dict[tuple[int, ...], list[int]] = {}
        for device, position in zip(self.ids, product(*map(range, self.sizes.values()))):
            at = dict(zip(self.sizes, position))
            tile: list[int] = []
            for axes in place.dims:
                number = 0
                for a in axes:
                    number = number * self.sizes[a] + at[a]
                tile.append(number)
            devices_by_block.setdefault(tuple(tile), []).append(device)
        return devices_by_block


# --- pictures that stand alone


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start") -> str:
    """Return a line of text whose baseline starts, has its middle or ends at a point; `style` is names of classes."""
    marks = f'class="{style}" ' if style else ""
    marks += f'text-anchor="{anchor}" ' if anchor != "start" else ""
    return f'<text {marks}x="{x:.1f}" y="{y:.1f}">{html.escape(content)}</text>'


def picture(title: str, size: tuple[float, float], elements: Iterable[str], style: str = "") -> str:
    """Return a file with elements on a sheet of paper; `title` is what programs without pictures read out."""
    width, height = size
    box = f'width="{width:.0f}" height="{height:.0f}"'
    body = "\n".join(elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_picture_style()}{style}</style>\n"
        f'<rect class="sheet" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="6"/>\n'
        f"{body}\n</svg>\n"
    )


def _picture_style() -> str:
    """Return the colors and fonts of pictures. Programs that do not know dark mode show the light one."""
    modes: list[str] = []
    for mode in (0, 1):
        ink_, paper, soft, rule = (COLORS[name][mode] for name in ("ink", "paper", "soft", "rule"))
        modes.append(
            f"text {{ fill: {ink_} }} .soft {{ fill: {soft} }} .sheet {{ fill: {paper}; stroke: {rule} }} "
            f".tiles rect, .bars path {{ stroke: {paper} }} .track {{ fill: {rule} }} .line {{ stroke: {rule} }}"
        )
    light, dark = modes
    return (
        "text { font: 12px system-ui, sans-serif } .title { font-size: 14px; font-weight: 600 } .strong { font-weight: 600 } "
        ".code, .ids { font-family: ui-monospace, monospace } .ids { font-size: 9px; text-anchor: middle } "
        f"{light} @media (prefers-color-scheme: dark) {{ {dark} }}"
    )
