"""Sets: distinct elements, unions, intersections, differences.

The number of results depends on values; inside `jit`, a static `size` fixes it, and missing
elements are filled in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft._engine.ir.symbolic import min_dim
from weft._engine.numpy import (
    creation,
    manipulation as mp,
    reductions as rd,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.creation import asarray
from weft._engine.numpy.promote import canonical_axis, cast, promote_dtypes
from weft._engine.numpy.selection import host_value
from weft._engine.numpy.sorting import argsort, isin, lexsort, searchsorted
from weft._engine.ops import layout
from weft._engine.util import dtypes


class UniqueAll(NamedTuple):
    """Distinct values, their first positions, the inverse, and their counts.

    The inverse rebuilds the array from the values.
    """

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values and their counts."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values and the inverse that rebuilds the array."""

    values: Any
    inverse_indices: Any


def unique(
    ar,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value=None,
    sorted: bool = True,
):  # noqa: A002
    """Return the sorted distinct elements (or slices along `axis`).

    Their number depends on values, so inside `jit` give a static `size`.

    Missing elements are the first one, or `fill_value` (a slice, or an array that broadcasts to
    one). With `equal_nan` all NaN are one element. Raises ValueError for an empty array with a
    `size` and no `fill_value`.

    >>> wnp.unique(wnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    """
    ar = asarray(ar)
    axis = None if axis is None else canonical_axis(axis, ar.ndim, "unique")
    if size is None and axis is not None and equal_nan and dtypes.issubdtype(ar.dtype, np.inexact):
        # NumPy never treats rows with NaN as equal
        counts = unique(ar, axis=axis, return_counts=True, size=ar.shape[axis], fill_value=0)[1]
        size = int(host_value(counts, "unique").astype(bool).sum())
    if size is None:
        return _unique_on_host(ar, return_index, return_inverse, return_counts, axis, equal_nan)
    rows, lead, slice_shape = _as_rows(ar, axis)
    n = rows.shape[0]
    if not n and size:
        if fill_value is None:
            raise ValueError(
                f"unique: an array of shape {tuple(ar.shape)} has no elements to fill size={size} with; give a fill_value."
            )
        rows = creation.zeros((1, rows.shape[1]), rows.dtype)
    order = _row_order(rows)
    ordered = rows[order]
    first = creation.ones((min_dim(1, n),), bool)
    differs = rd.any(_differs(ordered[1:], ordered[:-1], equal_nan), 1)
    new = mp.concatenate([first, differs])
    number = uf.subtract(rd.cumsum(new), 1)
    count = rd.sum(new)
    zeros = creation.zeros((size,), order.dtype)
    starts = zeros.at[selection.where(new, number, size)].set(
        layout.index_range(n, order.dtype), mode="drop"
    )
    starts = cast(starts, order.dtype)
    valid = uf.less(layout.index_range(size), count)
    values = ordered[starts]
    if fill_value is not None:
        fill = cast(asarray(fill_value), rows.dtype)
        if axis is not None:
            fill = mp.ravel(mp.broadcast_to(fill, slice_shape))
        values = selection.where(valid[:, None], values, fill)
    if axis is None:
        result = [values[:, 0]]
    else:
        result = [mp.moveaxis(mp.reshape(values, (size, *slice_shape)), 0, axis)]
    if return_index:
        result.append(order[starts])
    if return_inverse:
        inverse = creation.zeros((n,), order.dtype).at[order].set(cast(number, order.dtype))
        result.append(mp.reshape(inverse, tuple(lead)))
    if return_counts:
        result.append(creation.zeros((size,), order.dtype).at[number].add(1, mode="drop"))
    return result[0] if len(result) == 1 else tuple(result)


