"""Matrix products whose rows, or contracted dims, are in consecutive groups with run-time sizes.

`ragged_dot`: operands lhs (*batch, m, k) and rhs, `starts` and `ends` (*batch, groups), `rows`
(*batch, m). Row i of lhs belongs to group g if starts[g] <= rows[i] < ends[g]; row numbers increase
by one, and groups are in order and disjoint. Rows outside all groups give zeros. With `contracted`
False rhs is (*batch, groups, k, n), and the result (*batch, m, n): each row times the matrix of its
group. With True rhs is (*batch, m, n), and the result (*batch, groups, k, n): for each group, the
sum over its rows of products of lhs's elements and rhs's. Explicit row numbers that need not begin
at 0 let a device with some of the rows, or some of the groups, compute its share.

The compiler rewrites it to a `grouped_dot`, whose last operands are the first row and the number of
rows of each group: one matmul per group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import RaggedOp, declare_unsupported
from weft._engine.core.trace import is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.comparison import clamp, ge, lt, select
from weft._engine.ops.contraction import (
    convert,
    dot_general_p,
    is_whole,
    round_values,
    sums_of_products,
    swap_precision,
)
from weft._engine.ops.elementwise import add, sub
from weft._engine.ops.families import is_narrow, joined_vma, shape_error
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, full, transpose
from weft._engine.ops.lowering_specs import ExpandSpec, GroupedSpec
from weft._engine.ops.rule_helpers import aval_of, batch_dim_to_front, multilinear
from weft._engine.ops.slicing import slice_in_dim
from weft._engine.util import dtypes
from weft._engine.util.promotion import sum_dtype

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.contraction import DotNumbers, ProductPrecision
    from weft._engine.ops.rule_types import Avals, BatchDims, NumPyArray, Value, Values

ragged_dot_p = RaggedOp("ragged_dot")
grouped_dot_p = RaggedOp("grouped_dot")


def ragged_dot(
    lhs: Value,
    rhs: Value,
    starts: Value,
    ends: Value,
    rows: Value,
    contracted: bool,
    precision: ProductPrecision = None,
    preferred_element_type: np.dtype[Any] | None = None,
):
    """Return the product as described in the module;

    `lhs` and `rhs` have one dtype, the others are int32.
    """
    return ragged_dot_p.bind(
        lhs,
        rhs,
        starts,
        ends,
        rows,
        contracted=contracted,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def ragged_dot_by_masks(
    lhs: Value,
    rhs: Value,
    starts: Value,
    ends: Value,
    rows: Value,
    contracted: bool,
    product: Callable[..., Any],
):
    """Return the same result as one `product` (like `dot_general`).

    Each group has zeros in the rows of the others.
    """
    shape, at = typeof(lhs).shape, typeof(lhs).ndim - 2
    batch, groups = tuple(range(at)), typeof(starts).shape[-1]
    grouped_shape = (*shape[:-1], groups)
    along: Callable[[Value], Value] = lambda x: broadcast_in_dim(x, grouped_shape, (*batch, at))
    across: Callable[[Value], Value] = lambda x: broadcast_in_dim(
        x, grouped_shape, (*batch, at + 1)
    )
    inside = bitwise_and(ge(along(rows), across(starts)), lt(along(rows), across(ends)))
    spread = (*grouped_shape, shape[-1])
    parted = select(
        broadcast_in_dim(inside, spread, (*batch, at, at + 1)),
        broadcast_in_dim(lhs, spread, (*batch, at, at + 2)),
        full(spread, 0, typeof(lhs).dtype),
    )
    summed = ((at,), (at,)) if contracted else ((at + 1, at + 2), (at, at + 1))
    return product(parted, rhs, (summed, (batch, batch)))


def _mask(
    lhs: Value,
    rhs: Value,
    starts: Value,
    ends: Value,
    rows: Value,
    *,
    contracted: bool,
    **params: Any,
):
    product: Callable[[Value, Value, DotNumbers], Value] = lambda x, y, numbers: dot_general_p.bind(
        x, y, dimension_numbers=numbers, **params
    )
    return ragged_dot_by_masks(lhs, rhs, starts, ends, rows, contracted, product)


# --- rules


@ragged_dot_p.def_type
def _type(
    lhs: ShapedArray,
    rhs: ShapedArray,
    starts: ShapedArray,
    ends: ShapedArray,
    rows: ShapedArray,
    *,
    contracted: bool,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
) -> ShapedArray:
    batch, groups = lhs.shape[:-2], starts.shape[-1:]
    free = (*batch, *lhs.shape[-2:-1]) if contracted else (*batch, *groups, *lhs.shape[-1:])
    if (
        rhs.shape[:-1] != free
        or starts.shape != (*batch, *groups)
        or ends.shape != starts.shape
        or rows.shape != lhs.shape[:-1]
    ):
        operands = zip(("lhs", "rhs", "starts", "ends", "rows"), (lhs, rhs, starts, ends, rows))
        raise shape_error(
            "ragged_dot",
            "shapes do not fit.",
            [(name, aval.str_short()) for name, aval in operands],
            f"rhs must be {list(free)} and a dim of columns.",
        )
    shape = (
        (*batch, *groups, lhs.shape[-1], rhs.shape[-1])
        if contracted
        else (*lhs.shape[:-1], rhs.shape[-1])
    )
    weak = lhs.weak_type and rhs.weak_type and preferred_element_type is None
    return ShapedArray(
        shape,
        preferred_element_type or lhs.dtype,
        weak,
        None,
        joined_vma((lhs, rhs, starts, ends, rows)),
    )


@ragged_dot_p.def_reference
def _reference(
    lhs: NumPyArray,
    rhs: NumPyArray,
    starts: NumPyArray,
    ends: NumPyArray,
    rows: NumPyArray,
    *,
    contracted: bool,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    out = lhs.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    acc_dtype = sum_dtype(lhs.dtype, rhs.dtype, out)
    inside = (rows[..., None] >= starts[..., None, :]) & (rows[..., None] < ends[..., None, :])
    parted = np.where(inside[..., None], lhs[..., None, :], np.zeros((), lhs.dtype)).astype(
        acc_dtype
    )
    form = "...mgk,...mn->...gkn" if contracted else "...mgk,...gkn->...mn"
    return round_values(np.einsum(form, parted, rhs.astype(acc_dtype)), out)


multilinear(ragged_dot_p, (0, 1))


@ragged_dot_p.def_transpose
def _transpose(
    ct: Value,
    lhs: Value,
    rhs: Value,
    *places: Value,
    contracted: bool,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    starts, ends, rows = places
    turned: Callable[[Value], Value] = lambda x: transpose(
        x, (*range(typeof(x).ndim - 2), typeof(x).ndim - 1, typeof(x).ndim - 2)
    )
    if is_undef(lhs):
        out, x, y, sums = lhs.aval, *((rhs, turned(ct)) if contracted else (ct, turned(rhs))), False
        precision = swap_precision(precision) if contracted else precision
    else:
        out, x, y, sums = aval_of(rhs), lhs, ct, not contracted
    a, b = typeof(x).dtype, typeof(y).dtype
    acc_dtype = a if a == b else sum_dtype(a, b, out.dtype)
    result = convert(
        ragged_dot(
            convert(x, acc_dtype), convert(y, acc_dtype), starts, ends, rows, sums, precision
        ),
        out.dtype,
    )
    return [result, None, None, None, None] if is_undef(lhs) else [None, result, None, None, None]


@ragged_dot_p.def_batch
def _batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
    return ragged_dot_p.bind(
        *[batch_dim_to_front(x, dim, axis.size) for x, dim in zip(args, dims)], **params
    ), 0


@ragged_dot_p.def_factors
def _factors(
    in_avals: Avals,
    out_avals: Avals,
    *,
    contracted: bool,
    precision: ProductPrecision,
    preferred_element_type: np.dtype[Any] | None,
):
    lhs, rhs, starts, *_ = in_avals
    b = RuleBuilder()
    *batch, m, k, n, group = b.add_factors((*lhs.shape, rhs.shape[-1], starts.shape[-1]))
    matrices, of_rows = [*batch, group, k, n], [*batch, m, n]
    right, out = (of_rows, matrices) if contracted else (matrices, of_rows)
    summed = (m,) if contracted else (k, group)
    return b.rule(
        [[*batch, m, k], right, [*batch, group], [*batch, group], [*batch, m]],
        [out],
        **sums_of_products(summed, (lhs.dtype, rhs.dtype), out_avals[0].dtype),
    )


def _by_groups(lhs: Value, rhs: Value, starts: Value, ends: Value, rows: Value, **params: Any):
    """Return the product by `grouped_dot`, or by masks if the compiler has no matmul of these dtypes.

    The group bounds that it receives count from the first of `rows`.
    """
    left, right = typeof(lhs), typeof(rhs)
    out = (
        left.dtype
        if params["preferred_element_type"] is None
        else np.dtype(params["preferred_element_type"])
    )
    differ = left.dtype != right.dtype or not is_whole(left.dtype, right.dtype, out)
    has_no_matmul = (
        differ
        or "b" in (left.dtype.kind, out.kind)
        or (
            left.dtype != out
            and (dtypes.is_complex(left.dtype) or (is_narrow(left.dtype) and out != np.float32))
        )
    )
    if has_no_matmul or not left.size or not right.size or not typeof(starts).size:
        return _mask(lhs, rhs, starts, ends, rows, **params)
    m, groups = left.shape[-2], typeof(starts).shape
    first = broadcast_in_dim(
        slice_in_dim(rows, 0, 1, axis=len(groups) - 1), groups, tuple(range(len(groups)))
    )
    here: Callable[[Value], Value] = lambda x: clamp(np.int32(0), sub(x, first), np.int32(m))
    begin = here(starts)
    return grouped_dot_p.bind(
        lhs, rhs, begin, clamp(np.int32(0), sub(here(ends), begin), np.int32(m)), **params
    )


ragged_dot_p.define(lower=ExpandSpec(_by_groups))


# --- the compiled form


@grouped_dot_p.def_type
def _grouped_type(
    lhs: ShapedArray, rhs: ShapedArray, first: ShapedArray, count: ShapedArray, **params: Any
):
    return ragged_dot_p.abstract(
        [lhs, rhs, first, count, first.update(shape=lhs.shape[:-1])], params
    )[0]


@grouped_dot_p.def_reference
def _grouped_reference(
    lhs: NumPyArray, rhs: NumPyArray, first: NumPyArray, count: NumPyArray, **params: Any
):
    rows = np.broadcast_to(np.arange(lhs.shape[-2], dtype=np.int32), lhs.shape[:-1])
    return _reference(lhs, rhs, first, first + count, rows, **params)


_LATE = declare_unsupported("Matmuls per group are made after transformations and partitioning.")
grouped_dot_p.define(jvp=_LATE, transpose=_LATE, batch=_LATE, factors=_LATE, lower=GroupedSpec())


def grouped_in_full(lhs: Value, rhs: Value, first: Value, count: Value, **params: Any):
    """Return `grouped_dot` in XLA operations."""
    shape = typeof(lhs).shape[:-1]
    return _mask(
        lhs,
        rhs,
        first,
        add(first, count),
        broadcasted_iota(np.int32, shape, len(shape) - 1),
        **params,
    )
