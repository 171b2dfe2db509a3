"""Conversion of numbers, NumPy arrays, nested lists and other objects to arrays, for `array` and
`asarray`.

In:  any Python value, and a dtype or None.
Out:  an `Array`, or a traced value if a part is traced.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.core.stage import is_staged
from weft._engine.core.trace import Tracer, array_converter, check_unmasked, current_trace, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.numpy import promote
from weft._engine.ops import elementwise as ew
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.runtime.array import Array, from_numpy
from weft._engine.util import dtypes

#: types whose values alone determine the dtype of an array
_PLAIN = frozenset(promote.PYTHON_SCALARS)
#: NumPy's kinds of objects, strings and dates
_NOT_NUMBERS = frozenset("OSUMm")


def convert(x, dtype, copy: bool) -> Any:
    """Return `x` as an array of `dtype` (None: the dtype of the values).

    The result is `x` itself if it is such an array and `copy` is false.
    """
    x = promote.value(x)
    if type(x) is Array or isinstance(x, Tracer):
        if dtype is not None and (dtype != x.dtype or x.weak_type):
            return promote.cast(x, dtype)
        return copy_array(x) if _needs_copy(x, copy) else x
    if isinstance(x, (np.ndarray, np.generic)):
        return _from_numpy(x, dtype, copy)
    if dtypes.is_strings(dtype):
        raise TypeError(
            f"array: Cannot make an array with dtype {dtype} from an object of type {type(x)}; give a NumPy array of strings."
        )
    if type(x) not in promote.PYTHON_SCALARS:
        return _of_object(list(x) if isinstance(x, range) else x, dtype)
    if dtype is None:
        return to_array(x)
    return from_numpy(_checked_cast(np.asarray(x), dtype), ShapedArray((), dtype))


def _needs_copy(x: Array | Tracer, copy: bool) -> bool:
    """Return whether `array` must return a new value in place of the array itself."""
    if isinstance(x, Tracer):
        return copy or type(x.concrete()) in promote.PYTHON_SCALARS
    return copy and not is_staged(current_trace())


def _from_numpy(x: np.ndarray | np.generic, dtype, copy: bool) -> Array | Tracer:
    """Convert an array or a number of NumPy."""
    check_unmasked(x)
    out_dtype = dtypes.canonicalize_dtype(x.dtype) if dtype is None else dtype
    if dtypes.is_strings(out_dtype) is not dtypes.is_strings(x.dtype):
        raise TypeError(
            f"array: Cannot make an array with dtype {out_dtype} from an object with dtype {x.dtype}."
        )
    if not dtypes.is_extended(out_dtype) and x.dtype.kind in _NOT_NUMBERS:
        raise TypeError(f"array: NumPy values of dtype {x.dtype} are not arrays of numbers.")
    if out_dtype == dtypes.canonicalize_dtype(x.dtype) and is_staged(current_trace()):
        return promote.concrete(x)  # one constant, shared by all uses
    return from_numpy(np.asarray(x, dtype=out_dtype), ShapedArray(x.shape, out_dtype), copy=copy)


def _of_object(x, dtype) -> Any:
    """Convert nested lists, and other objects that are or contain arrays."""
    leaves = _elements(x)
    sorts = dict(zip(map(type, leaves), leaves))  # an example of each type
    if sorts and sorts.keys() <= _PLAIN:
        return _from_numbers(
            x, leaves, dtype if dtype is not None else dtypes.result_type(*sorts.values())
        )
    if any(_has_parts(v) for v in sorts.values()):
        x = _nested_lists(x)
        leaves = _elements(x)
    if any(v is None for v in leaves):
        raise ValueError(
            "array: None is not a valid value. It has no dtype; did you mean nan, or an empty array, zeros(0)?"
        )
    if any(map(_is_array, leaves)):
        return _stack_nested(x, dtype)
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__") or _is_buffer(x):
        return convert(np.asarray(x), dtype, False)
    if not isinstance(x, (list, tuple)):
        raise TypeError(
            f"array: unexpected input type {type(x)}; expected numbers, arrays or nested lists of them."
        )
    if not leaves:
        return convert(np.asarray(x, dtype=dtypes.default_float_dtype()), dtype, False)
    for leaf in leaves:
        _check_element(leaf)
    return _from_numbers(x, leaves, dtype if dtype is not None else dtypes.result_type(*leaves))


def _is_array(leaf) -> bool:
    """Return whether a leaf is an array of weft or an object that converts itself to one."""
    if isinstance(leaf, (Tracer, Array)):
        return True
    return type(leaf) not in promote.PYTHON_SCALARS and array_converter(leaf) is not None


def _check_element(leaf) -> None:
    is_number = isinstance(leaf, promote.PYTHON_SCALARS) or hasattr(leaf, "dtype")
    if isinstance(leaf, str) or not (is_number or hasattr(leaf, "__array__")):
        raise TypeError(
            f"array: value {leaf!r} of type {type(leaf)} is not a valid element of an array."
        )


def _from_numbers(x, leaves: list, want) -> Array:
    """Convert nested lists of numbers, with the given `leaves`, to an array of a dtype."""
    try:
        nested = np.array(x, dtype=object if dtypes.is_extended(want) else None)
        if (
            dtypes.is_native_integer(want)
            and np.issubdtype(nested.dtype, np.floating)
            and all(isinstance(v, (int, np.integer)) for v in leaves)
        ):
            # a mix of 64-bit dtypes
            nested = np.array(x, dtype=object)
    except ValueError as error:
        raise ValueError(
            f"array: the nested lists do not form an array, got {x!r:.60}: {error}"
        ) from None
    # Python and NumPy numbers that no 64-bit dtype holds
    beyond = nested.dtype == object and all(
        isinstance(v, (*promote.PYTHON_SCALARS, np.number)) for v in nested.flat
    )
    if nested.dtype.kind in _NOT_NUMBERS and not beyond:
        raise TypeError(f"array: values of dtype {nested.dtype} are not numbers.")
    return from_numpy(_checked_cast(nested, want), ShapedArray(nested.shape, want), copy=False)


def _elements(x) -> list:
    """Return the elements of nested lists, including None."""
    level = [x]
    while nested := {sort for sort in set(map(type, level)) if issubclass(sort, (list, tuple))}:
        if nested == set(map(type, level)):
            level = list(itertools.chain.from_iterable(level))
        else:
            level = [
                v for each in level for v in (each if isinstance(each, (list, tuple)) else (each,))
            ]
    return level


def _has_parts(leaf) -> bool:
    """Return whether a leaf of nested lists is an object with `__array__` or a user's sequence."""
    if (
        isinstance(leaf, (str, bytes, *promote.PYTHON_SCALARS))
        or promote.is_shaped(leaf)
        or array_converter(leaf) is not None
    ):
        return False
    return hasattr(leaf, "__array__") or (
        not _is_buffer(leaf) and promote.as_list(leaf) is not None
    )


