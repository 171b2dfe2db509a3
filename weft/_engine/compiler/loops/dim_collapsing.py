"""Collapsing of two inner dims if the outer index is used in comparisons only, as in windows over pixels of few channels.

In:   `LoweredGroup` code without reductions, whose last dim is short compared with the dim before it.
Out:  the same code over the collapsed dim: a comparison of the outer index with a constant becomes a comparison of the joint
      index with a multiple of it. The vector loop is then split where comparisons change (`compiler.loops.loop_splitting`),
      so that its segments are long and have no guards.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import SPLIT_FROM_BYTES, SPLIT_SEGMENT
from weft._engine.compiler.loops.loop_splitting import OPEN, comparison_range
from weft._engine.compiler.lowering.lower import LoweredGroup, Output, reachable
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Expr, Index, Load
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: rows with fewer elements are collapsed with the dim before them
_COLLAPSED_ROW = 512
#: maximal number of loads in the code, which is repeated for each segment of a row
_COLLAPSED_LOADS = 32


def collapse_inner_dims(low: LoweredGroup) -> LoweredGroup:
    """Return the code with its two innermost dims collapsed, if the vector loop can then be split into long segments."""
    dims = _dims_to_collapse(low)
    if dims is None:
        return low
    comparisons = _comparisons(low, dims[0])
    return _collapse(low, *dims, comparisons) if comparisons else low


def _dims_to_collapse(low: LoweredGroup) -> tuple[int, int] | None:
    """Return the two innermost dims, if the inner one is short and the results are long."""
    dims = [d for d, x in enumerate(low.vars) if type(x) is Index]
    has_reductions = low.columns or low.reductions or any(out.combine for out in low.outputs)
    if len(dims) < 2 or low.parts or has_reductions:
        return None
    outer, inner = dims[-2:]
    n = low.shape[inner]
    if n >= _COLLAPSED_ROW or low.shape[outer] * n < 4 * SPLIT_SEGMENT:
        return None
    shortest = min(out.var.aval.nbytes for out in low.outputs)
    return None if shortest < SPLIT_FROM_BYTES else (outer, inner)


@record
class _IndexComparison:
    """A comparison of an index: if `holds`, true in [`first`, `below`) and false elsewhere; otherwise the opposite."""

    key: int  # id of the expression
    first: int
    below: int
    holds: bool

    def on_joint_index(self, b: LoopsBuilder, joint: Expr, n: int) -> Expr:
        """Return the same comparison of the joint index, where the inner dim has `n` elements."""
        if self.below == OPEN:
            inside = b.icmp("le", self.first * n, joint)
        else:
            first = None if self.first == -OPEN else b.icmp("le", self.first * n, joint)
            inside = b.logical_and(first, b.icmp("lt", joint, self.below * n))
        return inside if self.holds else b.logical_not(inside)


def _comparisons(low: LoweredGroup, outer: int) -> list[_IndexComparison]:
    """Return the comparisons in guards that depend on the outer index only; none if there are too many loads."""
    exprs = reachable([x for out in low.outputs for x in (out.index, out.value)])
    if sum(type(x) is Load for x in exprs) > _COLLAPSED_LOADS:
        return []
    comparisons = []
    for x in reachable([x.guard for x in exprs if type(x) is Load and x.guard is not None]):
        comparison = comparison_range(low.builder, x, low.vars[outer])
        if comparison is not None and not comparison[0]:
            comparisons.append(_IndexComparison(id(x), *comparison[1]))
    return comparisons


def _collapse(
    low: LoweredGroup, outer: int, inner: int, comparisons: list[_IndexComparison]
) -> LoweredGroup:
    """Return the code over the joint dim; unchanged if it uses the outer or the inner index separately."""
    b, n = LoopsBuilder(), low.shape[inner]
    total = low.shape[outer] * n
    joint = b.index(f"i{inner}", total, inner)
    mapping: dict[int, Expr] = {
        id(x): b.index(x.name, low.shape[d], d) for d, x in enumerate(low.vars) if type(x) is Index
    }
    alone = b.idiv(joint, n), b.irem(joint, n)
    mapping |= {id(low.vars[outer]): alone[0], id(low.vars[inner]): alone[1]}
    mapping |= {c.key: c.on_joint_index(b, joint, n) for c in comparisons}
    substitute = Substitution(low.builder, b, mapping)
    outputs: list[Output] = [
        replace(out, index=substitute(out.index), value=substitute(out.value))
        for out in low.outputs
    ]
    used = {id(x) for x in reachable([x for out in outputs for x in (out.index, out.value)])}
    if not used.isdisjoint(map(id, alone)):
        return low
    zero = b.const(0, "i64")
    shape = list(low.shape)
    new = [mapping.get(id(x), zero) for x in low.vars]
    shape[outer], shape[inner] = 1, total
    new[outer], new[inner] = zero, joint
    return replace(low, builder=b, shape=tuple(shape), vars=new, outputs=outputs)
