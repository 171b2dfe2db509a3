"""Matrix products whose rows, or contracted dims, are in groups of different sizes.

In:   `lhs` with one ragged dim, `rhs` with a matrix for each group (or one for all), and the group
      sizes.
Out:  a product like `dot_general`'s, with a separate matrix or a separate result for each group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.contraction import (
    DotDimensionNumbers,
    PrecisionLike,
    algorithm_by_casts,
    canonical_precision,
    dot_general,
)
from weft._engine.ops.elementwise import convert_element_type, sub
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape, transpose
from weft._engine.ops.placement import reshard, with_out_sharding
from weft._engine.ops.ragged import ragged_dot as ragged_dot_of_batches, ragged_dot_by_masks
from weft._engine.ops.reduce import cumsum, reduce_sum
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.source import guard_all

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


class RaggedDotDimensionNumbers(NamedTuple):
    """The dimension numbers of `dot_general`, the ragged dim of `lhs`, and the group dim of `rhs`."""

    __module__ = "weft.lax"

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def ragged_dot(
    lhs,
    rhs,
    group_sizes,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
):
    """Return the product of `lhs` (m, k) with `rhs` (groups, k, n).

    Each row of `lhs` is multiplied by the matrix of its group.

    The first `group_sizes[0]` rows belong to group 0, the next `group_sizes[1]` ones to group 1,
    and so on; rows outside all groups give zeros.
    Raises ShapeError if the shapes do not fit, NotImplementedError for `group_offset`.

    >>> ragged_dot(np.ones((3, 2)), np.array([[[1.], [1.]], [[5.], [5.]]]), np.array([1, 2])).ravel().tolist()
    [2.0, 10.0, 10.0]
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs,
        rhs,
        group_sizes,
        numbers,
        precision,
        preferred_element_type,
        group_offset,
        out_sharding,
    )


def ragged_dot_general(
    lhs,
    rhs,
    group_sizes,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
):
    """Return `dot_general` with a ragged dim of `lhs`, whose groups are consecutive.

    If the ragged dim is free, `rhs` has a group dim, and each group is multiplied by its own part
    of `rhs`. If it is contracted, each group has a separate result, in a new first dim. If it is a
    batch dim, the groups have no influence. `group_sizes` has the number of members of each group;
    it may differ between indices of the batch dims and of the dims of the same kind before the
    ragged one, which are then its leading dims.
    Raises ShapeError if the shapes do not fit, NotImplementedError for `group_offset`.

    >>> numbers = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> ragged_dot_general(np.ones((3, 2)), np.ones((3, 4)), np.array([1, 2]), numbers)[:, 0, 0].tolist()
    [1.0, 2.0]
    """
    if group_offset is not None:
        raise NotImplementedError(
            "ragged_dot_general: group_offset is not supported. Pass all groups."
        )
    lhs, rhs, group_sizes = [
        x if isinstance(x, Tracer) else to_array(x) for x in (lhs, rhs, group_sizes)
    ]
    if out_sharding is not None:
        plain = lambda: ragged_dot_general(
            lhs, rhs, group_sizes, ragged_dot_dimension_numbers, precision, preferred_element_type
        )
        return with_out_sharding(out_sharding, "ragged_dot_general", plain, lhs, rhs)
    dot_numbers, ragged_dims, group_dims = ragged_dot_dimension_numbers
    (_, rhs_contracted), (lhs_batch, rhs_batch) = dot_numbers = _integers(dot_numbers)
    ragged, group = _check(
        lhs, rhs, group_sizes, dot_numbers, tuple(ragged_dims), tuple(group_dims)
    )
    if ragged in lhs_batch:
        return dot_general(lhs, rhs, dot_numbers, precision, preferred_element_type)
    compute = _product(lhs, rhs, group is None, precision, preferred_element_type)
    columns = [d for d in range(rhs.ndim) if d not in (*rhs_contracted, *rhs_batch, group)]
    if group is None:
        return _by_sums(lhs, rhs, group_sizes, compute, ragged, dot_numbers, columns)
    return _by_rows(lhs, rhs, group_sizes, compute, ragged, group, dot_numbers, columns)


