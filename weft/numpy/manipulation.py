"""Rearranging arrays: shapes, dims, joining, splitting, repeating, flipping, selecting."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from weft.core.trace import Tracer
from weft.numpy import indexing
from weft.numpy.promote import (
    array_of,
    broadcast,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_arraylike,
    concrete,
    promote_dtypes,
    value,
)
from weft.numpy.reductions import canonical_axes, canonical_axis
from weft.ops import elementwise as ew, layout, slicing
from weft.ops.indexing import GatherDimensionNumbers, gather
from weft.ops.placement import takes_out_sharding
from weft.util import dtypes
from weft.util.errors import ShapeError

MOST_RUNS = 4                  # slices that a rearranged dim is put together from, at most


@takes_out_sharding
def reshape(a, shape, order: str = "C", *, copy: bool | None = None):
    """`a` with the same elements in row-major order and another shape; one dim may be -1.

    >>> import weft.numpy as wnp
    >>> wnp.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    a = array_of("reshape", a)
    new = _infer(tuple(a.shape), shape)
    if order in ("F", "f"):
        back = layout.transpose(a, tuple(reversed(range(a.ndim))))
        return layout.transpose(layout.reshape(back, tuple(reversed(new))), tuple(reversed(range(len(new)))))
    if order not in ("C", "A", "c"):
        raise ValueError(f"reshape: unexpected order {order!r}; use 'C' or 'F'.")
    return layout.reshape(a, new) if new != tuple(a.shape) else a


