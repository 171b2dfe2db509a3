"""A step of a training plan as an SVG chart: when each pipeline stage computes, communicates and is idle.

In:   a `TrainingPlan`.
Out:  a file: a row for each stage, bars for its activities, seconds below.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.debug.visualize import PALETTE
from weft._engine.planner.pipeline_schedule import Interval
from weft._engine.planner.report import charted_stages, spell_seconds
from weft._engine.planner.training_plan import TrainingPlan, spell_mesh
from weft._engine.planner.units import spell_bytes
from weft.tools.svg import picture, text

#: activity -> its color
COLORS = {
    "forward": PALETTE[2],
    "backward": PALETTE[0],
    "data": PALETTE[4],
    "optimizer": PALETTE[1],
}
#: pixels: of the picture and its margin, of the names of stages, of a row and of its bars
WIDTH, MARGIN, NAMES, ROW, BAR = 760, 16, 76, 22, 16
#: marks on the axis of seconds
MARKS = 5


def training_picture(plan: TrainingPlan) -> str:
    """Return the chart of a step."""
    timelines = plan.timelines()
    end = max(interval.end for timeline in timelines for interval in timeline)
    title = f"{plan.model.name} on {plan.cluster}: {spell_mesh(plan.mesh_shape)}"
    facts = (
        f"{spell_seconds(plan.seconds)} a step, {plan.mfu:.1%} MFU, {spell_bytes(plan.memory.total)} a device"
        f"{plan.charted_part()}"
    )
    elements = [text(MARGIN, 28, title, "title"), text(MARGIN, 48, facts, "soft")]
    y = 64.0
    stages = charted_stages(len(timelines))
    for number in stages:
        name = f"stage {number}" if len(timelines) > 1 else "all devices"
        elements.append(text(MARGIN, y + BAR - 4, name))
        elements += _bars(timelines[number], end, y)
        y += ROW
    elements += [*_axis(y, end), *_legend(y + 34, timelines, end)]
    return picture(title, (WIDTH, y + 48), elements, _style())


def _x(seconds: float, end: float) -> float:
    """Return the position of a time in pixels."""
    return MARGIN + NAMES + (WIDTH - 2 * MARGIN - NAMES) * seconds / end


def _bars(timeline: Sequence[Interval], end: float, y: float) -> list[str]:
    """Return the row of a stage: a track, and one path for all bars of an activity."""
    left, right = _x(0, end), _x(end, end)
    drawn = [
        f'<rect class="track" x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="{BAR}"/>'
    ]
    for activity in COLORS:
        bars = [
            f"M{_x(i.start, end):.1f} {y:.1f}H{_x(i.end, end):.1f}v{BAR}H{_x(i.start, end):.1f}z"
            for i in timeline
            if i.activity == activity
        ]
        if bars:
            drawn.append(f'<g class="bars"><path class="{activity}" d="{"".join(bars)}"/></g>')
    return drawn


def _axis(y: float, end: float) -> list[str]:
    """Return the seconds below the rows."""
    marks: list[str] = []
    for i in range(MARKS):
        seconds = end * i / (MARKS - 1)
        anchor = ("start", "middle", "end")[(i > 0) + (i == MARKS - 1)]
        marks.append(
            text(_x(seconds, end), y + 10, spell_seconds(seconds) if i else "0", "soft", anchor)
        )
    return marks


def _legend(y: float, timelines: Sequence[Sequence[Interval]], end: float) -> list[str]:
    """Return the activities with visible bars, and their colors."""
    used = {i.activity for t in timelines for i in t if _x(i.end, end) - _x(i.start, end) > 0.5}
    drawn: list[str] = []
    x = float(MARGIN + NAMES)
    for name in [*(name for name in COLORS if name in used), "idle"]:
        style = "track" if name == "idle" else name
        drawn.append(f'<rect class="{style}" x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12"/>')
        drawn.append(text(x + 17, y, name))
        x += 40 + 7 * len(name)
    return drawn


def _style() -> str:
    fills = [f".{name} {{ fill: rgb({', '.join(map(str, rgb))}) }}" for name, rgb in COLORS.items()]
    return " " + " ".join(fills)
