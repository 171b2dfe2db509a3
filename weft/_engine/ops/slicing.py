"""Slicing by static bounds: slice, pad, concatenate, and functions built on them.

Laws: slice and pad are each other's transpose; concatenate transposes to slice. Type rules check
      the bounds.
Next: `dynamic_slicing`, slices whose start is a run-time value.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import SliceOp
from weft._engine.core.trace import is_undef, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import SymbolicDim, as_int, max_dim
from weft._engine.ops.elementwise import convert_element_type, select_n, sub
from weft._engine.ops.families import shape_error
from weft._engine.ops.layout import broadcast_in_dim, squeeze
from weft._engine.ops.placement import READ_AT
from weft._engine.ops.reduce import reduce_sum
from weft._engine.ops.rule_helpers import (
    aval_of,
    batch_dim_to_front,
    insert,
    jointly_linear,
    shaped_like,
)
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import user_frame
from weft._engine.util.trees.narrowing import class_of

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.loops import Expr
    from weft._engine.ir.types import ShapedArray
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
        Values,
    )

span = builtins.slice  # this module's `slice` is the op

slice_p = SliceOp("slice", out_sharding=READ_AT, takes_slice=True)
pad_p = SliceOp("pad", moves="pad")
concatenate_p = SliceOp("concatenate", moves="concatenate")


@slice_p.def_localize
def _slice_localize(params: dict[str, Any], ins: Avals, outs: Avals) -> dict[str, Any]:
    strides = params["strides"] or (1,) * ins[0].ndim
    limits = tuple(
        lo + out if step == 1 else hi
        for lo, hi, out, step in zip(
            params["start_indices"], params["limit_indices"], outs[0].shape, strides
        )
    )
    return dict(params, limit_indices=limits)


# --- the functions


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """Return the elements from `start_indices` up to, not including, `limit_indices`.

    Steps are `strides`.

    >>> np.asarray(slice(np.arange(6), (1,), (6,), (2,))).tolist()
    [1, 3, 5]
    """
    start, limit = as_ints(start_indices), as_ints(limit_indices)
    steps = None if strides is None else as_ints(strides)
    if steps is not None and all(s == 1 for s in steps):
        steps = None
    shape = typeof(operand).shape
    if steps is None and limit == shape and not any(start) and hasattr(class_of(operand), "aval"):
        return operand
    return slice_p.bind(operand, start_indices=start, limit_indices=limit, strides=steps)


def slice_in_dim(
    operand: ArrayLike,
    start_index: int | SymbolicDim | None,
    limit_index: int | SymbolicDim | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """Return `operand[..., start:limit:stride, ...]` along dim `axis`.

    Negative indices count from the end.
    """
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


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Return the slice of `operand` at `index` of dim `axis`.

    The dim stays, with size 1, if `keepdims`.
    """
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "index_in_dim")
    wrapped = as_int(index) + shape[axis] if index < 0 else as_int(index)
    if not 0 <= wrapped < shape[axis]:
        raise IndexError(
            f"index_in_dim: index {index} is out of bounds for dim {axis} of size {shape[axis]}."
        )
    part = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return part if keepdims else squeeze(part, (axis,))


