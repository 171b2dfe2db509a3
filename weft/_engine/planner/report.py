"""Reports: tables of plans, bars of seconds and bytes, and a Gantt chart of a step, as text.

In:   rows and numbers of plans, timelines of pipeline stages.
Out:  objects that rich prints; `as_text` renders them without color.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from weft._engine.planner.pipeline_schedule import Interval

TEXT_WIDTH = 120
_CHART_COLUMNS = 72
_BAR_COLUMNS = 24
#: the maximal number of pipeline stages in a chart; of more stages, it shows evenly spaced ones
_MOST_ROWS = 8
#: activity -> its letter and color
_ACTIVITIES = {
    "forward": ("F", "green"),
    "backward": ("B", "blue"),
    "data": ("D", "magenta"),
    "optimizer": ("O", "yellow"),
}


def as_text(renderables: Iterable[RenderableType]) -> str:
    """Return what rich prints for `renderables`, without color and without spaces at the ends of lines."""
    file = io.StringIO()
    console = Console(file=file, width=TEXT_WIDTH, color_system=None)
    for renderable in renderables:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip("\n")


def spell_seconds(seconds: float) -> str:
    """Return seconds with a unit and three significant digits.

    >>> [spell_seconds(s) for s in (12.345, 0.0123, 4.5e-5)]
    ['12.3 s', '12.3 ms', '45 µs']
    """
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds < 1000 * unit else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.3g} µs"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[str] = ()
) -> Table:
    """Return a table with a heading; columns named in `numeric` are aligned to the right."""
    right, grid = set(numeric), Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Return lines of a label and a text."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text in rows:
        grid.add_row(label, text)
    return grid


def bars(heading: str, parts: Mapping[str, tuple[float, str]]) -> Table:
    """Return bars of the parts that are at least half a percent of the sum, the largest first; a part has a size and a text."""
    total = sum(size for size, _ in parts.values()) or 1.0
    sorted_parts = sorted(parts.items(), key=lambda part: -part[1][0])
    rows = [
        (name, text, f"{size / total:.1%}", "█" * round(_BAR_COLUMNS * size / total))
        for name, (size, text) in sorted_parts
        if size >= 0.005 * total
    ]
    return table((heading, "", "share", " "), rows, numeric=("", "share"))


def charted_stages(count: int) -> list[int]:
    """Return the numbers of the stages that a chart shows: all, or evenly spaced ones.

    >>> charted_stages(3), charted_stages(15)
    ([0, 1, 2], [0, 2, 4, 6, 8, 10, 12, 14])
    """
    step = (count - 1) / (_MOST_ROWS - 1) if count > _MOST_ROWS else 1
    return [round(i * step) for i in range(min(count, _MOST_ROWS))]


def gantt_chart(timelines: Sequence[Sequence[Interval]]) -> Table:
    """Return a chart with a row for each stage; a column is the activity that takes most of its time, a dot is idle."""
    end = max(interval.end for timeline in timelines for interval in timeline)
    count = len(timelines)
    grid = Table.grid(padding=(0, 1))
    for number in charted_stages(count):
        name = f"stage {number}" if count > 1 else "all devices"
        grid.add_row(name, _chart_row(timelines[number], end))
    scale = f"0{spell_seconds(end):>{_CHART_COLUMNS - 1}}"
    grid.add_row("", Text(scale, style="dim"))
    used = {interval.activity for timeline in timelines for interval in timeline}
    legend = ", ".join(
        f"{letter} {name}" for name, (letter, _) in _ACTIVITIES.items() if name in used
    )
    grid.add_row("", Text(f"{legend}, · idle", style="dim"))
    return grid


def _chart_row(timeline: Sequence[Interval], end: float) -> Text:
    width = end / _CHART_COLUMNS
    shares: list[dict[str, float]] = [{} for _ in range(_CHART_COLUMNS)]
    for interval in timeline:
        first = int(interval.start / width)
        last = min(_CHART_COLUMNS - 1, int(interval.end / width))
        for column in range(first, last + 1):
            inside = min(interval.end, (column + 1) * width) - max(interval.start, column * width)
            share = shares[column]
            share[interval.activity] = share.get(interval.activity, 0.0) + inside
    row = Text()
    for share in shares:
        activity = max(share, key=lambda name: share[name], default="")
        if activity and sum(share.values()) >= width / 2:
            letter, color = _ACTIVITIES[activity]
            row.append(letter, style=color)
        else:
            row.append("·", style="dim")
    return row
