"""Sections of pages about the schedule of a program: memory over the steps, and the steps with lines and costs.

In:   `ProgramFacts`; no times.
Out:  fragments of HTML, for the pages of `weft profile` and `weft explain`.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from weft.profiler.program_facts import ProgramFacts, StepFacts
from weft.tools.page import bar

#: size of the memory chart in pixels
WIDTH, HEIGHT = 900, 140
#: rows of the table of steps
MOST_ROWS = 400
#: the style of these sections, in addition to the style of `tools.page`
SCHEDULE_STYLE = """
.weft-page th { padding-right: 1em }
.weft-page .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.weft-page h3 { font-size: 1em; margin: 1.5em 0 .3em }
.weft-page table { display: block; overflow-x: auto } .weft-page td .bar { min-width: 0; margin: 0 }
.weft-page td:has(> .bar) { min-width: 8em }
.weft-page pre { max-height: 30em; overflow: auto; user-select: auto }
.weft-page svg.memory { width: 100%; height: 140px; border-bottom: 1px solid var(--rule) }
.weft-page svg.memory rect { fill: var(--bar); stroke: none; opacity: .6 } .weft-page svg.memory rect.highest { opacity: 1 }
"""


def memory_section(program: ProgramFacts) -> str:
    """Return the memory over the schedule, with the line of the peak and the largest buffers there."""
    if not program.steps:
        return ""
    peak = program.steps[program.peak_step]
    rows = "".join(
        f'<tr><td>{html.escape(b.name)}</td><td class="number">{b.bytes:,}</td><td class="code">{html.escape(b.line)}</td></tr>'
        for b in program.peak_buffers
    )
    place = f" at {peak.line}" if peak.line else ""
    source = f'<p class="code">{html.escape(peak.text)}</p>' if peak.text else ""
    return (
        f"<h3>Memory over the schedule</h3>"
        f"<p>Peak: {program.peak_bytes:,} B in step {peak.number}, {html.escape(peak.name)}{html.escape(place)}. "
        f"Arguments {program.argument_bytes:,} B, results {program.result_bytes:,} B; the rest are temporaries.</p>{source}"
        f"{_chart(program)}"
        '<table class="peak"><tr><th>largest buffers at the peak</th><th class="number">bytes</th><th>written at</th></tr>'
        f"{rows}</table>"
    )


def _chart(program: ProgramFacts) -> str:
    """Return the curve of memory over the numbers of steps; each step has its name and line as a tooltip."""
    count, most = len(program.steps), max(program.peak_bytes, 1)
    width = WIDTH / count
    bars: list[str] = []
    for step in program.steps:
        nbytes = program.memory_at(step.number)
        height = HEIGHT * nbytes / most
        style = ' class="highest"' if step.number == program.peak_step else ""
        title = html.escape(f"step {step.number}: {step.name}  {step.line}  {nbytes:,} B")
        bars.append(
            f'<rect{style} x="{step.number * width:.2f}" y="{HEIGHT - height:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}"><title>{title}</title></rect>'
        )
    label = html.escape(f"memory over {count} steps, at most {program.peak_bytes:,} bytes")
    return (
        f'<svg class="memory" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(bars)}</svg>'
    )


def steps_section(program: ProgramFacts, seconds: Sequence[float] | None = None) -> str:
    """Return the steps of a program, with their share of the time if `seconds` are given by step."""
    if not program.steps:
        return ""
    whole = max(sum(seconds or ()), 1e-12)
    times = "" if seconds is None else '<th class="number">time</th><th>share</th>'
    rows: list[str] = []
    for step in program.steps[:MOST_ROWS]:
        cells = ""
        if seconds is not None:
            share = seconds[step.number] / whole
            cells = (
                f'<td class="number">{1e3 * seconds[step.number]:.3f} ms</td><td>{bar(share)}</td>'
            )
        rows.append(_step_row(program, step, cells))
    more = len(program.steps) - MOST_ROWS
    note = f"<p>and {more} more steps</p>" if more > 0 else ""
    return (
        f"<h3>Steps</h3><table class=steps><tr><th>step</th><th>kind</th>{times}<th class=number>FLOPs</th>"
        f"<th class=number>bytes</th><th>line</th></tr>{''.join(rows)}</table>{note}"
    )


def _step_row(program: ProgramFacts, step: StepFacts, cells: str) -> str:
    depth, parent = 0, step.parent
    while parent >= 0:
        depth, parent = depth + 1, program.steps[parent].parent
    collective = (
        f' <span class="sends" title="{html.escape(step.reason)}">{html.escape(step.collective)}</span>'
        if step.collective
        else ""
    )
    number = lambda n: f'<td class="number">{n:,}</td>' if n else "<td></td>"
    equations = html.escape(", ".join(step.equations))
    return (
        f'<tr title="{equations}"><td style="padding-left: {1 + 1.5 * depth}em">{html.escape(step.name)}{collective}</td>'
        f"<td>{step.kind}</td>{cells}{number(step.flops)}{number(step.bytes)}"
        f'<td class="code">{html.escape(step.line)}<div class="line">{html.escape(step.text)}</div></td></tr>'
    )
