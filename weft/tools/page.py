"""The page of `weft.explain`: facts, collectives, and every value of the program drawn as it is sharded.

In:  an `Explanation`.
Out: self-contained HTML: no scripts, fonts or images from elsewhere; light or dark as the reader's system is.

A value is drawn as its last two dims, cut into the tiles that devices hold; a tile has the colour of the lowest device that
holds it, so values with equal colours have equal layouts. Each equation lists the collectives that it needs.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from weft._engine.debug.tiles import spell_ids
from weft._engine.debug.visualize import PALETTE
from weft._engine.ir.specs import joined
from weft.tools.advice import spell_placement
from weft.tools.report import Collective, merged, spell_equation

WIDEST, LOWEST = 96, 14  # pixels of a drawing
MOST_TILES = 256  # of one drawing; finer ones are only counted


def page(explanation: Any) -> str:
    """The whole page."""
    return pages([explanation])


def pages(explanations: Sequence[Any]) -> str:
    """Several explanations on one page."""
    title = html.escape(
        f"weft.explain: {', '.join(dict.fromkeys(one.name for one in explanations))}"
    )
    body = "".join(map(fragment, explanations))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_PAGE_STYLE}</style></head><body>{body}</body></html>\n'
    )


def fragment(explanation: Any) -> str:
    """The body of the page, which a notebook shows too."""
    parts = [
        f"<style>{_STYLE}</style>",
        '<div class="weft-explain">',
        f"<h1>{html.escape(explanation.name)}</h1>",
    ]
    parts += [f"<p>{html.escape(line)}</p>" for line in explanation.facts()]
    parts.append(_collectives(explanation.collectives))
    if explanation.partition is not None and explanation.partition.program is not None:
        parts.append(_program(explanation))
    else:
        parts.append("<h2>Program</h2><p>It runs on one device: nothing is split.</p>")
    parts.append("</div>")
    return "\n".join(parts)


# --- collectives ---


def _collectives(records: Sequence[Collective]) -> str:
    runs, sent = sum(r.count for r in records), sum(r.bytes for r in records)
    head = f"<h2>{runs} collective{'s'[: runs != 1]}, {sent:,} B sent by each device</h2>"
    largest = max((r.bytes for r in merged(records)), default=0)
    return head + "".join(_collective(r, largest) for r in merged(records))


def _collective(r: Collective, largest: int) -> str:
    rows = "".join(
        f"<dt>{what}</dt><dd{' class=code' if what in ('at', 'for', 'moves') else ''}>{html.escape(text)}</dd>"
        for what, text in r.facts()
    )
    share = round(100 * r.bytes / largest) if largest else 0
    bar = f'<div class="bar" style="width: {share}%"></div>'
    return f"<details open><summary>{html.escape(r.title)}{bar}</summary><dl>{rows}</dl></details>"


# --- the program ---


def _program(explanation: Any) -> str:
    found = explanation.partition
    sizes = dict(found.axes)
    mesh = " &times; ".join(f"{html.escape(str(name))} {size}" for name, size in found.axes)
    ids = [device.id for device in found.mesh.flat_devices]
    draw = _Drawings(sizes, ids)
    rows = [_heading("arguments")]
    for i, (var, spec) in enumerate(zip(found.program.invars, found.in_specs)):
        rows.append(
            _row(
                explanation.arg_names[i],
                draw(var.aval, _whole(spec)),
                _type(var.aval, _whole(spec)),
            )
        )
    rows.append(_heading("equations"))
    sends = _sends(found.records)
    for placed in found.placed_eqns:
        rows.append(_equation(placed, draw, sends.get(id(placed.eqn), ())))
    rows.append(_heading("results"))
    for i, (var, spec) in enumerate(zip(found.program.outvars, found.out_specs)):
        rows.append(
            _row(
                explanation.result_names[i],
                draw(var.aval, _whole(spec)),
                _type(var.aval, _whole(spec)),
            )
        )
    return f"<h2>Program</h2><p>mesh: {mesh}</p><table>{''.join(rows)}</table>"


def _whole(spec: Any) -> Any:
    from weft._engine.partition.reshard import Placement

    return Placement(spec)


def _heading(text: str) -> str:
    return f'<tr><th colspan="3">{text}</th></tr>'


def _row(name: str, drawing: str, text: str, depth: int = 0) -> str:
    return f'<tr><td style="padding-left: {1 + 2 * depth}em">{html.escape(name)}</td><td>{drawing}</td><td class="code">{text}</td></tr>'


def _sends(records: Sequence[Any]) -> dict[int, list[str]]:
    """The collectives that each equation needs, by the identity of the equation."""
    found: dict[int, list[str]] = {}
    for r in records:
        for part in r.parts or (r,):
            text = f"{part.kind} over {', '.join(map(str, joined(part.axes)))}, {part.bytes_per_device * part.count:,} B"
            found.setdefault(id(part.eqn), []).append(text)
    return found


def _equation(placed: Any, draw: Any, sends: Sequence[str]) -> str:
    eqn = placed.eqn
    times = f"{placed.count} x " if placed.count != 1 else ""
    drawings = "".join(draw(v.aval, place) for v, place in zip(eqn.outvars[:4], placed.placements))
    drawings = '<span class="line">differs by device</span>' if placed.manual else drawings
    texts = [_type(v.aval, place) for v, place in zip(eqn.outvars, placed.placements)]
    more = f"<br>and {len(texts) - 4} more" if len(texts) > 4 else ""
    line = (
        f'<div class="line">{html.escape(str(eqn.source))}</div>' if eqn.source is not None else ""
    )
    sent = "".join(f'<div class="sends">{html.escape(text)}</div>' for text in sends)
    title = f' title="{html.escape(spell_equation(eqn))}"'
    name = f'<tr><td style="padding-left: {1 + 2 * placed.depth}em"{title}>{times}{html.escape(str(eqn.primitive))}{line}{sent}</td>'
    return f'{name}<td>{drawings}</td><td class="code">{"<br>".join(texts[:4])}{more}</td></tr>'


def _type(aval: Any, place: Any) -> str:
    return html.escape(f"{aval.str_short()}  {spell_placement(place)}")


class _Drawings:
    """Draws values on one mesh; equal drawings are made once."""

    def __init__(self, sizes: Mapping[Any, int], ids: Sequence[int]):
        self.sizes, self.ids = sizes, ids
        self.made: dict[tuple, str] = {}

    def __call__(self, aval: Any, place: Any) -> str:
        key = (aval.shape, place)
        if key not in self.made:
            self.made[key] = self.draw(aval.shape, place)
        return self.made[key]

    def draw(self, shape: tuple[int, ...], place: Any) -> str:
        counts = [math.prod(self.sizes[a] for a in axes) for axes in place.dims]
        if math.prod(counts) > MOST_TILES:
            return f'<span class="line">{math.prod(counts)} tiles</span>'
        holders = self.holders(place.dims)
        planes = list(product(*map(range, counts[:-2])))
        return "".join(
            self.plane(shape, counts, outer, holders, bool(place.partial)) for outer in planes
        )

    def holders(self, dims: Sequence) -> dict[tuple[int, ...], list[int]]:
        """The devices that hold each tile."""
        found: dict[tuple[int, ...], list[int]] = {}
        names = list(self.sizes)
        for device, position in zip(self.ids, product(*map(range, self.sizes.values()))):
            at = dict(zip(names, position))
            tile = []
            for axes in dims:
                number = 0
                for a in axes:
                    number = number * self.sizes[a] + at[a]
                tile.append(number)
            found.setdefault(tuple(tile), []).append(device)
        return found

    def plane(
        self,
        shape: tuple[int, ...],
        counts: Sequence[int],
        outer: tuple[int, ...],
        holders: Mapping,
        partial: bool,
    ) -> str:
        rows, columns = ([1, 1, *counts])[-2:]
        height, width = ([1, 1, *shape])[-2:]
        ratio = min(4.0, max(0.25, height / max(1, width)))
        w = max(WIDEST * min(1.0, 1 / ratio), 3 * columns)
        h = max(LOWEST, min(WIDEST, w * ratio), 3 * rows)
        boxes = "".join(self.boxes(len(counts), rows, columns, outer, holders, w, h))
        dashed = ' class="partial"' if partial else ""
        return f'<svg width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}"{dashed}>{boxes}</svg>'

    def boxes(
        self, rank: int, rows: int, columns: int, outer: tuple, holders: Mapping, w: float, h: float
    ) -> Iterator[str]:
        for row, column in product(range(rows), range(columns)):
            tile = (*outer, *(row, column)[max(0, 2 - rank) :]) if rank else ()
            ids = holders.get(tile, [])
            lowest = self.ids.index(ids[0]) if ids else 0
            red, green, blue = PALETTE[lowest % len(PALETTE)]
            box = f'x="{column * w / columns:.1f}" y="{row * h / rows:.1f}" width="{w / columns:.1f}" height="{h / rows:.1f}"'
            label = (
                f"devices {spell_ids(sorted(ids))}" if len(ids) > 1 else f"device {spell_ids(ids)}"
            )
            yield f'<rect {box} fill="rgb({red},{green},{blue})"><title>{label}</title></rect>'


_PAGE_STYLE = "body { margin: 0; background: #fff } @media (prefers-color-scheme: dark) { body { background: #16181b } }"

_STYLE = """
.weft-explain { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #6a7078; --rule: #d8dce1; --bar: #396ab1;
  color: var(--ink); background: var(--paper); font: 14px/1.45 system-ui, sans-serif; padding: 1.5em; max-width: 75em; margin: auto }