def _product(lhs, rhs, contracted: bool, precision: PrecisionLike, preferred: Any) -> Callable:
    """Return a function that computes the product of operands in the form of `ops.ragged`."""
    if algorithm_by_casts(precision, lhs, rhs) is None and lhs.dtype == rhs.dtype:
        canonical = canonical_precision(precision)
        dtype = None if preferred is None else dtypes.named_dtype(preferred)
        return lambda lhs, rhs, starts, ends, rows: ragged_dot_of_batches(
            lhs, rhs, starts, ends, rows, contracted, canonical, dtype
        )
    multiply = lambda x, y, numbers: dot_general(x, y, numbers, precision, preferred)
    return lambda lhs, rhs, starts, ends, rows: ragged_dot_by_masks(
        lhs, rhs, starts, ends, rows, contracted, multiply
    )


def _by_rows(
    lhs,
    rhs,
    group_sizes,
    compute: Callable,
    ragged: int,
    group: int,
    numbers: Any,
    columns: list[int],
):
    """Multiply with a ragged free dim.

    Other free dims of `lhs` become batch dims with the same matrices.
    """
    (lhs_contracted, rhs_contracted), (lhs_batch, rhs_batch) = numbers
    free = [d for d in range(lhs.ndim) if d not in (*lhs_contracted, *lhs_batch, ragged)]
    batch = (*lhs_batch, *free)
    lhs_roles = _merge_roles(lhs, batch, (ragged,), lhs_contracted)
    right = _merge_roles(rhs, (*rhs_batch, group), rhs_contracted, columns)
    if free:
        operand_dims = (*range(len(lhs_batch)), *range(len(batch), len(batch) + 3))
        right = broadcast_in_dim(
            right, (*lhs_roles.shape[: len(batch)], *right.shape[-3:]), operand_dims
        )
    out = compute(
        lhs_roles,
        right,
        *_group_bounds(
            group_sizes, lhs_roles, batch, _before(lhs, ragged, lhs_contracted, lhs_batch)
        ),
    )
    out = reshape(out, (*out.shape[:-1], *[rhs.shape[d] for d in columns]))
    have = [*batch, ragged]
    return transpose(
        out,
        (
            *[have.index(d) for d in (*lhs_batch, *sorted([*free, ragged]))],
            *range(len(have), out.ndim),
        ),
    )


def _by_sums(
    lhs, rhs, group_sizes, compute: Callable, ragged: int, numbers: Any, columns: list[int]
):
    """Multiply with a ragged contracted dim.

    Other contracted dims become batch dims, which are then summed.
    """
    (lhs_contracted, rhs_contracted), (lhs_batch, rhs_batch) = numbers
    free = [d for d in range(lhs.ndim) if d not in (*lhs_contracted, *lhs_batch)]
    pairs = [(i, j) for i, j in zip(lhs_contracted, rhs_contracted) if i != ragged]
    batch = (*lhs_batch, *[i for i, _ in pairs])
    lhs_roles = _merge_roles(lhs, batch, (ragged,), free)
    right = _merge_roles(
        rhs,
        (*rhs_batch, *[j for _, j in pairs]),
        (rhs_contracted[lhs_contracted.index(ragged)],),
        columns,
    )
    out = compute(
        lhs_roles,
        right,
        *_group_bounds(
            group_sizes, lhs_roles, batch, _before(lhs, ragged, lhs_contracted, lhs_batch)
        ),
    )
    if pairs:
        out = reduce_sum(out, tuple(range(len(lhs_batch), len(batch))))
    out = reshape(
        out, (*out.shape[:-2], *[lhs.shape[d] for d in free], *[rhs.shape[d] for d in columns])
    )
    at = len(lhs_batch)
    return transpose(out, (at, *[d for d in range(out.ndim) if d != at]))


def _merge_roles(x, batch: Sequence[int], *roles: Sequence[int]):
    """Return `x` with its batch dims first, and the dims of each role merged into one."""
    turned = transpose(x, (*batch, *[d for dims in roles for d in dims]))
    return reshape(
        turned,
        (*turned.shape[: len(batch)], *[math.prod(x.shape[d] for d in dims) for dims in roles]),
    )


def _group_bounds(group_sizes, left, batch: Sequence[int], before: Sequence[int]) -> tuple:
    """Return start and end of the groups of each batch element, and the row numbers.

    Sizes may have dims for the dims in `before`.
    """
    at = [batch.index(d) for d in before] if group_sizes.ndim > 1 else []
    order = sorted(range(len(at)), key=lambda i: at[i])
    sizes = transpose(convert_element_type(group_sizes, np.int32), (*order, len(at)))
    split = typeof(sizes).explicit
    if split is not None:  # the start of a group depends on all rows before it
        sizes = reshard(sizes, NamedSharding(split.mesh, PartitionSpec()))
    spread = lambda x: broadcast_in_dim(
        x, (*left.shape[: len(batch)], sizes.shape[-1]), (*sorted(at), len(batch))
    )
    ends = cumsum(sizes, len(at))
    return (
        spread(sub(ends, sizes)),
        spread(ends),
        broadcasted_iota(np.int32, left.shape[:-1], len(batch)),
    )


