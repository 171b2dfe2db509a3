"""The page of a profile: timeline, cost by source line, memory, steps, collectives, shardings and texts of programs.

In:   a `Profile`, and an earlier one to compare with.
Out:  self-contained HTML that needs no network, light or dark as the reader's system is.
Next: `tools.profile.timeline_data` has the data that the script (timeline.js) draws.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from weft.profiler.comparison import ProfileComparison, compare
from weft.profiler.profile import LineTotal, Profile
from weft.tools.page import bar, document, titled_fragment
from weft.tools.profile.program_sections import compilation_sections
from weft.tools.profile.schedule_sections import SCHEDULE_STYLE, memory_section, steps_section
from weft.tools.profile.timeline_data import timeline_data

#: programs with sections of their own, the longest first, and rows of tables
MOST_PROGRAMS, MOST_LINES = 8, 100

_TIMELINE = """\
<h2 id="timeline-title">Timeline</h2>
<p id="keys">Arrow keys move, + and - zoom, 0 shows everything, / searches, Enter goes to the next match, [ and ] select the previous and
the next event. Drag to move; turn the wheel with Ctrl to zoom.</p>
<div class="controls"><label>Search <input id="search" type="search" autocomplete="off"
placeholder="name, kind or line"></label> <output id="matches"></output>
<button id="zoom-in" type="button">+</button> <button id="zoom-out" type="button">-</button>
<button id="fit" type="button">all</button> <output id="range"></output></div>
<div id="timeline" tabindex="0" role="application" aria-labelledby="timeline-title" aria-describedby="keys">
<canvas></canvas></div>
<div id="details" aria-live="polite"></div>
"""
_STYLE = """
.weft-page { max-width: 100em }
.weft-page .controls { display: flex; gap: .7em; align-items: center; flex-wrap: wrap; margin: .6em 0 }
.weft-page .controls output { color: var(--soft) }
.weft-page input, .weft-page button { font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--rule);
  border-radius: 4px; padding: .15em .6em }
.weft-page #timeline { border: 1px solid var(--rule); overflow: hidden; touch-action: pan-y }
.weft-page #timeline:focus-visible { outline: 2px solid var(--bar) }
.weft-page #timeline canvas { display: block; width: 100% }
.weft-page #details { min-height: 8em; margin: .5em 0 }
"""
#: forbids the page to load anything
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
)


def profile_page(profile: Profile, earlier: Profile | None = None) -> str:
    """Return the whole page; with an earlier profile, also the comparison."""
    facts = str(profile).splitlines()[:1]
    if profile.dropped:
        facts.append(
            f"{profile.dropped} events did not fit and are missing; the totals are complete."
        )
    machine = profile.machine
    facts.append(
        f"Roofline of {machine.threads} threads: {machine.flops / 1e9:.0f} GFLOP/s and {machine.bandwidth / 1e9:.0f} GB/s, by the "
        "model of the machine. Data in caches can exceed it."
    )
    parts = [f"<style>{SCHEDULE_STYLE}{_STYLE}</style>", _TIMELINE]
    if earlier is not None:
        parts.append(_comparison(compare(earlier, profile)))
    parts.append(_lines(profile.lines()))
    parts += _programs(profile)
    parts.append(_script(profile))
    title = "weft profile"
    body = titled_fragment(title, facts, parts)
    return document(title, body).replace("<title>", f"{_POLICY}<title>", 1)


def _script(profile: Profile) -> str:
    """Return the data of the timeline and the script that draws it."""
    data = json.dumps(timeline_data(profile), default=str).replace("<", "\\u003c")
    code = (Path(__file__).parent / "timeline.js").read_text(encoding="utf-8")
    return (
        f'<script type="application/json" id="profile-data">{data}</script><script>{code}</script>'
    )


def _lines(totals: list[LineTotal]) -> str:
    """Return the cost of each source line."""
    rows = "".join(
        f'<tr><td class="code">{html.escape(total.line or "(no line)")}<div class="line">{html.escape(total.text)}</div></td>'
        f'<td class="number">{1e3 * total.seconds:.3f} ms</td><td class="number">{100 * total.share:.1f} %</td>'
        f'<td>{bar(total.share)}</td><td class="number">{total.flops:,}</td><td class="number">{total.bytes:,}</td></tr>'
        for total in totals[:MOST_LINES]
    )
    hidden = len(totals) - MOST_LINES
    note = f"<p>and {hidden} more lines</p>" if hidden > 0 else ""
    return (
        '<h2>Cost by source line</h2><table class="lines"><tr><th>line</th><th class="number">time</th><th class="number">share</th>'
        f'<th></th><th class="number">FLOPs</th><th class="number">bytes</th></tr>{rows}</table>{note}'
    )


def _comparison(comparison: ProfileComparison) -> str:
    """Return the steps of both profiles, per call."""
    spell = lambda seconds: "-" if seconds is None else f"{1e3 * seconds:.3f} ms"
    rows = "".join(
        f'<tr><td>{html.escape(step.name)}</td><td>{step.kind}</td><td class="number">{spell(step.before)}</td>'
        f'<td class="number">{spell(step.after)}</td><td class="number">{1e3 * step.change:+.3f} ms</td>'
        f'<td class="code">{html.escape(step.line)}</td></tr>'
        for step in comparison.steps[:MOST_LINES]
    )
    return (
        '<h2>Comparison with the earlier profile</h2><table class="comparison"><tr><th>step</th><th>kind</th>'
        '<th class="number">before</th><th class="number">after</th><th class="number">change</th><th>line</th></tr>'
        f"{rows}</table>"
    )


def _programs(profile: Profile) -> list[str]:
    """Return the sections of each program, the longest first."""
    seconds: list[list[float]] = [[0.0] * len(program.steps) for program in profile.programs]
    numbers = {id(program): i for i, program in enumerate(profile.programs)}
    for total in profile.steps():
        seconds[numbers[id(total.program)]][total.facts.number] = total.seconds
    order = sorted(range(len(seconds)), key=lambda i: -sum(seconds[i]))
    parts: list[str] = []
    for i in order[:MOST_PROGRAMS]:
        executable: Any = profile.executables[i] if profile.executables else None
        program, calls = profile.programs[i], len(profile.calls_of(i))
        head = f"{program.name}: {calls} call{'s'[: calls != 1]}, {1e3 * sum(seconds[i]):.3f} ms"
        parts += [
            f"<h2>{html.escape(head)}</h2>",
            steps_section(program, seconds[i]),
            memory_section(program),
            "" if executable is None else compilation_sections(executable),
        ]
    hidden = len(order) - MOST_PROGRAMS
    if hidden > 0:
        parts.append(f"<p>and {hidden} shorter programs</p>")
    return parts
