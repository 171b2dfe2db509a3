"""Collapses two inner dims where the outer index is only compared: windows over pixels of few channels become shifts of long rows.

In:   `Lowered` code without reductions, whose last dim is short compared with its neighbour in memory.
Out:  the same code over the collapsed dim: comparisons of the outer index compare the joint one with a multiple. The vector loop
      is then split where comparisons change (`compiler.loops.loop_splitting`), so that its segments have neither guards nor
      short loops.
"""

from __future__ import annotations

from weft._engine.compiler.loops.loop_splitting import OPEN, holds_of
from weft._engine.compiler.lowering.lower import Lowered, Output, reachable
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.build import Builder
from weft._engine.ir.loops import Expr, Index, Load
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import replace


def collapsed(low: Lowered) -> Lowered:
    """The code with its two innermost dims collapsed, if the vector loop can then be split into long segments; else as it is."""
    dims = [d for d, x in enumerate(low.vars) if type(x) is Index]
    if (
        len(dims) < 2
        or low.columns
        or low.reductions
        or low.parts
        or any(out.combine for out in low.outputs)
    ):
        return low
    outer, inner = dims[-2:]
    n = low.shape[inner]
    if (
        n >= MODEL.collapsed_row
        or low.shape[outer] * n < 4 * MODEL.split_segment
        or min(out.var.aval.nbytes for out in low.outputs) < MODEL.split_from_bytes
    ):
        return low
    roots = [x for out in low.outputs for x in (out.index, out.value)]
    made_of = reachable(roots)
    guards = reachable([x.guard for x in made_of if type(x) is Load and x.guard is not None])
    compared = {
        id(x): found
        for x in guards
        if (found := holds_of(low.builder, x, low.vars[outer])) is not None and not found[0]
    }
    if not compared or sum(type(x) is Load for x in made_of) > MODEL.collapsed_loads:
        return low
    b = Builder()
    joint = b.index(f"i{inner}", low.shape[outer] * n, inner)
    mapping: dict[int, Expr] = {
        id(x): b.index(x.name, low.shape[d], d) for d, x in enumerate(low.vars) if type(x) is Index
    }
    mapping |= {id(low.vars[outer]): b.idiv(joint, n), id(low.vars[inner]): b.irem(joint, n)}
    for key, (_, (first, below, so)) in compared.items():
        from_first = None if first == -OPEN else b.icmp("le", first * n, joint)
        within = b.logical_and(
            from_first, None if below == OPEN else b.icmp("lt", joint, below * n)
        )
        mapping[key] = within if so else b.logical_not(within)
    substitute = Substitution(low.builder, b, mapping)
    outputs: list[Output] = [
        replace(out, index=substitute(out.index), value=substitute(out.value))
        for out in low.outputs
    ]
    apart = {id(mapping[id(low.vars[d])]) for d in (outer, inner)}
    if any(
        id(x) in apart for x in reachable([x for out in outputs for x in (out.index, out.value)])
    ):
        return low
    shape = tuple(
        [
            1 if d == outer else low.shape[outer] * n if d == inner else size
            for d, size in enumerate(low.shape)
        ]
    )
    zero = b.const(0, "i64")
    new = [
        zero if d == outer else joint if d == inner else mapping.get(id(x), zero)
        for d, x in enumerate(low.vars)
    ]
    return replace(low, builder=b, shape=shape, vars=new, outputs=outputs)