def pad(
    operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
) -> Array:
    """Return `operand` padded with `padding_value` by (low, high, interior) per dim.

    Negative `low` and `high` crop the operand.

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
            f"padding_config must have one entry for each of the {quantity(aval.ndim, 'dim')} of the operand.",
            table,
        )
    if any(inner < 0 for _, _, inner in config):
        raise shape_error("pad", "interior padding in padding_config must be nonnegative.", table)
    if any(lo + hi + _dilate(n, inner) < 0 for n, (lo, hi, inner) in zip(aval.shape, config)):
        raise shape_error(
            "pad",
            "Dimension size after padding is not at least 0: padding_config cuts off more than there is.",
            table,
        )
    if not any(map(any, config)) and hasattr(class_of(operand), "aval"):
        return operand
    return pad_p.bind(operand, _scalar_like(padding_value, aval), padding_config=config)


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Return `operands` joined along dim `dimension`.

    >>> np.asarray(concatenate([np.array([1, 2]), np.array([3])], 0)).tolist()
    [1, 2, 3]
    """
    operands = tuple(operands)
    if not operands:
        raise ValueError(
            "concatenate: needs at least one operand. To make an empty array, use full with a zero shape."
        )
    if len(operands) == 1 and hasattr(class_of(operands[0]), "aval"):
        return operands[0]
    return concatenate_p.bind(
        *operands, dimension=canonical_dim(dimension, typeof(operands[0]).ndim, "concatenate")
    )


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Return the consecutive parts of `operand` with lengths `sizes` along dim `axis`.

    >>> [np.asarray(p).tolist() for p in split(np.arange(5), (2, 3))]
    [[0, 1], [2, 3, 4]]
    """
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "split")
    sizes = as_ints(sizes)
    if any(s < 0 for s in sizes) or sum(sizes) != shape[axis]:
        raise ShapeError(
            f"split: sizes {sizes} must be non-negative and add up to the size {shape[axis]} of dim {axis}.\n"
            f"    operand {typeof(operand).str_short()}"
        )
    bounds = itertools.accumulate(sizes, initial=0)
    return [slice_in_dim(operand, lo, hi, 1, axis) for lo, hi in itertools.pairwise(bounds)]


def canonical_dim(dim: int, ndim: int, api: str) -> int:
    """Return `dim` counted from the front.

    Raise AxisError, a ValueError and an IndexError, if it is out of range.
    """
    if not -ndim <= dim < ndim:
        raise np.exceptions.AxisError(
            f"{api}: dim {dim} is out of range for an array with {quantity(ndim, 'dim')}."
        )
    return int(dim) % ndim


def _dilate(n: int, interior: int) -> int:
    """Return the size of a dim of size `n` with `interior` elements between neighbors."""
    return n + max_dim(n - 1, 0) * interior if interior else n


def as_ints(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple([v if type(v) is int else as_int(v) for v in values])


def _scalar_like(value: Value, aval: ShapedArray):
    """Return a rank-0 `value` in the dtype of `aval`; arrays and tracers must have it already."""
    if isinstance(value, (bool, int, float, complex)):
        return scalar_of_dtype(value, aval.dtype)
    value_aval = typeof(value)
    return (
        convert_element_type(value, aval.dtype)
        if value_aval.weak_type and value_aval.dtype != aval.dtype
        else value
    )


# --- slice


def _steps(strides: Ints | None, ndim: int) -> tuple[int, ...]:
    return (1,) * ndim if strides is None else strides


@slice_p.def_type
def _slice_type(
    operand: ShapedArray, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None
):
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
def _slice_reference(
    x: NumPyArray, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None
):
    return x[
        tuple(
            span(lo, hi, s)
            for lo, hi, s in zip(start_indices, limit_indices, _steps(strides, x.ndim))
        )
    ].copy()


jointly_linear(slice_p)


@slice_p.def_transpose
def _slice_transpose(
    ct: Value, operand: Value, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None
):
    shape = operand.aval.shape
    config: list[tuple[int, int, int]] = []
    for lo, step, size, count in zip(
        start_indices, _steps(strides, len(shape)), shape, typeof(ct).shape
    ):
        covered = lo + max_dim((count - 1) * step + 1, 0)
        config.append((lo, size - covered, step - 1))
    return [pad(ct, zero_like(ct), config)]


@slice_p.def_batch
def _slice_batch(
    axis: BatchAxis,
    args: Values,
    dims: Sequence[int],
    *,
    start_indices: Ints,
    limit_indices: Ints,
    strides: Ints | None,
):
    (x,), (dim,) = args, dims
    out = slice_p.bind(
        x,
        start_indices=insert(start_indices, dim, 0),
        limit_indices=insert(limit_indices, dim, axis.size),
        strides=None if strides is None else insert(strides, dim, 1),
    )
    return out, dim


@slice_p.def_factors
def _slice_factors(in_avals: Avals, out_avals: Avals, **params: Any):
    b = RuleBuilder()
    ins: list[int] = []
    outs: list[int] = []
    special: dict[int, str] = {}
    for size, count in zip(in_avals[0].shape, out_avals[0].shape):
        shared_or_special(b, size, count, size == count, ins, outs, special)
    return b.rule(
        [ins],
        [outs],
        special=special,
        linear_ins=(0,),
        additive=True,
        groups=_differing_factors(ins, outs),
    )


def _differing_factors(ins: Sequence[int], outs: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of factors (result's, operand's) of dims whose factors differ."""
    return tuple((g, f) for f, g in zip(ins, outs) if f != g)


