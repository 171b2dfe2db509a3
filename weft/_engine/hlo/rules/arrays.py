"""Rules for layout, slices, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._engine.hlo.lowering import result_types, rule
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, is_static
from weft._engine.hlo.rules.reductions import combiner, compute_in_float32
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.windows import GatherDimensionNumbers, GatherScatterMode, window_of_scatter

# --- layout -----------------------------------------------------------------------------------------------------------


@rule("broadcast_in_dim")
def _broadcast(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.broadcast(x, eqn.params["shape"], eqn.params["broadcast_dimensions"])


@rule("reshape", "squeeze")
def _reshape(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.reshape(x, eqn.outvars[0].aval.shape)


@rule("transpose")
def _transpose(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.transpose(x, eqn.params["permutation"])


@rule("rev")
def _rev(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.op("reverse", x, dims=tuple(eqn.params["dimensions"]))


@rule("iota")
def _iota(b: HloBlock, eqn: Eqn) -> HloValue:
    return b.iota(eqn.params["shape"], eqn.params["dtype"], eqn.params["dimension"])


@rule("dim_as_value")
def _dim_as_value(b: HloBlock, eqn: Eqn) -> HloValue:
    return b.size(eqn.params["size"], result_types(eqn)[0].dtype)


# --- slices -----------------------------------------------------------------------------------------------------------


@rule("slice")
def _slice(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    p = eqn.params
    return b.slice(x, p["start_indices"], p["limit_indices"], p["strides"])


@rule("pad")
def _pad(b: HloBlock, eqn: Eqn, x: HloValue, value: HloValue) -> HloValue:
    low, high, interior = zip(*eqn.params["padding_config"]) if x.ndim else ((), (), ())
    if not is_static((*low, *high)):
        amounts = [b.size_vector(sizes) for sizes in (low, high, interior)]
        return b.op("dynamic_pad", x, value, *amounts, type=result_types(eqn)[0])
    return b.op("pad", x, value, type=result_types(eqn)[0], low=low, high=high, interior=interior)


@rule("concatenate")
def _concatenate(b: HloBlock, eqn: Eqn, *xs: HloValue) -> HloValue:
    return b.op("concatenate", *xs, type=result_types(eqn)[0], dim=eqn.params["dimension"])


def _starts(b: HloBlock, starts: Sequence[HloValue]) -> list[HloValue]:
    """Return start indices of one common type."""
    dtype = (
        np.result_type(*[s.dtype for s in starts], np.int32)
        if len({s.dtype for s in starts}) > 1
        else None
    )
    return [s if dtype is None else b.convert(s, dtype) for s in starts]


@rule("dynamic_slice")
def _dynamic_slice(b: HloBlock, eqn: Eqn, x: HloValue, *starts: HloValue) -> HloValue:
    return dynamic_slice(b, x, _starts(b, starts), eqn.params["slice_sizes"])


def dynamic_slice(
    b: HloBlock, x: HloValue, starts: Sequence[HloValue], sizes: Sequence[int]
) -> HloValue:
    """Slice `x` at computed positions."""
    type_ = array_type(sizes, x.dtype)
    if is_static(sizes):
        return b.op("dynamic_slice", x, *starts, type=type_, sizes=tuple(sizes))
    dtype = starts[0].dtype
    last = b.op("subtract", b.size_vector(x.shape, dtype), b.size_vector(sizes, dtype))
    parts = [b.reshape(start, (1,)) for start in starts]
    first = parts[0] if x.ndim == 1 else b.op("concatenate", *parts, type=last.type, dim=0)
    first = b.op("clamp", b.like(last, 0), first, last, type=last.type)
    end = b.op("add", first, b.size_vector(sizes, dtype))
    return b.op("real_dynamic_slice", x, first, end, b.like(last, 1), type=type_)


@rule("dynamic_update_slice")
def _dynamic_update_slice(
    b: HloBlock, eqn: Eqn, x: HloValue, update: HloValue, *starts: HloValue
) -> HloValue:
    return b.op("dynamic_update_slice", x, update, *_starts(b, starts))


# --- windows of convolutions, which the compiler introduces


def _slice_dim(
    b: HloBlock, x: HloValue, dim: int, start: int, count: int, step: int = 1
) -> HloValue:
    """Return `count` elements of a dim, `step` apart."""
    end = start + (count - 1) * step + 1 if count else start
    at = lambda whole, value: [value if d == dim else w for d, w in enumerate(whole)]
    return b.slice(x, at([0] * x.ndim, start), at(x.shape, end), at([1] * x.ndim, step))


@rule("windows")
def _windows(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Return the windows of a convolution as an array.

    For each dim, the positions that each tap reads are sliced and stacked along a new last dim.
    """
    p = eqn.params
    for d, n, taps, stride, step in zip(
        p["dims"], p["places"], p["taps"], p["strides"], p["dilation"]
    ):
        parts = [_slice_dim(b, x, d, t * step, n, stride) for t in range(taps)]
        x = _concatenate_parts(b, [b.reshape(y, (*y.shape, 1)) for y in parts], x.ndim)
    return x


