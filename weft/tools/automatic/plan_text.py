"""The report of a sharding plan as text.

In:   a `PlanReport`.
Out:  lines of text.
"""

from __future__ import annotations

from weft.tools.automatic.plan_report import PlanReport, ValueGroup
from weft.tools.automatic.pricing import spell_bytes
from weft.tools.report import Collective

#: maximal numbers of reasons (each takes a search), intermediate groups and collectives in a report
MOST_REASONS, MOST_INTERMEDIATES, MOST_COLLECTIVES = 8, 8, 8
#: maximal number of characters of a source line
WIDTH = 90


def plan_text(report: PlanReport) -> str:
    """Return the report: costs, layouts with reasons, collectives, comparisons, annotations."""
    parts = [str(report.plan), _arguments(report)]
    parts.append("\n".join(["Results:", *map(_line, report.results)]))
    if report.decision is not None:
        parts += [
            _intermediates(report),
            _collectives(report),
            f"Compared with:\n{report.comparison}",
            _annotations(report),
        ]
    return "\n\n".join(parts) + "\n"


def _arguments(report: PlanReport) -> str:
    """Return the arguments, grouped by type and layout, one line per group, with the reasons of the largest ones."""
    lines = ["Arguments:"]
    by_size = sorted(report.arguments, key=lambda group: -group.elements)
    explained = set(by_size[:MOST_REASONS])
    for group in report.arguments:
        lines.append(_line(group))
        if report.decision is not None and group in explained:
            lines.append(f"      {group.name} is {group.layout}: {report.reason(group)}")
    return "\n".join(lines)


def _line(group: ValueGroup) -> str:
    return f"  {group.name:24} {group.type} {group.layout}{group.others}"


def _intermediates(report: PlanReport) -> str:
    """Return the largest groups of intermediate values."""
    groups = report.intermediates
    lines = ["Intermediate values:"]
    for group in groups[:MOST_INTERMEDIATES]:
        lines.append(f"  {group.type} {group.layout}{group.others}")
        lines.append(f"      at {_shorten(group.name)}")
    if len(groups) > MOST_INTERMEDIATES:
        hidden = groups[MOST_INTERMEDIATES:]
        lines.append(f"  and {len(hidden)} smaller groups")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _collectives(report: PlanReport) -> str:
    records = report.collectives
    if not records:
        return "Collectives: none"
    lines = [f"Collectives ({sum(r.count for r in records)}):"]
    lines += [f"  {_collective(r)}" for r in records[:MOST_COLLECTIVES]]
    if len(records) > MOST_COLLECTIVES:
        hidden = records[MOST_COLLECTIVES:]
        lines.append(f"  and {len(hidden)} more, {spell_bytes(sum(r.bytes for r in hidden))}")
    return "\n".join(lines)


def _collective(r: Collective) -> str:
    times = f"{r.count} x " if r.count != 1 else ""
    source = f" at {r.lines[0]}" if r.lines else ""
    return f"{times}{r.kind} over {', '.join(r.axes)}, {spell_bytes(r.bytes)}{source}: {r.reason}"


def _annotations(report: PlanReport) -> str:
    """Return which price annotations reach, and the annotations."""
    lines = [report.heading_of_annotations()]
    for annotation in report.annotations:
        lines += [f"  {line}" for line in str(annotation).splitlines()]
    return "\n".join(lines)