def _infer(old: tuple[int, ...], shape) -> tuple[int, ...]:
    new = (shape,) if not isinstance(shape, (tuple, list)) and not (hasattr(shape, "ndim") and shape.ndim) else tuple(shape)
    new = tuple(n.__index__() for n in new)
    size = math.prod(old)
    free = [d for d, n in enumerate(new) if n == -1]
    if len(free) > 1:
        raise ShapeError(f"reshape: can only specify one unknown dimension: got more than one -1 in {new}.")
    if free:
        rest = math.prod(n for n in new if n != -1)
        if rest == 0 or size % rest:
            raise TypeError(f"cannot reshape array of shape {old} (size {size}) into shape {new} because the product of the known "
                            f"dims ({rest}) does not divide it.")
        new = tuple(size // rest if n == -1 else n for n in new)
    if math.prod(new) != size or builtins.any(n < 0 for n in new):
        raise TypeError(f"cannot reshape array of shape {old} (size {size}) into shape {new} (size {math.prod(new)})")
    return new


@takes_out_sharding
def ravel(a, order: str = "C"):
    """`a` as one dim."""
    a = array_of("ravel", a)
    return reshape(a, (a.size,), order)


def transpose(a, axes: Sequence[int] | None = None):
    """`a` with its dims permuted (reversed by default)."""
    a = array_of("transpose", a)
    order = tuple(reversed(range(a.ndim))) if axes is None else tuple(canonical_axis(d, a.ndim, "transpose") for d in axes)
    if sorted(order) != list(range(a.ndim)):
        raise ShapeError(f"transpose: axes must be a permutation of {tuple(range(a.ndim))}, got {tuple(axes)}.")
    return layout.transpose(a, order) if order != tuple(range(a.ndim)) else a


permute_dims = transpose


def matrix_transpose(x, /):
    """The last two dims swapped."""
    x = array_of("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={x.ndim}")
    return swapaxes(x, -1, -2)


def swapaxes(a, axis1: int, axis2: int):
    """Two dims exchanged."""
    a = array_of("swapaxes", a)
    order = list(range(a.ndim))
    i, j = canonical_axis(axis1, a.ndim, "swapaxes"), canonical_axis(axis2, a.ndim, "swapaxes")
    order[i], order[j] = j, i
    return transpose(a, order)


def moveaxis(a, source, destination):
    """Dims `source` moved to positions `destination`; the others keep their order."""
    a = array_of("moveaxis", a)
    several = lambda axes: axes if isinstance(axes, (tuple, list, range)) else (axes,)
    src = [canonical_axis(s, a.ndim, "moveaxis") for s in several(source)]
    dst = [canonical_axis(d, a.ndim, "moveaxis") for d in several(destination)]
    if len(src) != len(dst):
        raise ValueError(f"Inconsistent number of elements: {len(src)} vs {len(dst)} in moveaxis.")
    order = [d for d in range(a.ndim) if d not in src]
    for d, s in sorted(zip(dst, src)):
        order.insert(d, s)
    return transpose(a, order)


def rollaxis(a, axis: int, start: int = 0):
    """Dim `axis` moved before position `start`."""
    a = array_of("rollaxis", a)
    axis = canonical_axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    return moveaxis(a, axis, start - (start > axis))


def expand_dims(a, axis):
    """New dims of size one at positions `axis` of the result."""
    a = array_of("expand_dims", a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    n = a.ndim + len(axes)
    where = canonical_axes(tuple(axes), n, "expand_dims")
    rest = iter(a.shape)
    shape = tuple(1 if d in where else next(rest) for d in range(n))
    return layout.broadcast_in_dim(a, shape, tuple(d for d in range(n) if d not in where))


def squeeze(a, axis=None):
    """Dims of size one removed: all of them, or those in `axis`."""
    a = array_of("squeeze", a)
    axes = tuple(d for d, n in enumerate(a.shape) if n == 1) if axis is None else canonical_axes(axis, a.ndim, "squeeze")
    for d in axes:
        if a.shape[d] != 1:
            raise ValueError(f"cannot select an axis to squeeze out which has size not equal to one, got shape={tuple(a.shape)} and "
                             f"dimensions={axes}")
    return layout.squeeze(a, axes) if axes else a


@takes_out_sharding
def broadcast_to(array, shape):
    """`array` repeated to `shape` by NumPy's rule."""
    a = array_of("broadcast_to", array)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
    lead = len(shape) - a.ndim
    if lead < 0 or builtins.any(n not in (1, m) for n, m in zip(a.shape, shape[lead:])):
        raise ValueError(f"Incompatible shapes for broadcasting: {tuple(a.shape)} and requested shape {shape}")
    return broadcast_to_shape(a, shape)


def broadcast_arrays(*args) -> list:
    """Arguments repeated to their common shape."""
    arrays = [array_of("broadcast_arrays", a) for a in args]
    shape = broadcast_shapes(*[a.shape for a in arrays])
    return [broadcast_to_shape(a, shape) for a in arrays]


def atleast_1d(*arys):
    """Arguments with at least one dim."""
    return _atleast(arys, lambda a: reshape(a, (1,)) if a.ndim == 0 else a)


def atleast_2d(*arys):
    """Arguments with at least two dims."""
    return _atleast(arys, lambda a: reshape(a, (1, -1)) if a.ndim < 2 else a)


def atleast_3d(*arys):
    """Arguments with at least three dims."""
    def up(a):
        if a.ndim >= 3:
            return a
        return expand_dims(reshape(a, (1, -1)) if a.ndim < 2 else a, 2)
    return _atleast(arys, up)


def _atleast(arys, up: Callable):
    from weft.numpy.creation import asarray
    out = [up(asarray(a)) for a in arys]
    return out[0] if len(out) == 1 else out


# ---- joining and splitting
def _arrays(arrays, api: str) -> list:
    from weft.numpy.creation import asarray
    if hasattr(arrays, "ndim"):
        return [arrays[i] for i in range(arrays.shape[0])]
    if not arrays:
        raise ValueError(f"{api}: need at least one array.")
    check_arraylike(api, *arrays)
    return [concrete(a) for a in promote_dtypes(*[asarray(value(a)) for a in arrays])]


def concatenate(arrays, axis: int | None = 0, dtype=None):
    """Arrays joined along an existing dim (flattened first if `axis` is None).

    >>> import weft.numpy as wnp
    >>> wnp.concatenate([wnp.zeros(2), wnp.ones(1)])
    Array([0., 0., 1.], dtype=float32)
    """
    parts = _arrays(arrays, "concatenate")
    if axis is None:
        parts, axis = [ravel(p) for p in parts], 0
    if parts[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    if dtype is not None:
        parts = [cast(p, dtypes.check_dtype(dtype, "concatenate")) for p in parts]
    if len(parts) == 1:
        return parts[0]
    return slicing.concatenate(parts, canonical_axis(axis, parts[0].ndim, "concatenate"))


concat = concatenate


def stack(arrays, axis: int = 0, out=None, dtype=None):
    """Arrays of one shape joined along a new dim."""
    parts = _arrays(arrays, "stack")
    shapes = {tuple(p.shape) for p in parts}
    if len(shapes) > 1:
        raise ValueError(f"All input arrays must have the same shape, got {sorted(shapes)}.")
    axis = canonical_axis(axis, parts[0].ndim + 1, "stack")
    return concatenate([expand_dims(p, axis) for p in parts], axis, dtype)


def unstack(x, /, *, axis: int = 0) -> tuple:
    """The slices of `x` along `axis`, without that dim."""
    x = array_of("unstack", x)
    axis = canonical_axis(axis, x.ndim, "unstack")
    return tuple(slicing.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))


def vstack(tup, dtype=None):
    """Arrays joined along dim 0, 1-d ones as rows."""
    parts = atleast_2d(*_arrays(tup, "vstack"))
    return concatenate(parts if isinstance(parts, list) else [parts], 0, dtype)


def hstack(tup, dtype=None):
    """Arrays joined along dim 1, 1-d ones along dim 0."""
    parts = atleast_1d(*_arrays(tup, "hstack"))
    parts = parts if isinstance(parts, list) else [parts]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype)


def dstack(tup, dtype=None):
    """Arrays joined along dim 2."""
    parts = atleast_3d(*_arrays(tup, "dstack"))
    return concatenate(parts if isinstance(parts, list) else [parts], 2, dtype)


def column_stack(tup):
    """1-d arrays as the columns of a matrix."""
    return concatenate([p if p.ndim > 1 else reshape(p, (-1, 1)) for p in _arrays(tup, "column_stack")], 1)


def append(arr, values, axis: int | None = None):
    """`values` joined to the end of `arr`."""
    return concatenate([ravel(arr), ravel(values)], 0) if axis is None else concatenate([arr, values], axis)


def block(arrays):
    """A matrix assembled from nested lists of blocks."""
    def build(x, depth: int):
        if not isinstance(x, list):
            return _atleast_nd(x, total)
        return concatenate([build(v, depth + 1) for v in x], axis=-(total - depth) if total else 0)

    def levels(x) -> int:
        return 1 + builtins.max(map(levels, x)) if isinstance(x, list) else 0
    total = levels(arrays)
    return build(arrays, 0)


def _atleast_nd(x, n: int):
    from weft.numpy.creation import asarray
    x = asarray(x)
    return reshape(x, (1,) * (n - x.ndim) + tuple(x.shape)) if x.ndim < n else x


def split(ary, indices_or_sections, axis: int = 0) -> list:
    """`ary` cut along `axis` into equal sections, or at the given indices."""
    a = array_of("split", ary)
    axis = canonical_axis(axis, a.ndim, "split")
    if isinstance(indices_or_sections, (int, np.integer)) and a.shape[axis] % int(indices_or_sections):
        raise ValueError(f"array split does not result in an equal division: dim {axis} of size {a.shape[axis]} in "
                         f"{indices_or_sections} sections.")
    return array_split(a, indices_or_sections, axis)


def array_split(ary, indices_or_sections, axis: int = 0) -> list:
    """Like `split`; sections may differ by one in size."""
    a = array_of("array_split", ary)
    axis = canonical_axis(axis, a.ndim, "array_split")
    n = a.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        k = int(indices_or_sections)
        sizes = [n // k + (i < n % k) for i in range(k)]
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        cuts = [builtins.min(builtins.max(int(i) + n if int(i) < 0 else int(i), 0), n) for i in np.asarray(indices_or_sections)]
        bounds = [0, *cuts, n]
    return [slicing.slice_in_dim(a, lo, builtins.max(lo, hi), axis=axis) for lo, hi in itertools.pairwise(bounds)]


def vsplit(ary, indices_or_sections) -> list:
    """`split` along dim 0."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary, indices_or_sections) -> list:
    """`split` along dim 1 (dim 0 of 1-d arrays)."""
    return split(ary, indices_or_sections, 1 if np.ndim(ary) > 1 else 0)


def dsplit(ary, indices_or_sections) -> list:
    """`split` along dim 2."""
    return split(ary, indices_or_sections, 2)


# ---- repeating, flipping, padding
@takes_out_sharding
def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None):
    """Each element (or slice along `axis`) repeated `repeats` times.

    >>> import weft.numpy as wnp
    >>> wnp.repeat(wnp.arange(3), 2)
    Array([0, 0, 1, 1, 2, 2], dtype=int32)
    """
    a = array_of("repeat", a)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim, "repeat")
    n = a.shape[axis]
    if isinstance(repeats, (int, np.integer)) and total_repeat_length is None:
        r = int(repeats)
        shape = tuple(a.shape)
        wide = layout.broadcast_in_dim(a, (*shape[:axis + 1], r, *shape[axis + 1:]),
                                       tuple(d + (d > axis) for d in range(a.ndim)))
        return layout.reshape(wide, (*shape[:axis], n * r, *shape[axis + 1:]))
    if isinstance(repeats, Tracer):
        if total_repeat_length is None:
            repeats.__index__() if not repeats.ndim else np.asarray(repeats)
        from weft.numpy.reductions import cumsum
        from weft.numpy.sorting import searchsorted
        ends = cumsum(broadcast_to(repeats, (n,)))
        from weft.numpy.creation import arange
        positions = searchsorted(ends, arange(total_repeat_length), side="right")
        return indexing.getitem(a, (slice(None),) * axis + (positions,), mode="clip")
    counts = np.broadcast_to(np.asarray(repeats), (n,))
    positions = np.repeat(np.arange(n), counts)
    if total_repeat_length is not None:
        last = n - 1
        positions = np.concatenate([positions, np.full(builtins.max(0, total_repeat_length - len(positions)), last)])[:total_repeat_length]
    return indexing.getitem(a, (slice(None),) * axis + (positions,))


def tile(A, reps):
    """`A` repeated whole, `reps` times along each dim."""
    a = array_of("tile", A)
    reps = (reps,) if isinstance(reps, (int, np.integer)) else tuple(int(r) for r in reps)
    n = builtins.max(a.ndim, len(reps))
    reps = (1,) * (n - len(reps)) + reps
    shape = (1,) * (n - a.ndim) + tuple(a.shape)
    wide = layout.broadcast_in_dim(layout.reshape(a, shape), tuple(k for pair in zip(reps, shape) for k in pair),
                                   tuple(2 * d + 1 for d in range(n)))
    return layout.reshape(wide, tuple(r * s for r, s in zip(reps, shape)))


def flip(m, axis=None):
    """Elements in reverse order along `axis` (all dims by default)."""
    m = array_of("flip", m)
    return layout.rev(m, canonical_axes(axis, m.ndim, "flip"))


def flipud(m):
    """Reversed along dim 0."""
    return flip(m, 0)


def fliplr(m):
    """Reversed along dim 1."""
    return flip(m, 1)


def rot90(m, k: int = 1, axes: tuple[int, int] = (0, 1)):
    """Rotated by `k` quarter turns in the plane of `axes`."""
    m = array_of("rot90", m)
    i, j = (canonical_axis(d, m.ndim, "rot90") for d in axes)
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return flip(m, (i, j))
    return swapaxes(flip(m, j), i, j) if k == 1 else flip(swapaxes(m, i, j), j)


def roll(a, shift, axis=None):
    """Elements moved along `axis` by `shift`, around the end."""
    a = array_of("roll", a)
    if axis is None:
        return layout.reshape(roll(ravel(a), shift, 0), tuple(a.shape))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    for s, d in zip(shifts, axes):
        d = canonical_axis(d, a.ndim, "roll")
        n = a.shape[d]
        if not n:
            continue
        if isinstance(s, Tracer) or (hasattr(s, "aval") and not isinstance(s, (int, np.integer))):
            from weft.numpy.creation import arange
            from weft.numpy.ufuncs import remainder, subtract
            a = indexing.getitem(a, (slice(None),) * d + (remainder(subtract(arange(n), s), n),))
            continue
        k = int(s) % n
        if k:
            a = slicing.concatenate([slicing.slice_in_dim(a, n - k, n, axis=d), slicing.slice_in_dim(a, 0, n - k, axis=d)], d)
    return a


def pad(array, pad_width, mode="constant", **kwargs):
    """`array` with `pad_width` elements before and after each dim.

    Modes: constant (`constant_values`), edge, reflect, symmetric, wrap, empty, maximum, minimum, mean,
    median (of `stat_length` elements), linear_ramp (to `end_values`).
    """
    a = array_of("pad", array)
    widths = _pad_widths(pad_width, a.ndim)
    if mode in ("constant", "empty"):
        values = kwargs.get("constant_values", 0)
        return _pad_constant(a, widths, values)
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        odd = mode in ("reflect", "symmetric") and kwargs.get("reflect_type", "even") == "odd"
        for d, width in enumerate(widths):
            if any(width):
                n = a.shape[d]
                if n == 0:
                    raise ValueError(f"can't extend empty axis {d} using modes other than 'constant' or 'empty'")
                inner = _rearranged(a, d, np.pad(np.arange(n), width, mode=mode))
                a = _oddly_reflected(a, d, inner, width, mode) if odd else inner
        return a
    if mode in ("maximum", "minimum", "mean", "median"):
        return _pad_statistic(a, widths, mode, kwargs.get("stat_length"))
    if mode == "linear_ramp":
        return _pad_ramp(a, widths, kwargs.get("end_values", 0))
    if callable(mode):
        raise NotImplementedError("weft.numpy.pad: a function as mode is not there yet; pad with zeros and write the borders.")
    raise ValueError(f"Unimplemented padding mode {mode!r} for weft.numpy.pad.")


def _rearranged(a, d: int, source: np.ndarray):
    """`a` with element `source[i]` of dim `d` at place i.

    Few runs along the last dim are slices, which read whole vectors; along another dim an index moves whole rows.
    """
    runs = _runs(source)
    if d < a.ndim - 1 or len(runs) > MOST_RUNS:
        return indexing.getitem(a, (slice(None),) * d + (source,))
    pieces = []
    for first, step, length in runs:
        low = builtins.min(first, first + step * (length - 1))
        piece = slicing.slice_in_dim(a, low, low + (length if step else 1), axis=d)
        pieces.append(flip(piece, d) if step < 0 else piece if step else broadcast_to(piece, (*a.shape[:-1], length)))
    return concatenate(pieces, d)


def _runs(source: np.ndarray) -> list[tuple[int, int, int]]:
    """Indices as runs (first, step, length) with steps of 1, -1 or 0.

    >>> _runs(np.array([2, 1, 0, 1, 2, 3, 3]))
    [(2, -1, 3), (1, 1, 3), (3, 0, 1)]
    """
    runs, i, n = [], 0, len(source)
    while i < n:
        step = int(source[i + 1] - source[i]) if i + 1 < n else 0
        stop = i + 1
        while abs(step) <= 1 and stop < n and source[stop] - source[stop - 1] == step:
            stop += 1
        runs.append((int(source[i]), step if stop > i + 1 else 0, stop - i))
        i = stop
    return runs


def _oddly_reflected(a, d: int, reflected, width: tuple[int, int], mode):
    """Dim `d` continued by twice its edge less what is `reflected` there. Each result is a sum of one element and the two edges;
    NumPy's own answers for the edges and for ones tell how often each counts."""
    n = a.shape[d]
    first, last, ones = np.arange(n) == 0, (np.arange(n) == n - 1) & (n > 1), np.ones(n)
    counts = [np.pad(np.asarray(x, int), width, mode=mode, reflect_type="odd") for x in (first, last, ones)]
    shape = [-1 if k == d else 1 for k in range(a.ndim)]
    of_first, of_last, of_inner = [c.reshape(shape).astype(a.dtype) for c in (*counts[:2], counts[2] - counts[0] - counts[1])]
    edge = lambda at: slicing.slice_in_dim(a, at, at + 1, axis=d)
    return of_inner * reflected + of_first * edge(0) + of_last * edge(n - 1)


def _pad_statistic(a, widths, mode: str, length):
    """Borders filled with a statistic of the `length` nearest elements (all by default)."""
    from weft.numpy import reductions, statistics
    stat = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean, "median": statistics.median}[mode]
    lengths = np.broadcast_to(np.asarray(0 if length is None else length), (a.ndim, 2))
    for d, (before, after) in enumerate(widths):
        parts = []
        for side, k in ((0, before), (1, after)):
            n = a.shape[d]
            m = builtins.min(int(lengths[d, side]) or n, n)
            near = slicing.slice_in_dim(a, 0, m, axis=d) if side == 0 else slicing.slice_in_dim(a, n - m, n, axis=d)
            edge = stat(near, d, keepdims=True)
            if dtypes.issubdtype(a.dtype, np.integer) and edge.dtype != a.dtype:
                edge = ew.round(edge, ew.RoundingMethod.TO_NEAREST_EVEN)
            parts.append(broadcast_to(cast(edge, a.dtype), tuple(k if i == d else m for i, m in enumerate(a.shape))))
        a = concatenate([parts[0], a, parts[1]], d)
    return a


def _pad_ramp(a, widths, end_values):
    """Borders that go in equal steps from the edge to an end value."""
    ends = np.broadcast_to(np.asarray(end_values), (a.ndim, 2))
    from weft.numpy.creation import linspace
    for d, (before, after) in enumerate(widths):
        n = a.shape[d]
        at = lambda i, a=a, d=d: slicing.index_in_dim(a, i, d, keepdims=False)
        first = linspace(ends[d, 0], at(0), before, endpoint=False, dtype=a.dtype, axis=d)
        last = flip(linspace(ends[d, 1], at(n - 1), after, endpoint=False, dtype=a.dtype, axis=d), d)
        a = concatenate([first, a, last], d)
    return a


def _pad_widths(pad_width, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        full = [(0, 0)] * ndim
        for d, w in pad_width.items():
            full[canonical_axis(d, ndim, "pad")] = (w, w) if isinstance(w, int) else tuple(w)
        return full
    widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
    if widths.size and widths.min() < 0:
        raise ValueError("index can't contain negative values: pad widths must not be negative.")
    return [(int(b), int(c)) for b, c in widths]


def _pad_constant(a, widths, values):
    if np.ndim(values) == 0:
        return slicing.pad(a, cast(concrete(values), a.dtype), [(b, c, 0) for b, c in widths])
    pairs = np.broadcast_to(np.asarray(values), (a.ndim, 2))
    for d, (before, after) in enumerate(widths):
        for side, k in ((0, before), (1, after)):
            config = [(0, 0, 0)] * a.ndim
            config[d] = (k, 0, 0) if side == 0 else (0, k, 0)
            a = slicing.pad(a, np.asarray(pairs[d][side], a.dtype)[()], config)
    return a


# ---- choosing
def where(condition, x=None, y=None, /, *, size: int | None = None, fill_value=None):
    """`x` where `condition` holds, else `y`; with one argument, the positions of nonzero elements.

    >>> import weft.numpy as wnp
    >>> wnp.where(wnp.arange(3) > 1, 1.0, 0.5)
    Array([0.5, 0.5, 1. ], dtype=float32, weak_type=True)
    """
    if x is None and y is None:
        from weft.numpy.sorting import nonzero
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("where: either both or neither of x and y should be given.")
    check_arraylike("where", condition, x, y)
    condition = array_of("where", condition)
    if condition.dtype != np.bool_:
        condition = ew.ne(condition, 0)
    x, y = promote_dtypes(value(x), value(y))
    condition, x, y = broadcast("where", condition, x, y)
    return ew.select_n(condition, y, x)


def select(condlist, choicelist, default=0):
    """The first choice whose condition holds, elementwise.

    >>> import weft.numpy as wnp
    >>> x = wnp.arange(4)
    >>> wnp.select([x < 1, x > 2], [x - 10, x + 10], 5)
    Array([-10,   5,   5,  13], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if not condlist:
        raise ValueError("condlist must be non-empty")
    dtype = dtypes.result_type(default, *choicelist)
    out = cast(concrete(default), dtype)
    for c, v in zip(reversed(condlist), reversed(choicelist)):
        out = where(c, cast(concrete(v), dtype), out)
    return out


def clip(arr=None, /, min=None, max=None, *, a=None, a_min=None, a_max=None):  # noqa: A002
    """`arr` limited to the interval [min, max]; either bound may be None."""
    arr = a if arr is None else arr
    min = a_min if min is None else min  # noqa: A001
    max = a_max if max is None else max  # noqa: A001
    arr = array_of("clip", arr)
    from weft.numpy import ufuncs
    if min is not None:
        arr = ufuncs.maximum(min, arr)
    if max is not None:
        arr = ufuncs.minimum(max, arr)
    return arr


def take(a, indices, axis: int | None = None, out=None, mode: str | None = None, unique_indices: bool = False,
         indices_are_sorted: bool = False, fill_value=None):
    """Elements (or slices along `axis`) at `indices`. Positions out of bounds give NaN (mode 'fill', the default), or are
    clipped ('clip') or wrapped ('wrap')."""
    a, positions = array_of("take", a), array_of("take", indices)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim, "take")
    if mode == "wrap":
        from weft.numpy.ufuncs import remainder
        positions, mode = remainder(positions, a.shape[axis]), "promise_in_bounds"
    if mode == "clip":        # as NumPy: negative positions are clipped, not counted from the end
        positions = clip(positions, 0, builtins.max(a.shape[axis] - 1, 0))
    mode = {"raise": "fill", None: "fill"}.get(mode, mode)
    if a.shape[axis] == 0 and positions.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    return indexing.getitem(a, (slice(None),) * axis + (positions,), mode=mode, fill_value=fill_value,
                            unique_indices=unique_indices, indices_are_sorted=indices_are_sorted)


def take_along_axis(arr, indices, axis: int | None = -1, mode=None, fill_value=None):
    """Elements picked along `axis` by an array of positions of the same rank."""
    a, positions = array_of("take_along_axis", arr), array_of("take_along_axis", indices)
    if not dtypes.issubdtype(positions.dtype, np.integer):
        raise TypeError(f"take_along_axis indices must be of integer type, got {positions.dtype.name}")
    if axis is None:
        return take_along_axis(ravel(a), ravel(positions), 0, mode, fill_value)
    if a.ndim != positions.ndim:
        raise ValueError(f"indices and arr must have the same number of dimensions; {positions.ndim} vs. {a.ndim}")
    axis = canonical_axis(axis, a.ndim, "take_along_axis")
    shape = list(broadcast_shapes(tuple(1 if d == axis else n for d, n in enumerate(a.shape)),
                                  tuple(1 if d == axis else n for d, n in enumerate(positions.shape))))
    shape[axis] = positions.shape[axis]
    if 0 in shape:
        return layout.full(shape, 0, a.dtype)
    a = broadcast_to(a, tuple(a.shape[axis] if d == axis else n for d, n in enumerate(shape)))
    positions = broadcast_to(positions, tuple(shape))
    # other dims run along with each other, which keeps them split where they are
    others = tuple(d for d in range(a.ndim) if d != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    if dtypes.issubdtype(positions.dtype, np.signedinteger):
        positions = where(positions < 0, positions + a.shape[axis], positions)
    return gather(a, layout.expand_dims(positions, (a.ndim,)), numbers, (1,) * a.ndim,
                  mode="fill" if mode is None else mode, fill_value=fill_value)


def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode=None):
    """`arr` with `values` written along `axis` at positions `indices` (a new array: pass inplace=False)."""
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable; pass inplace=False and use the result.")
    a = array_of("put_along_axis", arr)
    if axis is None:
        return layout.reshape(put_along_axis(ravel(a), ravel(indices), values, 0, False, mode=mode), tuple(a.shape))
    positions = array_of("put_along_axis", indices)
    axis = canonical_axis(axis, a.ndim, "put_along_axis")
    index = tuple(positions if d == axis else np.arange(n).reshape([-1 if k == d else 1 for k in range(a.ndim)])
                  for d, n in enumerate(positions.shape))
    return a.at[index].set(values, mode=mode)


def diag(v, k: int = 0):
    """The diagonal of a matrix, or the matrix with a given diagonal."""
    v = array_of("diag", v)
    if v.ndim == 1:
        n = v.shape[0] + builtins.abs(k)
        i, j = np.arange(v.shape[0]) + builtins.max(-k, 0), np.arange(v.shape[0]) + builtins.max(k, 0)
        from weft.numpy.creation import zeros
        return zeros((n, n), v.dtype).at[i, j].set(v)
    if v.ndim == 2:
        return diagonal(v, k)
    raise ValueError("diag input must be 1d or 2d")


def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The diagonals of `a` in the plane of two dims, in a last dim."""
    a = moveaxis(array_of("diagonal", a), (axis1, axis2), (-2, -1))
    n = builtins.max(0, builtins.min(a.shape[-2] + builtins.min(offset, 0), a.shape[-1] - builtins.max(offset, 0)))
    i, j = np.arange(n) + builtins.max(-offset, 0), np.arange(n) + builtins.max(offset, 0)
    return indexing.getitem(a, (Ellipsis, i, j))


def diagflat(v, k: int = 0):
    """A matrix with the flattened `v` on diagonal `k`."""
    return diag(ravel(v), k)


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None):
    """The sum of a diagonal."""
    from weft.numpy.reductions import sum as total
    return total(diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False):
    """`arr` without the slices at positions `obj` (which must be concrete)."""
    a = array_of("delete", arr)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim, "delete")
    keep = np.delete(np.arange(a.shape[axis]), obj if isinstance(obj, slice) else np.asarray(obj))
    return indexing.getitem(a, (slice(None),) * axis + (keep,))


