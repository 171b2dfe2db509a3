"""Rearrangement of arrays: shapes, dims, joining, splitting, flipping;

`repetition` has repetition.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.trace import Tracer
from weft._engine.ir.symbolic import SymbolicDim, as_int, as_size, max_dim, min_dim
from weft._engine.numpy import indexing, promote, ufuncs as uf
from weft._engine.numpy.creation import arange, asarray
from weft._engine.numpy.dtype_kinds import check_no_out
from weft._engine.ops import layout, slicing
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.errors import OutOfMemoryError, ShapeError
from weft._engine.util.messages.quantities import quantity


@takes_out_sharding
def reshape(a, shape, order: str = "C", *, copy: bool | None = None):
    """Return `a` with the same elements in row-major order and another shape.

    `order="F"` is column-major order; one dim may be -1.

    Raises TypeError if the sizes differ, ShapeError for more than one -1, NotImplementedError for the order "A", ValueError for others.

    >>> wnp.reshape(wnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    a = promote.array_of("reshape", a)
    new = _infer(tuple(a.shape), shape)
    if order in ("F", "f"):
        back = layout.transpose(a, tuple(reversed(range(a.ndim))))
        return layout.transpose(
            layout.reshape(back, tuple(reversed(new))), tuple(reversed(range(len(new))))
        )
    if order in ("A", "a"):
        raise NotImplementedError(
            "reshape: order='A' is not supported: the order in memory is not a property of an array. Use 'C' or 'F'."
        )
    if order not in ("C", "c"):
        raise ValueError(f"reshape: unexpected order {order!r}; use 'C' or 'F'.")
    return layout.reshape(a, new) if new != tuple(a.shape) else a


def _infer(old: tuple[int, ...], shape) -> tuple[int, ...]:
    new = (
        (shape,) if hasattr(shape, "__index__") and not getattr(shape, "ndim", 0) else tuple(shape)
    )
    new = tuple(as_size(n) for n in new)
    size = math.prod(old)
    free = [d for d, n in enumerate(new) if n == -1]
    if len(free) > 1:
        raise ShapeError(
            f"reshape: can only specify one unknown dimension: got more than one -1 in {new}."
        )
    if free:
        known_size = math.prod(n for n in new if n != -1)
        if known_size == 0 or size % known_size:
            raise TypeError(
                f"cannot reshape array of shape {old} (size {size}) into shape {new} because the product of the known "
                f"dims ({known_size}) does not divide it."
            )
        new = tuple(size // known_size if n == -1 else n for n in new)
    if math.prod(new) != size or builtins.any(n < 0 for n in new):
        raise TypeError(
            f"cannot reshape array of shape {old} (size {size}) into shape {new} (size {math.prod(new)})"
        )
    return new


@takes_out_sharding
def ravel(a, order: str = "C"):
    """Return `a` as one dim, row-major or (`order="F"`) column-major.

    Raises TypeError if `a` is not an array or number, NotImplementedError for the orders "K" and "A", ValueError for others.

    >>> wnp.ravel(wnp.array([[1, 2], [3, 4]]), order="F")
    Array([1, 3, 2, 4], dtype=int32)
    """
    a = promote.array_of("ravel", a)
    if order == "K":
        raise NotImplementedError(
            "ravel: order='K' is not supported: the order in memory is not a property of an array. Use 'C' or 'F'."
        )
    return reshape(a, (a.size,), order)


def transpose(a, axes: Sequence[int] | None = None):
    """Return `a` with its dims permuted (reversed by default).

    Dim `axes[d]` of `a` is dim d of the result.

    Raises ValueError for dims out of bounds, ShapeError if `axes` is not a permutation.

    >>> wnp.transpose(wnp.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    return _permute("transpose", a, axes)


def permute_dims(a, /, axes: Sequence[int]):
    """Return `transpose` with the given dims."""
    return _permute("permute_dims", a, axes)


def _permute(api: str, a, axes: Sequence[int] | None):
    a = promote.array_of(api, a)
    if axes is None:
        order = tuple(reversed(range(a.ndim)))
    else:
        order = tuple(promote.canonical_axis(d, a.ndim, api) for d in axes)
        if sorted(order) != list(range(a.ndim)):
            raise ShapeError(
                f"{api}: axes must be a permutation of {tuple(range(a.ndim))}, got {tuple(axes)}."
            )
    return layout.transpose(a, order) if order != tuple(range(a.ndim)) else a


def matrix_transpose(x, /):
    """Return `x` with its last two dims exchanged."""
    x = promote.array_of("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(
            f"x must be at least two-dimensional for matrix_transpose; got ndim={x.ndim}"
        )
    return swapaxes(x, -1, -2)


def swapaxes(a, axis1: int, axis2: int):
    """Return `a` with two dims exchanged.

    Raises ValueError for dims out of bounds.

    >>> wnp.swapaxes(wnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    a = promote.array_of("swapaxes", a)
    order = list(range(a.ndim))
    i, j = (
        promote.canonical_axis(axis1, a.ndim, "swapaxes"),
        promote.canonical_axis(axis2, a.ndim, "swapaxes"),
    )
    order[i], order[j] = j, i
    return transpose(a, order)


def moveaxis(a, source, destination):
    """Return `a` with dims `source` moved to positions `destination`.

    The other dims keep their order.
    """
    a = promote.array_of("moveaxis", a)
    several = lambda axes: axes if isinstance(axes, (tuple, list, range)) else (axes,)
    src = [promote.canonical_axis(s, a.ndim, "moveaxis") for s in several(source)]
    dst = [promote.canonical_axis(d, a.ndim, "moveaxis") for d in several(destination)]
    if len(src) != len(dst):
        raise ValueError(f"Inconsistent number of elements: {len(src)} vs {len(dst)} in moveaxis.")
    order = [d for d in range(a.ndim) if d not in src]
    for d, s in sorted(zip(dst, src)):
        order.insert(d, s)
    return transpose(a, order)


def rollaxis(a, axis: int, start: int = 0):
    """Return `a` with dim `axis` moved before position `start`."""
    a = promote.array_of("rollaxis", a)
    axis = promote.canonical_axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return moveaxis(a, axis, start - (start > axis))


def expand_dims(a, axis):
    """Return `a` with new dims of size one at positions `axis` of the result."""
    a = promote.array_of("expand_dims", a)
    axes = promote.as_axes(axis, "expand_dims")
    n = a.ndim + len(axes)
    where = promote.canonical_axes(axes, n, "expand_dims")
    sizes = iter(a.shape)
    shape = tuple(1 if d in where else next(sizes) for d in range(n))
    return layout.broadcast_in_dim(a, shape, tuple(d for d in range(n) if d not in where))


def squeeze(a, axis=None):
    """Return `a` without its dims of size one: all of them, or those in `axis`.

    Raises ValueError for dims out of bounds or of another size.

    >>> wnp.squeeze(wnp.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    a = promote.array_of("squeeze", a)
    if axis is None and any(isinstance(n, SymbolicDim) and n.bounds()[0] <= 1 for n in a.shape):
        raise ValueError(
            f"squeeze with axis=None is not supported for the symbolic shape {tuple(a.shape)}: the number of dims would "
            "depend on the sizes. Give the axes."
        )
    axes = (
        tuple(d for d, n in enumerate(a.shape) if n == 1)
        if axis is None
        else promote.canonical_axes(axis, a.ndim, "squeeze")
    )
    for d in axes:
        if a.shape[d] != 1:
            raise ValueError(
                f"cannot select an axis to squeeze out which has size not equal to one, got shape={tuple(a.shape)} and "
                f"dimensions={axes}"
            )
    return layout.squeeze(a, axes) if axes else a


@takes_out_sharding
def broadcast_to(array, shape):
    """Return `array` broadcast to `shape` by NumPy's rule.

    It adds leading dims and repeats dims of size one.

    Raises ValueError if the shape of `array` does not broadcast to `shape`.

    >>> wnp.broadcast_to(wnp.arange(3), (2, 3))
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    a = promote.array_of("broadcast_to", array)
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else shape
    shape = tuple(as_size(n) for n in sizes)
    lead = len(shape) - a.ndim
    if lead < 0 or builtins.any(n not in (1, m) for n, m in zip(a.shape, shape[lead:])):
        raise ValueError(
            f"Incompatible shapes for broadcasting: {tuple(a.shape)} and requested shape {shape}"
        )
    return promote.broadcast_to_shape(a, shape)


def broadcast_arrays(*args) -> list:
    """Return the arguments broadcast to their common shape."""
    arrays = [promote.array_of("broadcast_arrays", a) for a in args]
    shape = promote.broadcast_shapes(*[a.shape for a in arrays])
    return [promote.broadcast_to_shape(a, shape) for a in arrays]


def atleast_1d(*arys):
    """Return arguments with at least one dim."""
    return _atleast(arys, lambda a: reshape(a, (1,)) if a.ndim == 0 else a)


def atleast_2d(*arys):
    """Return arguments with at least two dims."""
    return _atleast(arys, lambda a: reshape(a, (1, -1)) if a.ndim < 2 else a)


def atleast_3d(*arys):
    """Return arguments with at least three dims."""

    def up(a):
        if a.ndim >= 3:
            return a
        return expand_dims(reshape(a, (1, -1)) if a.ndim < 2 else a, 2)

    return _atleast(arys, up)


def _atleast(arys, up: Callable) -> Any:
    out = [up(asarray(a)) for a in arys]
    return out[0] if len(out) == 1 else out


# ---- joining and splitting
def _arrays(arrays, api: str) -> list:
    if promote.is_shaped(arrays) and np.ndim(arrays):
        parts = [arrays[i] for i in range(arrays.shape[0])]
    else:
        parts = promote.as_list(arrays)
    if parts is None:
        raise TypeError(f"{api}: `arrays` must be a sequence of arrays, got {arrays!r:.80}.")
    if not parts:
        raise ValueError(f"{api}: `arrays` must hold at least one array.")
    promote.check_arraylike(api, *parts)
    return [
        promote.concrete(a)
        for a in promote.promote_dtypes(*[asarray(promote.value(a)) for a in parts])
    ]


def concatenate(arrays, axis: int | None = 0, dtype=None):
    """Return arrays joined along an existing dim (flattened first if `axis` is None).

    They have equal shapes except for dim `axis`; the dtype is their common dtype, or `dtype`.
    Raises ValueError without arrays, for arrays without dims and for an axis out of bounds, ShapeError for shapes that do not fit.

    >>> wnp.concatenate([wnp.zeros(2), wnp.ones(1)])
    Array([0., 0., 1.], dtype=float32)
    """
    parts = _arrays(arrays, "concatenate")
    if axis is None:
        parts, axis = [ravel(p) for p in parts], 0
    if parts[0].ndim == 0:
        raise ValueError(
            "Zero-dimensional arrays cannot be concatenated. Pass the arrays as one sequence, "
            "as in concatenate([a, b]). For numbers, use stack."
        )
    if dtype is not None:
        parts = [promote.cast(p, dtypes.check_dtype(dtype, "concatenate")) for p in parts]
    if len(parts) == 1:
        return parts[0]
    return slicing.concatenate(parts, promote.canonical_axis(axis, parts[0].ndim, "concatenate"))


concat = concatenate


def stack(arrays, axis: int = 0, out=None, dtype=None):
    """Return arrays of one shape joined along a new dim, `axis` of the result.

    The dtype is their common dtype, or `dtype`.

    Raises ValueError without arrays, for different shapes and for an axis out of bounds.

    >>> wnp.stack([wnp.zeros(2), wnp.ones(2)], axis=1)
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    check_no_out(out, "stack")
    parts = _arrays(arrays, "stack")
    shapes = {tuple(p.shape) for p in parts}
    if len(shapes) > 1:
        raise ValueError(f"All input arrays must have the same shape, got {sorted(shapes)}.")
    axis = promote.canonical_axis(axis, parts[0].ndim + 1, "stack")
    return concatenate([expand_dims(p, axis) for p in parts], axis, dtype)


def unstack(x, /, *, axis: int = 0) -> tuple:
    """Return the slices of `x` along `axis`, without that dim."""
    x = promote.array_of("unstack", x)
    axis = promote.canonical_axis(axis, x.ndim, "unstack")
    return tuple(slicing.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))


def vstack(tup, dtype=None):
    """Return arrays joined along dim 0; 1-d arrays are rows."""
    parts = atleast_2d(*_arrays(tup, "vstack"))
    return concatenate(parts if isinstance(parts, list) else [parts], 0, dtype)


def hstack(tup, dtype=None):
    """Return arrays joined along dim 1; 1-d arrays along dim 0."""
    parts = atleast_1d(*_arrays(tup, "hstack"))
    parts = parts if isinstance(parts, list) else [parts]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype)


def dstack(tup, dtype=None):
    """Return arrays joined along dim 2."""
    parts = atleast_3d(*_arrays(tup, "dstack"))
    return concatenate(parts if isinstance(parts, list) else [parts], 2, dtype)


def column_stack(tup):
    """Return a matrix with 1-d arrays as columns."""
    return concatenate(
        [p if p.ndim > 1 else reshape(p, (-1, 1)) for p in _arrays(tup, "column_stack")], 1
    )


def append(arr, values, axis: int | None = None):
    """Return `arr` with `values` appended."""
    return (
        concatenate([ravel(arr), ravel(values)], 0)
        if axis is None
        else concatenate([arr, values], axis)
    )


def block(arrays):
    """Return a matrix assembled from nested lists of blocks."""

    def build(x, depth: int):
        if not isinstance(x, list):
            return atleast_nd(x, total)
        return concatenate([build(v, depth + 1) for v in x], axis=-(total - depth) if total else 0)

    def levels(x) -> int:
        return 1 + builtins.max(map(levels, x)) if isinstance(x, list) else 0

    total = levels(arrays)
    return build(arrays, 0)


def atleast_nd(x, n: int):
    """Return `x` with leading dims of size one up to `n` dims."""
    x = asarray(x)
    return reshape(x, (1,) * (n - x.ndim) + tuple(x.shape)) if x.ndim < n else x


def split(ary, indices_or_sections, axis: int = 0) -> list:
    """Return the parts of `ary` along `axis`, in equal sections or split at the given indices."""
    a = promote.array_of("split", ary)
    axis = promote.canonical_axis(axis, a.ndim, "split")
    sections = _cuts("split", indices_or_sections)
    if isinstance(sections, int) and a.shape[axis] % sections:
        raise ValueError(
            f"array split does not result in an equal division: dim {axis} of size {a.shape[axis]} in "
            f"{quantity(sections, 'section')}."
        )
    return array_split(a, sections, axis)


def array_split(ary, indices_or_sections, axis: int = 0) -> list:
    """Return the parts of `ary` as `split` does; the sizes of sections may differ by one."""
    a = promote.array_of("array_split", ary)
    axis = promote.canonical_axis(axis, a.ndim, "array_split")
    n, k = a.shape[axis], _cuts("array_split", indices_or_sections)
    if isinstance(k, int):
        if k > np.iinfo(np.intp).max // 8:
            raise OutOfMemoryError(
                f"array_split: {quantity(k, 'array')} need more bytes than memory has addresses"
            )
        bounds = [n // k * i + min_dim(i, n % k) for i in builtins.range(k + 1)]
    else:
        bounds = [0, *[min_dim(max_dim(i + n if i < 0 else i, 0), n) for i in k], n]
    return [
        slicing.slice_in_dim(a, lo, max_dim(lo, hi), axis=axis)
        for lo, hi in itertools.pairwise(bounds)
    ]


def _cuts(api: str, indices_or_sections) -> int | list[int]:
    """Return the number of sections, or the indices of the splits."""
    static_value = promote.value(indices_or_sections)
    if isinstance(static_value, (list, tuple)) or np.ndim(static_value):
        return [
            _whole(api, i if isinstance(i, SymbolicDim) else promote.value(i)) for i in static_value
        ]
    k = _whole(api, static_value)
    if k <= 0:
        raise ValueError(f"{api}: the number of sections must be larger than 0, got {k}.")
    return k


def _whole(api: str, number) -> int:
    whole = as_int(number)
    if whole != number:
        raise TypeError(f"{api}: sections and indices are integers, got {number!r}.")
    return whole


def vsplit(ary, indices_or_sections) -> list:
    """Return the parts of `ary` along dim 0, as `split` does."""
    return split(promote.array_of("vsplit", ary, "ary", 1), indices_or_sections, 0)


def hsplit(ary, indices_or_sections) -> list:
    """Return the parts of `ary` along dim 1 (dim 0 of 1-d arrays), as `split` does."""
    a = promote.array_of("hsplit", ary, "ary", 1)
    return split(a, indices_or_sections, 1 if a.ndim > 1 else 0)


def dsplit(ary, indices_or_sections) -> list:
    """Return the parts of `ary` along dim 2, as `split` does."""
    return split(promote.array_of("dsplit", ary, "ary", 3), indices_or_sections, 2)


# ---- flipping, rolling
def flip(m, axis=None):
    """Return `m` with the order along `axis` (all dims by default) reversed."""
    m = promote.array_of("flip", m)
    return layout.rev(m, promote.canonical_axes(axis, m.ndim, "flip"))


def flipud(m):
    """Return `m` with the order along dim 0 reversed."""
    return flip(promote.array_of("flipud", m, "m", 1), 0)


def fliplr(m):
    """Return `m` with the order along dim 1 reversed."""
    return flip(promote.array_of("fliplr", m, "m", 2), 1)


def rot90(m, k: int = 1, axes: tuple[int, int] = (0, 1)):
    """Return `m` rotated by `k` quarter turns in the plane of `axes`."""
    m = promote.array_of("rot90", m)
    i, j = (promote.canonical_axis(d, m.ndim, "rot90") for d in axes)
    if i == j:
        raise ValueError(f"rot90: a plane has two dims, got axes {tuple(axes)}.")
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return flip(m, (i, j))
    return swapaxes(flip(m, j), i, j) if k == 1 else flip(swapaxes(m, i, j), j)


def roll(a, shift, axis=None):
    """Return `a` with elements shifted cyclically along `axis` by `shift`."""
    a = promote.array_of("roll", a)
    if axis is None:
        return layout.reshape(roll(ravel(a), shift, 0), tuple(a.shape))
    axes = promote.as_axes(axis, "roll")
    shift = shift if isinstance(shift, SymbolicDim) else promote.value(shift)
    shifts = [shift] if isinstance(shift, SymbolicDim) or np.ndim(shift) == 0 else list(shift)
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ValueError(
            f"roll: {quantity(len(shifts), 'shift')} for {quantity(len(axes), 'dim')}; give one for all, or one for each."
        )
    times = builtins.max(len(axes), len(shifts)) if axes and shifts else 0
    for s, d in zip(
        shifts * times if len(shifts) == 1 else shifts, axes * times if len(axes) == 1 else axes
    ):
        a = _roll_dim(a, s, promote.canonical_axis(d, a.ndim, "roll"))
    return a


def _roll_dim(a, shift, d: int):
    """Shift elements cyclically along dim `d`."""
    n = a.shape[d]
    if not n:
        return a
    if isinstance(shift, Tracer) or (
        hasattr(type(shift), "aval") and not isinstance(shift, (int, np.integer))
    ):
        source = uf.remainder(uf.subtract(arange(n), shift), n)
        return indexing.getitem(a, (slice(None),) * d + (source,))
    k = as_int(shift) % n
    if not k:
        return a
    parts = [slicing.slice_in_dim(a, *ends, axis=d) for ends in ((n - k, n), (0, n - k))]
    return slicing.concatenate(parts, d)
