"""Local equations for the steps of resharding plans, for partial sums and for padded blocks.

In:   a local value under the trace of the local program.
Out:  local values, bound with ordinary ops and collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.collective_spec import COLLECTIVES
from weft._engine.ops import arithmetic, casting, collectives, comparison, families, layout, slicing
from weft._engine.ops.arithmetic import mul
from weft._engine.ops.dynamic_slicing import dynamic_update_slice
from weft._engine.partition.reshard import ReshardStep
from weft._engine.util import dtypes

Axes = tuple[Any, ...]
Shape = tuple[int, ...]


def as_partial_sum(x: Any, axes: Axes) -> Any:
    """Return a whole value as a partial sum over `axes`: the value on the first device along the axes, zeros elsewhere."""
    first = comparison.eq(collectives.axis_index(axes), np.int32(0))
    aval = typeof(x)
    return comparison.select_n(first, layout.full(aval.shape, 0, aval.dtype), x)


def with_zeros(x: Any, n: int) -> Any:
    """Return an array with a new first dim of size `n`: `x` at index 0, zeros at the others."""
    shape = typeof(x).shape
    return _padded_to(
        layout.broadcast_in_dim(x, (1, *shape), tuple(range(1, len(shape) + 1))), 0, n
    )


def own_block(x: Any, dim: int, axes: Axes, size: int) -> Any:
    """Return a block of a dim of `size` elements that `axes` split evenly as a partial sum over them: at its position, among zeros."""
    aval = typeof(x)
    whole = layout.full((*aval.shape[:dim], size, *aval.shape[dim + 1 :]), 0, aval.dtype)
    at = mul(collectives.axis_index(axes), np.int32(aval.shape[dim]))
    return dynamic_update_slice(
        whole, x, [at if d == dim else np.int32(0) for d in range(len(aval.shape))]
    )


def _own_slice(step: ReshardStep, x: Any, n: int, after: Shape) -> Any:
    return collectives.own_slice(_padded_to(x, step.dim, n * after[step.dim]), step.axes, step.dim)


def _all_gather(step: ReshardStep, x: Any, n: int, after: Shape) -> Any:
    return _cut_to(
        collectives.all_gather(x, step.axes, axis=step.dim, tiled=True), step.dim, after[step.dim]
    )


def _reduce_scatter(step: ReshardStep, x: Any, n: int, after: Shape) -> Any:
    x = _padded_to(x, step.dim, n * after[step.dim])
    return collectives.psum_scatter(x, step.axes, scatter_dimension=step.dim, tiled=True)


def _all_to_all(step: ReshardStep, x: Any, n: int, after: Shape) -> Any:
    x = _padded_to(x, step.target, n * after[step.target])
    x = collectives.all_to_all(
        x, step.axes, split_axis=step.target, concat_axis=step.dim, tiled=True
    )
    return _cut_to(x, step.dim, after[step.dim])


_STEPS: dict[str, Callable[[ReshardStep, Any, int, Shape], Any]] = {
    "own_slice": _own_slice,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "psum": lambda step, x, n, after: collectives.psum(x, step.axes),
    "ppermute": lambda step, x, n, after: collectives.bind_ppermute(x, step.axes, step.perm),
}


def emit_step(step: ReshardStep, x: Any, n: int, after: Shape, selects: bool = False) -> Any:
    """Apply one step of a resharding plan to local `x`, along axes of `n` devices; return the local result of shape `after`.

    A dim is padded before it is split into uneven blocks, and truncated after padded blocks are gathered. A sum of bools is their
    logical or, computed by counting. A sum that `selects` has one term, and zeros with the sign of negative zeros, so it adds bits: a
    sum of floats begins with positive zero and would lose the sign of a negative zero.
    """
    emit = _STEPS[step.kind]
    dtype = typeof(x).dtype
    if dtype == np.bool_ and COLLECTIVES[step.kind].reduces:
        count = np.min_scalar_type(n)
        return comparison.ne(
            emit(step, casting.convert_element_type(x, count), n, after), count.type(0)
        )
    if (
        not selects
        or not COLLECTIVES[step.kind].reduces
        or not families.dtype_in(dtype, families.INEXACT)
    ):
        return emit(step, x, n, after)
    if families.dtype_in(dtype, families.COMPLEX):
        return casting.complex(
            *[
                emit_step(step, part, n, after, selects)
                for part in (casting.real(x), casting.imag(x))
            ]
        )

    def as_dtype(x: Any, dtype: np.dtype) -> Any:
        return casting.bitcast_convert_type_p.bind(x, new_dtype=dtype)

    bits = as_dtype(arithmetic.neg(x), np.dtype(f"uint{dtypes.itemsize_bits(dtype)}"))
    return arithmetic.neg(as_dtype(emit(step, bits, n, after), dtype))


def _padded_to(x: Any, dim: int, size: int) -> Any:
    """Return `x` padded with zeros at the end of `dim` to `size`."""
    aval = typeof(x)
    config = [(0, size - s, 0) if d == dim else (0, 0, 0) for d, s in enumerate(aval.shape)]
    return slicing.pad(x, np.zeros((), aval.dtype)[()], config)


def _cut_to(x: Any, dim: int, size: int) -> Any:
    """Return the first `size` elements of `x` along `dim`."""
    return slicing.slice_in_dim(x, 0, size, 1, dim)


def mask_padding(x: Any, dim: int, axes: Axes, size: int, fill: Any) -> Any:
    """Return local `x` with `fill` in the padding of a dim of `size` elements that `axes` split unevenly."""
    aval = typeof(x)
    local = aval.shape[dim]
    index = collectives.axis_index(axes)
    valid_size = arithmetic.sub(np.int32(size), mul(index, np.int32(local)))
    inside = comparison.lt(layout.broadcasted_iota(np.int32, aval.shape, dim), valid_size)
    return comparison.select_n(inside, layout.full(aval.shape, fill, aval.dtype), x)
