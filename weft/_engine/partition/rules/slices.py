"""Split rules of slices, prefix scans, argmax and top_k, and helpers for other split rules.

In:   ops whose special factors are split (`partition.rules.split_rule` describes a rule).
Out:  their `SplitRule`s.
Laws: devices without elements of a requested block contribute negative zeros, which do not change sums.
Next: `partition.rules.indexing` (gather, scatter) and `partition.rules.windows` (pad, concatenate, convolution).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.core.primitive import Primitive
from weft._engine.core.trace import typeof
from weft._engine.ops import (
    arithmetic,
    bitwise,
    casting,
    comparison,
    layout,
    prefix_scans,
    reduce,
    slicing,
    sorting,
)
from weft._engine.ops.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from weft._engine.ops.lowering_specs import ScanSpec
from weft._engine.partition.rules.halo import Halo, Window, fetch_rows, pad_along, slice_along
from weft._engine.partition.rules.split_rule import split_rule
from weft._engine.util import dtypes

# --- helpers ----------------------------------------------------------------------------------------------------------


def _clamp(value: Any, low: int, high: int) -> Any:
    return comparison.clamp(np.int32(low), value, np.int32(high))


def positions(values: Any) -> Any:
    """Return positions along a dim as int32; larger values are clamped, so that they stay outside of the dim."""
    if isinstance(values, int):
        return np.int32(values)
    dtype, most = typeof(values).dtype, np.iinfo(np.int32).max
    least, greatest = dtypes.iinfo(dtype).min, dtypes.iinfo(dtype).max
    if greatest > most:
        values = comparison.clamp(
            np.array(-1 if least < 0 else 0, dtype), values, np.array(most, dtype)
        )
    return casting.convert_element_type(values, np.int32)


def window(ctx: Any, x: Any, start: Any, size: int, dim: int, axes: tuple[Any, ...]) -> Any:
    """Return this device's contribution to elements `start ... start + size` along split `dim`: the additive identity elsewhere."""
    local = typeof(x).shape[dim]
    at = _clamp(arithmetic.sub(positions(start), ctx.start(axes, local)), -size, local)
    starts = [np.int32(0)] * typeof(x).ndim
    starts[dim] = arithmetic.add(at, np.int32(size))
    sizes = list(typeof(x).shape)
    sizes[dim] = size
    return dynamic_slice_p.bind(pad_along(x, size, size, dim), *starts, slice_sizes=tuple(sizes))


def _of_operand(f: int, rule: Any, eqn: Any) -> bool:
    """Return whether `f` is a dim of the first operand only."""
    return any(f in dim for dim in rule.ins[0]) and not any(
        f in dim for out in rule.outs for dim in out
    )


# --- reading blocks: slice, dynamic_slice --------------------------------------------------------------------------