@rule("shifted")
def _shift(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    p = eqn.params
    for d, t, n, step in zip(p["dims"], p["along"], p["places"], p["dilation"]):
        x = _concatenate_parts(
            b,
            [_slice_dim(b, _slice_dim(b, x, t, i, 1), d, i * step, n) for i in range(x.shape[t])],
            t,
        )
    return x


def _concatenate_parts(b: HloBlock, xs: Sequence[HloValue], dim: int) -> HloValue:
    shape = [sum(x.shape[dim] for x in xs) if d == dim else n for d, n in enumerate(xs[0].shape)]
    return (
        xs[0]
        if len(xs) == 1
        else b.op("concatenate", *xs, type=array_type(shape, xs[0].dtype), dim=dim)
    )


# --- gather and scatters ----------------------------------------------------------------------------------------------


def _indices(b: HloBlock, indices: HloValue) -> HloValue:
    """Return indices in a type that can hold any position."""
    return indices if indices.dtype.itemsize >= 4 else b.convert(indices, np.int32)


def _sorted_numbers(n: GatherDimensionNumbers) -> GatherDimensionNumbers:
    """Return the same numbers with sets of dims in ascending order, as XLA requires."""
    pairs = sorted(zip(n.operand_batching_dims, n.start_indices_batching_dims))
    return GatherDimensionNumbers(
        tuple(sorted(n.offset_dims)),
        tuple(sorted(n.collapsed_slice_dims)),
        tuple(n.start_index_map),
        tuple(d for d, _ in pairs),
        tuple(d for _, d in pairs),
    )


def _last_starts(
    b: HloBlock, x: HloValue, indices: HloValue, n: GatherDimensionNumbers, sizes: Sequence[int]
) -> HloValue:
    """Return the greatest in-bounds start of a window, for each component of an index."""
    last = [x.shape[d] - sizes[d] for d in n.start_index_map]
    return b.broadcast(b.size_vector(last, indices.dtype), indices.shape)


def _clip_indices(
    b: HloBlock, x: HloValue, indices: HloValue, n: GatherDimensionNumbers, sizes: Sequence[int]
) -> HloValue:
    return b.op(
        "clamp",
        b.like(indices, 0),
        indices,
        _last_starts(b, x, indices, n, sizes),
        type=indices.type,
    )


@rule("gather")
def _gather(b: HloBlock, eqn: Eqn, x: HloValue, indices: HloValue) -> HloValue:
    p, (out,) = eqn.params, result_types(eqn)
    if out.size == 0:  # the windows may be larger than an empty operand
        return b.full(out.shape, 0, out.dtype)
    n, sizes, indices = p["dimension_numbers"], p["slice_sizes"], _indices(b, indices)
    numbers = _sorted_numbers(n)
    order = sorted(range(len(n.offset_dims)), key=lambda i: n.offset_dims[i])
    place = {n.offset_dims[i]: numbers.offset_dims[k] for k, i in enumerate(range(len(order)))}
    shape = [out.shape[next((o for o, w in place.items() if w == d), d)] for d in range(out.ndim)]
    attrs = {"numbers": numbers, "indices_are_sorted": p["indices_are_sorted"]}
    if is_static(sizes):
        windows = b.op(
            "gather", x, indices, type=array_type(shape, out.dtype), sizes=tuple(sizes), **attrs
        )
    else:
        windows = b.op(
            "dynamic_gather",
            x,
            indices,
            b.size_vector(sizes, indices.dtype),
            type=array_type(shape, out.dtype),
            **attrs,
        )
    if tuple(n.offset_dims) != numbers.offset_dims:
        windows = b.transpose(windows, [place.get(d, d) for d in range(out.ndim)])
    if p["mode"] is not GatherScatterMode.FILL_OR_DROP or not n.start_index_map:
        return windows
    inside = b.op(
        "and",
        b.compare("GE", indices, b.like(indices, 0)),
        b.compare("LE", indices, _last_starts(b, x, indices, n, sizes)),
    )
    inside = b.reduce(
        [inside], [b.constant(np.True_)], (indices.ndim - 1,), lambda r, x, y: r.op("and", x, y)
    )[0]
    inside = b.broadcast(inside, out.shape, [d for d in range(out.ndim) if d not in n.offset_dims])
    return b.op("select", inside, windows, b.full(out.shape, p["fill_value"], out.dtype), type=out)


@rule("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(b: HloBlock, eqn: Eqn, x: HloValue, indices: HloValue, updates: HloValue) -> HloValue:
    p, combine = eqn.params, eqn.primitive.lower.combine
    if not updates.type.size:
        return x
    n, sizes = window_of_scatter(p["dimension_numbers"], x.ndim, updates.shape)
    indices = _indices(b, indices)
    if p["mode"] is GatherScatterMode.CLIP:
        indices = _clip_indices(b, x, indices, n, sizes)
    numbers = _sorted_numbers(n)
    if numbers.offset_dims != tuple(n.offset_dims):
        window, rest = (
            iter(n.offset_dims),
            iter([d for d in range(updates.ndim) if d not in n.offset_dims]),
        )
        updates = b.transpose(
            updates,
            [next(window) if d in n.offset_dims else next(rest) for d in range(updates.ndim)],
        )
    apply = (lambda r, old, new: new) if combine is None else combiner(combine)

    def write(x: HloValue, updates: HloValue) -> HloValue:
        element = array_type((), x.dtype)
        return b.emit(
            "scatter",
            (x, indices, updates),
            [x.type],
            [b.region([element, element], apply)],
            numbers=numbers,
            indices_are_sorted=p["indices_are_sorted"],
            unique_indices=p["unique_indices"],
        )[0]

    return compute_in_float32(b, combine, write, x, updates)
