"""Selection of elements: by conditions and bounds, at positions along a dim, on diagonals; deletion
and insertion.
"""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.symbolic import SymbolicDim, is_at_most, max_dim, min_dim
from weft._engine.numpy import indexing, promote, reductions, ufuncs
from weft._engine.numpy.creation import asarray, full, zeros
from weft._engine.numpy.dtype_kinds import check_no_out, is_complex
from weft._engine.numpy.manipulation import atleast_nd, broadcast_to, concatenate, moveaxis, ravel
from weft._engine.ops import elementwise as ew, layout, slicing, sorting
from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather
from weft._engine.util import dtypes


def where(
    condition, x=None, y=None, /, *, size: int | None = None, fill_value=None
) -> Any:  # an array; with one argument, a tuple of arrays
    """Return `x` where `condition` holds, else `y`, broadcast together in their common dtype.

    With one argument, return the positions of nonzero elements, one array per dim (see `nonzero`;
    inside `jit` give `size`).

    Raises ValueError if only one of `x` and `y` is given, ShapeError if shapes do not broadcast, TypeError for lists.

    >>> wnp.where(wnp.arange(3) > 1, 1.0, wnp.zeros(3))
    Array([0., 0., 1.], dtype=float32)
    >>> wnp.where(wnp.array([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    """
    if x is None and y is None:
        promote.check_arraylike("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("where: either both or neither of x and y should be given.")
    promote.check_arraylike("where", condition, x, y)
    condition = promote.array_of("where", condition)
    if condition.dtype != np.bool_:
        condition = ew.ne(condition, 0)
    x, y = promote.promote_dtypes(promote.value(x), promote.value(y))
    condition, x, y = promote.broadcast("where", condition, x, y, any_ranks=True)
    return ew.select_n(condition, y, x)


def host_value(x, api: str, remedy: str = "") -> np.ndarray:
    """Return the concrete value of `x`, for functions whose result shape depends on values."""
    promote.check_concrete(api, "values", x, remedy)
    return np.asarray(x.concrete() if isinstance(x, Tracer) else x)


def nonzero(a, *, size: int | None = None, fill_value=None) -> tuple:
    """Return the positions of nonzero elements, one array per dim.

    Inside `jit`, give a static `size`; missing positions are `fill_value` (0). Raise ValueError for
    an array without dims.
    """
    a = asarray(a)
    if a.ndim == 0:
        raise ValueError(
            "nonzero: an array of no dims has no positions (0d). Use atleast_1d(x) first, or x != 0."
        )
    if size is None:
        host = host_value(a, "nonzero", "Give size=..., a static bound on the number of results.")
        return tuple(asarray(p.astype(dtypes.default_int_dtype())) for p in np.nonzero(host))
    largest = size if isinstance(size, SymbolicDim) else np.iinfo(np.int64).max
    if not isinstance(size, (int, np.integer, SymbolicDim)) or not 0 <= size <= largest:
        raise ValueError(f"nonzero: `size` must be a number of results, got {size!r}.")
    mask = ravel(ufuncs.not_equal(a, 0) if a.dtype != np.bool_ else a)
    int_ = dtypes.default_int_dtype()
    # zero elements have no slot
    slots = where(mask, ufuncs.subtract(reductions.cumsum(mask, dtype=int_), 1), size)
    numbers = ufuncs.add(layout.broadcasted_iota(int_, (a.size,), 0), 1)
    # added, so that each part of a sharded array writes its own slots; a slot is written once, or
    # zero is added
    slots_and_rest = size + 1 if isinstance(size, SymbolicDim) else max(size, 1)
    order = ufuncs.subtract(
        zeros((slots_and_rest,), int_).at[slots].add(numbers, mode="drop")[:size], 1
    )
    valid = ufuncs.greater_equal(order, 0)
    out = []
    stride = a.size
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * a.ndim
    for n, fill in zip(a.shape, fills):
        stride //= max_dim(n, 1)
        position = ufuncs.remainder(ufuncs.floor_divide(order, max_dim(stride, 1)), max_dim(n, 1))
        out.append(where(valid, position, 0 if fill is None else fill))
    return tuple(out)


def flatnonzero(a, *, size: int | None = None, fill_value=None):
    """Return the positions of nonzero elements of the flattened array."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def select(condlist, choicelist, default=0):
    """Return the first choice whose condition holds, elementwise.

    >>> x = wnp.arange(4)
    >>> wnp.select([x < 1, x > 2], [x - 10, x + 10], 5)
    Array([-10,   5,   5,  13], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(
            f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})"
        )
    if not condlist:
        raise ValueError("condlist must be non-empty")
    dtype = dtypes.result_type(default, *choicelist)
    out = promote.cast(promote.concrete(default), dtype)
    for c, v in zip(reversed(condlist), reversed(choicelist)):
        out = where(c, promote.cast(promote.concrete(v), dtype), out)
    return out


