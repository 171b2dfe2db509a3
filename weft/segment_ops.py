"""Reductions of the rows of an array by segment: the functions of `jax.ops`.

In:  data, and the segment number of each row of data (along the first dims), in any order.
Out: one row for each segment; a segment without rows holds the identity of the reduction, and rows whose number is
     outside of the range are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft import numpy as wnp
from weft._engine.ir.symbolic import as_size
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all, named

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _largest(dtype):
    return (
        True
        if dtype == np.bool_
        else np.inf
        if dtypes.issubdtype(dtype, np.inexact)
        else np.iinfo(dtype).max
    )


def _smallest(dtype):
    return (
        False
        if dtype == np.bool_
        else -np.inf
        if dtypes.issubdtype(dtype, np.inexact)
        else np.iinfo(dtype).min
    )


def _segments(kind: str, method: str, combine: Callable, identity: Callable, doc: str) -> Callable:
    """Return a segment reduction, given the method of `.at[]`, the reduction of the buckets, and the identity for a dtype."""

    def reduce(
        data,
        segment_ids,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode=None,
    ):
        data, ids = wnp.asarray(data), wnp.asarray(segment_ids)
        if not dtypes.issubdtype(ids.dtype, np.integer):
            raise TypeError(f"segment_{kind}: segment_ids must be integers, got {ids.dtype.name}.")
        if bucket_size is not None and not ids.ndim:
            raise ValueError(
                f"segment_{kind}: with bucket_size, segment_ids needs a dim; got a scalar."
            )
        if num_segments is None:
            num_segments = int(wnp.max(ids)) + 1 if ids.size else 0
        n = as_size(num_segments)
        if n < 0:
            raise ValueError(f"segment_{kind}: num_segments must be non-negative, got {n}.")
        mode = getattr(mode, "name", mode)
        mode = (
            "drop"
            if mode is None or str(mode).lower() in ("fill", "drop", "fill_or_drop")
            else str(mode).lower()
        )
        if mode == "clip":
            ids = wnp.clip(ids, 0, n - 1)
        elif mode == "drop":
            # negative numbers are out of range, not relative to the end
            ids = wnp.where(wnp.less(ids, 0), n, ids)
        shape, at = (n, *data.shape[ids.ndim :]), ids
        if bucket_size is not None:
            bucket = wnp.floor_divide(wnp.arange(ids.shape[0]), bucket_size)
            shape, at = (
                (-(-ids.shape[0] // bucket_size), *shape),
                (wnp.expand_dims(bucket, tuple(range(1, ids.ndim))), ids),
            )
        start = wnp.full(shape, identity(data.dtype), data.dtype)
        result = getattr(start.at[at], method)(
            data, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode
        )
        return result if bucket_size is None else combine(result, 0).astype(data.dtype)

    return takes_out_sharding(named(reduce, f"segment_{kind}", doc), sums=kind == "sum")


segment_sum = _segments(
    "sum",
    "add",
    wnp.sum,
    lambda dtype: 0,
    """The sums of the rows of each segment.

    >>> segment_sum(wnp.array([1, 2, 3, 4]), wnp.array([0, 2, 2, 0]), 3).tolist()
    [5, 0, 5]
    """,
)
segment_prod = _segments(
    "prod", "multiply", wnp.prod, lambda dtype: 1, "The products of the rows of each segment."
)
segment_max = _segments("max", "max", wnp.max, _smallest, "The maxima of the rows of each segment.")
segment_min = _segments("min", "min", wnp.min, _largest, "The minima of the rows of each segment.")


guard_all(globals())
