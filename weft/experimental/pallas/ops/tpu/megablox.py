"""Grouped matrix products: groups of rows, each multiplied by the matrix of its group.

In:   matrices, and the number of rows of each group.
Out:  `gmm`, one matrix with the products of all rows, and `tgmm`, a matrix for each group.
"""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft._engine.util.errors import ShapeError, describe
from weft.lax import (
    RaggedDotDimensionNumbers,
    broadcasted_iota as iota,
    dynamic_slice_in_dim,
    ragged_dot,
    ragged_dot_general,
)

_CONTRACTED = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())


def gmm(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    preferred_element_type: Any = wnp.float32,
    tiling: Any = (128, 128, 128),
    group_offset: Any = None,
    existing_out: Any = None,
    transpose_rhs: bool = False,
    interpret: bool = False,
) -> Any:
    """Return the product of each row of `lhs` (m, k) and the matrix of its group in `rhs` (groups, k, n), as (m, n).

    The first `group_sizes[0]` rows belong to group 0, the next `group_sizes[1]` to group 1, and so on. `rhs` may hold only
    consecutive groups starting at `group_offset`; rows of other groups are copied from `existing_out`, or zero. With
    `transpose_rhs`, `rhs` is (groups, n, k). The result has the dtype `preferred_element_type`. `tiling` and `interpret`
    have no effect. Raises ShapeError if the shapes do not match.

    >>> gmm(np.ones((3, 2), 'f4'), np.array([[[1.], [1.]], [[5.], [5.]]], 'f4'), np.array([1, 2])).ravel().tolist()
    [2.0, 10.0, 10.0]
    """
    lhs, rhs, group_sizes = wnp.asarray(lhs), wnp.asarray(rhs), wnp.asarray(group_sizes)
    _check(
        "gmm",
        lhs.ndim == 2 and rhs.ndim == 3,
        f"lhs {lhs.shape} and rhs {rhs.shape}",
        "lhs has two dims and rhs three.",
    )
    rhs = wnp.swapaxes(rhs, 1, 2) if transpose_rhs else rhs
    sizes, first = _own_groups("gmm", group_sizes, group_offset, rhs.shape[0])
    product = lambda rows: ragged_dot(
        rows, rhs, sizes, preferred_element_type=preferred_element_type
    )
    if first is None:
        out = product(lhs)
    else:
        out = wnp.roll(product(wnp.roll(lhs, -first, 0)), first, 0)
    if existing_out is None:
        return out
    _check(
        "gmm",
        wnp.shape(existing_out) == out.shape,
        f"existing_out {wnp.shape(existing_out)}",
        f"It has the shape {out.shape}.",
    )
    row: Any = iota(int, (lhs.shape[0], 1), 0) - (0 if first is None else first)
    return wnp.where((row >= 0) & (row < wnp.sum(sizes)), out, wnp.asarray(existing_out, out.dtype))


def tgmm(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    preferred_element_type: Any = wnp.float32,
    tiling: Any = (128, 128, 128),
    group_offset: Any = None,
    num_actual_groups: int | None = None,
    existing_out: Any = None,
    interpret: bool = False,
) -> Any:
    """Return the product of the columns of `lhs` (k, m) and the rows of `rhs` (m, n) in each group, as (groups, k, n).

    `num_actual_groups` limits the result to as many groups, starting at `group_offset`. `existing_out` is added to the
    result. The result has the dtype `preferred_element_type`. `tiling` and `interpret` have no effect. Raises ShapeError
    if the shapes do not match.

    >>> tgmm(np.ones((1, 3), 'f4'), np.array([[1.], [2.], [3.]], 'f4'), np.array([1, 2])).ravel().tolist()
    [1.0, 5.0]
    """
    lhs, rhs, group_sizes = wnp.asarray(lhs), wnp.asarray(rhs), wnp.asarray(group_sizes)
    _check(
        "tgmm",
        lhs.ndim == 2 and rhs.ndim == 2,
        f"lhs {lhs.shape} and rhs {rhs.shape}",
        "Both have two dims.",
    )
    count = group_sizes.shape[0] if num_actual_groups is None else num_actual_groups
    sizes, first = _own_groups("tgmm", group_sizes, group_offset, count)
    if first is not None:
        lhs, rhs = wnp.roll(lhs, -first, 1), wnp.roll(rhs, -first, 0)
    out = ragged_dot_general(
        lhs.T, rhs, sizes, _CONTRACTED, preferred_element_type=preferred_element_type
    )
    return out if existing_out is None else out + wnp.asarray(existing_out, out.dtype)


def _own_groups(api: str, group_sizes: Any, offset: Any, count: int) -> tuple[Any, Any]:
    """Return the sizes of `count` groups from `offset` on, and the number of rows before them (None if there are none)."""
    _check(api, group_sizes.ndim == 1, f"group_sizes {group_sizes.shape}", "It has one dim.")
    if offset is None:
        _check(
            api,
            group_sizes.shape[0] == count,
            f"group_sizes {group_sizes.shape} and {count} groups",
            "There is a size for each group, or `group_offset` says which groups these are.",
        )
        return group_sizes, None
    offset = wnp.reshape(wnp.asarray(offset), ())
    before = wnp.where(wnp.arange(group_sizes.shape[0]) < offset, group_sizes, 0)
    return dynamic_slice_in_dim(group_sizes, offset, count), wnp.sum(before)


def _check(api: str, holds: bool, facts: str, rule: str) -> None:
    if not holds:
        raise ShapeError(describe(api, f"shapes do not fit: {facts}.", rule=rule))