def shared_or_special(
    b: RuleBuilder,
    in_size: int,
    out_size: int,
    whole: bool,
    ins: list[int],
    outs: list[int],
    special: dict[int, str],
    mark: str = "halo",
) -> None:
    """Add one dim: a factor shared by operand and result if `whole`, else one factor each, marked."""
    f = b.new(in_size)
    g = f if whole else b.new(out_size)
    ins.append(f)
    outs.append(g)
    if not whole:
        special[f] = special[g] = mark


@slice_p.def_lower
def _slice_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    start_indices: Ints,
    limit_indices: Ints,
    strides: Ints | None,
):
    steps = _steps(strides, len(index))
    return x(tuple([b.linear([(i, s)], lo) for i, s, lo in zip(index, steps, start_indices)]))


def zero_like(x: Value):
    return scalar_of_dtype(0, typeof(x).dtype)


# --- pad


@pad_p.def_type
def _pad_type(
    operand: ShapedArray, value: ShapedArray, *, padding_config: tuple[tuple[int, int, int], ...]
):
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
    shape: list[int] = []
    for d, (size, (lo, hi, inner)) in enumerate(zip(operand.shape, padding_config)):
        padded = lo + hi + _dilate(size, inner)
        if inner < 0 or padded < 0:
            raise ShapeError(
                f"pad: padding {(lo, hi, inner)} does not fit dim {d}.\n"
                f"    operand {operand.str_short()}\n"
                "  Interior padding must not be negative, and the padded dim must not be shorter than 0."
            )
        shape.append(padded)
    return shaped_like(operand, shape, value)


@pad_p.def_reference
def _pad_reference(
    x: NumPyArray, value: NumPyArray, *, padding_config: tuple[tuple[int, int, int], ...]
):
    spread = [n + max(n - 1, 0) * inner for n, (_, _, inner) in zip(x.shape, padding_config)]
    full = np.full(
        [n + max(lo, 0) + max(hi, 0) for n, (lo, hi, _) in zip(spread, padding_config)],
        value,
        x.dtype,
    )
    full[
        tuple(
            span(max(lo, 0), max(lo, 0) + n, inner + 1)
            for n, (lo, _, inner) in zip(spread, padding_config)
        )
    ] = x
    cut = tuple(
        span(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi, _) in zip(full.shape, padding_config)
    )
    return full[cut]


jointly_linear(pad_p)


@pad_p.def_transpose
def _pad_transpose(
    ct: Value, operand: Value, value: Value, *, padding_config: tuple[tuple[int, int, int], ...]
):
    unpadded = pad(ct, zero_like(ct), [(-lo, -hi, 0) for lo, hi, _ in padding_config])
    shape = typeof(unpadded).shape
    ct_operand = slice(
        unpadded, (0,) * len(shape), shape, [inner + 1 for _, _, inner in padding_config]
    )
    ct_value = None
    if is_undef(value):
        all_dims = tuple(range(len(shape)))
        ct_value = sub(reduce_sum(ct, all_dims), reduce_sum(ct_operand, all_dims))
    return [ct_operand if is_undef(operand) else None, ct_value]


