"""Padding of arrays: constants, continued edges, reflections, statistics and ramps."""

from __future__ import annotations

import builtins
from typing import Any, Literal

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim, as_int, max_dim, min_dim
from weft._engine.numpy import indexing
from weft._engine.numpy.creation import linspace
from weft._engine.numpy.manipulation import broadcast_to, concatenate, flip
from weft._engine.numpy.promote import array_of, canonical_axis, cast, concrete, value
from weft._engine.numpy.selection import clip, where
from weft._engine.numpy.ufuncs import minimum, remainder
from weft._engine.ops import elementwise as ew, layout, slicing
from weft._engine.ops.casting import size_as
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity

#: the keyword argument of each mode
OPTIONS = {
    "constant": "constant_values",
    "empty": None,
    "edge": None,
    "wrap": None,
    "reflect": "reflect_type",
    "symmetric": "reflect_type",
    "maximum": "stat_length",
    "minimum": "stat_length",
    "mean": "stat_length",
    "median": "stat_length",
    "linear_ramp": "end_values",
}
_Continuation = Literal["edge", "reflect", "symmetric", "wrap"]
MAX_RUNS = 4  # the most slices that a rearranged dim is concatenated from


def pad(array, pad_width, mode="constant", **kwargs):
    """Return `array` with `pad_width` elements before and after each dim, of the same dtype.

    `pad_width` is an integer, a pair, a list of pairs for all dims, or a dict from dims to them. Modes: constant
    (`constant_values`), edge, reflect, symmetric, wrap, empty, maximum, minimum, mean, median (of `stat_length` elements),
    linear_ramp (to `end_values`). Raises ValueError for negative widths, unknown modes, and empty dims that must be continued.

    >>> wnp.pad(wnp.arange(3), (1, 2), mode="edge")
    Array([0, 0, 1, 2, 2, 2], dtype=int32)
    """
    a = array_of("pad", array)
    if callable(mode):
        return _pad_by_function(a, _pad_widths(pad_width, a.ndim), mode, kwargs)
    if not isinstance(mode, str) or mode not in OPTIONS:
        raise NotImplementedError(
            f"Unimplemented padding mode '{mode}' for weft.numpy.pad; there are {', '.join(OPTIONS)}, "
            "and functions."
        )
    strange = [name for name in kwargs if name != OPTIONS[mode]]
    if strange:
        raise ValueError(
            f"pad: unsupported keyword arguments for mode {mode!r}: {', '.join(strange)}; "
            + (f"it takes {OPTIONS[mode]} alone." if OPTIONS[mode] else "it takes none.")
        )
    widths = _pad_widths(pad_width, a.ndim)
    if not any(map(any, widths)):
        return a
    if mode in ("constant", "empty"):
        values = kwargs.get("constant_values", 0)
        return _pad_constant(a, widths, values)
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        return _pad_from_inside(a, widths, mode, kwargs.get("reflect_type", "even"))
    if mode in ("maximum", "minimum", "mean", "median"):
        return _pad_statistic(a, widths, mode, kwargs.get("stat_length"))
    return _pad_ramp(a, widths, kwargs.get("end_values", 0))


def _pad_by_function(a, widths, function, kwargs):
    """Pad with zeros and replace each vector of each dim by a function of it.

    The function is called as `function(vector, (before, after), dim, kwargs)`.
    """
    from weft._engine.numpy.composed import apply_along_axis

    padded = _pad_constant(a, widths, 0)
    for d, width in enumerate(widths):
        padded = apply_along_axis(function, d, padded, width, d, kwargs)
    return padded


def _take_positions(a, d: int, source: np.ndarray):
    """Return `a` with element `source[i]` of dim `d` at position i.

    A few runs along the last dim become slices, which read whole vectors; along another dim an
    index moves whole rows.
    """
    runs = _find_runs(source)
    if d < a.ndim - 1 or len(runs) > MAX_RUNS:
        return indexing.getitem(a, (slice(None),) * d + (source,))
    parts = []
    for first, step, length in runs:
        low = builtins.min(first, first + step * (length - 1))
        part = slicing.slice_in_dim(a, low, low + (length if step else 1), axis=d)
        parts.append(
            flip(part, d)
            if step < 0
            else part
            if step
            else broadcast_to(part, (*a.shape[:-1], length))
        )
    return concatenate(parts, d)


def _places(n: Any, width: tuple[Any, Any]) -> Any:
    """Return the positions of a padded dim, counted from its first element.

    They are a NumPy array if all sizes are known.
    """
    if not any(isinstance(size, SymbolicDim) for size in (n, *width)):
        return np.arange(-width[0], n + width[1])
    return ew.sub(layout.iota(np.int32, n + width[0] + width[1]), size_as(width[0], np.int32))


def _continuation_positions(
    n: int | SymbolicDim, width: tuple[Any, Any], mode: _Continuation
) -> Any:
    """Return the positions in a dim of symbolic size that its continuation reads."""
    places = _places(n, width)
    if mode == "edge":
        return clip(places, 0, n - 1)
    # the position that mirrors the first one
    last = {"wrap": n, "symmetric": 2 * n - 1, "reflect": 2 * (n - 1)}[mode]
    places = remainder(
        places, max_dim(last, 1) if mode == "reflect" else n if mode == "wrap" else 2 * n
    )
    return places if mode == "wrap" else minimum(places, last - places)


