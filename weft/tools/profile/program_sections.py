"""Sections of the page of a profile about how a program was compiled: collectives, shardings, search, and texts by stage.

In:   an executable.
Out:  fragments of HTML.
"""

from __future__ import annotations

import html
from typing import Any

from weft._engine.ir.text.jaxpr import jaxpr_text
from weft._engine.partition.auto.partitioning import Decision
from weft._engine.partition.reshard import Placement
from weft.tools.advice import spell_placement
from weft.tools.explain import explanation_of
from weft.tools.explain_page import program_section
from weft.tools.page import collectives_section

#: characters of a text that the page shows
MOST_CHARACTERS = 100_000


def compilation_sections(executable: Any) -> str:
    """Return the collectives with their reasons, the shardings of all values, the search for shardings, and the texts."""
    explanation = explanation_of(executable)
    return "".join(
        [
            f"<h3>Collectives</h3>{collectives_section(explanation.collectives)}",
            f"<details><summary>Shardings</summary>{program_section(explanation)}</details>",
            automatic_section(executable),
            stages_section(executable),
        ]
    )


def automatic_section(executable: Any) -> str:
    """Return what the search for automatic shardings decided; nothing if there was no search."""
    stages, automatic = executable.stages, executable.request.automatic
    if automatic is None:
        return ""
    facts = "The layouts come from a plan of `weft.auto`."
    given: Any = [None] * len(executable.in_specs)
    decision: Decision | None = stages.decision
    if decision is not None:
        given = decision.given_specs.in_specs
        facts = (
            f"Chosen by {decision.method}: each device sends {_bytes_sent(decision.result):,} B, "
            f"{_bytes_sent(decision.ordinary):,} B with the layouts of propagation."
        )
    rows = "".join(
        f'<tr><td>{html.escape(name)}</td><td class="code">{html.escape(spec)}</td><td>{how}</td></tr>'
        for name, spec, how in _argument_layouts(executable, given)
    )
    return (
        f"<h3>Automatic sharding</h3><p>{html.escape(facts)}</p>"
        f"<table><tr><th>argument</th><th>layout</th><th></th></tr>{rows}</table>"
    )


def _bytes_sent(result: Any) -> int:
    return sum(r.bytes_per_device * r.count for r in result.records)


def _argument_layouts(executable: Any, given: Any) -> list[tuple[str, str, str]]:
    names = executable.arg_names
    return [
        (
            str(names[i]) if i < len(names) else f"argument {i}",
            spell_placement(Placement(spec)),
            "chosen" if given[i] is None else "given",
        )
        for i, spec in enumerate(executable.stages.partition.in_specs)
    ]


def stages_section(executable: Any) -> str:
    """Return the text of the program at every stage, folded."""
    parts = [
        f'<details><summary>{title}</summary><pre tabindex="0">{html.escape(_shortened(text))}</pre></details>'
        for title, text in stage_texts(executable)
    ]
    return f"<h3>Program text by stage</h3>{''.join(parts)}"


def stage_texts(executable: Any) -> list[tuple[str, str]]:
    """Return (stage, text) of a program, from the traced program to LLVM IR."""
    stages = executable.stages
    jaxprs = [
        ("traced", stages.traced),
        ("simplified", stages.simplified),
        ("of one device, with collectives", stages.local),
        ("of all devices of this process", getattr(stages.lowered, "stacked", None)),
    ]
    texts = [(title, jaxpr_text(jaxpr)) for title, jaxpr in jaxprs if jaxpr is not None]
    if stages.scheduled is not None:
        texts.append(("schedule: buffers, steps and kernels", stages.scheduled.text()))
        texts.append(("LLVM IR", executable.loaded.native.text()))
    return texts


def _shortened(text: str) -> str:
    hidden = len(text) - MOST_CHARACTERS
    return text if hidden <= 0 else f"{text[:MOST_CHARACTERS]}\n... and {hidden:,} more characters"