def _unique_on_host(ar, index: bool, inverse: bool, counts: bool, axis, equal_nan: bool):
    """Return NumPy's `unique` of a concrete array, with its options in NumPy's order."""
    host = host_value(ar, "unique", "Give size=..., a static bound on the number of results.")
    # NumPy does not sort the NaN of narrow floats
    is_narrow = dtypes.issubdtype(ar.dtype, np.inexact) and ar.dtype.itemsize < 4
    numbers = host.astype(np.float32) if is_narrow else host
    out: Any = np.unique(numbers, index, inverse, counts, axis, equal_nan=equal_nan)
    if not isinstance(out, tuple):
        return asarray(out.astype(host.dtype))
    int_dtype = dtypes.default_int_dtype()
    return (asarray(out[0].astype(host.dtype)), *(asarray(o.astype(int_dtype)) for o in out[1:]))


def _as_rows(ar, axis: int | None) -> tuple:
    """Return the elements or slices as rows of a matrix.

    Also return the dims that count them, and the shape of one.
    """
    if axis is None:
        return mp.ravel(ar)[:, None], ar.shape, ()
    moved = mp.moveaxis(ar, axis, 0)
    lead = moved.shape[:1]
    return mp.reshape(moved, (*lead, -1)), lead, moved.shape[1:]


def _row_order(rows):
    """Return the positions that sort rows, by the first column first."""
    columns = rows.shape[1]
    if columns > 1:
        return lexsort([rows[:, k] for k in reversed(range(columns))])
    return argsort(rows[:, 0])


def _differs(x, y, equal_nan: bool):
    unequal = uf.not_equal(x, y)
    return (
        uf.logical_and(unequal, uf.logical_not(uf.logical_and(uf.isnan(x), uf.isnan(y))))
        if equal_nan
        else unequal
    )


