"""Bounds-check elimination: a guarded load that stays inside its array over a whole row needs no guard in that row.

In:   a `LoopNest` whose vector loop is not split because rows are short, and the index expressions of its dims (`where`).
Out:  the guarded loads, and the condition that all of them stay inside their arrays along a vector loop; constant true if
      they do so in every row.

The value of a guarded load is rarely used where its guard is false, so the guard can be dropped wherever the address is valid.
The gradient of a pool reads one element under many guards, one per border and window; without the guards it is one load, and
each window is computed once. Only the first and last rows of an array keep their guards.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import flat_index
from weft._engine.compiler.loops.access_analysis import Access
from weft._engine.compiler.loops.loop_levels import LoopNest
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.loops import Expr, Load


def guarded_loads(nest: LoopNest) -> list[tuple[Load, Access]]:
    """Return the guarded loads if some are strided or read one element under several guards; otherwise an empty list.

    A load that does not vary over the vector loop keeps its guard: it runs before the loop, even where that has no iterations."""
    guarded_loads = [
        (load, access)
        for load, access in nest.analysis.loads
        if load.guard is not None and access.affine and nest.vector_step(access) != 0
    ]
    places = {(load.buf, id(load.index)) for load, _ in guarded_loads}
    free = {
        (load.buf, id(load.index)) for load, access in nest.analysis.loads if load.guard is None
    }
    alike = len(places) < len(guarded_loads) or not free.isdisjoint(places)
    return (
        guarded_loads
        if alike or any(nest.vector_step(access) != 1 for _, access in guarded_loads)
        else []
    )


def remove_guard(nest: LoopNest, load: Load, at: Substitution) -> Expr:
    """Return the load without its guard, or a select of zero where the guard is false if the code relies on the zero."""
    x = nest.b.load(load.buf, at(load.index), load.type)
    if load.guard is None or id(load) not in nest.low.builder.zeros:
        return x
    return nest.b.select(at(load.guard), x, nest.b.const(0, load.type))


def in_bounds_condition(
    nest: LoopNest,
    accesses: list[tuple[Load, Access]],
    where: dict[int, Expr],
    start: Expr,
    stop: Expr,
) -> Expr:
    """Return the condition that the loads stay in their arrays while the vector loop runs from `start` to `stop`."""
    b, low, holds = nest.b, nest.low, None
    first, last = [
        Substitution(low.builder, b, nest.map_dims({**where, id(nest.vector): at}))
        for at in (start, b.isub(stop, 1))
    ]
    # The keys are unordered because ids differ from run to run; terms keep the order of the code.
    reach: dict[tuple, tuple[dict[int, int], int, int]] = {}
    for load, access in accesses:
        least, greatest = low.builder.range(load.index)
        if least >= 0 and greatest < nest.lengths[load.buf]:
            continue
        terms, const = access.form
        key = (load.buf, frozenset(terms.items()))
        first_terms, low_end, high_end = reach.get(key, (terms, const, const))
        reach[key] = first_terms, min(low_end, const), max(high_end, const)
    for (buf, _), (terms, *ends) in reach.items():
        size = nest.lengths[buf]
        for end in (first, last):
            at = flat_index(b, [end(low.builder.base(key)) for key in terms], terms.values())
            holds = b.logical_and(
                holds, b.icmp("le", 0, b.iadd(at, ends[0])), b.icmp("lt", b.iadd(at, ends[1]), size)
            )
    return holds if holds is not None else b.const(True, "bool")
