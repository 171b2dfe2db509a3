"""Errors about failed or absent ranks, with their facts and Python stacks.

In:   the coordinator's report: the failed rank, the kind of failure, its text; what this rank was waiting for.
Out:  `ProcessFailureError`s; the stacks of this process as text.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft._engine.util.errors import ProcessFailureError, describe

_INTERNAL_FILES = ("weft/_engine/processes/", "threading.py")


def _format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as text; a run of consecutive ranks is written as its ends.

    >>> _format_ranks([0, 1, 2, 5])
    '0-2, 5'
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return (
        ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"
    )


def indent_lines(text: str, by: str = "    ") -> list[str]:
    """Return the indented lines of a text."""
    return [by + line for line in text.rstrip().splitlines()]


def of_rank(failure: dict[str, Any], waits_for: str = "", where: str = "") -> ProcessFailureError:
    """Return the error for the other ranks after the failure of a rank."""
    rank, kind, text = failure["rank"], failure["kind"], failure["text"]
    fact = {
        "ended": f"process {rank} has ended, or was killed.",
        "silent": f"process {rank} was silent for {text} seconds; it is stopped, or its machine is unreachable "
        "(WEFT_HEARTBEAT_TIMEOUT sets the limit).",
        "raised": f"process {rank} raised an exception.",
        "left": f"process {rank} has left the program, and others wait for it.",
        "coordinator": f"the coordinator has {text}.",
        "differs": f"process {rank} runs another program.",
    }.get(kind, f"process {rank} failed: {kind}")
    table: list[Any] = []
    if failure.get("host"):
        table.append(("where it ran", f"{failure['host']}, process {failure['pid']}"))
    if waits_for:
        table.append(("awaited here", waits_for))
    if kind == "raised":
        table += ["what it raised:", *indent_lines(text, "  ")]
    ranks = () if rank is None or rank < 0 else (rank,)
    return ProcessFailureError(
        describe(
            "distributed",
            fact,
            table,
            where or None,
            "A program runs on all its processes or on none.",
            "Start again from the last checkpoint (`weft launch --restarts` does that), or continue without it: "
            "weft.distributed.shrink().",
        ),
        ranks,
    )


def of_minority(left: Sequence[int], unproven: Sequence[int]) -> ProcessFailureError:
    """Return the error of ranks that may not continue because as many others may have formed a group."""
    return ProcessFailureError(
        describe(
            "distributed.shrink",
            "too few processes are left to continue without the others.",
            [
                ("left", f"processes {_format_ranks(left)}"),
                ("may still run", f"processes {_format_ranks(unproven)}"),
            ],
            None,
            "After a failure of the network at most one side continues: the one with most of the processes whose end is not certain.",
            "Start again from the last checkpoint; `weft launch --restarts` does that, and knows which processes have ended.",
        ),
        tuple(unproven),
    )


def of_absence(
    waits_for: str,
    seconds: float,
    arrived: Iterable[int],
    absent: Sequence[int],
    where: str = "",
    report: Mapping[Any, Any] | None = None,  # rank -> facts; JSON turns the ranks into text
    setting: str = "WEFT_COLLECTIVE_TIMEOUT",
) -> ProcessFailureError:
    """Return the error about ranks that did not arrive in time, with what they were doing instead."""
    table: list[Any] = [
        ("arrived", f"processes {_format_ranks(arrived)}"),
        ("absent", f"processes {_format_ranks(absent)}"),
    ]
    for rank, facts in sorted((report or {}).items(), key=lambda pair: int(pair[0])):
        if not facts["answers"]:
            table.append(
                f"process {rank} ({facts['host']}, process {facts['pid']}) does not answer; "
                f"its last sign of life was {facts['silent']:.1f} seconds ago"
            )
            continue
        activity = (
            f", in {facts['at']}"
            if facts["at"]
            else f", {facts['progress']}"
            if facts["progress"]
            else ""
        )
        table += [
            f"process {rank} ({facts['host']}, process {facts['pid']}){activity}:",
            *indent_lines(facts["stack"], "  "),
        ]
    return ProcessFailureError(
        describe(
            "distributed",
            f"{waits_for}: not all processes arrived within {seconds:g} seconds.",
            table,
            where or None,
            "Every process runs the same operations in the same order.",
            f"See what the absent processes do; {setting} sets the limit in seconds.",
        ),
        tuple(absent),
    )


def format_stacks(most: int = 12) -> str:
    """Return the stacks of this process's threads, main thread first, at most `most` frames each.

    Frames of the waiting functions themselves are omitted.
    """

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    texts = []
    frames = sys._current_frames()
    for ident in sorted(frames, key=lambda ident: ident != main):
        if ident not in names:
            continue  # an internal thread
        lines = [
            frame
            for frame in traceback.extract_stack(frames[ident])
            if not any(part in frame.filename for part in _INTERNAL_FILES)
        ]
        if not lines:
            continue
        text = "".join(traceback.format_list(lines[-most:]))
        texts.append(text if ident == main else f"thread {names[ident]}:\n{text}")
    return "".join(texts)