@pad_p.def_batch
def _pad_batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    padding_config: tuple[tuple[int, int, int], ...],
):
    (x, value), (dim, value_dim) = args, dims
    if dim is not None and value_dim is None:
        return pad_p.bind(x, value, padding_config=insert(padding_config, dim, (0, 0, 0))), dim
    # one padding value per example: pad with a placeholder, then choose by a mask padded alongside
    x = batch_dim_to_front(x, dim, axis.size)
    shape = typeof(x).shape
    config = ((0, 0, 0), *padding_config)
    padded = pad_p.bind(x, zero_like(x), padding_config=config)
    inside = pad(broadcast_in_dim(np.True_, shape, ()), np.False_, config)
    return select_n(inside, broadcast_in_dim(value, typeof(padded).shape, (0,)), padded), 0


@pad_p.def_factors
def _pad_factors(
    in_avals: Avals, out_avals: Avals, *, padding_config: tuple[tuple[int, int, int], ...]
):
    b = RuleBuilder()
    ins: list[int] = []
    outs: list[int] = []
    special: dict[int, str] = {}
    for size, padded, config in zip(in_avals[0].shape, out_avals[0].shape, padding_config):
        shared_or_special(b, size, padded, not any(config), ins, outs, special)
    return b.rule(
        [ins, []],
        [outs],
        special=special,
        linear_ins=(0, 1),
        additive=True,
        groups=_differing_factors(ins, outs),
    )


@pad_p.def_lower
def _pad_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    value: ElementReader,
    *,
    in_avals: Avals,
    out_avals: Avals,
    padding_config: tuple[tuple[int, int, int], ...],
):
    position: list[Expr] = []
    inside: Expr | None = None
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
def _concatenate_type(*operands: ShapedArray, dimension: int):
    first = operands[0]
    other_sizes: Callable[[ShapedArray], Ints] = lambda a: (
        a.shape[:dimension] + a.shape[dimension + 1 :]
    )
    for a in operands:
        if a.ndim != first.ndim or a.dtype != first.dtype or other_sizes(a) != other_sizes(first):
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
    return shaped_like(first, insert(other_sizes(first), dimension, total), *operands[1:])


@concatenate_p.def_reference
def _concatenate_reference(*operands: NumPyArray, dimension: int):
    return np.concatenate(operands, axis=dimension)


jointly_linear(concatenate_p)


@concatenate_p.def_transpose
def _concatenate_transpose(ct: Value, *operands: Value, dimension: int):
    sizes = [aval_of(x).shape[dimension] for x in operands]
    ends = list(itertools.accumulate(sizes, initial=0))
    return [
        slice_in_dim(ct, ends[k], ends[k + 1], 1, dimension) if is_undef(x) else None
        for k, x in enumerate(operands)
    ]


@concatenate_p.def_batch
def _concatenate_batch(axis: BatchAxis, args: Values, dims: BatchDims, *, dimension: int):
    out = concatenate_p.bind(
        *[batch_dim_to_front(x, d, axis.size) for x, d in zip(args, dims)], dimension=dimension + 1
    )
    return out, 0


@concatenate_p.def_factors
def _concatenate_factors(in_avals: Avals, out_avals: Avals, *, dimension: int):
    b = RuleBuilder()
    outs = b.add_factors(out_avals[0].shape)
    special = {outs[dimension]: "halo"}
    ins: list[list[int]] = []
    group = [outs[dimension]]
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
def _concatenate_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    *operands: ElementReader,
    in_avals: Avals,
    out_avals: Avals,
    dimension: int,
):
    i = index[dimension]
    ends = np.cumsum([a.shape[dimension] for a in in_avals]).tolist()
    starts = [0, *ends[:-1]]
    parts = [k for k in range(len(operands)) if ends[k] > starts[k]] or [0]

    def joined(first: int, last: int) -> Expr:
        """Return the element of operands `first` to `last` (exclusive) of `parts`.

        It is found by binary selection.

        A selection among many operands is then only a few levels deep.
        """
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


# --- dynamic_update_slice