def clip(arr=None, /, min=None, max=None, *, a=None, a_min=None, a_max=None) -> Any:  # noqa: A002
    """Limit `arr` to the interval [min, max]; either bound may be None or an array that broadcasts.

    The dtype is the common dtype of `arr` and the bounds. Raises ValueError for complex numbers,
    ShapeError if shapes do not broadcast.

    >>> wnp.clip(wnp.arange(5), 1, 3)
    Array([1, 1, 2, 3, 3], dtype=int32)
    """
    arr = a if arr is None else arr
    min = a_min if min is None else min  # noqa: A001
    max = a_max if max is None else max  # noqa: A001
    arr = promote.array_of("clip", arr)
    if any(is_complex(x) for x in (arr, min, max) if x is not None):
        raise ValueError("clip: complex values have no order; clip their real and imaginary parts.")
    if min is not None:
        arr = ufuncs.maximum(min, arr)
    if max is not None:
        arr = ufuncs.minimum(max, arr)
    return arr


def take(
    a,
    indices,
    axis: int | None = None,
    out=None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value=None,
):
    """Return elements (or slices along `axis`) at `indices`.

    Positions out of bounds give NaN (mode 'fill', the default), or are clipped ('clip') or wrapped
    ('wrap'). Raise NotImplementedError for the mode 'raise': programs do not check values.
    """
    check_no_out(out, "take")
    if mode == "raise":
        raise NotImplementedError(
            "take: mode='raise' is not supported: programs check no values. Use 'fill', 'clip' or 'wrap'."
        )
    (a, axis), positions = (
        promote.flatten_for_axis("take", a, axis),
        promote.array_of("take", indices),
    )
    if not dtypes.issubdtype(positions.dtype, np.integer) and positions.dtype != np.bool_:
        raise ValueError(f"take: indices must have an integer type, got {positions.dtype.name}.")
    if mode == "wrap":
        positions = ufuncs.remainder(positions, a.shape[axis])
    if mode == "clip":  # as NumPy: negative positions are clipped, not counted from the end
        positions = clip(positions, 0, max_dim(a.shape[axis] - 1, 0))
    mode = "fill" if mode is None else mode
    if a.shape[axis] == 0 and positions.size:
        raise IndexError(
            f"take: cannot take elements from dim {axis} of the array, which is empty."
        )
    return indexing.getitem(
        a,
        (slice(None),) * axis + (positions,),
        mode=GatherScatterMode.UNCHECKED if mode == "wrap" else mode,
        fill_value=fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
    )