def unique_all(x, /, *, size: int | None = None, fill_value=None) -> UniqueAll:
    """Return distinct elements with indices, inverse and counts."""
    return UniqueAll(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> UniqueCounts:
    """Return distinct elements with counts."""
    return UniqueCounts(
        *unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> UniqueInverse:
    """Return distinct elements with the inverse."""
    return UniqueInverse(
        *unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_values(x, /, *, size: int | None = None, fill_value=None):
    """Return the sorted distinct elements."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(ar1, ar2, *, size: int | None = None, fill_value=None):
    """Return the sorted elements that are in either array."""
    return unique(
        mp.concatenate([mp.ravel(asarray(ar1)), mp.ravel(asarray(ar2))]),
        size=size,
        fill_value=fill_value,
    )


def _from_host(name: str, ar1, ar2, *args):
    """Return NumPy's function of the values of two arrays."""
    remedy = "Give size=..., a static bound on the number of results."
    out = getattr(np, name)(*[host_value(x, name, remedy) for x in (ar1, ar2)], *args)
    if isinstance(out, tuple):
        return tuple(
            asarray(o.astype(dtypes.default_int_dtype()) if i else o) for i, o in enumerate(out)
        )
    return asarray(out)


def _order(ar, assume_unique: bool = False) -> tuple:
    """Return the sorted elements, their positions, and a mask of the first ones of each value."""
    order = argsort(ar)
    ordered = ar[order]
    if assume_unique or ar.size < 2:
        return ordered, order, np.ones(ar.shape, bool)
    return (
        ordered,
        order,
        mp.concatenate([np.ones(1, bool), _differs(ordered[1:], ordered[:-1], equal_nan=True)]),
    )


def _choose(values, mask, size: int, fill_value, fills_with_first: bool = True) -> tuple:
    """Return the first `size` elements where `mask` holds, and their positions.

    Missing ones are `fill_value`, by default the first element (zero if there is none), with
    positions past the end.
    """
    at = selection.nonzero(mask, size=size, fill_value=mask.shape[0])[0]
    if not values.size or not size:
        return creation.full((size,), 0 if fill_value is None else fill_value, values.dtype), at
    picked = selection.take(values, at, mode="clip")
    fill = (
        selection.where(rd.any(mask), picked[0], 0)
        if fill_value is None and fills_with_first
        else asarray(0 if fill_value is None else fill_value)
    )
    return selection.where(uf.less(at, mask.shape[0]), picked, cast(fill, values.dtype)), at


def intersect1d(
    ar1,
    ar2,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value=None,
):
    """Return the sorted elements that are in both arrays.

    With `return_indices` also return their first positions in both arrays.

    Their number depends on values: inside `jit`, give a static `size`. Missing elements are
    `fill_value`, by default the smallest common element; their positions are the sizes of the
    arrays.

    >>> wnp.intersect1d(wnp.array([5, 3, 3, 7]), wnp.array([3, 4, 7]), size=3, fill_value=-1)
    Array([ 3,  7, -1], dtype=int32)
    """
    ar1, ar2 = promote_dtypes(asarray(ar1), asarray(ar2))
    if size is None:
        return _from_host("intersect1d", ar1, ar2, assume_unique, return_indices)
    ar1, ar2 = mp.ravel(ar1), mp.ravel(ar2)
    ordered, order, first = _order(ar1, assume_unique)
    values, at = _choose(ordered, uf.logical_and(first, isin(ordered, ar2)), size, fill_value)
    if not return_indices:
        return values
    other, other_order, _ = _order(ar2)
    missing = uf.equal(at, ar1.size)
    positions = selection.where(
        missing, ar1.size, selection.take(order, at, mode="clip") if ar1.size else 0
    )
    in_other = selection.where(
        missing,
        ar2.size,
        selection.take(other_order, searchsorted(other, values), mode="clip") if ar2.size else 0,
    )
    return values, positions, in_other


def setdiff1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """Return the sorted elements of the first array that are not in the second.

    With `assume_unique` all of them are returned in their order.

    Their number depends on values: inside `jit`, give a static `size`. Missing ones are `fill_value` (0).

    >>> wnp.setdiff1d(wnp.array([5, 3, 3, 7]), wnp.array([3, 4]), size=3)
    Array([5, 7, 0], dtype=int32)
    """
    ar1, ar2 = mp.ravel(asarray(ar1)), mp.ravel(asarray(ar2))
    if size is None:
        return _from_host("setdiff1d", ar1, ar2, assume_unique)
    ordered, first = (ar1, np.ones(ar1.shape, bool)) if assume_unique else _order(ar1)[::2]
    return _choose(
        ordered,
        uf.logical_and(first, isin(ordered, ar2, invert=True)),
        size,
        fill_value,
        fills_with_first=False,
    )[0]


def setxor1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """Return the sorted elements that are in exactly one of two arrays.

    Their number depends on values: inside `jit`, give a static `size`. Missing elements are
    `fill_value`, by default the smallest result.

    >>> wnp.setxor1d(wnp.array([5, 3, 3, 7]), wnp.array([3, 4]), size=4, fill_value=-1)
    Array([ 4,  5,  7, -1], dtype=int32)
    """
    ar1, ar2 = promote_dtypes(asarray(ar1), asarray(ar2))
    if size is None:
        return _from_host("setxor1d", ar1, ar2, assume_unique)
    ar1, ar2 = mp.ravel(ar1), mp.ravel(ar2)
    candidates = [_order(x, assume_unique)[::2] for x in (ar1, ar2)]
    values, first = [mp.concatenate(parts) for parts in zip(*candidates)]
    order = lexsort([values, uf.logical_not(first)])  # excluded elements come last
    values, first = values[order], first[order]
    changes = (
        mp.concatenate(
            [
                np.ones(1, bool),
                uf.logical_or(uf.not_equal(values[1:], values[:-1]), uf.logical_not(first[1:])),
                np.ones(1, bool),
            ]
        )
        if values.size
        else np.ones(1, bool)
    )
    return _choose(
        values, uf.logical_and(first, uf.logical_and(changes[1:], changes[:-1])), size, fill_value
    )[0]