def _find_runs(source: np.ndarray) -> list[tuple[int, int, int]]:
    """Return indices as runs (first, step, length) with steps of 1, -1 or 0.

    >>> _find_runs(np.array([2, 1, 0, 1, 2, 3, 3]))
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


def _reflect_oddly(a, d: int, mirrored, width: tuple[int, int], mode):
    """Continue dim `d` by twice the nearest edge minus the elements at `mirrored`.

    The continuation is x(-i) = 2 x(0) - x(i) at the first edge and likewise at the last one, so
    that a whole period adds twice the difference of the edges. Each result is an element or its
    negative, plus multiples of the edges.
    """
    n, places = a.shape[d], _places(a.shape[d], width)
    half = n if mode == "symmetric" else max_dim(n - 1, 1)
    if mode == "reflect":
        # an edge shared by two mirrored periods belongs to the nearer one, whose terms are smaller
        places = places - (places > 0)
    periods, backwards = places // (2 * half), places % (2 * half) >= half
    along = [-1 if k == d else 1 for k in range(a.ndim)]
    backwards, of_first, of_last = [
        x.reshape(along) for x in (backwards, -2 * periods, 2 * periods + 2 * backwards)
    ]
    first, last = [slicing.slice_in_dim(a, at, at + 1, axis=d) for at in (0, n - 1)]

    def times(counts, edge):
        return counts.astype(a.dtype) * edge

    both = times(of_last, last - first) + times(2 * backwards, first)
    # avoids a term 0 * inf
    edges = where(
        of_first == 0, times(of_last, last), where(of_last == 0, times(of_first, first), both)
    )
    return where(
        (of_first == 0) & (of_last == 0), mirrored, edges + where(backwards, -mirrored, mirrored)
    )


def _pad_statistic(a, widths, mode: str, length):
    """Fill borders with a statistic of the `length` nearest elements (all by default)."""
    from weft._engine.numpy import reductions, statistics

    stat = {
        "maximum": reductions.max,
        "minimum": reductions.min,
        "mean": reductions.mean,
        "median": statistics.median,
    }[mode]
    lengths = np.broadcast_to(np.asarray(0 if length is None else length), (a.ndim, 2))
    for d, (before, after) in enumerate(widths):
        parts = []
        for side, k in ((0, before), (1, after)):
            n = a.shape[d]
            m = min_dim(as_int(lengths[d, side]) or n, n)
            near = (
                slicing.slice_in_dim(a, 0, m, axis=d)
                if side == 0
                else slicing.slice_in_dim(a, n - m, n, axis=d)
            )
            edge = stat(near, d, keepdims=True)
            if dtypes.issubdtype(a.dtype, np.integer) and edge.dtype != a.dtype:
                edge = ew.round(edge, ew.RoundingMethod.TO_NEAREST_EVEN)
            parts.append(
                broadcast_to(
                    cast(edge, a.dtype), tuple(k if i == d else m for i, m in enumerate(a.shape))
                )
            )
        a = concatenate([parts[0], a, parts[1]], d)
    return a


def _pad_ramp(a, widths, end_values):
    """Fill borders with equal steps from the edge to an end value."""
    ends = np.broadcast_to(np.asarray(end_values), (a.ndim, 2))

    for d, (before, after) in enumerate(widths):
        n = a.shape[d]
        at = lambda i, a=a, d=d: slicing.index_in_dim(a, i, d, keepdims=False)
        first = linspace(ends[d, 0], at(0), before, endpoint=False, dtype=a.dtype, axis=d)
        last = flip(
            linspace(ends[d, 1], at(n - 1), after, endpoint=False, dtype=a.dtype, axis=d), d
        )
        a = concatenate([first, a, last], d)
    return a


def _pad_widths(pad_width, ndim: int) -> list[tuple[Any, Any]]:
    """Return the sizes before and after each dim, which may be symbolic."""
    if isinstance(pad_width, dict):
        full: list[tuple[Any, Any]] = [(0, 0)] * ndim
        for d, w in pad_width.items():
            first, last = (w, w) if isinstance(w, (int, SymbolicDim)) else w
            full[canonical_axis(d, ndim, "pad")] = (first, last)
        return full
    pad_widths = np.asarray(pad_width if isinstance(pad_width, SymbolicDim) else value(pad_width))
    symbolic = pad_widths.dtype == object and all(
        isinstance(w, (int, np.integer, SymbolicDim)) for w in pad_widths.flat
    )
    if pad_widths.dtype.kind not in "iu" and pad_widths.size and not symbolic:
        raise TypeError(f"pad: pad_width must hold integers, got {pad_widths.dtype.name}.")
    try:
        widths = np.broadcast_to(pad_widths, (ndim, 2))
    except ValueError:
        raise ValueError(
            f"pad: pad_width with nd={ndim} has unsupported shape {pad_widths.shape}. Give one integer, a pair, "
            f"or a pair for each of the {quantity(ndim, 'dim')}."
        ) from None
    if any(w < 0 for w in widths.flat):
        raise ValueError("index can't contain negative values: pad widths must not be negative.")
    return [(as_int(b), as_int(c)) for b, c in widths]


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


def _pad_from_inside(a, widths: list[tuple[Any, Any]], mode: _Continuation, reflect_type: str):
    """Continue `a` beyond its ends with its own elements."""
    is_odd = mode in ("reflect", "symmetric") and reflect_type == "odd"
    for d, width in enumerate(widths):
        if not any(width):
            continue
        n = a.shape[d]
        if n == 0:
            raise ValueError(
                f"can't extend empty axis {d} using modes other than 'constant' or 'empty'"
            )
        if isinstance(n, SymbolicDim) or any(isinstance(w, SymbolicDim) for w in width):
            inner = indexing.getitem(
                a, (slice(None),) * d + (_continuation_positions(n, width, mode),)
            )
        else:
            inner = _take_positions(a, d, np.pad(np.arange(n), width, mode=mode))
        a = _reflect_oddly(a, d, inner, width, mode) if is_odd else inner
    return a
