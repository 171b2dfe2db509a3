"""Sets: distinct elements, unions, intersections, differences.

The number of elements of the results depends on values; inside `jit`, a static `size` fixes it, with missing ones filled in.
"""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

from weft.numpy import choosing, creation, manipulation as mp, reductions as rd, ufuncs as uf
from weft.numpy.choosing import host_value
from weft.numpy.creation import asarray
from weft.numpy.promote import cast, promote_dtypes
from weft.numpy.sorting import argsort, lexsort
from weft.util import dtypes
from weft.util.source import named


class UniqueAll(NamedTuple):
    """Distinct values, where each occurs first, how to rebuild the array from them, and how often each occurs."""
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""
    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values and how to rebuild the array from them."""
    values: Any
    inverse_indices: Any


def unique(ar, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
           *, equal_nan: bool = True, size: int | None = None, fill_value=None, sorted: bool = True):  # noqa: A002
    """The sorted distinct elements (or slices along `axis`); their number depends on values, so inside `jit` give a static `size`.

    Missing ones are the first, or `fill_value`.
    """
    ar = asarray(ar)
    if size is None:
        host = host_value(ar, "unique", "Give size=..., a static bound on the number of results.")
        out = np.unique(host, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
        if not isinstance(out, tuple):
            return asarray(out)
        int_dtype = dtypes.default_int_dtype()
        return tuple(asarray(o) if i == 0 else asarray(o.astype(int_dtype)) for i, o in enumerate(out))
    if axis is None:
        rows, lead = mp.ravel(ar)[:, None], ar.shape
    else:
        moved = mp.moveaxis(ar, axis, 0)
        rows, lead = mp.reshape(moved, (moved.shape[0], -1)), moved.shape[:1]
    n = rows.shape[0]
    order = lexsort([rows[:, k] for k in reversed(builtins.range(rows.shape[1]))]) if rows.shape[1] > 1 else argsort(rows[:, 0])
    ordered = rows[order]
    new = mp.concatenate([np.ones((builtins.min(1, n),), bool), rd.any(_differs(ordered[1:], ordered[:-1], equal_nan), 1)])
    number = uf.subtract(rd.cumsum(new), 1)
    count = rd.sum(new)
    starts = cast(creation.zeros((size,), order.dtype).at[choosing.where(new, number, size)].set(
        np.arange(n, dtype=order.dtype), mode="drop"), order.dtype)
    valid = uf.less(np.arange(size), count)
    values = ordered[starts]
    if fill_value is not None:
        values = choosing.where(valid[:, None], values, cast(asarray(fill_value), rows.dtype))
    values = values[:, 0] if axis is None else mp.moveaxis(mp.reshape(values, (size, *moved.shape[1:])), 0, axis)
    result = [values]
    if return_index:
        result.append(order[starts])
    if return_inverse:
        result.append(mp.reshape(creation.zeros((n,), order.dtype).at[order].set(cast(number, order.dtype)), tuple(lead)))
    if return_counts:
        result.append(creation.zeros((size,), order.dtype).at[number].add(1, mode="drop"))
    return result[0] if len(result) == 1 else tuple(result)


def _differs(x, y, equal_nan: bool):
    unequal = uf.not_equal(x, y)
    return uf.logical_and(unequal, uf.logical_not(uf.logical_and(uf.isnan(x), uf.isnan(y)))) if equal_nan else unequal


def unique_all(x, /, *, size: int | None = None, fill_value=None) -> UniqueAll:
    """Distinct elements with indices, inverse and counts."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> UniqueCounts:
    """Distinct elements with counts."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> UniqueInverse:
    """Distinct elements with the inverse."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x, /, *, size: int | None = None, fill_value=None):
    """The sorted distinct elements."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(ar1, ar2, *, size: int | None = None, fill_value=None):
    """The sorted elements that are in either array."""
    return unique(mp.concatenate([mp.ravel(asarray(ar1)), mp.ravel(asarray(ar2))]), size=size, fill_value=fill_value)


def _set_function(name: str, text: str):
    def fun(ar1, ar2, *args, **kwargs):
        if kwargs.pop("size", None) is not None:
            raise NotImplementedError(f"weft.numpy.{name} with size is not supported yet; select with isin and where instead.")
        kwargs.pop("fill_value", None)
        arrays = (asarray(ar1), asarray(ar2))
        hosts = [host_value(x, name) for x in (arrays if name == "setdiff1d" else promote_dtypes(*arrays))]
        out = getattr(np, name)(*hosts, *args, **kwargs)
        if isinstance(out, tuple):
            return tuple(asarray(o.astype(dtypes.default_int_dtype()) if i else o) for i, o in enumerate(out))
        return asarray(out)
    return named(fun, name, text)


intersect1d = _set_function("intersect1d", "The sorted elements that are in both arrays (values must be concrete).")
setdiff1d = _set_function("setdiff1d", "The sorted elements of the first array that are not in the second (concrete values).")
setxor1d = _set_function("setxor1d", "The sorted elements that are in exactly one array (values must be concrete).")