def _slice_halos(
    ctx: Any,
    start_indices: tuple[int, ...],
    limit_indices: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> list[Halo]:
    halos: list[Halo] = []
    for d, start in enumerate(start_indices):
        axes, step = ctx.of_result(0, d), strides[d] if strides else 1
        if axes:
            own = ctx.block(ctx.result_extent(0, d), axes)
            halos.append(ctx.halo(0, d, axes, Window(start, own * step, (own - 1) * step + 1)))
    return halos


def _slice_sums(f: int, rule: Any, axes: dict[Any, Any]) -> bool:
    """Return whether a slice is a sum of contributions: it is whole on all devices instead of split."""
    return not any(f in group and group[0] in axes for group in rule.groups)


@split_rule(
    slicing.slice_p,
    lambda f, rule, eqn: f in rule.special,
    makes_partial_sums=_slice_sums,
    halos=_slice_halos,
    splits_alone=_of_operand,
    selects=True,
)
def _slice_split(
    ctx: Any,
    args: list[Any],
    *,
    start_indices: tuple[int, ...],
    limit_indices: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> Any:
    (x,) = args
    starts, limits, steps = (
        list(start_indices),
        list(limit_indices),
        list(strides or (1,) * len(start_indices)),
    )
    for halo in ctx.halos():
        x, d = fetch_rows(ctx, x, halo, bool(ctx.of_dim(0, halo.dim))), halo.dim
        starts[d], limits[d] = 0, typeof(x).shape[d]
    for d in range(len(starts)):
        axes = ctx.of_dim(0, d)
        if axes and not ctx.of_result(0, d):
            x = window(ctx, x, starts[d], limits[d] - starts[d], d, axes)
            starts[d], limits[d] = 0, limits[d] - starts[d]
    return slicing.slice(x, starts, limits, steps)


@split_rule(
    dynamic_slice_p,
    _of_operand,
    makes_partial_sums=lambda f, rule, axes: True,
    selects=True,
)
def _dynamic_slice_split(ctx: Any, args: list[Any], *, slice_sizes: tuple[int, ...]) -> Any:
    x, *starts = args
    starts = list(starts)
    for d in range(len(starts)):
        axes = ctx.of_dim(0, d)
        if axes:
            size = slice_sizes[d]
            x = window(
                ctx, x, _clamp(positions(starts[d]), 0, ctx.extent(0, d) - size), size, d, axes
            )
            starts[d] = np.zeros((), typeof(starts[d]).dtype)[()]
    return dynamic_slice_p.bind(x, *starts, slice_sizes=slice_sizes)


# --- writing a block: dynamic_update_slice ----------------------------------------------------------------------------


def _updated_dim(f: int, rule: Any, eqn: Any) -> bool:
    return any(f in dim for dim in rule.ins[0]) and any(f in dim for dim in rule.outs[0])


@split_rule(dynamic_update_slice_p, _updated_dim)
def _dynamic_update_slice_split(ctx: Any, args: list[Any]) -> Any:
    """Each device writes the part of the update that is in its block, without communication."""
    x, update, *starts = args
    starts, shape, sizes = list(starts), typeof(x).shape, typeof(update).shape
    padded = x
    for d, (local, size) in enumerate(zip(shape, sizes)):
        axes = ctx.of_dim(0, d)
        if axes:
            start = _clamp(positions(starts[d]), 0, ctx.extent(0, d) - size)
            at = _clamp(arithmetic.sub(positions(start), ctx.start(axes, local)), -size, local)
            padded = pad_along(padded, size, size, d)
            starts[d] = arithmetic.add(at, np.int32(size))
        else:
            starts[d] = positions(starts[d])
    padded = dynamic_update_slice_p.bind(padded, update, *starts)
    for d, (local, size) in enumerate(zip(shape, sizes)):
        if ctx.of_dim(0, d):
            padded = slice_along(padded, size, local, d)
    return padded


# --- prefix scans -----------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[..., Any]] = {
    "add": arithmetic.add,
    "mul": arithmetic.mul,
    "max": arithmetic.max,
    "min": arithmetic.min,
}
_REDUCE: dict[str, Callable[..., Any]] = {
    "add": reduce.reduce_sum,
    "mul": reduce.reduce_prod,
    "max": reduce.reduce_max,
    "min": reduce.reduce_min,
}


def _cumulative(primitive: Primitive) -> None:
    """Define the split rule of a prefix scan: scan locally, then combine with the totals of the preceding blocks."""
    spec = primitive.lower

    @split_rule(primitive, lambda f, rule, eqn: f in rule.special)
    def split(ctx: Any, args: list[Any], *, axis: int, reverse: bool) -> Any:
        axes = ctx.of_dim(0, axis)
        (x,) = args
        x = ctx.fill_padding(x, axis, axes, ctx.extent(0, axis), spec.identity(typeof(x).dtype))
        local = primitive.bind(x, axis=axis, reverse=reverse)
        aval = typeof(local)
        total = slice_along(local, 0 if reverse else aval.shape[axis] - 1, 1, axis)
        totals = ctx.all_gather(total, axes, axis)
        shape = typeof(totals).shape
        place = layout.broadcasted_iota(np.int32, shape, axis)
        mine = ctx.start(axes, 1)
        before = comparison.gt(place, mine) if reverse else comparison.lt(place, mine)
        neutral = layout.full(shape, spec.identity(aval.dtype), aval.dtype)
        counted = comparison.select_n(before, neutral, totals)
        prefix = _REDUCE[spec.combine](counted, (axis,))
        spread = layout.broadcast_in_dim(
            prefix, aval.shape, tuple(d for d in range(aval.ndim) if d != axis)
        )
        return _COMBINE[spec.combine](spread, local)


@split_rule(
    prefix_scans.associative_scan_p,
    lambda f, rule, eqn: f in rule.special,
    tolerates_padding=lambda f, rule: False,
)
def _associative_scan_split(
    ctx: Any, args: list[Any], *, combine: prefix_scans.Combination, axis: int, reverse: bool
) -> Any:
    """Scan locally, then combine with the prefix of the preceding blocks, if any."""
    axes = ctx.of_dim(0, axis)
    local = prefix_scans.associative_scan(combine, args, axis, reverse)
    shape = typeof(local[0]).shape
    ends = [slice_along(x, 0 if reverse else shape[axis] - 1, 1, axis) for x in local]
    totals = prefix_scans.associative_scan(
        combine, [ctx.all_gather(x, axes, axis) for x in ends], axis, reverse
    )
    count = typeof(totals[0]).shape[axis]
    at = arithmetic.add(positions(ctx.start(axes, 1)), np.int32(1 if reverse else -1))
    starts = [np.int32(0)] * len(shape)
    starts[axis] = _clamp(at, 0, count - 1)
    sizes = (*shape[:axis], 1, *shape[axis + 1 :])
    before = [dynamic_slice_p.bind(x, *starts, slice_sizes=sizes) for x in totals]
    spread = [layout.broadcast_in_dim(x, shape, tuple(range(len(shape)))) for x in before]
    follows = layout.broadcast_in_dim(comparison.eq(at, starts[axis]), shape, ())
    return [
        comparison.select_n(follows, own, joined)
        for own, joined in zip(local, combine(spread, local))
    ]


for _p in (reduce.cumsum_p, reduce.cumprod_p, reduce.cummax_p, reduce.cummin_p):
    if isinstance(_p.lower, ScanSpec):
        _cumulative(_p)


# --- argmax, argmin ---------------------------------------------------------------------------------------------------


def _arg_reduction(primitive: Primitive, extremum: Callable[..., Any], largest: bool) -> None:
    """Define the split rule of the position of an extremum: each device contributes its own; the first of the best is the result."""

    @split_rule(primitive, lambda f, rule, eqn: f in rule.reduced)
    def split(ctx: Any, args: list[Any], *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        (x,) = args
        (axis,) = axes
        over = ctx.of_dim(0, axis)
        local = typeof(x).shape[axis]
        worst = (reduce.lowest if largest else reduce.highest)(typeof(x).dtype)
        x = ctx.fill_padding(x, axis, over, ctx.extent(0, axis), worst)
        local_index = primitive.bind(x, axes=axes, index_dtype=index_dtype)
        value = extremum(x, axes)
        best = ctx.pmax(value, over) if largest else ctx.pmin(value, over)
        wins = comparison.eq(value, best)
        if dtypes.issubdtype(typeof(x).dtype, np.inexact):
            # a NaN is an extremum, and unequal to itself
            wins = bitwise.bitwise_or(wins, comparison.ne(value, value))
        start = casting.convert_element_type(ctx.start(over, local), index_dtype)
        position = arithmetic.add(
            local_index, layout.broadcast_in_dim(start, typeof(local_index).shape, ())
        )
        never = layout.full(typeof(local_index).shape, np.iinfo(index_dtype).max, index_dtype)
        return ctx.pmin(comparison.select_n(wins, never, position), over)


_arg_reduction(reduce.argmax_p, reduce.reduce_max, True)
_arg_reduction(reduce.argmin_p, reduce.reduce_min, False)


# --- top_k ------------------------------------------------------------------------------------------------------------


def _chosen_from(f: int, rule: Any, eqn: Any) -> bool:
    return f in rule.ins[0][eqn.params["axis"]]


@split_rule(sorting.top_k_p, _chosen_from)
def _top_k_split(ctx: Any, args: list[Any], *, axis: int, k: int) -> list[Any]:
    """Each device contributes its top k; the top k of all contributions are the result, equal values in order of position."""
    (x,) = args
    over, local = ctx.of_dim(0, axis), typeof(x).shape[axis]
    x = ctx.fill_padding(x, axis, over, ctx.extent(0, axis), reduce.lowest(typeof(x).dtype))
    values, indices = sorting.top_k_p.bind(x, axis=axis, k=k if k < local else local)
    shape = typeof(indices).shape
    indices = arithmetic.add(indices, layout.broadcast_in_dim(ctx.start(over, local), shape, ()))
    offers, places = ctx.all_gather(values, over, axis), ctx.all_gather(indices, over, axis)
    best, rank = sorting.top_k_p.bind(offers, axis=axis, k=k)
    return [best, sorting.take_along(places, rank, axis)]
