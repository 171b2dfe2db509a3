"""The report of a sharding plan as text.

In:   a `ShardingPlan`; one that was loaded has no reasons and comparisons.
Out:  lines of text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._engine.partition.cost import CollectiveRecord
from weft.tools.automatic.planned_value import PlannedValue, partition_spec
from weft.tools.automatic.pricing import spell_bytes

#: most reasons (each takes a search) and most collectives in a report
MOST_REASONS, MOST_COLLECTIVES = 8, 8


def plan_text(plan: Any) -> str:
    """Return the report: costs, layouts with reasons, collectives, comparisons, annotations."""
    parts = [str(plan), _layouts(plan)]
    if plan.decision is not None:
        parts += [_collectives(plan), f"Compared with:\n{plan.compare()}", _annotations(plan)]
    return "\n\n".join(parts) + "\n"


def _layouts(plan: Any) -> str:
    """Return the arguments and results, those of one type and layout in a line, with the reasons of the largest arguments."""
    lines = ["Arguments:"]
    groups = _alike(plan.inputs)
    by_size = sorted(groups, key=lambda group: -len(group) * _elements(group[0]))
    explained = {group[0].path for group in by_size[:MOST_REASONS]}
    for group in groups:
        lines.append(f"  {_spell_group(group)}")
        if plan.decision is not None and group[0].path in explained:
            lines.append(f"      {plan.why(group[0].path)}")
    lines.append("Results:")
    for group in _alike(plan.outputs):
        lines.append(f"  {_spell_group(group)}")
    return "\n".join(lines)


def _alike(values: Sequence[PlannedValue]) -> list[list[PlannedValue]]:
    """Return the values of one type and layout together."""
    groups: dict[tuple[object, ...], list[PlannedValue]] = {}
    for v in values:
        groups.setdefault((v.shape, v.dtype, v.spec), []).append(v)
    return list(groups.values())


def _spell_group(group: Sequence[PlannedValue]) -> str:
    first = group[0]
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{first} {partition_spec(first.spec)}{others}"


def _elements(value: PlannedValue) -> int:
    return math.prod(value.shape)


def _collectives(plan: Any) -> str:
    records = sorted(plan.decision.result.records, key=lambda r: -r.bytes_per_device * r.count)
    lines = [f"Collectives ({sum(r.count for r in records)}):"]
    lines += [f"  {_collective(r)}" for r in records[:MOST_COLLECTIVES]]
    if len(records) > MOST_COLLECTIVES:
        rest = records[MOST_COLLECTIVES:]
        sent = sum(r.bytes_per_device * r.count for r in rest)
        lines.append(f"  and {len(rest)} more, {spell_bytes(sent)}")
    return "\n".join(lines)


def _collective(r: CollectiveRecord) -> str:
    times = f"{r.count} x " if r.count != 1 else ""
    source = f" at {r.source}" if r.source is not None else ""
    axes = ", ".join(map(str, r.axes))
    sent = spell_bytes(r.bytes_per_device * r.count)
    return f"{times}{r.kind} over {axes}, {sent}{source}: {r.reason}"


def _annotations(plan: Any) -> str:
    found = plan.annotations()
    if not found:
        return "The shardings of arguments and results alone reproduce the plan within 2 %."
    count = "1 constraint reproduces" if len(found) == 1 else f"{len(found)} constraints reproduce"
    body = "\n".join(f"  {line}" for a in found for line in str(a).splitlines())
    return f"With the shardings of arguments and results, {count} the plan within 2 %:\n{body}"
