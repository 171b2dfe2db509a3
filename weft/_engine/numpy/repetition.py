"""Repetition of elements and of whole arrays."""

from __future__ import annotations

import builtins
import math
import operator

import numpy as np

from weft._engine.core.trace import Tracer
from weft._engine.ir.symbolic import SymbolicDim, as_int
from weft._engine.numpy import indexing
from weft._engine.numpy.creation import arange, zeros
from weft._engine.numpy.manipulation import broadcast_to, ravel, reshape
from weft._engine.numpy.promote import array_of, flatten_for_axis, value
from weft._engine.ops import layout
from weft._engine.ops.placement import takes_out_sharding


@takes_out_sharding
def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None):
    """Return each element (or slice along `axis`) repeated `repeats` times.

    >>> wnp.repeat(wnp.arange(3), 2)
    Array([0, 0, 1, 1, 2, 2], dtype=int32)
    """
    a, repeats = (
        array_of("repeat", a),
        repeats if isinstance(repeats, SymbolicDim) else value(repeats),
    )
    a, axis = flatten_for_axis("repeat", a if a.ndim or axis is None else ravel(a), axis)
    n = a.shape[axis]
    if isinstance(repeats, (int, np.integer, SymbolicDim)) and total_repeat_length is None:
        r = as_int(repeats)
        shape = tuple(a.shape)
        repeated = layout.broadcast_in_dim(
            a,
            (*shape[: axis + 1], r, *shape[axis + 1 :]),
            tuple(d + (d > axis) for d in range(a.ndim)),
        )
        return layout.reshape(repeated, (*shape[:axis], n * r, *shape[axis + 1 :]))
    if isinstance(repeats, Tracer):
        if total_repeat_length is None:
            operator.index(repeats) if not repeats.ndim else np.asarray(repeats)
        from weft._engine.numpy.reductions import cumsum  # few programs repeat by traced counts
        from weft._engine.numpy.sorting import searchsorted

        ends = cumsum(broadcast_to(repeats, (n,)))
        positions = searchsorted(ends, arange(total_repeat_length), side="right")
        return indexing.getitem(a, (slice(None),) * axis + (positions,), mode="clip")
    counts = np.broadcast_to(np.asarray(repeats), (n,))
    positions = np.repeat(np.arange(n), counts)
    if total_repeat_length is not None:
        last = n - 1
        positions = np.concatenate(
            [positions, np.full(builtins.max(0, total_repeat_length - len(positions)), last)]
        )[:total_repeat_length]
    return indexing.getitem(a, (slice(None),) * axis + (positions,))


def tile(A, reps):
    """Return `A` repeated `reps` times along each dim."""
    a = array_of("tile", A)
    reps = (
        (reps,)
        if isinstance(reps, (int, np.integer, SymbolicDim))
        else tuple(as_int(r) for r in reps)
    )
    n = builtins.max(a.ndim, len(reps))
    reps = (1,) * (n - len(reps)) + reps
    shape = (1,) * (n - a.ndim) + tuple(a.shape)
    repeated = layout.broadcast_in_dim(
        layout.reshape(a, shape),
        tuple(k for pair in zip(reps, shape) for k in pair),
        tuple(2 * d + 1 for d in range(n)),
    )
    return layout.reshape(repeated, tuple(r * s for r, s in zip(reps, shape)))


def resize(a, new_shape):
    """Return the elements of `a`, repeated or cut to fill `new_shape`."""
    flat = ravel(a)
    shape = (new_shape,) if isinstance(new_shape, (int, SymbolicDim)) else tuple(new_shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"resize: all elements of new_shape must be non-negative, got {shape}.")
    size = math.prod(shape)
    if not flat.size:
        return zeros(shape, flat.dtype)
    flat = tile(flat, -(-size // flat.size))[:size] if size > flat.size else flat[:size]
    return reshape(flat, shape)