def take_along_axis(
    arr,
    indices,
    axis: int | None = -1,
    mode=None,
    fill_value=None,
    *,
    wrap_negative_indices: bool | None = None,
):
    """Return elements along `axis` at positions in an array of the same rank.

    The other dims broadcast.

    The result has the dtype of `arr`. Negative positions count from the end, unless
    `wrap_negative_indices` is false, its default if `mode` promises positions within bounds.
    Positions out of bounds give NaN, or the smallest integer (`mode`: "fill", "clip"). With
    `mode="one_hot"` each position is compared with all positions along `axis`, and the selected
    elements are summed: a dim that is split over devices stays split. Positions out of bounds then
    give 0.
    Raises TypeError for positions that are not integers, ValueError for another rank or an axis out of bounds.

    >>> x = wnp.array([[3, 1, 2], [6, 5, 4]])
    >>> wnp.take_along_axis(x, wnp.argsort(x, 1), 1)
    Array([[1, 2, 3],
           [4, 5, 6]], dtype=int32)
    """
    a = promote.array_of("take_along_axis", arr)
    positions = promote.array_of("take_along_axis", indices)
    if not dtypes.issubdtype(positions.dtype, np.integer):
        raise TypeError(
            f"take_along_axis indices must be of integer type, got {positions.dtype.name}"
        )
    if axis is None:
        a, positions, axis = ravel(a), ravel(positions), 0
    if a.ndim != positions.ndim:
        raise ValueError(
            f"indices and arr must have the same number of dimensions; {positions.ndim} vs. {a.ndim}"
        )
    axis = promote.canonical_axis(axis, a.ndim, "take_along_axis")
    others = promote.broadcast_shapes(_with_size(a, axis, 1), _with_size(positions, axis, 1))
    before, after = others[:axis], others[axis + 1 :]
    shape = (*before, positions.shape[axis], *after)
    if 0 in shape:
        return layout.full(shape, 0, a.dtype)
    a = broadcast_to(a, (*before, a.shape[axis], *after))
    positions = broadcast_to(positions, shape)
    compared, mode = mode == "one_hot", None if mode == "one_hot" else mode
    if wrap_negative_indices is None:
        wrap_negative_indices = (
            GatherScatterMode.from_any(mode) is not GatherScatterMode.PROMISE_IN_BOUNDS
        )
    if not is_at_most(a.shape[axis], dtypes.iinfo(positions.dtype).max):
        # the size itself must be a position
        positions = promote.cast(positions, dtypes.default_int_dtype())
    if wrap_negative_indices and dtypes.issubdtype(positions.dtype, np.signedinteger):
        positions = where(positions < 0, positions + a.shape[axis], positions)
    if compared:
        return _take_by_comparison(a, positions, axis)
    # the other dims are batch dims, which keeps them split
    batch = tuple(d for d in range(a.ndim) if d != axis)
    return gather(
        a,
        layout.expand_dims(positions, (a.ndim,)),
        GatherDimensionNumbers((), (axis,), (axis,), batch, batch),
        (1,) * a.ndim,
        mode="fill" if mode is None else mode,
        fill_value=fill_value,
    )


def _with_size(x, axis: int, size: int) -> tuple:
    """Return the shape of `x` with another size along `axis`."""
    return (*x.shape[:axis], size, *x.shape[axis + 1 :])


def _take_by_comparison(a, positions, axis: int):
    """Return the elements of `a` at `positions` along `axis`, 0 out of bounds.

    They are sums with at most one nonzero term.
    """
    here = positions[..., None] == layout.index_range(a.shape[axis], positions.dtype)
    terms = where(
        here, layout.expand_dims(moveaxis(a, axis, -1), (axis,)), layout.full((), 0, a.dtype)
    )
    return (
        reductions.any(terms, -1)
        if a.dtype == np.bool_
        else reductions.sum(terms, -1, dtype=a.dtype)
    )


def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode=None):
    """Return a new array: `arr` with `values` written along `axis` at `indices`.

    Pass inplace=False.

    Positions have the rank of `arr`; the other dims broadcast, as values do. Raise ValueError for
    another rank.
    """
    if inplace:
        raise ValueError(
            "put_along_axis: arrays are immutable; pass inplace=False and use the result."
        )
    a = promote.array_of("put_along_axis", arr)
    if axis is None:
        return layout.reshape(
            put_along_axis(ravel(a), ravel(indices), values, 0, False, mode=mode), tuple(a.shape)
        )
    positions = promote.array_of("put_along_axis", indices)
    if a.ndim != positions.ndim:
        raise ValueError(
            f"put_along_axis: indices and arr must have the same number of dims; {positions.ndim} vs. {a.ndim}"
        )
    axis = promote.canonical_axis(axis, a.ndim, "put_along_axis")
    index = tuple(
        positions
        if d == axis
        else layout.index_range(n).reshape([-1 if k == d else 1 for k in range(a.ndim)])
        for d, n in enumerate(a.shape)
    )
    return a.at[index].set(values, mode=mode)


def diag(v, k: int = 0):
    """Return diagonal `k` of a matrix, or the matrix with that diagonal.

    The rows of the matrix are split like `v`. Raise ValueError for another rank.

    >>> wnp.diag(wnp.array([1, 2]), 1)
    Array([[0, 1, 0],
           [0, 0, 2],
           [0, 0, 0]], dtype=int32)
    """
    v = promote.array_of("diag", v)
    if v.ndim == 1:
        n, k = v.shape[0] + builtins.abs(k), operator.index(k)
        row, column = [layout.broadcasted_iota(np.dtype(np.int32), (n, n), d) for d in (0, 1)]
        values = slicing.pad(v, zeros((), v.dtype), ((builtins.max(-k, 0), builtins.max(k, 0), 0),))
        return where(ufuncs.equal(ufuncs.add(row, k), column), values[:, None], zeros((), v.dtype))
    if v.ndim == 2:
        return diagonal(v, k)
    raise ValueError("diag input must be 1d or 2d")


