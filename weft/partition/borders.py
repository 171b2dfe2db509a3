"""Rows across the borders of blocks: what operations along a split dim need of other devices' blocks.

In:   a `SplitContext`, which knows what its operation needs.
Out:  the bytes that the devices send each other for it, and the rows that several operations need of one value together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.factors import axes_of_factors
from weft.ir.jaxpr import Var
from weft.ops.halo import Need, Window, rows_sent
from weft.partition.cost import LATENCY
from weft.partition.emit import SplitContext
from weft.partition.reshard import Placement


def bytes_sent(partitioner: Any, context: SplitContext, ins: Sequence[Placement]) -> float:
    """Bytes of the rows that devices send each other where operands lie as `ins`."""
    cost = 0.0
    for need in context.needs() or ():
        if context.of_dim(need.operand, need.dim):
            whole = partitioner.local_bytes(context.eqn.invars[need.operand].aval, ins[need.operand])
            row = whole / context.block(need.size, need.axes)
            cost += sum(LATENCY + count * row for count in rows_sent(need.window, context.size(need.axes), need.size))
    return cost


def reach(partitioner: Any, var: Var, need: Need) -> Window:
    """The rows that all equations which are wished to follow the same blocks need of `var` along a dim."""
    wishes, windows = partitioner.wishes, [need.window]
    for eqn in partitioner.pending.readers.get(var, ()):
        rule = wishes.rule(eqn) if eqn.primitive.has("split") else None
        for group in rule.groups if rule is not None else ():
            wished = axes_of_factors(rule.outs[0], wishes.spec(eqn.outvars[0]), rule, wishes.sizes)[0]
            if wished.get(group[0]) == need.axes:
                found = partitioner.context(eqn, rule, dict.fromkeys(group, need.axes)).needs() or ()
                windows += [other.window for other in found if eqn.invars[other.operand] is var and other.dim == need.dim
                            and other.window.advance == need.window.advance]
    first = min(w.first for w in windows)
    return Window(first, need.window.advance, max(w.first + w.span for w in windows) - first)