def insert(arr, obj, values, axis: int | None = None):
    """`arr` with `values` inserted before positions `obj` (which must be concrete)."""
    a = array_of("insert", arr)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim, "insert")
    n = a.shape[axis]
    positions = np.atleast_1d(np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(obj))
    positions = np.where(positions < 0, positions + n, positions)
    values = cast(array_of("insert", values) if not isinstance(values, (list, tuple)) else concrete(np.asarray(values)), a.dtype)
    if values.ndim and np.ndim(obj) == 0 and not isinstance(obj, slice):
        values = moveaxis(_atleast_nd(values, a.ndim), 0, axis)
        k = values.shape[axis]
        positions = np.repeat(positions, k) if len(positions) == 1 else positions
    k = len(positions)
    values = broadcast_to(values, tuple(k if d == axis else m for d, m in enumerate(a.shape)))
    order = np.argsort(positions, kind="stable")
    target = positions[order] + np.arange(k)
    slot = np.ones(n + k, bool)
    slot[target] = False
    source = np.empty(n + k, np.int64)
    source[slot] = np.arange(n)
    source[target] = n + order
    return indexing.getitem(concatenate([a, values], axis), (slice(None),) * axis + (source,))


def resize(a, new_shape):
    """`a` repeated or cut to fill `new_shape`."""
    flat = ravel(a)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    size = math.prod(shape)
    if not flat.size:
        from weft.numpy.creation import zeros
        return zeros(shape, flat.dtype)
    flat = tile(flat, -(-size // flat.size))[:size] if size > flat.size else flat[:size]
    return reshape(flat, shape)
