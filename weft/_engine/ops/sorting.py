"""Sorting: sort (of several operands by the first `num_keys`) and top_k.

Order: NaN is last, -0 equals 0; complex numbers by real, then imaginary part. `top_k` treats NaN as
the largest and keeps the order of equal elements. Tangents are permuted as the keys are, which is
linear.

Native code computes both by three operations on rows, `sorted_rows`, `row_order` and `leading`, and
by gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft._engine.core.primitive import Primitive, SortOp, declare_unsupported
from weft._engine.core.trace import Zero, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import as_int, is_more_than, min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.axis_families import check_axes
from weft._engine.ops.casting import imag, real
from weft._engine.ops.families import (
    ANY,
    ORDERED,
    canonical_dims,
    move_dim,
    shape_error,
    zero_tangent,
)
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, expand_dims, full
from weft._engine.ops.lowering_specs import ExpandSpec, SortSpec
from weft._engine.ops.slicing import slice_in_dim
from weft._engine.util import dtypes
from weft._engine.util.trees.narrowing import is_tuple_or_list

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import (
        ArrayLike,
        Avals,
        BatchDims,
        NumPyArray,
        Value,
        Values,
    )

_INDEX = np.dtype(np.int32)


def take_along(x: Value, indices: Value, dim: int):
    """Return `x[..., indices[..., j, ...], ...]`: the elements of `x` along `dim` at `indices`."""
    from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather

    shape, ndim = typeof(x).shape, typeof(x).ndim
    others = tuple(d for d in range(ndim) if d != dim)
    numbers = GatherDimensionNumbers((), (dim,), (dim,), others, others)
    return gather(
        x,
        expand_dims(indices, (ndim,)),
        numbers,
        tuple(min_dim(s, 1) for s in shape),
        mode=GatherScatterMode.UNCHECKED,
    )


# --- rows --------------------------------------------------------------------------------------------------------------

_MADE_LATE = "Sorts of rows are made after transformations and partitioning."


def _on_rows(name: str, kind: Literal["values", "order", "top"], **rules: Any) -> Primitive:
    p = SortOp(name, multiple_results=kind == "top")
    late = dict.fromkeys(("jvp", "transpose", "batch", "factors"), declare_unsupported(_MADE_LATE))
    return p.define(**late, **rules, lower=SortSpec(kind))


def _order_reference(key: NumPyArray, *previous: NumPyArray, descending: bool):
    columns = _comparable(key)
    if descending:
        columns = [
            d
            for c in columns
            for d in (
                [c == c, np.where(c != c, 0, -c)]
                if dtypes.is_native_float(c.dtype)
                else [np.invert(c)]
            )
        ]
    if previous:
        columns = [np.take_along_axis(c, previous[0], -1) for c in columns]
    order = np.lexsort(
        [c + 0 if dtypes.is_native_float(c.dtype) else c for c in reversed(columns)], axis=-1
    )
    return (np.take_along_axis(previous[0], order, -1) if previous else order).astype(_INDEX)


def _positions(aval: ShapedArray) -> ShapedArray:
    return ShapedArray(aval.shape, _INDEX, False, None, aval.vma)


def _row_type(aval: ShapedArray) -> ShapedArray:
    return aval


def _sorted_rows_reference(x: NumPyArray) -> NumPyArray:
    return _sort_reference(x, dimension=x.ndim - 1, is_stable=True, num_keys=1)[0]


def _order_type(aval: ShapedArray, *previous: ShapedArray, descending: bool) -> ShapedArray:
    return _positions(aval)


def _leading_type(aval: ShapedArray, *, k: int):
    return _top_k_type(aval, axis=aval.ndim - 1, k=k)


def _leading_reference(x: NumPyArray, *, k: int):
    return _top_k_reference(x, axis=x.ndim - 1, k=k)


#: the elements of each row in ascending order
sorted_rows_p = _on_rows(
    "sorted_rows",
    "values",
    type=_row_type,
    reference=_sorted_rows_reference,
)
#: operands: key and, optionally, positions; params: descending. The positions, sorted by their
#: elements; see `ir.program.Sort`
row_order_p = _on_rows(
    "row_order",
    "order",
    type=_order_type,
    reference=_order_reference,
)
#: params: k. The k greatest elements of each row and their positions
leading_p = _on_rows(
    "leading",
    "top",
    type=_leading_type,
    reference=_leading_reference,
)


def _columns(key: NumPyArray) -> list[Any]:
    """Return a key as real keys, most significant first."""
    return [real(key), imag(key)] if np.issubdtype(typeof(key).dtype, np.complexfloating) else [key]


# --- sort -------------------------------------------------------------------------------------------------------------

sort_p = SortOp("sort", multiple_results=True)


def sort(operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Return `operand` in ascending order along `dimension`.

    A sequence of operands is ordered by its first `num_keys` members, compared lexicographically;
    the others are permuted alike.

    >>> np.asarray(sort(np.array([3, 1, 2]))).tolist()
    [1, 2, 3]
    """
    several = is_tuple_or_list(operand)
    operands = tuple(operand) if several else (operand,)
    if not operands:
        raise TypeError("sort: needs at least one operand.")
    if not 1 <= num_keys <= len(operands):
        raise ValueError(
            f"sort: num_keys must be from 1 to the number of operands, {len(operands)}; got {num_keys}."
        )
    (dim,) = canonical_dims("sort", (dimension,), typeof(operands[0]).ndim)
    outs = sort_p.bind(*operands, dimension=dim, is_stable=bool(is_stable), num_keys=int(num_keys))
    return tuple(outs) if several else outs[0]


