"""The manual-axis annotations of types: varying, unreduced and reduced axes (`vma`, `vma_unreduced`, `vma_reduced`).

A value varies over a manual axis if the devices along the axis may hold different blocks. It is unreduced over an axis if these are terms
of a sum, and reduced if they are equal copies whose cotangents are terms of a sum.

In:   a primitive, the types of its operands, its parameters.
Out:  the annotated types of its results, and the axes over which each operand must vary before the primitive is applied.
Laws: the traced operands of an ordinary operation vary over the same axes as its results. An operand that varies over fewer axes
      is cast with `pvary`; this is the only module that decides on casts. Type rules receive types without these annotations.
      Type rules of collectives, barriers and operations with inner programs annotate their results themselves; operands of the
      latter vary over the axes of the inner program's inputs. Constants need no cast: they are equal on all devices and are
      not differentiated.
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

#: families whose type rules determine the varying axes of results
OWN_RULES = (CollectiveOp, BarrierOp, RegionOp)

NO_AXES: frozenset[Any] = frozenset()


def annotate_types(
    primitive: Any, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> tuple[tuple[ShapedArray, ...], Sequence[frozenset[Any]]]:
    """Return the types of the results, and per operand the axes over which it must vary."""
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
    """Return the results of `annotate_types` for an operation whose type rule determines the varying axes of its results."""
    in_axes = [a.vma for a in avals]
    if isinstance(primitive, RegionOp):
        in_axes = _inner_axes(primitive, avals, params)
    outs = primitive.abstract(
        [a if a.vma == axes else a.update(vma=axes) for a, axes in zip(avals, in_axes)], params
    )
    if isinstance(primitive, CollectiveOp) and not primitive.casts:
        outs = tuple([_drop_exchanged_axes(a, params) for a in outs])
    return outs, in_axes


def _drop_exchanged_axes(aval: ShapedArray, params: dict[str, Any]) -> ShapedArray:
    """Return the type of a collective's result, which is neither unreduced nor reduced over the axes of the collective."""
    if not (aval.vma_unreduced or aval.vma_reduced):
        return aval
    own = frozenset(collective_axes(params))
    return aval.update(vma_unreduced=aval.vma_unreduced - own, vma_reduced=aval.vma_reduced - own)


def check_same_axes(primitive: Any, avals: Sequence[ShapedArray]) -> None:
    """Raise ValueError unless the types of the non-constant operands vary over the same axes. Used if `config.auto_pcast` is off."""
    if (
        isinstance(primitive, OWN_RULES)
        or trace_state.allows_unspecified
        or len({a.vma for a in avals}) < 2
    ):
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
    """Return per operand the axes over which it or the corresponding input of the inner program varies."""
    rule = primitive.in_avals
    inner = params["jaxpr"].in_avals if rule is None else rule(params)
    if inner is None:
        return [a.vma for a in avals]
    return [a.vma if inside is None else a.vma | inside.vma for a, inside in zip(avals, inner)]


def cast(x: Any, axes: frozenset[Any]) -> Any:
    """Return `x` cast to a type that also varies over `axes`, or `x` itself if its type already does."""
    missing = axes - typeof(x).vma
    return trace_state.trace.cast(x, missing) if missing else x


def cast_in_trace(trace: Any, x: Any, axes: frozenset[Any]) -> Any:
    """Call `cast` with `trace` as the current trace."""
    if axes <= typeof(x).vma:
        return x
    with set_trace(trace):
        return cast(x, axes)
