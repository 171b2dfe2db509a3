"""Buffer aliasing: results take the memory of inputs that are no longer needed.

In:   a complete `ProgramBuilder`, with the first and last use of every buffer.
Out:  outputs that alias donated inputs, and temporary results that overwrite an operand of their kernel in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from weft._engine.compiler.schedule.arena import ArenaBuffer
from weft._engine.compiler.schedule.liveness import PendingStep, ProgramBuilder

#: bytes of the smallest temporary results that overwrite an operand
LEAST_IN_PLACE = 1 << 16


def donate(
    plan: ProgramBuilder,
    donated: Sequence[int],
    ins: list[ArenaBuffer],
    outs: list[ArenaBuffer],
    are_alike: Callable[[int, int], bool],
) -> dict[int, int]:
    """Return the donated input that each aliased output overwrites, by output number.

    The input must not be read after the output is written, except by a kernel that works in place. Pairs of equal type, for which
    `are_alike(output, input)` is true, are tried first."""
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
    plan: ProgramBuilder, writer: PendingStep | None, out: ArenaBuffer, source: ArenaBuffer
) -> bool:
    """Return whether an output can overwrite an input of its size because the input is dead or the kernel works in place.

    Mark a copy from the input to the output as dropped, or add the alias to the kernel."""
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


def pair_of(writer: PendingStep | None, out: ArenaBuffer, source: ArenaBuffer) -> tuple | None:
    """Return the entry of `in_place` that permits a launch to write result `out` over operand `source`; None if there is none."""
    pairs = () if writer is None else (writer.in_place or {}).get(out, ())
    return next((pair for pair in pairs if pair[0] is source), None)


def reuse_dead_inputs(plan: ProgramBuilder) -> None:
    """Have large temporary results overwrite an operand of their kernel at its last use."""
    overwritten: set[ArenaBuffer] = set()
    for pending in plan.launches:
        for out, pairs in (pending.in_place or {}).items():
            if (
                not out.is_temp
                or out.forward is not None
                or out.first != pending.time
                or out.nbytes < LEAST_IN_PLACE
            ):
                continue
            for pair in pairs:
                source = pair[0]
                if (
                    source.is_temp
                    and source.forward is None
                    and source.last == pending.time
                    and source.region is out.region
                    and source not in overwritten
                    and source.nbytes == out.nbytes
                ):
                    out.takes_over = source
                    overwritten.add(source)
                    alias(pending, pair)
                    break


def alias(pending: PendingStep, pair: tuple) -> None:
    """Have a launch write a result over an operand; `pair` is an entry of its `in_place`."""
    pending.aliases = [*(pending.aliases or []), (pair[1], pair[2])]
