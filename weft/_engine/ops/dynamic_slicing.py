"""Slices whose start is a run-time value: dynamic_slice, dynamic_update_slice and functions built
on them.

Laws: each is the other's transpose. Starts are clamped so that the whole window is inside the operand.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import IndexOp
from weft._engine.core.trace import is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import SymbolicDim, as_int
from weft._engine.ops.casting import size_as
from weft._engine.ops.elementwise import add, convert_element_type, lt, select_n
from weft._engine.ops.families import joined_vma, zeros
from weft._engine.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    gather_p,
    scatter_p,
)
from weft._engine.ops.layout import reshape, squeeze
from weft._engine.ops.placement import READ_AT
from weft._engine.ops.rule_helpers import (
    aval_of,
    batch_dim_to_front,
    insert,
    jointly_linear,
    shaped_like,
)
from weft._engine.ops.slicing import (
    as_ints,
    canonical_dim,
    concatenate,
    shared_or_special,
    slice_in_dim,
    span,
    zero_like,
)
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.promotion import common_dtype
from weft._engine.util.trees.narrowing import is_integer

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

dynamic_slice_p = IndexOp("dynamic_slice", out_sharding=READ_AT, takes_slice=True)


dynamic_update_slice_p = IndexOp("dynamic_update_slice", overwrites=True)


@dynamic_slice_p.def_localize
def _dynamic_slice_localize(params: dict[str, Any], ins: Avals, outs: Avals) -> dict[str, Any]:
    return dict(params, slice_sizes=outs[0].shape)


def dynamic_slice(
    operand: ArrayLike,
    start_indices: Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Return the window of `slice_sizes` at `start_indices`, clamped to be inside `operand`.

    `start_indices` is a sequence of scalars or a one-dimensional array; negative ones count from
    the end. If `allow_negative_indices` (for all dims or one for each) is False, they are clamped
    to 0 instead.

    >>> np.asarray(dynamic_slice(np.arange(5), (4,), (2,))).tolist()
    [3, 4]
    """
    aval = typeof(operand)
    starts = _start_scalars(start_indices, aval.shape, "dynamic_slice", allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=as_ints(slice_sizes))


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """Return `operand` with the window at `start_indices` replaced by `update`.

    Start indices are clamped so that the window is inside; negative ones count as in
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
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Return `slice_size` consecutive slices of `operand` along dim `axis`.

    They begin at `start_index`, which is clamped.
    """
    shape = typeof(operand).shape
    axis = canonical_dim(axis, len(shape), "dynamic_slice_in_dim")
    starts, sizes = _starts_along(axis, start_index, len(shape)), list(shape)
    sizes[axis] = as_int(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def _starts_along(axis: int, start: Value, ndim: int) -> list[Any]:
    """Return start indices that are 0 in all dims but `axis`."""
    starts: list[Any] = [0] * ndim
    starts[axis] = start
    return starts


def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Return the slice of `operand` at `index` (clamped) of dim `axis`."""
    axis = canonical_dim(axis, typeof(operand).ndim, "dynamic_index_in_dim")
    part = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return part if keepdims else squeeze(part, (axis,))


def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Return `operand` with `update` written along dim `axis` from `start_index` on (clamped)."""
    ndim = typeof(operand).ndim
    axis = canonical_dim(axis, ndim, "dynamic_update_slice_in_dim")
    starts = _starts_along(axis, start_index, ndim)
    return dynamic_update_slice(
        operand, update, starts, allow_negative_indices=allow_negative_indices
    )


def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """Return `operand` with its slice at `index` (clamped) of dim `axis` replaced by `update`.

    `update` may lack that dim.
    """
    ndim = typeof(operand).ndim
    axis = canonical_dim(axis, ndim, "dynamic_update_index_in_dim")
    shape = typeof(update).shape
    if len(shape) != ndim:
        update = reshape(update, insert(shape, axis, 1))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )


def _start_scalars(
    indices: Values, shape: Sequence[int], api: str, wraps: bool | Sequence[bool]
) -> list[Any]:
    """Return start indices as one scalar per dim; negative ones count from the end where `wraps`."""
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
            f"    operand has {quantity(len(shape), 'dim')}, start_indices has length {len(indices)}"
        )
    names = sorted(
        {i.dtype.name for i in indices if hasattr(i, "dtype") and not isinstance(i, type)}
    )
    if len(names) > 1:
        raise TypeError(
            f"index arguments to {api} must be integers of the same type, got {', '.join(names)}."
        )
    wraps = [wraps] * len(shape) if isinstance(wraps, bool) else list(wraps)
    if len(wraps) != len(shape):
        raise ShapeError(
            f"{api}: allow_negative_indices must be one bool or one for each of {quantity(len(shape), 'dim')}, got {len(wraps)}."
        )
    return [_start(i, size, wrap) for i, size, wrap in zip(indices, shape, wraps)]


def _start(index: Value, size: int, wraps: bool):
    if is_integer(index):
        value = int(index)
        value = value + size if value < 0 and wraps else value
        if isinstance(value, SymbolicDim):
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


def _clamped_starts(
    b: LoopsBuilder, starts: Sequence[ElementReader], shape: Sequence[int], sizes: Sequence[int]
):
    """Return run-time start indices as i64, clamped.

    The window of `sizes` is then inside `shape`.
    """
    return [
        0 if size == n else b.imax(b.imin(b.to_index(s(())), n - size), 0)
        for s, n, size in zip(starts, shape, sizes)
    ]