def _nested_lists(x) -> Any:
    """Return sequences as nested lists, and objects with `__array__` as NumPy arrays."""
    if isinstance(x, (list, tuple)) or _has_parts(x):
        return (
            np.asarray(x)
            if hasattr(x, "__array__")
            else [_nested_lists(v) for v in promote.as_list(x) or ()]
        )
    return x


def _is_buffer(x) -> bool:
    """Return whether `x` supports the buffer protocol."""
    if isinstance(x, (list, tuple, str)):
        return False
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _checked_cast(values: np.ndarray, dtype) -> np.ndarray:
    """Return the values of Python numbers in `dtype`; raise an error for values out of range."""
    kind, source_kind = dtype.kind, values.dtype.kind
    if source_kind == "c" and kind in "iuf":
        raise TypeError(
            f"array: complex numbers do not become {dtype.name}. Take their real parts first."
        )
    if kind in "iu" and source_kind in "iufO" and values.size:
        info, low, high = np.iinfo(dtype), values.min(), values.max()
        if low != low:
            raise ValueError(
                f"array: cannot convert float NaN to integer: dtype {dtype.name} was requested."
            )
        if low <= info.min - 1 or high >= info.max + 1:
            what = (
                "cannot convert float infinity to integer"
                if np.isinf(float(low)) or np.isinf(float(high))
                else "Python int too large to convert"
            )
            raise OverflowError(
                f"array: {what}: values from {low} to {high} do not fit in {dtype.name}. Give a wider dtype (64-bit types "
                "need weft.config.update('enable_x64', True))."
            )
    return values.astype(dtype)


def _stack_nested(x, dtype):
    """Convert nested lists that contain arrays or traced values by stacking, level by level."""
    if not isinstance(x, (list, tuple)):
        return convert(x, dtype, False)
    out_dtype = dtype if dtype is not None else dtypes.result_type(*_elements(x))
    from weft._engine.ops.slicing import concatenate  # rarely needed

    parts = [promote.cast(promote.concrete(_stack_nested(v, out_dtype)), out_dtype) for v in x]
    shapes = {tuple(p.shape) for p in parts}
    if len(shapes) > 1:
        raise TypeError(
            f"array: the nested lists do not form an array: parts of shapes {sorted(shapes)}."
        )
    return concatenate(
        [broadcast_in_dim(p, (1, *p.shape), tuple(range(1, p.ndim + 1))) for p in parts], 0
    )


def copy_array(a):
    """Return a copy of an array, with the sharding of `a`."""
    if dtypes.is_strings(typeof(a).dtype):
        return from_numpy(a._numpy(), a.aval, a.sharding, a.committed)
    if not dtypes.is_extended(typeof(a).dtype):
        return ew.copy(a)
    if isinstance(a, Tracer):
        return a  # the same key, so that using one consumes both
    from weft._engine.ops.keys import generator_of, random_unwrap, random_wrap

    return random_wrap(ew.copy(random_unwrap(a)), generator_of(a))
