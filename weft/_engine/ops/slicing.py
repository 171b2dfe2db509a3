"""Slicing: slice, pad, concatenate, dynamic_slice, dynamic_update_slice, and the functions made of them.

Closed under transposition: slice <-> pad, concatenate -> slice, dynamic_slice <-> dynamic_update_slice.
Laws: static bounds are checked when the type is found; start indices known only at run time are clamped so that the
whole window is inside the operand.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from weft._engine.core.primitive import IndexOp, SliceOp
from weft._engine.core.scalars import exact
from weft._engine.core.trace import is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import Dim, as_int, max_dim
from weft._engine.ops.casting import size_as
from weft._engine.ops.elementwise import add, convert_element_type, lt, select_n, sub
from weft._engine.ops.families import joined_vma, shape_error, zeros
from weft._engine.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    gather_p,
    scatter_p,
)
from weft._engine.ops.layout import broadcast_in_dim, reshape, squeeze
from weft._engine.ops.placement import READ_AT
from weft._engine.ops.reduce import reduce_sum
from weft._engine.ops.rules import at_front, aval_of, insert, jointly_linear, shaped_like
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.promotion import common_dtype
from weft._engine.util.source import user_frame

_span = builtins.slice  # this module's `slice` is the op

slice_p = SliceOp("slice", out_sharding=READ_AT, takes_slice=True)
pad_p = SliceOp("pad", moves="pad")
concatenate_p = SliceOp("concatenate", moves="concatenate")
dynamic_slice_p = IndexOp("dynamic_slice", out_sharding=READ_AT, takes_slice=True)
dynamic_update_slice_p = IndexOp("dynamic_update_slice", overwrites=True)


@slice_p.def_localize
def _slice_localize(params: dict, ins, outs) -> dict:
    strides = params["strides"] or (1,) * ins[0].ndim
    limits = tuple(
        lo + out if step == 1 else hi
        for lo, hi, out, step in zip(
            params["start_indices"], params["limit_indices"], outs[0].shape, strides
        )
    )
    return dict(params, limit_indices=limits)


@dynamic_slice_p.def_localize
def _dynamic_slice_localize(params: dict, ins, outs) -> dict:
    return dict(params, slice_sizes=outs[0].shape)


# --- the functions


def slice(
    operand,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
):
    """The elements from `start_indices` up to, not including, `limit_indices`, in steps of `strides`.

    >>> np.asarray(slice(np.arange(6), (1,), (6,), (2,))).tolist()
    [1, 3, 5]
    """
    start, limit = _ints(start_indices), _ints(limit_indices)
    steps = None if strides is None else _ints(strides)
    if steps is not None and all(s == 1 for s in steps):
        steps = None
    shape = typeof(operand).shape
    if steps is None and limit == shape and not any(start) and hasattr(type(operand), "aval"):
        return operand
    return slice_p.bind(operand, start_indices=start, limit_indices=limit, strides=steps)


def slice_in_dim(
    operand, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
):
    """`operand[..., start:limit:stride, ...]` along dim `axis`, negative indices counting from the end."""
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "slice_in_dim")
    size = shape[axis]
    start = 0 if start_index is None else as_int(start_index)
    limit = size if limit_index is None else as_int(limit_index)
    start = start + size if start < 0 else start
    limit = limit + size if limit < 0 else limit
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, as_int(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """The part of `operand` at `index` of dim `axis`; the dim stays, with size 1, if `keepdims`."""
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "index_in_dim")
    wrapped = as_int(index) + shape[axis] if index < 0 else as_int(index)
    if not 0 <= wrapped < shape[axis]:
        raise IndexError(
            f"index_in_dim: index {index} is out of bounds for dim {axis} of size {shape[axis]}."
        )
    part = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return part if keepdims else squeeze(part, (axis,))


def pad(operand, padding_value, padding_config: Sequence[tuple[int, int, int]]):
    """`operand` surrounded by `padding_value`: per dim (low, high, interior); negative low and high cut off.

    >>> np.asarray(pad(np.array([1, 2, 3]), 0, [(1, 0, 1)])).tolist()
    [0, 1, 0, 2, 0, 3]
    """
    config = tuple((as_int(lo), as_int(hi), as_int(inner)) for lo, hi, inner in padding_config)
    aval = typeof(operand)
    table = [
        ("operand", aval.str_short()),
        ("padding_value", typeof(padding_value).str_short()),
        ("padding_config", config),
    ]
    if typeof(padding_value).ndim:
        raise shape_error("pad", "padding_value must be a scalar.", table)
    if len(config) != aval.ndim:
        raise shape_error(
            "pad",
            f"padding_config must have one entry for each of the {aval.ndim} dims of the operand.",
            table,
        )
    if any(inner < 0 for _, _, inner in config):
        raise shape_error("pad", "interior padding in padding_config must be nonnegative.", table)
    if any(lo + hi + _dilated(n, inner) < 0 for n, (lo, hi, inner) in zip(aval.shape, config)):
        raise shape_error(
            "pad",
            "Dimension size after padding is not at least 0: padding_config cuts off more than there is.",
            table,
        )
    if not any(map(any, config)) and hasattr(type(operand), "aval"):
        return operand
    return pad_p.bind(operand, _scalar_like(padding_value, aval), padding_config=config)


def concatenate(operands: Sequence, dimension: int):
    """`operands` joined along dim `dimension`.

    >>> np.asarray(concatenate([np.array([1, 2]), np.array([3])], 0)).tolist()
    [1, 2, 3]
    """
    operands = tuple(operands)
    if not operands:
        raise ValueError(
            "concatenate: needs at least one operand. To make an empty array, use full with a zero shape."
        )
    if len(operands) == 1 and hasattr(type(operands[0]), "aval"):
        return operands[0]
    return concatenate_p.bind(
        *operands, dimension=canonical_dim(dimension, typeof(operands[0]).ndim, "concatenate")
    )


def split(operand, sizes: Sequence[int], axis: int = 0) -> list:
    """The consecutive parts of `operand` of lengths `sizes` along dim `axis`.

    >>> [np.asarray(p).tolist() for p in split(np.arange(5), (2, 3))]
    [[0, 1], [2, 3, 4]]
    """
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "split")
    sizes = _ints(sizes)
    if any(s < 0 for s in sizes) or sum(sizes) != shape[axis]:
        raise ShapeError(
            f"split: sizes {sizes} must be non-negative and add up to the size {shape[axis]} of dim {axis}.\n"
            f"    operand {typeof(operand).str_short()}"
        )
    bounds = itertools.accumulate(sizes, initial=0)
    return [slice_in_dim(operand, lo, hi, 1, axis) for lo, hi in itertools.pairwise(bounds)]


def dynamic_slice(
    operand,
    start_indices,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
):
    """The window of `slice_sizes` whose first element is at `start_indices`, clamped to be inside `operand`.

    `start_indices` is a sequence of scalars or a one-dimensional array; negative ones count from the end. Where
    `allow_negative_indices` (for all dims or one for each) is False, they are clamped to 0 instead.

    >>> np.asarray(dynamic_slice(np.arange(5), (4,), (2,))).tolist()
    [3, 4]
    """
    aval = typeof(operand)
    starts = _start_scalars(start_indices, aval.shape, "dynamic_slice", allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=_ints(slice_sizes))


def dynamic_update_slice(
    operand, update, start_indices, *, allow_negative_indices: bool | Sequence[bool] = True
):
    """`operand` with the window at `start_indices` (clamped to be inside) replaced by `update`; negative indices are those of
    `dynamic_slice`.

    >>> np.asarray(dynamic_update_slice(np.zeros(4), np.ones(2), (1,))).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    aval = typeof(operand)
    starts = _start_scalars(
        start_indices, aval.shape, "dynamic_update_slice", allow_negative_indices
    )
    return dynamic_update_slice_p.bind(operand, update, *starts)