@sort_p.def_type
def _sort_type(*avals: ShapedArray, dimension: int, is_stable: bool, num_keys: int):
    several = len(avals) > 1
    for i, aval in enumerate(avals):
        families.check_dtype("sort", aval, ANY, i if several else None)
    if any(a.shape != avals[0].shape for a in avals):
        raise shape_error(
            "sort",
            "operands differ in shape.",
            families.operand_table(avals),
            "They are permuted together.",
        )
    check_axes("sort", avals[0], (dimension,))
    return avals


def _comparable(key: NumPyArray):
    """Return a key's columns for lexsort, most significant first."""
    if np.iscomplexobj(key):
        return [np.real(key), np.imag(key)]
    return [key.astype(np.float32) if families.is_narrow(key.dtype) else key]


@sort_p.def_reference
def _sort_reference(*xs: NumPyArray, dimension: int, is_stable: bool, num_keys: int):
    columns = [c for key in xs[:num_keys] for c in _comparable(key)]
    order = np.lexsort(
        [c + 0 if dtypes.is_native_float(c.dtype) else c for c in reversed(columns)], axis=dimension
    )
    return [np.take_along_axis(x, order, dimension) for x in xs]


@sort_p.def_jvp
def _sort_jvp(primals: Values, tangents: Values, *, dimension: int, **params: Any):
    if all(type(t) is Zero for t in tangents):
        outs = sort_p.bind(*primals, dimension=dimension, **params)
        return outs, [zero_tangent(o) for o in outs]
    places = broadcasted_iota(_INDEX, typeof(primals[0]).shape, dimension)
    *outs, order = sort_p.bind(*primals, places, dimension=dimension, **params)
    moved = [
        zero_tangent(o) if type(t) is Zero else take_along(t, order, dimension)
        for t, o in zip(tangents, outs)
    ]
    return outs, moved


@sort_p.def_batch
def _sort_batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    dimension: int,
    is_stable: bool,
    num_keys: int,
):
    fronted = [_front(x, d, axis.size) for x, d in zip(args, dims)]
    outs = sort_p.bind(*fronted, dimension=dimension + 1, is_stable=is_stable, num_keys=num_keys)
    return outs, [0] * len(outs)


def _front(x: Value, dim: int | None, size: int):
    """Return `x` with its batch dim first, repeated if it has none."""
    if dim is not None:
        return move_dim(x, dim, 0)
    shape = (size, *typeof(x).shape)
    return broadcast_in_dim(x, shape, tuple(range(1, len(shape))))


@sort_p.def_factors
def _sort_factors(
    in_avals: Avals, out_avals: Avals, *, dimension: int, is_stable: bool, num_keys: int
):
    b = RuleBuilder()
    fs = b.add_factors(in_avals[0].shape)
    return b.rule([fs] * len(in_avals), [fs] * len(out_avals), special={fs[dimension]: "replicate"})


def _sort_rows(*xs: Value, dimension: int, is_stable: bool, num_keys: int):
    """Sort by orders of rows, one key after the other, the most significant one last."""
    if typeof(xs[0]).size == 0:
        return list(xs)
    last = typeof(xs[0]).ndim - 1
    rows = [move_dim(x, dimension, last) for x in xs[:num_keys]]
    columns = [c for key in rows for c in _columns(key)]
    if len(xs) == len(columns) == 1:
        return [move_dim(sorted_rows_p.bind(columns[0]), last, dimension)]
    order: tuple[Any, ...] = ()
    for column in reversed(columns):
        order = (row_order_p.bind(column, *order, descending=False),)
    places = move_dim(order[0], last, dimension)
    return [take_along(x, places, dimension) for x in xs]


