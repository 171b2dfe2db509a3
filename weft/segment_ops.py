"""Reductions of the rows of an array by segment: what JAX calls `jax.ops`.

In:  data, and for each row of it (along the first dims) the number of its segment, in any order.
Out: one row for each segment; a segment without rows holds the identity of the reduction, and rows whose number is
     outside of the range are dropped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from weft import numpy as wnp
from weft.ops.placement import takes_out_sharding
from weft.util import dtypes

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _largest(dtype):
    return True if dtype == np.bool_ else np.inf if dtypes.issubdtype(dtype, np.inexact) else np.iinfo(dtype).max


def _smallest(dtype):
    return False if dtype == np.bool_ else -np.inf if dtypes.issubdtype(dtype, np.inexact) else np.iinfo(dtype).min


# method of `.at[]`, reduction of the buckets, identity
_KINDS: dict[str, tuple[str, Callable, Callable]] = {
    "sum": ("add", wnp.sum, lambda dtype: 0), "prod": ("multiply", wnp.prod, lambda dtype: 1),
    "max": ("max", wnp.max, _smallest), "min": ("min", wnp.min, _largest),
}


def _reduce(kind: str, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode):
    method, combine, identity = _KINDS[kind]
    data, ids = wnp.asarray(data), wnp.asarray(segment_ids)
    if not dtypes.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"segment_{kind}: segment_ids must be integers, got {ids.dtype.name}.")
    if num_segments is None:
        num_segments = int(wnp.max(ids)) + 1 if ids.size else 0
    n = operator.index(num_segments)
    if n < 0:
        raise ValueError(f"segment_{kind}: num_segments must be non-negative, got {n}.")
    mode = getattr(mode, "name", mode)
    mode = "drop" if mode is None or str(mode).lower() in ("fill", "drop", "fill_or_drop") else str(mode).lower()
    if mode == "clip":
        ids = wnp.clip(ids, 0, n - 1)
    elif mode == "drop":
        ids = wnp.where(wnp.less(ids, 0), n, ids)        # numbers below 0 do not count from the end
    row = data.shape[ids.ndim:]
    fill = identity(data.dtype)
    if bucket_size is None:
        start = wnp.full((n, *row), fill, data.dtype)
        return _update(start.at[ids], method, data, indices_are_sorted, unique_indices, mode)
    buckets = -(-ids.shape[0] // bucket_size)
    start = wnp.full((buckets, n, *row), fill, data.dtype)
    bucket = wnp.expand_dims(wnp.floor_divide(wnp.arange(ids.shape[0]), bucket_size), tuple(range(1, ids.ndim)))
    return combine(_update(start.at[bucket, ids], method, data, indices_are_sorted, unique_indices, mode), 0)


def _update(at, method: str, data, indices_are_sorted: bool, unique_indices: bool, mode: str):
    return getattr(at, method)(data, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode)


@takes_out_sharding
def segment_sum(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None):
    """The sums of the rows of each segment.

    >>> segment_sum(wnp.array([1, 2, 3, 4]), wnp.array([0, 2, 2, 0]), 3).tolist()
    [5, 0, 5]
    """
    return _reduce("sum", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)


@takes_out_sharding
def segment_prod(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False, bucket_size: int | None = None, mode=None):
    """The products of the rows of each segment."""
    return _reduce("prod", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)


@takes_out_sharding
def segment_max(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None):
    """The maxima of the rows of each segment."""
    return _reduce("max", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)


@takes_out_sharding
def segment_min(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None):
    """The minima of the rows of each segment."""
    return _reduce("min", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)
