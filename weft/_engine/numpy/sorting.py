"""Sorting, searching and positions; `sets` has sets, `statistics` quantiles and histograms."""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

import numpy as np

from weft._engine.control.while_loop import while_loop
from weft._engine.core.trace import Tracer
from weft._engine.ir.symbolic import SymbolicDim, as_int, is_more_than, max_dim
from weft._engine.numpy import (
    creation,
    manipulation as mp,
    reductions as rd,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.dtype_kinds import check_no_out
from weft._engine.numpy.promote import (
    array_of,
    as_axes,
    canonical_axis,
    cast,
    check_arraylike,
    concrete,
    flatten_for_axis,
    promote_dtypes,
    value,
)
from weft._engine.ops import elementwise as ew, layout, sorting
from weft._engine.ops.casting import size_as
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.errors import ConcretizationTypeError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import user_frame


def sort(
    a,
    axis: int | None = -1,
    *,
    kind=None,
    order=None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Return the elements in ascending (or descending) order along `axis`; NaN last."""
    _check_kind("sort", kind, order)
    a, axis = flatten_for_axis("sort", a, axis)
    out = sorting.sort(a, dimension=axis, is_stable=stable)
    return layout.rev(out, (axis,)) if descending else out


def argsort(
    a,
    axis: int | None = -1,
    *,
    kind=None,
    order=None,
    stable: bool = True,
    descending: bool = False,
    dtype=None,
):
    """Return the positions that sort `a` along `axis`.

    They have the dtype `dtype`, by default the default integer.
    """
    _check_kind("argsort", kind, order)
    a, axis = flatten_for_axis("argsort", a, axis)
    dtype = dtypes.default_int_dtype() if dtype is None else dtypes.check_dtype(dtype, "argsort")
    positions = layout.broadcasted_iota(dtype, tuple(a.shape), axis)
    if descending:
        # stable: equal elements keep their order, so both sequences are reversed before and after
        flipped = [layout.rev(x, (axis,)) for x in (a, positions)]
        out = sorting.sort(flipped, dimension=axis, is_stable=True, num_keys=1)[1]
        return layout.rev(out, (axis,))
    return sorting.sort([a, positions], dimension=axis, is_stable=stable, num_keys=1)[1]


def _check_kind(api: str, kind, order) -> None:
    """Raise TypeError for a `kind` of sort and for fields.

    There is only one kind, and arrays have no fields.
    """
    if kind is not None:
        raise TypeError(
            f"{api}: the argument `kind` is not supported, got {kind!r}. Use stable=True or stable=False to say whether equal "
            "elements keep their places."
        )
    if order is not None:
        raise TypeError(f"{api}: `order` names fields, which arrays do not have; got {order!r}.")


def lexsort(keys, axis: int = -1):
    """Return the positions that sort by several keys; the last key is the most significant."""
    keys = [array_of("lexsort", k) for k in keys]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    axis = canonical_axis(axis, keys[0].ndim, "lexsort")
    positions = layout.broadcasted_iota(dtypes.default_int_dtype(), tuple(keys[0].shape), axis)
    return sorting.sort(
        [*reversed(keys), positions], dimension=axis, is_stable=True, num_keys=len(keys)
    )[-1]


def _check_kth(api: str, kth, n: int) -> None:
    for k in as_axes(kth, api):
        if not -n <= k < n:
            raise ValueError(f"{api}: kth={k} is out of bounds for a dim of size {n}.")


def partition(a, kth: int, axis: int = -1):
    """Return the elements with the `kth` one in its sorted position (here: all sorted).

    Raise ValueError for a `kth` out of bounds.
    """
    a, axis = flatten_for_axis("partition", a, axis)
    _check_kth("partition", kth, a.shape[axis])
    return sort(a, axis)


def argpartition(a, kth: int, axis: int = -1):
    """Return the positions of `partition`, as int32 (here: of all elements sorted).

    Raise ValueError for a `kth` out of bounds.
    """
    a, axis = flatten_for_axis("argpartition", a, axis)
    _check_kth("argpartition", kth, a.shape[axis])
    return cast(argsort(a, axis), np.int32)


def _check_method(api: str, method, known: tuple) -> None:
    """Raise ValueError for an unknown algorithm; all known ones give the same result."""
    if method not in known:
        raise ValueError(f"{api}: method={method!r} is not one of {', '.join(map(repr, known))}.")


def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan"):
    """Return the positions at which `v` can be inserted into sorted `a`, by bisection.

    >>> wnp.searchsorted(wnp.arange(5.), wnp.array([0.5, 4.0]))
    Array([1, 4], dtype=int32)
    """
    _check_method("searchsorted", method, ("scan", "scan_unrolled", "sort", "compare_all"))
    if side not in ("left", "right"):
        raise ValueError(
            f"{side!r} is an invalid value for keyword 'side'; expected one of ['left', 'right']."
        )
    a, v = [concrete(x) for x in promote_dtypes(value(a), value(v))]
    if a.ndim != 1:
        raise ValueError(f"a should be 1-dimensional, got shape {tuple(a.shape)}.")
    if sorter is not None:
        sorter = array_of("searchsorted", sorter)
        if sorter.shape != a.shape:
            raise ValueError(
                f"searchsorted: `sorter` must have the shape of `a`, {a.shape}, got {sorter.shape}."
            )
        a = a[sorter]
    n = a.shape[0]
    place = (
        dtypes.check_dtype("int64", "searchsorted").type
        if is_more_than(n, np.iinfo(np.int32).max)
        else np.int32
    )
    low = layout.broadcast_in_dim(place(0), tuple(v.shape), ())
    high = layout.broadcast_in_dim(size_as(n, place), tuple(v.shape), ())

    def halve(bounds):
        low, high = bounds
        middle = ew.shift_right_logical(ew.add(low, high), 1)
        probe = a[selection.clip(middle, 0, max_dim(n - 1, 0))] if n else v
        right = _not_after(probe, v, side)
        open_ = ew.lt(low, high)
        return (
            ew.select_n(ew.bitwise_and(open_, right), low, ew.add(middle, 1)),
            ew.select_n(ew.bitwise_and(open_, ew.bitwise_not(right)), high, middle),
        )

    if isinstance(n, SymbolicDim):
        return while_loop(lambda bounds: rd.any(ew.lt(*bounds)), halve, (low, high))[0]
    for _ in range(n.bit_length()):
        low, high = halve((low, high))
    return low


def _not_after(x, v, side: str):
    """Return whether `v` belongs after element `x`; NaN sorts last."""
    after = uf.less(x, v) if side == "left" else uf.less_equal(x, v)
    if dtypes.issubdtype(v.dtype, np.floating):
        nan_v, nan_x = ew.ne(v, v), ew.ne(x, x)
        after = ew.bitwise_or(
            after,
            ew.bitwise_and(
                nan_v, ew.bitwise_not(nan_x) if side == "left" else ew.bitwise_or(nan_v, nan_x)
            ),
        )
    return after


def digitize(x, bins, right: bool = False, *, method=None):
    """Return the index of the bin of each element."""
    _check_method("digitize", method, (None, "scan", "scan_unrolled", "sort", "compare_all"))
    bins = array_of("digitize", bins)
    if bins.ndim != 1:
        raise ValueError("digitize: bins must be a 1-dimensional array.")
    if bins.shape[0] == 0:
        return creation.zeros(array_of("digitize", x).shape, np.int32)
    # if the order of the bins is a run-time value, one search serves both orders
    rising = uf.greater_equal(bins[-1], bins[0])
    bins_of = searchsorted(
        selection.where(rising, bins, mp.flip(bins)), x, side="left" if right else "right"
    )
    return selection.where(rising, bins_of, uf.subtract(bins.shape[0], bins_of))


def argwhere(a, *, size: int | None = None, fill_value=None):
    """Return the positions of nonzero elements as rows."""
    a = creation.asarray(a)
    result = selection.nonzero(mp.atleast_1d(a), size=size, fill_value=fill_value)
    return mp.stack(result, 1) if a.ndim else mp.reshape(result[0][:0], (result[0].shape[0], 0))


def extract(condition, arr, *, size: int | None = None, fill_value=0):
    """Return the elements of `arr` where `condition` holds."""
    return compress(mp.ravel(condition), mp.ravel(arr), size=size, fill_value=fill_value)


def compress(
    condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None
):
    """Return the slices of `a` along `axis` where `condition` holds."""
    check_no_out(out, "compress")
    a, axis = flatten_for_axis("compress", a, axis)
    positions = selection.flatnonzero(condition, size=size, fill_value=a.shape[axis])
    if size is None and positions.size and int(positions[-1]) >= a.shape[axis]:
        raise ValueError(
            f"compress: element {int(positions[-1])} of the condition is true, but the dim has {quantity(a.shape[axis], 'place')}."
        )
    return selection.take(a, positions, axis, mode="fill", fill_value=fill_value)


def choose(a, choices, out=None, mode: str = "raise"):
    """Return elements of `choices`, selected by the integers in `a`; all broadcast together.

    `mode` handles integers out of bounds: "raise" refuses them, "clip" clips them, "wrap" takes
    them modulo the number of choices.

    >>> wnp.choose(wnp.array([[0], [1]]), [wnp.zeros(2), wnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float32)
    """
    check_no_out(out, "choose")
    a = array_of("choose", a)
    if not dtypes.issubdtype(a.dtype, np.integer):
        raise ValueError(f"choose: `a` must hold integers, got {a.dtype.name}.")
    a, *choices = mp.broadcast_arrays(a, *choices)
    if not choices:
        raise ValueError("choose: `choices` must hold at least one array.")
    a = _in_bounds(a, len(choices), mode, "choose", "`a`")
    return selection.take_along_axis(mp.stack(choices, 0), mp.expand_dims(a, 0), 0)[0]


def isin(
    element,
    test_elements,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
):
    """Return a mask of the elements that are among `test_elements`."""
    _check_method("isin", method, ("auto", "compare_all", "binary_search", "sort"))
    check_arraylike("isin", element, test_elements)
    a, b = [concrete(x) for x in promote_dtypes(value(element), value(test_elements))]
    b = mp.ravel(b)
    equal_pairs = uf.equal(mp.expand_dims(a, -1), b)
    mask = rd.any(equal_pairs, -1)
    return uf.logical_not(mask) if invert else mask


@takes_out_sharding
def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None):
    """Return the number of occurrences of each non-negative integer, or the sum of its weights.

    Inside `jit`, give a static `length`.
    """
    x = array_of("bincount", x)
    if x.ndim != 1:
        raise ValueError(
            f"bincount: x must be a vector (1-dimensional), got shape {tuple(x.shape)}."
        )
    if x.dtype == np.bool_:
        x = cast(x, np.dtype(np.int32))
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype.name}")
    if length is None:
        host = selection.host_value(x, "bincount", "Give length=..., the static number of bins.")
        length = builtins.max(minlength, int(host.max()) + 1 if host.size else 0)
    weights = np.int32(1) if weights is None else array_of("bincount", weights)
    dtype = weights.dtype if hasattr(type(weights), "aval") else dtypes.default_int_dtype()
    return creation.zeros((length,), dtype).at[selection.clip(x, 0, None)].add(weights, mode="drop")


def unravel_index(indices, shape) -> tuple:
    """Return flat positions as positions per dim."""
    flat_index, shape, out = array_of("unravel_index", indices), value(shape), []
    if isinstance(shape, Tracer) or any(
        isinstance(n, Tracer) for n in (shape if isinstance(shape, (tuple, list)) else ())
    ):
        # traced: only their number is known
        sizes = shape if isinstance(shape, (tuple, list)) or shape.ndim else (shape,)
        shape = tuple([cast(array_of("unravel_index", n), flat_index.dtype) for n in sizes])
        size = functools.reduce(uf.multiply, shape)
        last = uf.maximum(uf.subtract(size, 1), 0)
    else:
        shape = (as_int(shape),) if np.ndim(shape) == 0 else tuple([as_int(n) for n in shape])
        size = math.prod(shape)
        last = max_dim(size - 1, 0)
    # positions out of bounds are clipped; negative ones count from the end
    flat_index = selection.clip(
        selection.where(uf.less(flat_index, 0), uf.add(flat_index, size), flat_index), 0, last
    )
    for n in reversed(shape):
        out.append(uf.remainder(flat_index, n))
        flat_index = uf.floor_divide(flat_index, n)
    return tuple(reversed(out))


def ravel_multi_index(multi_index, dims, mode: str = "raise", order: str = "C", *, dtype=None):
    """Return positions per dim as flat positions.

    They have the dtype `dtype`, by default the dtype of the positions.

    `mode` handles positions out of bounds: refused ("raise"), "clip", "wrap", or unchecked
    ("ignore").
    """
    positions = [array_of("ravel_multi_index", i) for i in multi_index]
    if len(positions) != len(dims):
        raise ValueError(
            f"ravel_multi_index: {quantity(len(positions), 'array')} of positions for {quantity(len(dims), 'dim')}; there must be one for each."
        )
    if order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: order must be 'C' or 'F', got {order!r}.")
    for i in positions:
        if not dtypes.issubdtype(i.dtype, np.integer):
            raise TypeError(
                f"ravel_multi_index: only int indices permitted, got positions of {i.dtype.name}."
            )
    positions = [
        _in_bounds(i, n, mode, "ravel_multi_index", "`multi_index`")
        for i, n in zip(positions, dims)
    ]
    pairs = list(zip(positions, dims))
    out_dtype = (
        dtypes.result_type(*positions)
        if dtype is None
        else dtypes.check_dtype(dtype, "ravel_multi_index")
    )
    flat = cast(creation.zeros(()), out_dtype)
    for i, n in pairs if order == "C" else reversed(pairs):
        flat = uf.add(uf.multiply(flat, size_as(n, out_dtype)), cast(i, out_dtype))
    return flat


def _in_bounds(positions, n: int, mode: str, api: str, where: str):
    """Return positions in a dim of size `n`; `mode` handles those out of bounds.

    `mode` is "raise", "clip" or "wrap".
    """
    if mode == "wrap":
        return uf.remainder(positions, n)
    if mode == "clip":
        return selection.clip(positions, 0, n - 1)
    if mode == "ignore":
        return positions
    if mode != "raise":
        raise ValueError(
            f"{api}: unknown mode {mode!r}; expected 'raise', 'clip', 'wrap' or 'ignore'."
        )
    if isinstance(positions, Tracer) and positions.concrete() is None:
        raise ConcretizationTypeError(
            describe(
                api,
                f"mode='raise' looks at the values of positions, but got {positions.describe()}.",
                (),
                user_frame(),
                "They have none while a program is traced.",
                "Use mode='clip' or mode='wrap' inside of jit.",
            )
        )
    host = np.asarray(positions.concrete() if isinstance(positions, Tracer) else positions)
    if np.any((host < 0) | (host >= n)):
        raise ValueError(f"invalid entry in {where} of {api}: positions must be in [0, {n}).")
    return positions