@media (prefers-color-scheme: dark) { .weft-explain { --ink: #e4e6e9; --paper: #16181b; --soft: #989fa8; --rule: #33383f; --bar: #7293cb } }
.weft-explain h1 { font-size: 1.5em } .weft-explain h2 { font-size: 1.15em; margin-top: 2em }
.weft-explain p { margin: .2em 0; color: var(--soft) }
.weft-explain details { border-top: 1px solid var(--rule); padding: .5em 0 }
.weft-explain summary { cursor: pointer; font-weight: 600 }
.weft-explain .bar { height: 4px; background: var(--bar); margin-top: .3em; min-width: 2px }
.weft-explain dl { display: grid; grid-template-columns: 6em 1fr; gap: .2em 1em; margin: .6em 0 .3em 1em }
.weft-explain dt { color: var(--soft) } .weft-explain dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }
.weft-explain .code, .weft-explain .line { font-family: ui-monospace, monospace; font-size: .9em }
.weft-explain .line { color: var(--soft); max-width: 60ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.weft-explain .sends { color: var(--bar); font-weight: 600 }
.weft-explain table { border-collapse: collapse; width: 100% }
.weft-explain td { border-top: 1px solid var(--rule); padding: .4em 1em .4em 0; vertical-align: middle }
.weft-explain th { text-align: left; color: var(--soft); padding: 1em 0 .3em }
.weft-explain svg { margin-right: .4em; vertical-align: middle } .weft-explain rect { stroke: var(--paper); stroke-width: 1 }
.weft-explain svg.partial rect { fill-opacity: .45; stroke: var(--soft); stroke-dasharray: 3 2 }
"""