def dynamic_slice_in_dim(
    operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
):
    """`slice_size` consecutive parts of `operand` along dim `axis`, from `start_index` on (clamped)."""
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "dynamic_slice_in_dim")
    starts, sizes = _starts_along(axis, start_index, len(shape)), list(shape)
    sizes[axis] = as_int(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def _starts_along(axis: int, start, ndim: int) -> list:
    """Start indices that are 0 in all dims but `axis`."""
    starts: list = [0] * ndim
    starts[axis] = start
    return starts


def dynamic_index_in_dim(
    operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
):
    """The part of `operand` at `index` (clamped) of dim `axis`."""
    axis = canonical_dim(axis, typeof(operand).ndim, "dynamic_index_in_dim")
    part = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return part if keepdims else squeeze(part, (axis,))


def dynamic_update_slice_in_dim(
    operand, update, start_index, axis: int, *, allow_negative_indices: bool = True
):
    """`operand` with `update` written along dim `axis` from `start_index` on (clamped)."""
    ndim = typeof(operand).ndim
    axis = canonical_dim(axis, ndim, "dynamic_update_slice_in_dim")
    starts = _starts_along(axis, start_index, ndim)
    return dynamic_update_slice(
        operand, update, starts, allow_negative_indices=allow_negative_indices
    )


def dynamic_update_index_in_dim(
    operand, update, index, axis: int, *, allow_negative_indices: bool = True
):
    """`operand` with its part at `index` (clamped) of dim `axis` replaced by `update`, which may lack that dim."""
    ndim = typeof(operand).ndim
    axis = canonical_dim(axis, ndim, "dynamic_update_index_in_dim")
    shape = typeof(update).shape
    if len(shape) != ndim:
        update = reshape(update, insert(shape, axis, 1))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )


def canonical_dim(dim: int, ndim: int, api: str) -> int:
    """`dim` counted from the front; AxisError, a ValueError and an IndexError, if there is no such dim."""
    if not -ndim <= dim < ndim:
        raise np.exceptions.AxisError(
            f"{api}: dim {dim} is out of range for an array with {ndim} dims."
        )
    return int(dim) % ndim


def _dilated(n: int, interior: int) -> int:
    """The size of a dim of size `n` with `interior` elements between neighbors."""
    return n + max_dim(n - 1, 0) * interior if interior else n


def _ints(values) -> tuple[int, ...]:
    return tuple([v if type(v) is int else as_int(v) for v in values])


def _scalar_like(value, aval):
    """A rank-0 `value` in the dtype of `aval`; arrays and tracers must have it already."""
    if isinstance(value, (bool, int, float, complex)):
        return exact(value, aval.dtype)
    found = typeof(value)
    return (
        convert_element_type(value, aval.dtype)
        if found.weak_type and found.dtype != aval.dtype
        else value
    )


def _start_scalars(indices, shape, api: str, wraps: bool | Sequence[bool]) -> list:
    """Start indices as one scalar per dim, with negative ones counted from the end of the dim where `wraps`."""
    if hasattr(indices, "shape") and not isinstance(indices, (tuple, list)):
        ndim = typeof(indices).ndim
        if ndim != 1:
            raise TypeError(
                f"{api}: start_indices must be a sequence of scalars or an array with one dim, "
                f"got {typeof(indices).str_short()}."
            )
        indices = [
            squeeze(slice_in_dim(indices, i, i + 1), (0,)) for i in range(typeof(indices).shape[0])
        ]
    if len(indices) != len(shape):
        raise ShapeError(
            f"{api}: needs one start index per dim.\n"
            f"    operand has {len(shape)} dims, start_indices has length {len(indices)}"
        )
    found = sorted(
        {i.dtype.name for i in indices if hasattr(i, "dtype") and not isinstance(i, type)}
    )
    if len(found) > 1:
        raise TypeError(
            f"index arguments to {api} must be integers of the same type, got {', '.join(found)}."
        )
    wraps = [wraps] * len(shape) if isinstance(wraps, bool) else list(wraps)
    if len(wraps) != len(shape):
        raise ShapeError(
            f"{api}: allow_negative_indices must be one bool or one for each of {len(shape)} dims, got {len(wraps)}."
        )
    return [_start(i, size, wrap) for i, size, wrap in zip(indices, shape, wraps)]


