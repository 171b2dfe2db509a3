"""Halos: the rows of neighbouring blocks that operations along a split dim need, as the partitioner counts them.

In:   a `SplitContext`, which knows what its operation needs.
Out:  the bytes that devices send each other for it, and the rows that several operations need of one value together.
Next: `ops.halo`, which exchanges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.factors import axes_of_factors
from weft.ir.jaxpr import Var
from weft.ops.halo import Halo, Window, rows_sent
from weft.ops.split_rule import split_rule_of
from weft.partition.reshard import Placement
from weft.partition.split_context import SplitContext


def bytes_sent(partitioner: Any, context: SplitContext, ins: Sequence[Placement]) -> float:
    """Bytes of the rows that devices send each other where operands are placed as `ins`."""
    cost = 0.0
    for halo in context.halos() or ():
        if context.of_dim(halo.operand, halo.dim):
            whole = partitioner.local_bytes(context.eqn.invars[halo.operand].aval, ins[halo.operand])
            row = whole / context.block(halo.size, halo.axes)
            cost += sum(partitioner.cost.latency + count * row for count in rows_sent(halo.window, context.size(halo.axes), halo.size))
    return cost


def common_window(partitioner: Any, var: Var, halo: Halo) -> Window:
    """The rows of `var` along a dim that all equations need whose results should be split into the same blocks."""
    specs, windows = partitioner.target_specs, [halo.window]
    for eqn in partitioner.partial_sums.readers.get(var, ()):
        rule = specs.rule(eqn) if split_rule_of(eqn.primitive) is not None else None
        for group in rule.groups if rule is not None else ():
            target = axes_of_factors(rule.outs[0], specs.spec(eqn.outvars[0]), rule, specs.sizes)[0]
            if target.get(group[0]) == halo.axes:
                found = partitioner.context(eqn, rule, dict.fromkeys(group, halo.axes)).halos() or ()
                windows += [other.window for other in found if eqn.invars[other.operand] is var and other.dim == halo.dim
                            and other.window.advance == halo.window.advance]
    first = min(w.first for w in windows)
    return Window(first, halo.window.advance, max(w.first + w.span for w in windows) - first)
