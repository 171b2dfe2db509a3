"""The layouts of a sharding plan as one SVG picture.

In:   a `PlanReport`.
Out:  a file: the mesh, and each group of arguments and results with its drawing, its type and its layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.partition.reshard import Placement
from weft._engine.util.messages.quantities import quantity
from weft.tools.automatic.plan_report import PlanReport, ValueGroup
from weft.tools.page import spell_axes
from weft.tools.svg import GAP, ROW, Drawings, picture, text

#: maximal number of groups of arguments, and of results
MOST_GROUPS = 24
#: pixels: of the margin, of a character of code, between columns and between rows
MARGIN, CHARACTER, COLUMN, SPACE = 16, 7.3, 16, 12
#: lowest row, which has two lines of text, and a heading
ROW_HEIGHT, HEADING = 30, 26
#: least side of a tile, whose text is readable
LEAST_TILE = 11


def plan_picture(report: PlanReport) -> str:
    """Return the picture."""
    mesh = report.plan.layout_plan.mesh
    axes = mesh.shape_tuple
    title = f"{report.name} on a mesh {spell_axes(axes)}"
    rows = _Rows(Drawings(dict(axes), [device.id for device in mesh.flat_devices], LEAST_TILE))
    every_axis = Placement(tuple((name,) for name, _ in axes))
    known = {(g.type, g.layout) for g in report.arguments}
    others = [g for g in report.results if (g.type, g.layout) not in known]
    groups = {"arguments": report.arguments, "results": others}
    rows.place_columns([g for members in groups.values() for g in members[:MOST_GROUPS]])
    rows.heading(title, "title")
    rows.heading(str(report.plan.cost), "soft")
    rows.value("mesh", spell_axes(axes), tuple(size for _, size in axes), every_axis, "")
    for name, members in groups.items():
        if members:
            rows.heading(name, "soft")
        for g in members[:MOST_GROUPS]:
            rows.value(g.name + g.others, g.type, g.shape, g.placement, g.layout)
        if num_hidden := len(members[MOST_GROUPS:]):
            rows.heading(f"and {quantity(num_hidden, 'more group')}", "soft")
    if same := sum(g.count for g in report.results) - sum(g.count for g in others):
        rows.heading(
            f"{quantity(same, 'result')} are sharded as the arguments of their types", "soft"
        )
    return picture(title, (rows.width, rows.y + MARGIN - SPACE / 2), rows.elements)


class _Rows:
    """Rows of a picture, placed from the top down."""

    def __init__(self, draw: Drawings):
        self.draw = draw
        self.elements: list[str] = []
        self.y: float = MARGIN - 6
        self.drawings_x = self.layouts_x = self.width = 0.0

    def place_columns(self, groups: Sequence[ValueGroup]) -> None:
        """Choose the columns of names, drawings and layouts, and the width, by their longest entries."""
        names = max((len(s) for g in groups for s in (g.name + g.others, g.type)), default=0)
        layouts = max((len(g.layout) for g in groups), default=0)
        self.drawings_x = MARGIN + names * CHARACTER + COLUMN
        self.layouts_x = self.drawings_x + ROW + COLUMN
        self.width = self.layouts_x + layouts * CHARACTER + MARGIN

    def heading(self, content: str, style: str) -> None:
        """Add a line of text."""
        self.elements.append(text(MARGIN, self.y + HEADING / 2 + 4, content, style))
        self.y += HEADING

    def value(
        self, name: str, type_: str, shape: tuple[int, ...], place: Placement, layout: str
    ) -> None:
        """Add a row: name and type, drawing, layout."""
        planes = self.draw.planes(shape, place)
        height = max([ROW_HEIGHT, *(p.height for p in planes)])
        middle = self.y + height / 2
        self.elements.append(text(MARGIN, middle - 2, name, "code strong"))
        self.elements.append(text(MARGIN, middle + 13, type_, "code soft"))
        x = self.drawings_x
        for p in planes:
            style = "tiles partial" if p.is_partial else "tiles"
            place_ = f"translate({x:.1f} {middle - p.height / 2:.1f})"
            self.elements.append(f'<g class="{style}" transform="{place_}">{p.tiles}</g>')
            x += p.width + GAP
        self.elements.append(text(self.layouts_x, middle + 4, layout, "code"))
        self.y += height + SPACE