def _start(index, size: int, wraps: bool):
    if isinstance(index, (int, np.integer)):
        value = int(index)
        value = value + size if value < 0 and wraps else value
        if isinstance(value, Dim):
            return size_as(value, np.int32)
        limits = np.iinfo(np.int32)
        return np.int32(min(max(value, limits.min), limits.max))
    aval = typeof(index)
    if not dtypes.issubdtype(aval.dtype, np.integer):
        raise TypeError(f"start index must be an integer, got {aval.str_short()}.")
    if not wraps or dtypes.issubdtype(aval.dtype, np.unsignedinteger):
        return index
    zero, width = np.zeros((), aval.dtype)[()], size_as(size, aval.dtype)
    return select_n(lt(index, zero), index, add(index, width))


# --- slice


def _steps(strides, ndim: int) -> tuple[int, ...]:
    return (1,) * ndim if strides is None else strides


@slice_p.def_type
def _slice_type(operand, *, start_indices, limit_indices, strides):
    ndim = operand.ndim
    steps = _steps(strides, ndim)
    if not len(start_indices) == len(limit_indices) == len(steps) == ndim:
        raise ShapeError(
            "slice: needs one start, one limit and one stride per dim.\n"
            f"    operand {operand.str_short()}   starts {start_indices}   limits {limit_indices}   strides {strides}"
        )
    for d, (lo, hi, step, size) in enumerate(
        zip(start_indices, limit_indices, steps, operand.shape)
    ):
        if not 0 <= lo <= hi <= size or step < 1:
            raise ShapeError(
                f"slice: bounds of dim {d} do not fit.\n"
                f"    operand {operand.str_short()}   start {lo}, limit {hi}, stride {step}\n"
                "  Must have 0 <= start <= limit <= size and stride >= 1."
            )
    return shaped_like(
        operand, [-(-(hi - lo) // s) for lo, hi, s in zip(start_indices, limit_indices, steps)]
    )


@slice_p.def_reference
def _slice_reference(x, *, start_indices, limit_indices, strides):
    return x[
        tuple(
            _span(lo, hi, s)
            for lo, hi, s in zip(start_indices, limit_indices, _steps(strides, x.ndim))
        )
    ].copy()


jointly_linear(slice_p)


@slice_p.def_transpose
def _slice_transpose(ct, operand, *, start_indices, limit_indices, strides):
    shape = operand.aval.shape
    config = []
    for lo, step, size, count in zip(
        start_indices, _steps(strides, len(shape)), shape, typeof(ct).shape
    ):
        covered = lo + max_dim((count - 1) * step + 1, 0)
        config.append((lo, size - covered, step - 1))
    return [pad(ct, _zero(ct), config)]


@slice_p.def_batch
def _slice_batch(axis, args, dims, *, start_indices, limit_indices, strides):
    (x,), (dim,) = args, dims
    out = slice_p.bind(
        x,
        start_indices=insert(start_indices, dim, 0),
        limit_indices=insert(limit_indices, dim, axis.size),
        strides=None if strides is None else insert(strides, dim, 1),
    )
    return out, dim


@slice_p.def_factors
def _slice_factors(in_avals, out_avals, **params):
    b = RuleBuilder()
    ins, outs, special = [], [], {}
    for size, count in zip(in_avals[0].shape, out_avals[0].shape):
        _shared_or_special(b, size, count, size == count, ins, outs, special)
    return b.rule(
        [ins], [outs], special=special, linear_ins=(0,), additive=True, groups=_apart(ins, outs)
    )


def _apart(ins, outs) -> tuple[tuple[int, int], ...]:
    """The pairs of factors of dims whose factors differ: the result's leads."""
    return tuple((g, f) for f, g in zip(ins, outs) if f != g)


def _shared_or_special(
    b: RuleBuilder, in_size, out_size, whole, ins, outs, special, mark="halo"
) -> None:
    """Add one dim: a factor shared by operand and result if `whole`, else one factor each, marked."""
    f = b.new(in_size)
    g = f if whole else b.new(out_size)
    ins.append(f)
    outs.append(g)
    if not whole:
        special[f] = special[g] = mark


@slice_p.def_lower
def _slice_lower(b, index, x, *, in_avals, out_avals, start_indices, limit_indices, strides):
    steps = _steps(strides, len(index))
    return x(tuple([b.linear([(i, s)], lo) for i, s, lo in zip(index, steps, start_indices)]))


def _zero(x):
    return exact(0, typeof(x).dtype)


# --- pad


@pad_p.def_type
def _pad_type(operand, value, *, padding_config):
    if value.ndim or value.dtype != operand.dtype:
        raise ShapeError(
            "pad: the padding value must be a scalar of the operand's dtype.\n"
            f"    operand {operand.str_short()}   padding value {value.str_short()}"
        )
    if len(padding_config) != operand.ndim:
        raise ShapeError(
            "pad: needs one (low, high, interior) per dim.\n"
            f"    operand {operand.str_short()}   padding_config {padding_config}"
        )
    shape = []
    for d, (size, (lo, hi, inner)) in enumerate(zip(operand.shape, padding_config)):
        padded = lo + hi + _dilated(size, inner)
        if inner < 0 or padded < 0:
            raise ShapeError(
                f"pad: padding {(lo, hi, inner)} does not fit dim {d}.\n"
                f"    operand {operand.str_short()}\n"
                "  Interior padding must not be negative, and the padded dim must not be shorter than 0."
            )
        shape.append(padded)
    return shaped_like(operand, shape, value)


@pad_p.def_reference
def _pad_reference(x, value, *, padding_config):
    spread = [n + max(n - 1, 0) * inner for n, (_, _, inner) in zip(x.shape, padding_config)]
    full = np.full(
        [n + max(lo, 0) + max(hi, 0) for n, (lo, hi, _) in zip(spread, padding_config)],
        value,
        x.dtype,
    )
    full[
        tuple(
            _span(max(lo, 0), max(lo, 0) + n, inner + 1)
            for n, (lo, _, inner) in zip(spread, padding_config)
        )
    ] = x
    cut = tuple(
        _span(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi, _) in zip(full.shape, padding_config)
    )
    return full[cut]


jointly_linear(pad_p)


@pad_p.def_transpose
def _pad_transpose(ct, operand, value, *, padding_config):
    unpadded = pad(ct, _zero(ct), [(-lo, -hi, 0) for lo, hi, _ in padding_config])
    shape = typeof(unpadded).shape
    ct_operand = slice(
        unpadded, (0,) * len(shape), shape, [inner + 1 for _, _, inner in padding_config]
    )
    ct_value = None
    if is_undef(value):
        every = tuple(range(len(shape)))
        ct_value = sub(reduce_sum(ct, every), reduce_sum(ct_operand, every))
    return [ct_operand if is_undef(operand) else None, ct_value]


@pad_p.def_batch
def _pad_batch(axis, args, dims, *, padding_config):
    (x, value), (dim, value_dim) = args, dims
    if value_dim is None:
        return pad_p.bind(x, value, padding_config=insert(padding_config, dim, (0, 0, 0))), dim
    # one padding value per example: pad with a placeholder, then choose by a mask padded alongside
    x = at_front(x, dim, axis.size)
    shape = typeof(x).shape
    config = ((0, 0, 0), *padding_config)
    padded = pad_p.bind(x, _zero(x), padding_config=config)
    inside = pad(broadcast_in_dim(np.True_, shape, ()), np.False_, config)
    return select_n(inside, broadcast_in_dim(value, typeof(padded).shape, (0,)), padded), 0


@pad_p.def_factors
def _pad_factors(in_avals, out_avals, *, padding_config):
    b = RuleBuilder()
    ins, outs, special = [], [], {}
    for size, padded, config in zip(in_avals[0].shape, out_avals[0].shape, padding_config):
        _shared_or_special(b, size, padded, not any(config), ins, outs, special)
    return b.rule(
        [ins, []],
        [outs],
        special=special,
        linear_ins=(0, 1),
        additive=True,
        groups=_apart(ins, outs),
    )


@pad_p.def_lower
def _pad_lower(b, index, x, value, *, in_avals, out_avals, padding_config):
    position, inside = [], None
    for i, n, (lo, hi, inner) in zip(index, in_avals[0].shape, padding_config):
        at = b.isub(i, lo)
        conditions = [b.icmp("ge", at, 0)] if lo > 0 else []
        if inner:
            conditions.append(b.icmp("eq", b.irem(at, inner + 1), 0))
            at = b.idiv(at, inner + 1)
        if hi > 0 or inner:
            conditions.append(b.icmp("lt", at, n))
        for c in conditions:
            inside = c if inside is None else b.logical_and(inside, c)
        position.append(at)
    if inside is None:
        return x(tuple(position))
    return b.select(inside, x(tuple(position), inside), value(()))


# --- concatenate


@concatenate_p.def_type
def _concatenate_type(*operands, dimension):
    first = operands[0]
    rest = lambda a: a.shape[:dimension] + a.shape[dimension + 1 :]
    for a in operands:
        if a.ndim != first.ndim or a.dtype != first.dtype or rest(a) != rest(first):
            table = [(f"operand {i}", b.str_short()) for i, b in enumerate(operands)]
            raise ShapeError(
                describe(
                    "concatenate",
                    f"operands do not fit together along dim {dimension}.",
                    table,
                    user_frame(),
                    "They must have equal dtypes, and equal sizes in all other dims.",
                )
            )
    total = sum(a.shape[dimension] for a in operands)
    return shaped_like(first, insert(rest(first), dimension, total), *operands[1:])


@concatenate_p.def_reference
def _concatenate_reference(*operands, dimension):
    return np.concatenate(operands, axis=dimension)


jointly_linear(concatenate_p)


@concatenate_p.def_transpose
def _concatenate_transpose(ct, *operands, dimension):
    sizes = [aval_of(x).shape[dimension] for x in operands]
    ends = list(itertools.accumulate(sizes, initial=0))
    return [
        slice_in_dim(ct, ends[k], ends[k + 1], 1, dimension) if is_undef(x) else None
        for k, x in enumerate(operands)
    ]


@concatenate_p.def_batch
def _concatenate_batch(axis, args, dims, *, dimension):
    out = concatenate_p.bind(
        *[at_front(x, d, axis.size) for x, d in zip(args, dims)], dimension=dimension + 1
    )
    return out, 0


@concatenate_p.def_factors
def _concatenate_factors(in_avals, out_avals, *, dimension):
    b = RuleBuilder()
    outs = b.news(out_avals[0].shape)
    special = {outs[dimension]: "halo"}
    ins, group = [], [outs[dimension]]
    for a in in_avals:
        f = b.new(a.shape[dimension])
        special[f] = "halo"
        group.append(f)
        ins.append(list(insert(outs[:dimension] + outs[dimension + 1 :], dimension, f)))
    return b.rule(
        ins,
        [outs],
        special=special,
        linear_ins=tuple(range(len(ins))),
        additive=True,
        groups=(tuple(group),),
    )


@concatenate_p.def_lower
def _concatenate_lower(b, index, *operands, in_avals, out_avals, dimension):
    i = index[dimension]
    ends = np.cumsum([a.shape[dimension] for a in in_avals]).tolist()
    starts = [0, *ends[:-1]]
    parts = [k for k in range(len(operands)) if ends[k] > starts[k]] or [0]

    def joined(first: int, last: int):
        """The element of the operands with numbers `first` to `last` (exclusive) among `parts`, chosen by halves: many operands
        are few choices deep."""
        if last - first > 1:
            middle = (first + last) // 2
            return b.select(
                b.icmp("lt", i, ends[parts[middle - 1]]),
                joined(first, middle),
                joined(middle, last),
            )
        k = parts[first]
        guards = ([b.icmp("ge", i, starts[k])] if first else []) + (
            [b.icmp("lt", i, ends[k])] if last < len(parts) else []
        )
        at = insert(index[:dimension] + index[dimension + 1 :], dimension, b.isub(i, starts[k]))
        return operands[k](at, functools.reduce(b.logical_and, guards) if guards else None)

    return joined(0, len(parts))


# --- dynamic_slice


def _clamped_starts(b, starts, shape, sizes):
    """Run-time start indices as i64, clamped so that the window of `sizes` is inside `shape`."""
    return [
        0 if size == n else b.imax(b.imin(b.place(s(())), n - size), 0)
        for s, n, size in zip(starts, shape, sizes)
    ]


def _reference_starts(starts, shape, sizes):
    return [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes)]


def _check_starts(api: str, operand, starts, window) -> None:
    if len(starts) != operand.ndim or len(window) != operand.ndim:
        raise ShapeError(
            f"{api}: needs one start index and one window size per dim.\n"
            f"    operand {operand.str_short()}   {len(starts)} start indices   window {window}"
        )
    for d, (size, n) in enumerate(zip(window, operand.shape)):
        if not 0 <= size <= n:
            raise ShapeError(
                f"{api}: the window does not fit into dim {d}.\n    operand {operand.str_short()}   window {window}"
            )
    for s in starts:
        if s.ndim or not dtypes.issubdtype(s.dtype, np.integer):
            raise TypeError(f"{api}: start indices must be integer scalars, got {s.str_short()}.")


@dynamic_slice_p.def_type
def _dynamic_slice_type(operand, *starts, slice_sizes):
    _check_starts("dynamic_slice", operand, starts, slice_sizes)
    return shaped_like(operand, slice_sizes).update(vma=joined_vma((operand, *starts)))


@dynamic_slice_p.def_reference
def _dynamic_slice_reference(x, *starts, slice_sizes):
    at = _reference_starts(starts, x.shape, slice_sizes)
    return x[tuple(_span(s, s + size) for s, size in zip(at, slice_sizes))].copy()


jointly_linear(dynamic_slice_p, (0,))


@dynamic_slice_p.def_transpose
def _dynamic_slice_transpose(ct, operand, *starts, slice_sizes):
    return [dynamic_update_slice_p.bind(zeros(operand.aval), ct, *starts), *[None] * len(starts)]


@dynamic_slice_p.def_batch
def _dynamic_slice_batch(axis, args, dims, *, slice_sizes):
    (x, *starts), (dim, *start_dims) = args, dims
    if all(d is None for d in start_dims):
        zero = _zero(starts[0]) if starts else np.int32(0)
        return dynamic_slice_p.bind(
            x, *insert(starts, dim, zero), slice_sizes=insert(slice_sizes, dim, axis.size)
        ), dim
    # a window per example: a gather
    ndim = len(slice_sizes)
    each = tuple(range(ndim))
    after = tuple(d + 1 for d in each)
    if dim is None:
        numbers = GatherDimensionNumbers(after, (), each)
        sizes = slice_sizes
    else:
        x = at_front(x, dim, axis.size)
        numbers = GatherDimensionNumbers(after, (), after, (0,), (0,))
        sizes = (1, *slice_sizes)
    return gather_p.bind(
        x,
        _stacked_starts(starts, start_dims, axis.size),
        dimension_numbers=numbers,
        slice_sizes=sizes,
        indices_are_sorted=False,
        unique_indices=dim is not None,
        mode=GatherScatterMode.CLIP,
        fill_value=None,
    ), 0


def _stacked_starts(starts, dims, size: int):
    """Start indices, some of them one per example, as one array of indices [size, len(starts)]."""
    dtype = functools.reduce(common_dtype, [typeof(s).dtype for s in starts])
    columns = [
        reshape(at_front(convert_element_type(s, dtype), d, size), (size, 1))
        for s, d in zip(starts, dims)
    ]
    return concatenate(columns, 1)


@dynamic_slice_p.def_factors
def _dynamic_slice_factors(in_avals, out_avals, *, slice_sizes):
    b = RuleBuilder()
    ins, outs, special = [], [], {}
    for n, size in zip(in_avals[0].shape, slice_sizes):
        _shared_or_special(b, n, size, n == size, ins, outs, special, "index")
    return b.rule([ins, *[[] for _ in in_avals[1:]]], [outs], special=special, linear_ins=(0,))


@dynamic_slice_p.def_lower
def _dynamic_slice_lower(b, index, x, *starts, in_avals, out_avals, slice_sizes):
    at = _clamped_starts(b, starts, in_avals[0].shape, slice_sizes)
    return x(tuple(b.iadd(s, i) for s, i in zip(at, index)))


# --- dynamic_update_slice


@dynamic_update_slice_p.def_type
def _dynamic_update_slice_type(operand, update, *starts):
    _check_starts("dynamic_update_slice", operand, starts, update.shape)
    if update.dtype != operand.dtype:
        raise TypeError(
            "dynamic_update_slice: operand and update must have equal dtypes.\n"
            f"    operand {operand.str_short()}   update {update.str_short()}"
        )
    return shaped_like(operand, operand.shape, update).update(
        vma=joined_vma((operand, update, *starts))
    )


@dynamic_update_slice_p.def_reference
def _dynamic_update_slice_reference(x, update, *starts):
    at = _reference_starts(starts, x.shape, update.shape)
    out = x.copy()
    out[tuple(_span(s, s + size) for s, size in zip(at, update.shape))] = update
    return out


jointly_linear(dynamic_update_slice_p, (0, 1))


@dynamic_update_slice_p.def_transpose
def _dynamic_update_slice_transpose(ct, operand, update, *starts):
    aval = aval_of(update)
    ct_operand = ct_update = None
    if is_undef(operand):
        ct_operand = dynamic_update_slice_p.bind(
            ct, zeros(aval.update(dtype=typeof(ct).dtype)), *starts
        )
    if is_undef(update):
        ct_update = dynamic_slice_p.bind(ct, *starts, slice_sizes=aval.shape)
    return [ct_operand, ct_update, *[None] * len(starts)]


@dynamic_update_slice_p.def_batch
def _dynamic_update_slice_batch(axis, args, dims):
    (x, update, *starts), (dim, update_dim, *start_dims) = args, dims
    if all(d is None for d in start_dims):
        x, update = at_front(x, dim, axis.size), at_front(update, update_dim, axis.size)
        zero = _zero(starts[0]) if starts else np.int32(0)
        return dynamic_update_slice_p.bind(x, update, zero, *starts), 0
    # a window per example: a scatter
    after = tuple(range(1, len(starts) + 1))
    numbers = ScatterDimensionNumbers(after, (), after, (0,), (0,))
    x, update = at_front(x, dim, axis.size), at_front(update, update_dim, axis.size)
    return scatter_p.bind(
        x,
        _stacked_starts(starts, start_dims, axis.size),
        update,
        dimension_numbers=numbers,
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.CLIP,
    ), 0


@dynamic_update_slice_p.def_factors
def _dynamic_update_slice_factors(in_avals, out_avals):
    b = RuleBuilder()
    outs = b.news(out_avals[0].shape)
    updates, special = [], {}
    for f, n, size in zip(outs, in_avals[0].shape, in_avals[1].shape):
        g = f if n == size else b.new(size)
        updates.append(g)
        if n != size:
            special[f] = special[g] = "index"
    return b.rule(
        [outs, updates, *[[] for _ in in_avals[2:]]],
        [outs],
        special=special,
        linear_ins=(0, 1),
        additive=True,
    )


@dynamic_update_slice_p.def_lower
def _dynamic_update_slice_lower(b, index, x, update, *starts, in_avals, out_avals):
    window = in_avals[1].shape
    at = _clamped_starts(b, starts, in_avals[0].shape, window)
    position, inside = [], None
    for i, s, size, n in zip(index, at, window, in_avals[0].shape):
        p = b.isub(i, s)
        position.append(p)
        if size == n:
            continue
        here = b.logical_and(b.icmp("ge", p, 0), b.icmp("lt", p, size))
        inside = here if inside is None else b.logical_and(inside, here)
    if inside is None:
        return update(tuple(position))
    return b.select(inside, update(tuple(position), inside), x(index))
