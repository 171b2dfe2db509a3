"""Parts of HTML reports: the page around them, rows of values, collectives.

In:   fragments of HTML, collectives.
Out:  self-contained HTML: no scripts, fonts or images from elsewhere; light or dark as the reader's system is.
Next: `svg` draws values.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from weft.tools.report import Collective, merge_equal
from weft.tools.svg import COLORS


def document(title: str, body: str) -> str:
    """Return a whole page with a title and fragments."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_PAGE_STYLE}</style></head><body>{body}</body></html>\n'
    )


def titled_fragment(title: str, facts: Sequence[str], parts: Sequence[str]) -> str:
    """Return the body of a page, which a notebook shows too: a title, lines of facts, and sections."""
    lines = "\n".join(f"<p>{html.escape(line)}</p>" for line in facts)
    body = "\n".join(parts)
    return f'<style>{_STYLE}</style>\n<div class="weft-page">\n<h1>{html.escape(title)}</h1>\n{lines}\n{body}\n</div>'


def heading_row(text: str) -> str:
    """Return the heading of a group of rows of values."""
    return f'<tr><th colspan="3">{html.escape(text)}</th></tr>'


def value_row(name: str, drawing: str, text: str, notes: Sequence[str] = ()) -> str:
    """Return the row of a value: its name with notes, its drawing, its type and layout. Text is escaped, the drawing is HTML."""
    lines = "".join(f'<div class="note">{html.escape(note)}</div>' for note in notes)
    return (
        f'<tr><td style="padding-left: 1em">{html.escape(name)}{lines}</td><td>{drawing}</td>'
        f'<td class="code">{html.escape(text)}</td></tr>'
    )


def spell_axes(axes: Iterable[tuple[Any, int]]) -> str:
    """Write the axes of a mesh.

    >>> spell_axes([("x", 4), ("y", 2)])
    'x 4 × y 2'
    """
    return " × ".join(f"{name} {size}" for name, size in axes)


def bar(share: float) -> str:
    """Return a bar of a share between 0 and 1 of the width."""
    return f'<div class="bar" style="width: {round(100 * share)}%"></div>'


def collectives_section(records: Sequence[Collective]) -> str:
    """Return the totals, then each collective with its details and a bar of its bytes."""
    runs, sent = sum(r.count for r in records), sum(r.bytes for r in records)
    head = f"<h2>{runs} collective{'s'[: runs != 1]}, {sent:,} B sent by each device</h2>"
    largest = max((r.bytes for r in merge_equal(records)), default=0)
    return head + "".join(_collective_details(r, largest) for r in merge_equal(records))


def _collective_details(r: Collective, largest: int) -> str:
    rows = "".join(
        f"<dt>{what}</dt><dd{' class=code' if what in ('at', 'for', 'moves') else ''}>{html.escape(text)}</dd>"
        for what, text in r.facts()
    )
    drawn = bar(r.bytes / largest if largest else 0.0)
    return (
        f"<details open><summary>{html.escape(r.title)}{drawn}</summary><dl>{rows}</dl></details>"
    )


_LIGHT, _DARK = (
    "; ".join(f"--{name}: {modes[mode]}" for name, modes in COLORS.items()) for mode in (0, 1)
)

_PAGE_STYLE = (
    f"body {{ margin: 0; background: {COLORS['paper'][0]} }} "
    f"@media (prefers-color-scheme: dark) {{ body {{ background: {COLORS['paper'][1]} }} }}"
)

_STYLE = (
    f".weft-page {{ color-scheme: light dark; {_LIGHT} }}\n"
    f"@media (prefers-color-scheme: dark) {{ .weft-page {{ {_DARK} }} }}"
    """
.weft-page { color: var(--ink); background: var(--paper); font: 14px/1.45 system-ui, sans-serif; padding: 1.5em; max-width: 75em;
  margin: auto }
.weft-page h1 { font-size: 1.5em } .weft-page h2 { font-size: 1.15em; margin-top: 2em }
.weft-page p { margin: .2em 0; color: var(--soft) }
.weft-page details { border-top: 1px solid var(--rule); padding: .5em 0 }
.weft-page summary { cursor: pointer; font-weight: 600 }
.weft-page .bar { height: 4px; background: var(--bar); margin-top: .3em; min-width: 2px }
.weft-page dl { display: grid; grid-template-columns: 6em 1fr; gap: .2em 1em; margin: .6em 0 .3em 1em }
.weft-page dt { color: var(--soft) } .weft-page dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }
.weft-page .code, .weft-page .line { font-family: ui-monospace, monospace; font-size: .9em }
.weft-page .line { color: var(--soft); max-width: 60ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.weft-page .note { color: var(--soft); max-width: 70ch }
.weft-page .sends { color: var(--bar); font-weight: 600 }
.weft-page table { border-collapse: collapse; width: 100% }
.weft-page a { color: var(--bar) }
.weft-page td { border-top: 1px solid var(--rule); padding: .4em 1em .4em 0; vertical-align: middle }
.weft-page th { text-align: left; color: var(--soft); padding: 1em 0 .3em }
.weft-page svg { margin-right: .4em; vertical-align: middle } .weft-page rect { stroke: var(--paper); stroke-width: 1 }
.weft-page svg.partial rect { fill-opacity: .45; stroke: var(--soft); stroke-dasharray: 3 2 }
.weft-page svg.curve polyline { fill: none; stroke: var(--bar); stroke-width: 2 } .weft-page svg.curve circle { fill: var(--bar) }
.weft-page svg.curve text { fill: var(--soft); font-size: 12px } .weft-page td.wide { width: 75% }
.weft-page pre { font: .9em ui-monospace, monospace; border: 1px solid var(--rule); padding: .8em; overflow-x: auto; user-select: all }
.weft-page text.ids { font: 9px ui-monospace, monospace; text-anchor: middle }
"""
)
