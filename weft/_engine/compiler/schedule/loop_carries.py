"""Carries of loops: values that need memory for every iteration, and the update of other values at the end of an iteration.

In:   an equation of a loop, the memory of its carries, and the addresses of the new values.
Out:  new values are computed in the memory of the carries if the old values are dead, and otherwise copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.compiler.fusion.classify import loop_of
from weft._engine.compiler.schedule.arena import ArenaBuffer, ArenaRef
from weft._engine.compiler.schedule.buffer_aliasing import alias, pair_of
from weft._engine.compiler.schedule.liveness import ProgramBuilder
from weft._engine.ir.jaxpr import Eqn, Var


def find_stacked_carries(eqn: Eqn, targets: Collection[Var]) -> dict[int, list[tuple[Var, bool]]]:
    """Return the carries that a counted loop also stacks, by number, as (stacked result, whether it has the values at the end of
    iterations instead of the beginning) pairs.

    Each has at least one stack of values at the beginning. Stacks that already have memory are left out."""
    loop = loop_of(eqn)
    if loop is None or not loop.counted or not eqn.params["length"]:
        return {}
    inner, nc, nk = eqn.params["jaxpr"], eqn.params["num_consts"], eqn.params["num_carry"]
    stacked = {}
    for n, (begin, end) in enumerate(zip(inner.invars[nc : nc + nk], inner.outvars[:nk])):
        stacks = [
            (var, atom is not begin)
            for atom, var in zip(inner.outvars[nk:], eqn.outvars[nk:])
            if var not in targets and (atom is begin or atom is end)
        ]
        if begin.aval.nbytes and not all(ends for _, ends in stacks):
            stacked[n] = stacks
    return stacked


def update_carries(
    plan: ProgramBuilder, carries: list[ArenaRef], fresh: list[ArenaRef], avals: Sequence
) -> None:
    """Move the new values, at the end of a loop body, into the memory of the carries."""
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
    plan: ProgramBuilder,
    carry: ArenaRef,
    new: ArenaRef,
    ends: list[ArenaRef],
    carried: set[ArenaBuffer],
) -> bool:
    """Have the step that computes a new value write it into the carry if the old value is dead by then; return whether it does."""
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
