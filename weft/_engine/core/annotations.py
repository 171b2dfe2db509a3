"""What types say beyond shape and dtype: over which manual axes a value varies, which of these tell terms of a sum apart, and along which
it is reduced: equal copies, whose cotangents are terms.

In:   a primitive, the types of its operands, its parameters.
Out:  the types of its results, annotated, and the axes over which each operand must vary before it is applied.
Laws: the traced operands of an ordinary operation vary over the same axes, and so do its results; a value that varies over
      fewer is cast with `pvary`, here and nowhere else. Type rules see types without these annotations. Collectives,
      barriers and operations that hold programs have types of their own; the operands of the latter vary as the inputs of
      their programs do. Constants need no cast: they are the same everywhere, and nothing is differentiated by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.core.partial_types import manual_terms
from weft._engine.core.primitive import BarrierOp, CollectiveOp, RegionOp
from weft._engine.core.trace import set_trace, trace_state, typeof
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import describe
from weft._engine.util.source import user_frame

#: kinds whose own type rules state how results vary
OWN_RULES = (CollectiveOp, BarrierOp, RegionOp)

NO_AXES: frozenset[Any] = frozenset()


def annotated_types(
    primitive: Any, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> tuple[tuple[ShapedArray, ...], Sequence[frozenset[Any]]]:
    """Types of the results, and per operand the axes over which it must vary."""
    if isinstance(primitive, OWN_RULES):
        return _own_types(primitive, avals, params)
    axes = NO_AXES.union(*(a.vma for a in avals))
    outs = primitive.abstract([a.update(vma=NO_AXES) if a.vma else a for a in avals], params)
    unreduced, reduced = NO_AXES, NO_AXES
    if any(a.vma_unreduced or a.vma_reduced for a in avals):
        unreduced, reduced = manual_terms(primitive, avals, outs, params)
    return tuple(
        [a.update(vma=axes, vma_unreduced=unreduced, vma_reduced=reduced) for a in outs]
    ), [axes] * len(avals)


def _own_types(
    primitive: Any, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> tuple[tuple[ShapedArray, ...], Sequence[frozenset[Any]]]:
    """Return the same for an operation whose type rule states how results vary."""
    wanted = [a.vma for a in avals]
    if isinstance(primitive, RegionOp):
        wanted = _inner_axes(primitive, avals, params)
    outs = primitive.abstract(
        [a if a.vma == axes else a.update(vma=axes) for a, axes in zip(avals, wanted)], params
    )
    if isinstance(primitive, CollectiveOp) and not primitive.casts:
        outs = tuple([_after_exchange(a, params) for a in outs])
    return outs, wanted


def _after_exchange(aval: ShapedArray, params: dict[str, Any]) -> ShapedArray:
    """Return the type of a collective's result: over its axes, devices have exchanged their terms and copies."""
    if not (aval.vma_unreduced or aval.vma_reduced):
        return aval
    own = frozenset(collective_axes(params))
    return aval.update(vma_unreduced=aval.vma_unreduced - own, vma_reduced=aval.vma_reduced - own)


def check_same_axes(primitive: Any, avals: Sequence[ShapedArray]) -> None:
    """ValueError unless operands of these types, constants apart, vary over the same axes: what `config.auto_pcast` off asks for."""
    if isinstance(primitive, OWN_RULES) or trace_state.lenient or len({a.vma for a in avals}) < 2:
        return
    raise ValueError(
        describe(
            primitive.name,
            "the operands vary over different manual axes, and config.auto_pcast is off.",
            [(f"operand {i}", a.str_short(kinds=True)) for i, a in enumerate(avals)],
            user_frame(),
            "Without automatic casts, an operation requires varying manual axes to match.",
            "Cast one with lax.pcast(x, axes, to='varying').",
        )
    )


def _inner_axes(
    primitive: Any, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> list[frozenset[Any]]:
    """Per operand, the axes over which it and the input that takes it inside vary."""
    rule = primitive.in_avals
    inner = params["jaxpr"].in_avals if rule is None else rule(params)
    if inner is None:
        return [a.vma for a in avals]
    return [a.vma if inside is None else a.vma | inside.vma for a, inside in zip(avals, inner)]


def cast(x: Any, axes: frozenset[Any]) -> Any:
    """`x`, typed as varying over `axes` too; `x` itself if it does."""
    missing = axes - typeof(x).vma
    return trace_state.trace.cast(x, missing) if missing else x


def cast_under(trace: Any, x: Any, axes: frozenset[Any]) -> Any:
    """`cast` as an operation of `trace`."""
    if axes <= typeof(x).vma:
        return x
    with set_trace(trace):
        return cast(x, axes)
