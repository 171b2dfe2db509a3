"""Indices with `Slice`, a range of elements with a traced start, into references and arrays.

In:   an array or the value of a reference, and one index into it.
Out:  the part that the index selects (`read`), and the value with that part replaced or increased
      (`write`).
Laws: a `Slice` of a reference with a known start must be in bounds, else ValueError; a traced start
      is clamped, as in `dynamic_slice`. For arrays (`clamp_index`), a negative start counts from the
      end, and reads clamp every `Slice`. Other indices have the same meaning as for arrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.core.trace import Tracer, typeof
from weft._engine.ops.elementwise import convert_element_type
from weft._engine.ops.layout import reshape
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record


@record
class Slice:
    """`size` elements of a dim from `start`, which may be traced, in steps of `stride`.

    >>> from weft.experimental import pallas as pl
    >>> weft.new_ref(wnp.arange(6))[pl.ds(1, 3)].tolist()
    [1, 2, 3]
    """

    __module__ = "weft.experimental.pallas"

    start: Any
    size: int
    stride: int = 1

    @property
    def is_dynamic_start(self) -> bool:
        """Return True if the start is traced."""
        return _static(self.start) is None

    @property
    def is_dynamic_size(self) -> bool:
        """Return True if the size is traced, which is never the case."""
        return False


def ds(start: Any, size: int | None = None, stride: int | None = None) -> Slice | slice:
    """Return the slice of `size` elements from `start` in steps of `stride`.

    `ds(size)` starts at 0. `start` may be traced.

    Raises TypeError if the size is traced.

    >>> from weft.experimental import pallas
    >>> pallas.ds(2, 3)
    Slice(start=2, size=3, stride=1)
    """
    if start is None:
        return slice(None, size, stride)
    first, length = (0, start) if size is None else (start, size)
    try:
        count = operator.index(length)
    except TypeError:
        raise TypeError(
            f"ds: the size of a slice must be an integer that is known while tracing, got {length!r}."
        ) from None
    return Slice(first, count, 1 if stride is None else operator.index(stride))


def has_slices(index: Any) -> bool:
    """Return True if an index contains a `Slice`, so that this module reads it."""
    return isinstance(index, Slice) or (
        isinstance(index, tuple) and any(isinstance(i, Slice) for i in index)
    )


def is_basic(index: Any) -> bool:
    """Return True if an index selects no element twice.

    It then has only integers, slices and new dims.
    """
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        i is None
        or i is Ellipsis
        or isinstance(i, (slice, Slice, int, np.integer))
        or (hasattr(i, "dtype") and np.shape(i) == () and i.dtype != np.bool_)
        for i in parts
    )


def clamp_index(shape: tuple[int, ...], index: Any) -> tuple[tuple, Any]:
    """Return an index into an array with the known starts of slices clamped.

    Also return whether all slices were in bounds.

    If starts are traced, the second result is a function without arguments, which reads do not
    call.
    """
    parts = index if isinstance(index, tuple) else (index,)
    num_dims = [_count_dims(i) for i in parts]
    out: list = []
    traced: list[tuple] = []
    dim, inside = 0, True
    for part, width in zip(parts, num_dims):
        if isinstance(part, Slice) and dim < len(shape):
            n, reach, start = shape[dim], _slice_extent(part), _static(part.start)
            if reach > n:
                raise ValueError(
                    f"ds: {quantity(part.size, 'element')} with stride {part.stride} of a dim of size {n}."
                )
            if start is None:
                traced.append((part.start, n, n - reach))
            else:
                start += n * (start < 0)
                inside = inside and 0 <= start <= n - reach
                part = Slice(min(max(start, 0), n - reach), part.size, part.stride)
        out.append(part)
        dim += len(shape) - sum(num_dims) if part is Ellipsis else width
    if not inside or not traced:
        return tuple(out), inside
    is_inside = lambda start, n, last: (
        ((start >= 0) & (start <= last)) | ((start >= -n) & (start <= last - n))
    )
    return tuple(out), lambda: functools.reduce(
        operator.and_, [is_inside(*each) for each in traced]
    )


def _count_dims(part: Any) -> int:
    """Return the number of dims that a part of an index selects from; 0 for an ellipsis."""
    if part is None or part is Ellipsis:
        return 0
    return np.ndim(part) if getattr(part, "dtype", None) == np.bool_ else 1


def read(value: Any, index: Any) -> Any:
    """Return the part of an array that an index of a reference selects."""
    if not has_slices(index):
        return value[index]
    from weft._engine.ops.dynamic_slicing import dynamic_slice

    starts, sizes, inner_index = _window(typeof(value).shape, index)
    if starts is not None:
        value = dynamic_slice(value, starts, sizes)
    return value if _selects_all(inner_index) else value[inner_index]


def write(value: Any, index: Any, new: Any, method: str) -> Any:
    """Return `value` with `new` set ("set") or added ("add") at the index."""
    if not has_slices(index):
        return getattr(value.at[index], method)(new)
    if method == "set":
        from weft._engine.ops.dynamic_slicing import dynamic_update_slice

        starts, sizes, inner_index = _window(typeof(value).shape, index)
        if starts is not None and _selects_all(inner_index):
            return dynamic_update_slice(value, reshape(new, sizes), starts)
    return replace_window(value, index, lambda part, rest: getattr(part.at[rest], method)(new))


def replace_window(value: Any, index: Any, new: Callable[[Any, tuple], Any]) -> Any:
    """Return `value` with the window of the traced slices replaced.

    Its new content is `new(window, remaining index)`.
    """
    from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice

    starts, sizes, inner_index = _window(typeof(value).shape, index)
    if starts is None:
        return new(value, inner_index)
    return dynamic_update_slice(
        value, new(dynamic_slice(value, starts, sizes), inner_index), starts
    )


def _selects_all(rest: tuple) -> bool:
    return all(type(i) is slice and i == slice(None) for i in rest)


def _static(x: Any) -> int | None:
    """Return the number if it is known, else None."""
    if isinstance(x, Tracer):
        x = x.concrete()
    return None if x is None else int(x)


def _window(shape: tuple[int, ...], index: Any) -> tuple[list | None, list[int], tuple]:
    """Return the start (None without traced slices) and sizes of the window that holds the traced slices, and the index into it."""
    parts = _without_ellipsis(index, len(shape))
    starts: list = [0] * len(shape)
    sizes, inner_index, moves, dim = list(shape), [], False, 0
    for part in parts:
        if part is None:
            inner_index.append(part)
            continue
        if dim == len(shape):
            count = sum(i is not None for i in parts)
            raise IndexError(
                f"ref[...]: {quantity(count, 'index')} for {quantity(len(shape), 'dim')}."
            )
        if isinstance(part, Slice):
            start, reach = _static(part.start), _slice_extent(part)
            _check_inside(part, start, shape[dim])
            if start is None:
                starts[dim], sizes[dim], moves = part.start, reach, True
                part = slice(None) if part.stride == 1 else slice(None, None, part.stride)
            else:
                part = slice(start, start + reach, part.stride)
        inner_index.append(part)
        dim += 1
    return _of_one_dtype(starts) if moves else None, sizes, tuple(inner_index)


def _without_ellipsis(index: Any, ndim: int) -> list:
    """Return the parts of an index with whole dims in place of an ellipsis."""
    parts = list(index) if isinstance(index, tuple) else [index]
    at = next((n for n, i in enumerate(parts) if i is Ellipsis), None)
    if at is not None:
        count = sum(i is not None and i is not Ellipsis for i in parts)
        parts[at : at + 1] = [slice(None)] * (ndim - count)
    if any(np.ndim(i) and i.dtype == np.bool_ for i in parts if hasattr(i, "dtype")):
        raise NotImplementedError(
            "ref[...]: a boolean index cannot be combined with a slice made by ds. Select with weft.numpy.where."
        )
    return parts


def _slice_extent(part: Slice) -> int:
    """Return the number of elements from the first to the last of a slice."""
    return max((part.size - 1) * part.stride + 1, 0)


def _check_inside(part: Slice, start: int | None, n: int) -> None:
    """Raise ValueError if a slice exceeds a dim of size `n`.

    A traced start (None) is not checked.
    """
    reach = _slice_extent(part)
    if start is None and reach > n:
        raise ValueError(
            f"Out of bound slice: {quantity(part.size, 'element')} with stride {part.stride} of a dim of size {n}."
        )
    if start is not None and (start < 0 or start + reach > n):
        raise ValueError(
            f"Out of bound slice: from {start}, {quantity(part.size, 'element')} with stride {part.stride}, of a dim of size {n}."
        )


def _of_one_dtype(starts: list) -> list:
    """Return the starts of a window in one dtype.

    It is the dtype of the traced starts, or the default integer dtype if these differ.
    """
    start_dtypes = {typeof(start).dtype for start in starts if not isinstance(start, int)}
    dtype = start_dtypes.pop() if len(start_dtypes) == 1 else dtypes.default_int_dtype()
    return [
        dtype.type(start) if isinstance(start, int) else convert_element_type(start, dtype)
        for start in starts
    ]