sort_p.define(
    transpose=declare_unsupported("is not linear in any operand"), lower=ExpandSpec(_sort_rows)
)


# --- top_k ------------------------------------------------------------------------------------------------------------

top_k_p = SortOp("top_k", multiple_results=True)


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> Sequence[Any]:
    """Return the `k` largest elements along dim `axis`, and their int32 indices.

    They are in descending order.

    >>> values, indices = top_k(np.array([5, 9, 7]), 2)
    >>> np.asarray(values).tolist(), np.asarray(indices).tolist()
    ([9, 7], [1, 2])

    Raises ShapeError for a `k` that is negative or larger than the dim, and for a dim whose indices do not fit int32.
    """
    (axis,) = canonical_dims("top_k", (axis,), typeof(operand).ndim)
    return top_k_p.bind(operand, axis=axis, k=as_int(k))


@top_k_p.def_type
def _top_k_type(aval: ShapedArray, *, axis: int, k: int):
    families.check_dtype("top_k", aval, ORDERED)
    check_axes("top_k", aval, (axis,))
    if not 0 <= k <= aval.shape[axis]:
        raise shape_error(
            "top_k",
            f"k = {k} must be from 0 to the size of dim {axis}.",
            [("operand", aval.str_short())],
        )
    if is_more_than(aval.shape[axis], np.iinfo(_INDEX).max):
        raise shape_error(
            "top_k",
            f"top_k returns int32 indices, which will overflow for a dim of size {aval.shape[axis]}.",
            [("operand", aval.str_short())],
        )
    shape = (*aval.shape[:axis], k, *aval.shape[axis + 1 :])
    return aval.update(shape=shape), ShapedArray(shape, _INDEX, False, None, aval.vma)


@top_k_p.def_reference
def _top_k_reference(x: NumPyArray, *, axis: int, k: int):
    (key,) = _comparable(x)
    # ascending over the flipped array, flipped back: descending, NaN first, the first of equals first
    order = (
        x.shape[axis] - 1 - np.flip(np.argsort(np.flip(key, axis), axis=axis, kind="stable"), axis)
    )
    picked = np.take(order, np.arange(k), axis=axis)
    return [np.take_along_axis(x, picked, axis), picked.astype(_INDEX)]


@top_k_p.def_jvp
def _top_k_jvp(primals: Values, tangents: Values, *, axis: int, k: int):
    values, indices = top_k_p.bind(*primals, axis=axis, k=k)
    if type(tangents[0]) is Zero or zero_tangent(values).aval.dtype != typeof(values).dtype:
        return [values, indices], [zero_tangent(values), zero_tangent(indices)]
    return [values, indices], [take_along(tangents[0], indices, axis), zero_tangent(indices)]


@top_k_p.def_batch
def _top_k_batch(mapped: BatchAxis, args: Values, dims: Sequence[int], *, axis: int, k: int):
    dim = dims[0]
    return top_k_p.bind(args[0], axis=axis + (axis >= dim), k=k), [dim, dim]


@top_k_p.def_factors
def _top_k_factors(in_avals: Avals, out_avals: Avals, *, axis: int, k: int):
    b = RuleBuilder()
    fs = b.add_factors(in_avals[0].shape)
    leading_dim = b.new(k)
    outs = [leading_dim if d == axis else f for d, f in enumerate(fs)]
    return b.rule([fs], [outs, outs], special={fs[axis]: "replicate", leading_dim: "replicate"})


#: the greatest elements are collected in one pass if there are at most `_MAX_LEADING`, and
#: `_MIN_ROW_RATIO` times as many in the row
_MAX_LEADING, _MIN_ROW_RATIO = 256, 8


def _top_k_rows(x: Value, *, axis: int, k: int):
    """Return the leading elements of rows by one pass, or, for many elements, by sorting the row."""
    aval = typeof(x)
    last, n = aval.ndim - 1, aval.shape[axis]
    rows = move_dim(x, axis, last)
    if k == 0 or aval.size == 0:
        shape = (*aval.shape[:axis], k, *aval.shape[axis + 1 :])
        return [full(shape, np.zeros((), aval.dtype)[()]), full(shape, np.int32(0))]
    if k <= _MAX_LEADING and (k * _MIN_ROW_RATIO <= n or k <= _MIN_ROW_RATIO):
        leading = leading_p.bind(rows, k=k)
        return [move_dim(y, last, axis) for y in leading]
    places = move_dim(
        slice_in_dim(row_order_p.bind(rows, descending=True), 0, k, axis=last), last, axis
    )
    return [take_along(x, places, axis), places]


top_k_p.define(
    transpose=declare_unsupported("is not linear in any operand"), lower=ExpandSpec(_top_k_rows)
)
