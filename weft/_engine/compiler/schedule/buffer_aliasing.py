"""Buffer aliasing: results in the memory of inputs that are no longer needed.

In:   a complete `ProgramBuilder`, so that the first and last use of every buffer is known.
Out:  outputs placed in donated inputs, and temporary results that take over an operand of their kernel in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from weft._engine.compiler.schedule.arena import Buffer
from weft._engine.compiler.schedule.liveness import PendingStep, ProgramBuilder


def donate(
    plan: ProgramBuilder,
    donated: Sequence[int],
    ins: list[Buffer],
    outs: list[Buffer],
    are_alike: Callable[[int, int], bool],
) -> dict[int, int]:
    """Outputs that may be written into donated inputs: those are not read later, or the kernel works in place. An input goes first to an
    output that `are_alike(output, input)` says is of its type."""
    writers = {b: p for p in plan.launches for b in (p.in_place or {})}
    free = [i for i in donated if ins[i].nbytes]
    aliases: dict[int, int] = {}
    for alike, (number, out) in itertools.product((True, False), enumerate(outs)):
        for i in free if number not in aliases and out.last >= 0 else ():
            if are_alike(number, i) == alike and _write_into(plan, writers.get(out), out, ins[i]):
                aliases[number] = i
                free.remove(i)
                break
    return aliases


def _write_into(
    plan: ProgramBuilder, writer: PendingStep | None, out: Buffer, source: Buffer
) -> bool:
    """Let an output be written into an input of its size, if the input is dead by then or its kernel works in place."""
    if source.nbytes != out.nbytes:
        return False
    if source.last < out.first:
        return True
    if source.last > out.first:
        return False
    for copy in plan.copies:
        if copy.time == out.first and copy.copied == (out, source):
            copy.dropped = True
            return True
    pair = pair_of(writer, out, source)
    if writer is None or pair is None:
        return False
    alias(writer, pair)
    return True


def pair_of(writer: PendingStep | None, out: Buffer, source: Buffer) -> tuple | None:
    """Return the pair of `in_place` that lets a launch write a result over an operand."""
    pairs = () if writer is None else (writer.in_place or {}).get(out, ())
    return next((pair for pair in pairs if pair[0] is source), None)


def share_dead(plan: ProgramBuilder) -> None:
    """Temporary results that take over an input of their kernel which dies there."""
    taken: set[Buffer] = set()
    for pending in plan.launches:
        for out, pairs in (pending.in_place or {}).items():
            if (
                not out.is_temp
                or out.forward is not None
                or out.first != pending.time
                or out.nbytes < 1 << 16
            ):
                continue
            for pair in pairs:
                source = pair[0]
                if (
                    source.is_temp
                    and source.forward is None
                    and source.last == pending.time
                    and source.region is out.region
                    and source not in taken
                    and source.nbytes == out.nbytes
                ):
                    out.takes_over = source
                    taken.add(source)
                    alias(pending, pair)
                    break


def alias(pending: PendingStep, pair: tuple) -> None:
    """Let a launch write one of its results over an operand: a pair that it offers in `in_place`."""
    pending.aliases = [*(pending.aliases or []), (pair[1], pair[2])]
