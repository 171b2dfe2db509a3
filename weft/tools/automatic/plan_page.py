"""The report of a sharding plan as an HTML page.

In:   a `PlanReport`.
Out:  self-contained HTML: costs, values drawn as they are sharded, collectives, comparisons, the price of memory, annotations.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from weft.tools.automatic.plan_report import PlanReport, ValueGroup
from weft.tools.automatic.pricing import LayoutCost, spell_bytes, spell_price
from weft.tools.page import (
    bar,
    collectives_section,
    document,
    heading_row,
    titled_fragment,
    value_row,
)
from weft.tools.svg import Drawings

#: maximal number of groups with a reason (each takes a search), of arguments and of intermediate values
MOST_REASONS, MOST_INTERMEDIATE_REASONS = 16, 6
#: maximal number of groups of intermediate values, and of collectives
MOST_INTERMEDIATES, MOST_COLLECTIVES = 40, 100
#: size of the curve in pixels, and the margin of its labels
WIDTH, HEIGHT, MARGIN = 480, 200, 70


def plan_page(report: PlanReport) -> str:
    """Return the whole page."""
    parts = [_values(report)]
    if report.decision is not None:
        parts += [
            collectives_section(report.collectives[:MOST_COLLECTIVES]),
            _comparison(report.comparison.costs),
            _price_of_memory(report),
            _annotations(report),
        ]
    title = f"Sharding plan of {report.name}"
    return document(title, titled_fragment(title, report.facts(), parts))


def plan_summary(report: PlanReport) -> str:
    """Return what a notebook shows: the parts of the page that need no more searches."""
    parts = [_values(report, has_reasons=False)]
    if report.decision is not None:
        parts.append(collectives_section(report.collectives[:MOST_COLLECTIVES]))
    return titled_fragment(f"Sharding plan of {report.name}", report.facts(), parts)


# --- values


def _values(report: PlanReport, has_reasons: bool = True) -> str:
    mesh = report.plan.layout_plan.mesh
    ids = [device.id for device in mesh.flat_devices]
    draw = Drawings(dict(mesh.shape), ids)
    explained = _largest(report.arguments, MOST_REASONS if has_reasons else 0)
    rows = [heading_row("arguments")]
    rows += [_row(g, draw, _notes(report, g, explained)) for g in report.arguments]
    if report.decision is not None:
        rows += _intermediates(report, ids, MOST_INTERMEDIATE_REASONS if has_reasons else 0)
    rows.append(heading_row("results"))
    rows += [_row(g, draw, []) for g in report.results]
    return f"<h2>Layouts</h2><table>{''.join(rows)}</table>"


def _intermediates(report: PlanReport, ids: Sequence[int], reasons: int) -> list[str]:
    decision = report.decision
    assert decision is not None
    draw = Drawings(dict(decision.result.axes), ids)  # these axes can be parts of the mesh's
    groups = report.intermediates[:MOST_INTERMEDIATES]
    explained = _largest(groups, reasons)
    rows = [heading_row("intermediate values, largest first")]
    for group in groups:
        operations = f"made by {', '.join(group.operations[:6])}"
        rows.append(_row(group, draw, [operations, *_notes(report, group, explained)]))
    if num_hidden := len(report.intermediates) - len(groups):
        rows.append(heading_row(f"and {num_hidden} smaller groups"))
    return rows


def _largest(groups: Sequence[ValueGroup], most: int) -> set[ValueGroup]:
    return set(sorted(groups, key=lambda group: -group.elements)[:most])


def _notes(report: PlanReport, group: ValueGroup, explained: set[ValueGroup]) -> list[str]:
    reason = report.reason(group) if group in explained else ""
    return [f"{group.layout}: {reason}"] if reason else []


def _row(group: ValueGroup, draw: Drawings, notes: Sequence[str]) -> str:
    drawing = draw(group.shape, group.placement)
    text = f"{group.type}  {group.layout}"
    return value_row(f"{group.name}{group.others}", drawing, text, notes)


# --- costs


def _comparison(costs: Mapping[str, LayoutCost]) -> str:
    """Return a row with a bar for each way to shard."""
    highest = max((cost.price for cost in costs.values()), default=0.0)
    least = costs["plan"].price
    rows: list[str] = []
    for name, cost in costs.items():
        ratio = f"{cost.price / least:.2f}x" if least else ""
        drawn = bar(cost.price / highest if highest else 0.0)
        rows.append(
            f'<tr><td>{html.escape(name)}</td><td>{ratio}</td><td class="wide">{html.escape(str(cost))}{drawn}</td></tr>'
        )
    return f"<h2>Compared with</h2><table>{''.join(rows)}</table>"


def _price_of_memory(report: PlanReport) -> str:
    """Return the curve of prices over caps of memory, and its points as a table; nothing without points."""
    points = sorted(report.price_of_memory)
    if not points:
        return ""
    unit = report.plan.cost.unit
    rows = "".join(
        f"<tr><td>{spell_bytes(cap)}</td><td>{spell_price(price, unit)}</td></tr>"
        for cap, price in points
    )
    head = "<tr><th>most bytes of a device</th><th>price of a call</th></tr>"
    return f"<h2>Price of memory</h2>{_curve(points, unit)}<table>{head}{rows}</table>"


def _curve(points: Sequence[tuple[float, float]], unit: str) -> str:
    """Return a line through the points as SVG, with the ranges of both axes."""
    caps, prices = [cap for cap, _ in points], [price for _, price in points]
    xs = [MARGIN + (WIDTH - MARGIN - 10) * share for share in _shares(caps)]
    ys = [10 + (HEIGHT - 40) * (1 - share) for share in _shares(prices)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{spell_bytes(cap)}: {spell_price(price, unit)}</title></circle>'
        for x, y, cap, price in zip(xs, ys, caps, prices)
    )
    labels = [
        _label(MARGIN, HEIGHT - 6, "start", spell_bytes(caps[0])),
        _label(WIDTH, HEIGHT - 6, "end", spell_bytes(caps[-1])),
        _label(MARGIN - 10, max(ys) + 4, "end", spell_price(min(prices), unit)),
        _label(MARGIN - 10, min(ys) + 4, "end", spell_price(max(prices), unit)),
    ]
    return (
        f'<svg class="curve" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<polyline points="{line}"/>{dots}{"".join(dict.fromkeys(labels))}</svg>'
    )


def _shares(values: Sequence[float]) -> list[float]:
    """Return the values scaled linearly, the least to 0 and the greatest to 1."""
    least, span = min(values), max(values) - min(values)
    return [(value - least) / span if span else 0.0 for value in values]


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


# --- annotations


def _annotations(report: PlanReport) -> str:
    lines: list[str] = []
    for a in report.annotations:
        lines += [f"# {a.operation} {a.type} at {a.source}", a.code()]
    code = f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""
    return f"<h2>Annotations</h2><p>{report.heading_of_annotations()}</p>{code}"