def _reference_starts(starts: Sequence[NumPyArray], shape: Sequence[int], sizes: Sequence[int]):
    return [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes)]


def _check_starts(api: str, operand: ShapedArray, starts: Avals, window: Sequence[int]) -> None:
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
def _dynamic_slice_type(operand: ShapedArray, *starts: ShapedArray, slice_sizes: Ints):
    _check_starts("dynamic_slice", operand, starts, slice_sizes)
    return shaped_like(operand, slice_sizes).update(vma=joined_vma((operand, *starts)))


@dynamic_slice_p.def_reference
def _dynamic_slice_reference(x: NumPyArray, *starts: NumPyArray, slice_sizes: Ints):
    at = _reference_starts(starts, x.shape, slice_sizes)
    return x[tuple(span(s, s + size) for s, size in zip(at, slice_sizes))].copy()


jointly_linear(dynamic_slice_p, (0,))


@dynamic_slice_p.def_transpose
def _dynamic_slice_transpose(ct: Value, operand: Value, *starts: Value, slice_sizes: Ints):
    return [dynamic_update_slice_p.bind(zeros(operand.aval), ct, *starts), *[None] * len(starts)]


@dynamic_slice_p.def_batch
def _dynamic_slice_batch(axis: BatchAxis, args: Values, dims: BatchDims, *, slice_sizes: Ints):
    (x, *starts), (dim, *start_dims) = args, dims
    if dim is not None and all(d is None for d in start_dims):
        zero = zero_like(starts[0]) if starts else np.int32(0)
        return dynamic_slice_p.bind(
            x, *insert(starts, dim, zero), slice_sizes=insert(slice_sizes, dim, axis.size)
        ), dim
    # one window per example: a gather
    ndim = len(slice_sizes)
    each = tuple(range(ndim))
    after = tuple(d + 1 for d in each)
    if dim is None:
        numbers = GatherDimensionNumbers(after, (), each)
        sizes = slice_sizes
    else:
        x = batch_dim_to_front(x, dim, axis.size)
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


def _stacked_starts(starts: Values, dims: BatchDims, size: int):
    """Return start indices, batched or not, as one array [batch size, len(starts)]."""
    dtype = functools.reduce(common_dtype, [typeof(s).dtype for s in starts])
    columns = [
        reshape(batch_dim_to_front(convert_element_type(s, dtype), d, size), (size, 1))
        for s, d in zip(starts, dims)
    ]
    return concatenate(columns, 1)


@dynamic_slice_p.def_factors
def _dynamic_slice_factors(in_avals: Avals, out_avals: Avals, *, slice_sizes: Ints):
    b = RuleBuilder()
    ins: list[int] = []
    outs: list[int] = []
    special: dict[int, str] = {}
    for n, size in zip(in_avals[0].shape, slice_sizes):
        shared_or_special(b, n, size, n == size, ins, outs, special, "index")
    return b.rule([ins, *[[] for _ in in_avals[1:]]], [outs], special=special, linear_ins=(0,))


@dynamic_slice_p.def_lower
def _dynamic_slice_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    *starts: ElementReader,
    in_avals: Avals,
    out_avals: Avals,
    slice_sizes: Ints,
):
    at = _clamped_starts(b, starts, in_avals[0].shape, slice_sizes)
    return x(tuple(b.iadd(s, i) for s, i in zip(at, index)))


@dynamic_update_slice_p.def_type
def _dynamic_update_slice_type(operand: ShapedArray, update: ShapedArray, *starts: ShapedArray):
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
def _dynamic_update_slice_reference(x: NumPyArray, update: NumPyArray, *starts: NumPyArray):
    at = _reference_starts(starts, x.shape, update.shape)
    out = x.copy()
    out[tuple(span(s, s + size) for s, size in zip(at, update.shape))] = update
    return out


jointly_linear(dynamic_update_slice_p, (0, 1))


@dynamic_update_slice_p.def_transpose
def _dynamic_update_slice_transpose(ct: Value, operand: Value, update: Value, *starts: Value):
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
def _dynamic_update_slice_batch(axis: BatchAxis, args: Values, dims: BatchDims):
    (x, update, *starts), (dim, update_dim, *start_dims) = args, dims
    if all(d is None for d in start_dims):
        x, update = (
            batch_dim_to_front(x, dim, axis.size),
            batch_dim_to_front(update, update_dim, axis.size),
        )
        zero = zero_like(starts[0]) if starts else np.int32(0)
        return dynamic_update_slice_p.bind(x, update, zero, *starts), 0
    # one window per example: a scatter
    after = tuple(range(1, len(starts) + 1))
    numbers = ScatterDimensionNumbers(after, (), after, (0,), (0,))
    x, update = (
        batch_dim_to_front(x, dim, axis.size),
        batch_dim_to_front(update, update_dim, axis.size),
    )
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
def _dynamic_update_slice_factors(in_avals: Avals, out_avals: Avals):
    b = RuleBuilder()
    outs = b.add_factors(out_avals[0].shape)
    updates: list[int] = []
    special: dict[int, str] = {}
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
def _dynamic_update_slice_lower(
    b: LoopsBuilder,
    index: ElementIndex,
    x: ElementReader,
    update: ElementReader,
    *starts: ElementReader,
    in_avals: Avals,
    out_avals: Avals,
):
    window = in_avals[1].shape
    at = _clamped_starts(b, starts, in_avals[0].shape, window)
    position: list[Expr] = []
    inside: Expr | None = None
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