def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """Return the diagonals of `a` in the plane of two dims, along a new last dim."""
    a = promote.array_of("diagonal", a)
    if a.ndim < 2:
        raise ValueError(
            f"diagonal requires an array of at least two dimensions, got shape {tuple(a.shape)}."
        )
    first, second = [promote.canonical_axis(d, a.ndim, "diagonal") for d in (axis1, axis2)]
    if first == second:
        raise ValueError(f"axis1 and axis2 can not be same, got {axis1} and {axis2}.")
    a = moveaxis(a, (first, second), (-2, -1))
    n = max_dim(
        0, min_dim(a.shape[-2] + builtins.min(offset, 0), a.shape[-1] - builtins.max(offset, 0))
    )
    along = layout.index_range(n)
    i, j = along + builtins.max(-offset, 0), along + builtins.max(offset, 0)
    return indexing.getitem(a, (Ellipsis, i, j))


def diagflat(v, k: int = 0):
    """Return a matrix with the flattened `v` on diagonal `k`."""
    return diag(ravel(v), k)


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None):
    """Return the sum of the diagonal `offset` in the plane of two dims, in the dtype of `sum`.

    Raises ValueError for dims out of bounds.

    >>> wnp.trace(wnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    check_no_out(out, "trace")
    return reductions.sum(diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False):
    """Return `arr` without the slices at positions `obj`.

    Positions are concrete, or a traced integer, or traced distinct ones (`assume_unique_indices`),
    since only then the shape of the result is known.
    """
    (a, axis), obj = promote.flatten_for_axis("delete", arr, axis), promote.value(obj)
    if (
        isinstance(obj, Tracer)
        and dtypes.issubdtype(obj.dtype, np.integer)
        and (obj.ndim == 0 or assume_unique_indices)
    ):
        return _without(a, ravel(obj), axis)
    n = a.shape[axis]
    if isinstance(n, SymbolicDim) and isinstance(obj, (int, np.integer)):
        if not -n <= obj < n:
            raise IndexError(
                f"delete: `obj` must hold positions along dim {axis} of size {n}, got {obj!r:.80}."
            )
        return _without(a, asarray([obj]), axis)
    places = obj if isinstance(obj, slice) else np.asarray(obj)
    if not isinstance(places, slice) and places.dtype.kind not in "iub":
        if places.size:
            raise ValueError(
                f"delete: `obj` must hold integers, booleans or a slice, got {obj!r:.80}."
            )
        places = places.astype(int)
    try:
        keep = np.delete(np.arange(a.shape[axis]), places)
    except IndexError as error:
        raise IndexError(
            f"delete: `obj` must hold positions along dim {axis} of size {a.shape[axis]}, got {obj!r:.80}."
        ) from error
    return indexing.getitem(a, (slice(None),) * axis + (keep,))


def insert(arr, obj, values, axis: int | None = None):
    """Return `arr` with `values` inserted before the positions `obj`.

    Positions are integers, which may be traced, a slice, or concrete booleans.

    Raise IndexError for concrete positions out of bounds; traced ones are clipped.
    """
    (a, axis), obj = promote.flatten_for_axis("insert", arr, axis), promote.value(obj)
    n = a.shape[axis]
    if isinstance(obj, (list, tuple)) and builtins.any(isinstance(i, Tracer) for i in obj):
        obj = asarray(obj)
    if isinstance(n, SymbolicDim) and isinstance(obj, (int, np.integer)) and not -n <= obj <= n:
        raise _outside_error(axis, n, obj)
    is_traced = isinstance(obj, Tracer)
    if (is_traced or (isinstance(n, SymbolicDim) and np.ndim(obj) == 0)) and dtypes.issubdtype(
        typeof(obj).dtype, np.integer
    ):
        if np.ndim(obj) == 0:
            return _with_block(a, asarray(obj), values, axis)
        if np.ndim(obj) == 1:
            return _with_slices(a, obj, values, axis)
    n = operator.index(n)
    positions = _insert_positions(obj, n, axis)
    values = promote.cast(asarray(values), a.dtype)
    if values.ndim and np.ndim(obj) == 0 and not isinstance(obj, slice):
        values = moveaxis(atleast_nd(values, a.ndim), 0, axis)
        positions = np.repeat(positions, values.shape[axis])
    k = len(positions)
    values = broadcast_to(values, _with_size(a, axis, k))
    order = np.argsort(positions, kind="stable")
    target = positions[order] + np.arange(k)
    slot = np.ones(n + k, bool)
    slot[target] = False
    source = np.empty(n + k, np.int64)
    source[slot] = np.arange(n)
    source[target] = n + order
    return indexing.getitem(concatenate([a, values], axis), (slice(None),) * axis + (source,))


def _insert_positions(obj, n: int, axis: int) -> np.ndarray:
    """Return known positions of `insert` as a vector of integers from 0 to `n`."""
    array = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(obj)
    positions = np.atleast_1d(array)
    if positions.size and positions.dtype.kind not in "iub":
        raise ValueError(f"insert: `obj` must be integers, booleans or a slice, got {obj!r:.80}.")
    if positions.ndim > 1:
        raise ValueError(f"insert: `obj` must have one dim or none, got shape {positions.shape}.")
    if positions.dtype == bool and array.ndim:
        positions = np.flatnonzero(positions)
    positions = np.where(positions < 0, positions + n, positions).astype(int)
    if positions.size and not 0 <= positions.min() <= positions.max() <= n:
        raise _outside_error(axis, n, obj)
    return positions


def _outside_error(axis: int, n, obj) -> IndexError:
    return IndexError(
        f"insert: `obj` must hold positions within dim {axis} of size {n}, got {obj!r:.80}."
    )


def _without(a, positions, axis: int):
    """Return `a` without the slices at distinct traced `positions` along `axis`.

    The other slices are moved stably to the front.
    """
    n = a.shape[axis]
    positions = where(positions < 0, positions + n, positions)
    gone = ew.ne(
        reductions.sum(
            ew.eq(*promote.broadcast("delete", layout.index_range(n)[:, None], positions[None, :])),
            1,
        ),
        0,
    )
    places = layout.broadcasted_iota(dtypes.default_int_dtype(), (n,), 0)
    kept_positions = sorting.sort([promote.cast(gone, np.int32), places], num_keys=1)[1][
        : max_dim(n - positions.shape[0], 0)
    ]
    return indexing.getitem(a, (slice(None),) * axis + (kept_positions,))


def _with_slices(a, positions, values, axis: int):
    """Return `a` with one slice of `values` before each of the traced `positions` along `axis`.

    Slices for one position keep their order.
    """
    n, k = a.shape[axis], positions.shape[0]
    values = broadcast_to(
        promote.cast(asarray(values), a.dtype),
        tuple(k if d == axis else m for d, m in enumerate(a.shape)),
    )
    positions = promote.cast(positions, dtypes.default_int_dtype())
    positions = clip(where(positions < 0, positions + n, positions), 0, n)
    places = np.arange(n + k, dtype=positions.dtype)
    ordered, order = sorting.sort([positions, places[:k]], num_keys=1)
    of_values = full((n + k,), -1, positions.dtype).at[ordered + places[:k]].set(order)
    before = reductions.cumsum(of_values >= 0)
    source = where(of_values < 0, places - before, n + of_values)
    return indexing.getitem(concatenate([a, values], axis), (slice(None),) * axis + (source,))


def _with_block(a, position, values, axis: int):
    """Return `a` with `values` inserted before one traced `position` along `axis`."""
    n = a.shape[axis]
    values = promote.cast(asarray(values), a.dtype)
    if values.ndim:
        values = moveaxis(atleast_nd(values, a.ndim), 0, axis)
    k = values.shape[axis] if values.ndim else 1
    values = broadcast_to(values, tuple(k if d == axis else m for d, m in enumerate(a.shape)))
    position = clip(where(position < 0, position + n, position), 0, n)
    places = layout.index_range(n + k, int)
    source = where(
        places < position, places, where(places < position + k, places - position + n, places - k)
    )
    return indexing.getitem(concatenate([a, values], axis), (slice(None),) * axis + (source,))