def _integers(numbers: DotDimensionNumbers) -> Any:
    return tuple(tuple(tuple(int(d) for d in dims) for dims in pair) for pair in numbers)


def _before(
    lhs, ragged: int, contracted: tuple[int, ...], batch: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the dims of `lhs` for whose indices group sizes may differ."""
    same_role = (
        contracted
        if ragged in contracted
        else [d for d in range(lhs.ndim) if d not in (*contracted, *batch)]
    )
    return (*batch, *list(same_role)[: list(same_role).index(ragged)])


def _check_group_sizes(lhs, group_sizes, ragged: int, contracted, batch, refuse: Callable) -> None:
    """Raise ShapeError unless `group_sizes` has a row for each index of the dims before the ragged one."""
    if ragged in batch:
        expected = (*[lhs.shape[d] for d in batch[: batch.index(ragged)]], *group_sizes.shape[-1:])
        if group_sizes.ndim > 1 and tuple(group_sizes.shape) != expected:
            raise refuse(
                f"expected group_sizes to have shape {expected}, got {tuple(group_sizes.shape)}"
            )
    else:
        if not group_sizes.ndim:
            raise refuse("expects group_sizes with a dim of groups, got a scalar")
        prefix = tuple(lhs.shape[d] for d in _before(lhs, ragged, contracted, batch))
        expected = (*(prefix if group_sizes.ndim > 1 else ()), group_sizes.shape[-1])
        if tuple(group_sizes.shape) != expected:
            raise refuse(
                f"expected group_sizes to have shape {expected}, got {tuple(group_sizes.shape)}"
            )


def _refusal(lhs, rhs, group_sizes, rule: str) -> ShapeError:
    arrays = (("lhs", lhs), ("rhs", rhs), ("group_sizes", group_sizes))
    rows = [(name, f"{x.dtype}{list(x.shape)}") for name, x in arrays]
    return ShapeError(describe("ragged_dot_general", f"ragged_dot_general {rule}.", rows))


def _check(
    lhs, rhs, group_sizes, numbers, ragged_dims: tuple[int, ...], group_dims: tuple[int, ...]
) -> tuple[int, int | None]:
    """Return the ragged dim of `lhs` and the group dim of `rhs`, if there is one."""
    (contracted, rhs_contracted), (batch, rhs_batch) = numbers
    refuse = functools.partial(_refusal, lhs, rhs, group_sizes)
    if len(ragged_dims) != 1:
        raise refuse(f"expects exactly one lhs ragged dimension, got {ragged_dims}")
    [ragged] = ragged_dims
    if not 0 <= ragged < lhs.ndim:
        raise refuse(
            "requires lhs ragged dimension numbers to be nonnegative and less than the number of axes of the lhs, "
            f"{lhs.ndim}, got {ragged}"
        )
    for d in group_dims:
        if not 0 <= d < rhs.ndim:
            raise refuse(
                "requires rhs group dimension numbers to be nonnegative and less than the number of axes of the rhs, "
                f"{rhs.ndim}, got {d}"
            )
        if d in (*rhs_contracted, *rhs_batch):
            raise refuse(
                f"requires rhs group dimension numbers to be distinct from contracting and batch dimensions, got {d}"
            )
    if ragged in (*contracted, *batch):
        if group_dims:
            raise refuse(
                "requires zero group dimensions in the rhs when lhs ragged dimension is contracting or batch, got "
                f"{len(group_dims)}"
            )
    elif len(group_dims) != 1:
        raise refuse(
            f"requires exactly one rhs group dimension when lhs ragged dimension is noncontracting, got {len(group_dims)}"
        )
    _check_group_sizes(lhs, group_sizes, ragged, contracted, batch, refuse)
    if ragged not in batch and group_dims:
        count = group_sizes.shape[-1]
        if rhs.shape[group_dims[0]] != count:
            raise refuse(
                f"expected rhs group dimension size to be {count}, got {rhs.shape[group_dims[0]]}"
            )
    return ragged, group_dims[0] if group_dims else None


guard_all(globals())
