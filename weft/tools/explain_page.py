"""The page of `weft.explain`: facts, collectives, drawings of the sharding of every value, steps, and memory.

In:   an `Explanation`.
Out:  self-contained HTML. Each equation lists the collectives that it needs.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from weft._engine.ir.specs import join_axis_parts
from weft._engine.partition.reshard import Placement
from weft._engine.util.messages.quantities import quantity
from weft.profiler.program_facts import program_facts, schedule_of
from weft.tools.advice import spell_placement
from weft.tools.page import (
    collectives_section,
    document,
    heading_row,
    spell_axes,
    titled_fragment,
    value_row,
)
from weft.tools.profile.schedule_sections import (
    SCHEDULE_STYLE,
    memory_section,
    steps_section,
)
from weft.tools.report import spell_equation
from weft.tools.svg import Drawings


def page(explanation: Any) -> str:
    """Return the whole page."""
    return pages([explanation])


def pages(explanations: Sequence[Any]) -> str:
    """Return several explanations on one page."""
    if len(explanations) == 1:
        (only,) = explanations
        return document(f"weft.explain: {only.name}", fragment(only))
    bodies = [f'<div id="program-{i}">{fragment(one)}</div>' for i, one in enumerate(explanations)]
    title = f"weft explain: {quantity(len(explanations), 'program')}"
    return document(title, titled_fragment(title, [], [_contents(explanations)]) + "".join(bodies))


def _contents(explanations: Sequence[Any]) -> str:
    """Return a table of the programs on a page, with links."""
    titles = ("program", "kernels", "most live memory", "collectives", "sent by each device")
    rows = [f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"]
    for i, one in enumerate(explanations):
        count = sum(r.count for r in one.collectives)
        rows.append(
            f'<tr><td><a href="#program-{i}">{html.escape(one.name)}</a></td>'
            f"<td>{one.kernel_count}</td><td>{one.peak_bytes:,} B</td>"
            f"<td>{count or ''}</td><td>{f'{one.bytes:,} B' if count else ''}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def fragment(explanation: Any) -> str:
    """Return the body of the page, which a notebook shows too."""
    parts = [collectives_section(explanation.collectives), program_section(explanation)]
    if explanation.executable is not None:
        facts = program_facts(explanation.executable, schedule_of(explanation.executable))
        parts += [f"<style>{SCHEDULE_STYLE}</style>", steps_section(facts), memory_section(facts)]
    return titled_fragment(explanation.name, explanation.facts(), parts)


def program_section(explanation: Any) -> str:
    """Return the values of a program as they are sharded."""
    result = explanation.partition
    if result is None or result.program is None:
        return "<h2>Program</h2><p>It runs on one device: nothing is split.</p>"
    draw = Drawings(dict(result.axes), [device.id for device in result.mesh.flat_devices])

    def rows(names: Sequence[str], variables: Sequence[Any], specs: Sequence[Any]) -> list[str]:
        return [
            value_row(name, draw(var.aval.shape, Placement(spec)), _type(var.aval, Placement(spec)))
            for name, var, spec in zip(names, variables, specs)
        ]

    sends = _sends(result.records)
    table = [
        heading_row("arguments"),
        *rows(explanation.arg_names, result.program.invars, result.in_specs),
        heading_row("equations"),
        *(_equation(p, draw, sends.get(id(p.eqn), ())) for p in result.placed_eqns),
        heading_row("results"),
        *rows(explanation.result_names, result.program.outvars, result.out_specs),
    ]
    mesh = html.escape(spell_axes(result.axes))
    return f"<h2>Program</h2><p>mesh: {mesh}</p><table>{''.join(table)}</table>"


def _sends(records: Sequence[Any]) -> dict[int, list[str]]:
    """Return the collectives that each equation needs, by the identity of the equation."""
    sends: dict[int, list[str]] = {}
    for r in records:
        for part in r.parts or (r,):
            axes = ", ".join(map(str, join_axis_parts(part.axes)))
            text = f"{part.kind} over {axes}, {part.bytes_per_device * part.count:,} B"
            sends.setdefault(id(part.eqn), []).append(text)
    return sends


def _equation(placed: Any, draw: Drawings, sends: Sequence[str]) -> str:
    eqn = placed.eqn
    times = f"{placed.count} x " if placed.count != 1 else ""
    drawings = '<span class="line">one value per device</span>'
    if not placed.manual:
        drawn = zip(eqn.outvars[:4], placed.placements)
        drawings = "".join(draw(v.aval.shape, place) for v, place in drawn)
    texts = [
        html.escape(_type(v.aval, place, is_block=bool(placed.manual)))
        for v, place in zip(eqn.outvars, placed.placements)
    ]
    more = f"<br>and {len(texts) - 4} more" if len(texts) > 4 else ""
    line = ""
    if eqn.source is not None:
        line = f'<div class="line">{html.escape(str(eqn.source))}</div>'
    sent = "".join(f'<div class="sends">{html.escape(text)}</div>' for text in sends)
    title = html.escape(spell_equation(eqn))
    name = f"{times}{html.escape(str(eqn.primitive))}{line}{sent}"
    return (
        f'<tr><td style="padding-left: {1 + 2 * placed.depth}em" title="{title}">{name}</td>'
        f'<td>{drawings}</td><td class="code">{"<br>".join(texts[:4])}{more}</td></tr>'
    )


def _type(aval: Any, place: Any, is_block: bool = False) -> str:
    """Return the type and the sharding; blocks of a shard_map have one only along automatic axes."""
    if is_block and not place.partial and not any(place.dims):
        return aval.str_short()
    return f"{aval.str_short()}  {spell_placement(place)}"
