"""What a loop carries from one iteration to the next: which values need memory for every iteration, and how the others are handed on.

In:   an equation of a loop, the memory of its carried values, and where its body left the next ones.
Out:  carried values written straight into the memory of the last ones where that is dead, else copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.compiler.fusion.classify import loop_of
from weft._engine.compiler.schedule.arena import Buffer, Ref
from weft._engine.compiler.schedule.buffer_aliasing import alias, pair_of
from weft._engine.compiler.schedule.liveness import ProgramBuilder
from weft._engine.ir.jaxpr import Eqn, Var


def stacked_carries(eqn: Eqn, targets: Collection[Var]) -> dict[int, list[tuple[Var, bool]]]:
    """Carried values that a counted loop stacks as they are when iterations begin, by their number: the stacks, and whether each has
    the values at the end of iterations instead. Stacks whose memory is settled are not among them."""
    loop = loop_of(eqn)
    if loop is None or not loop.counted or not eqn.params["length"]:
        return {}
    inner, nc, nk = eqn.params["jaxpr"], eqn.params["num_consts"], eqn.params["num_carry"]
    found = {}
    for n, (begin, end) in enumerate(zip(inner.invars[nc : nc + nk], inner.outvars[:nk])):
        stacks = [
            (var, atom is not begin)
            for atom, var in zip(inner.outvars[nk:], eqn.outvars[nk:])
            if var not in targets and (atom is begin or atom is end)
        ]
        if begin.aval.nbytes and not all(ends for _, ends in stacks):
            found[n] = stacks
    return found


def update_carries(
    plan: ProgramBuilder, carries: list[Ref], fresh: list[Ref], avals: Sequence
) -> None:
    """End of a loop body: the new values become the carried ones."""
    ends = [r.final() for r in fresh]
    buffers = {c.final().buffer for c in carries}
    copies = []
    for carry, new, aval in zip(carries, ends, avals):
        if (
            new == carry.final()
            or not aval.nbytes
            or _write_in_place(plan, carry.final(), new, ends, buffers)
        ):
            continue
        if new.buffer in buffers:
            spare = plan.temp(aval)
            plan.copy(spare, new, aval.nbytes)
            new = spare
        copies.append((carry, new, aval.nbytes))
    for carry, new, nbytes in copies:
        plan.copy(carry, new, nbytes)


def _write_in_place(
    plan: ProgramBuilder, carry: Ref, new: Ref, ends: list[Ref], carried: set[Buffer]
) -> bool:
    """Let the step that makes a new carried value write it into the carry, if the old one is dead by then."""
    buffer = new.buffer
    if not buffer.is_temp or buffer.region is not plan.region or buffer in carried:
        return False
    if not (new.is_whole and carry.is_whole) or buffer.nbytes != carry.buffer.nbytes:
        return False
    if sum(e.buffer is buffer for e in ends) != 1 or any(e.buffer is carry.buffer for e in ends):
        return False
    writer = next((p for p in reversed(plan.steps) if p.time == buffer.first), None)
    read = plan.last_read.get(carry.buffer, -1)
    if writer is None or read > buffer.first:
        return False
    if read == buffer.first:
        pair = pair_of(writer, buffer, carry.buffer)
        if pair is None:
            return False
        alias(writer, pair)
    buffer.forward = carry
    return True
