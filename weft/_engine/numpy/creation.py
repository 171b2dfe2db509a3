"""Creation of arrays: from Python values, filled, ranges, grids, identity-like matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.api.layouts import as_sharding
from weft._engine.backends.formats import Format
from weft._engine.core.annotations import cast as vary
from weft._engine.core.stage import record_constant
from weft._engine.core.trace import (
    Tracer,
    current_trace,
    eval_trace,
    typeof,
)
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.symbolic import SymbolicDim, as_size, max_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.numpy import promote
from weft._engine.numpy.conversion import convert, copy_array
from weft._engine.ops import elementwise as ew
from weft._engine.ops.casting import size_as
from weft._engine.ops.families import is_narrow
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape
from weft._engine.ops.placement import named_sharding, with_out_sharding
from weft._engine.runtime.array import Array, from_numpy
from weft._engine.runtime.transfer_guards import NO_TRANSFER, AllowTransfers
from weft._engine.util import dtypes
from weft._engine.util.errors import (
    ConcretizationTypeError,
    InconclusiveDimensionOperation,
    ShapeError,
    TracerError,
)
from weft._engine.util.source import warn_user


def _dtype(dtype, api: str):
    return dtype if dtype is None or dtypes.is_strings(dtype) else dtypes.check_dtype(dtype, api)


def _shape(shape) -> tuple[int, ...]:
    if isinstance(shape, (int, np.integer, SymbolicDim)) or (
        hasattr(shape, "ndim") and not shape.ndim
    ):
        shape = (shape,)
    try:
        dims = tuple(
            [
                int(d)
                if isinstance(d, (bool, np.bool_))
                else d
                if isinstance(d, int)
                else as_size(d)
                for d in shape
            ]
        )
    except TracerError:
        raise
    except TypeError:
        raise TypeError(
            f"a shape is an integer or a sequence of integers, got {shape!r}."
        ) from None
    for d in dims:
        if d < 0:
            raise ShapeError(f"shape must have non-negative dims, got {dims}.")
    return dims


def _place_on(x, device):
    """Return `x` on `device`, a device or sharding, if one is given."""
    if device is None:
        return x
    from weft._engine.api.placement.device_put import device_put

    return device_put(x, device)


def _by_keyword(fun):
    """Return `fun` with a warning if more than its first two arguments are positional."""

    @functools.wraps(fun, updated=())
    def wrapped(*args, **kwargs):
        if len(args) > 2:
            warn_user(
                f"wnp.{fun.__name__}: copy, order and ndmin given by position are deprecated. Give them by name, as in "
                f"{fun.__name__}(x, copy=False).",
                DeprecationWarning,
            )
        return fun(*args, **kwargs)

    return wrapped


@_by_keyword
def array(
    object,
    dtype=None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device=None,
    out_sharding=None,
):
    """Return an array of the values in `object`: a number, an array, or nested lists of them.

    The dtype follows from the values: Python numbers give 32-bit values (64-bit under
    `enable_x64`), and a single one is weakly typed. `ndmin` adds leading dims of size one. `device`
    may be a device or a sharding. NumPy's masked arrays lose their masks. Raises TypeError for
    values that are not numbers, ValueError for ragged lists and for arrays that are committed to
    other devices, OverflowError for integers out of the range of the dtype.

    >>> wnp.array([[1, 2], [3, 4]]).shape
    (2, 2)
    >>> wnp.array([1, 2.5], ndmin=2)
    Array([[1. , 2.5]], dtype=float32)
    """
    if (
        isinstance(object, np.ndarray)
        and type(object) is not np.ndarray
        and isinstance(object, np.ma.MaskedArray)
    ):
        object = object.data
    return _make_array(object, dtype, copy, order, ndmin, device, out_sharding)


def _check_order(api: str, order: str | None) -> None:
    if order not in (None, "K", "C", "A"):
        raise NotImplementedError(f"{api}: order={order!r}; arrays are row-major.")


def _make_array(
    object, dtype, copy: bool, order: str | None, ndmin: int, device, out_sharding
) -> Any:
    _check_order("array", order)
    dtype = _dtype(dtype, "array")
    result = convert(object, dtype, copy)
    if ndmin > result.ndim:
        result = reshape(result, (1,) * (ndmin - result.ndim) + tuple(result.shape))
    target = _target(device, out_sharding, "array", result.ndim)
    if target is not None and type(object) is Array and object.committed:
        _check_stays(object, target)
    result = _place_on(result, target)
    if (
        type(result) is not Array
        or dtypes.is_strings(result.dtype)
        or (result is object and not copy)
    ):
        return result
    return record_constant(result)


def _check_stays(x: Array, target) -> None:
    """Raise ValueError if the committed array `x` is on other devices than `target`.

    Only device_put moves it.
    """
    target_sharding = as_sharding(
        target.sharding if isinstance(target, Format) else target, "array"
    )
    if (
        target_sharding is not None
        and not is_abstract(target_sharding)
        and target_sharding.device_assignment != x.sharding.device_assignment
    ):
        ids = [[d.id for d in s.device_assignment] for s in (x.sharding, target_sharding)]
        raise ValueError(
            f"array: Received incompatible devices: the array {x.aval.str_short()} is committed to the device ids {ids[0]}, "
            f"and is requested on {ids[1]}.\n  Committed arrays are not moved silently. Use weft.device_put(x, device)."
        )


def asarray(
    a,
    dtype=None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device=None,
    out_sharding=None,
):
    """Return `a` as an array, without a copy if it is one; shapes and dtypes are as in `array`.

    Masked arrays are refused.

    Raises TypeError, ValueError or OverflowError as `array` does.

    >>> wnp.asarray([1, 2, 3], dtype="float32")
    Array([1., 2., 3.], dtype=float32)
    """
    return _make_array(a, dtype, bool(copy), order, 0, device, out_sharding)


def copy(a, order: str | None = None):
    """Return a copy of `a`, with the sharding of `a`."""
    _check_order("copy", order)
    return copy_array(promote.array_of("copy", a))


def astype(x, dtype, /, *, copy: bool = False, device=None) -> Any:
    """Convert dtypes as the public `astype` does, without warnings."""
    promote.check_arraylike("astype", x)
    out_dtype = cast_dtype(dtype)
    x = promote.concrete(promote.value(x))
    if loses_imaginary(x.dtype, out_dtype):
        x = ew.real(x)
    result = (
        ew.ne(x, 0)
        if out_dtype == np.bool_ and x.dtype != np.bool_
        else ew.convert_element_type(x, out_dtype)
    )
    return _place_on(copy_array(result) if copy and result is x else result, device)


def cast_dtype(dtype):
    """Return the dtype of the result of `astype`."""
    return dtypes.check_dtype(
        dtype if dtype is not None else dtypes.default_float_dtype(), "astype"
    )


def loses_imaginary(have, want) -> bool:
    """Return whether a cast drops imaginary parts."""
    return (
        dtypes.issubdtype(have, np.complexfloating)
        and not dtypes.issubdtype(want, np.complexfloating)
        and want != np.bool_
    )


def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None) -> Any:
    """Return an array of `shape` filled with `fill_value`.

    `fill_value` is a number or an array that broadcasts to `shape`.

    The dtype is the dtype of `fill_value` unless given. `device` may be a device or a sharding.
    Raises ShapeError (a TypeError and a ValueError) for negative dims and for a value that does not broadcast.

    >>> wnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32, weak_type=True)
    """
    promote.check_arraylike("full", fill_value)
    shape = _shape(shape)
    if isinstance(dtype, (int, np.integer)) and not isinstance(dtype, bool):
        sizes = ", ".join(map(str, (*shape, dtype)))
        raise TypeError(
            f"dtype is {dtype}, which is a size. The shape is one argument: write zeros(({sizes})) "
            f"instead of zeros({sizes}). The same holds for ones, empty and full."
        )
    if isinstance(dtype, dtypes.KeyDType) and not dtypes.is_extended(typeof(fill_value).dtype):
        # keys: fill each word
        from weft._engine.ops.keys import random_wrap

        words = full(
            (*shape, *dtype.impl.key_shape),
            fill_value,
            np.uint32,
            device=device,
            out_sharding=out_sharding,
        )
        return random_wrap(words, dtype.impl)
    if dtype is not None and dtype == dtypes.float0:  # arrays cannot have this dtype
        return np.zeros(shape, dtypes.float0)
    weak = dtype is None and typeof(fill_value).weak_type
    dtype = typeof(fill_value).dtype if dtype is None else dtypes.check_dtype(dtype, "full")
    return _fill(shape, fill_value, dtype, weak, _target(device, out_sharding, "full", len(shape)))


def _target(device: Any, out_sharding: Any, name: str, ndim: int) -> Any:
    """Return the placement of a new array; explicit shardings get an entry for each dim.

    The sharding of a value without explicit axes has no mesh and is ignored.
    """
    named = None if out_sharding is None else named_sharding(out_sharding, f"{name}: out_sharding")
    if named is None or named.mesh.empty:
        return device
    is_padded = named.mesh.are_all_axes_explicit and len(named.spec) < ndim
    return named.update(spec=named.spec.of_rank(ndim)) if is_padded else named


def _fill(shape: tuple[int, ...], fill_value, dtype: np.dtype, weak: bool, target) -> Any:
    """Return `full` of exactly this type, on a device or with a sharding."""
    if (
        np.ndim(fill_value) == 0
        and isinstance(fill_value, (*promote.PYTHON_SCALARS, np.generic))
        and current_trace() is eval_trace
        and math.prod(shape) <= 1 << 16
        and not dtypes.is_extended(dtype)
    ):
        number = (
            promote.cast(promote.value(fill_value), dtype)
            if type(fill_value) in promote.PYTHON_SCALARS
            else fill_value
        )
        return _place_on(
            from_numpy(np.full(shape, number, dtype), ShapedArray(shape, dtype, weak), copy=False),
            target,
        )
    x = promote.cast(promote.value(fill_value), dtype, weak)
    return _place_on(promote.broadcast_to_shape(x, shape) if shape else promote.concrete(x), target)


def zeros(shape, dtype=None, *, device=None, out_sharding=None) -> Any:
    """Return an array of zeros of `shape`, an integer or several (float32 by default).

    Raises ShapeError for negative dims, TypeError for a `dtype` that is not a dtype.

    >>> wnp.zeros((2, 3))
    Array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return full(
        shape,
        0,
        dtypes.default_float_dtype() if dtype is None else dtype,
        device=device,
        out_sharding=out_sharding,
    )


def ones(shape, dtype=None, *, device=None, out_sharding=None) -> Any:
    """Return an array of ones of `shape`, an integer or several (float32 by default).

    Raises ShapeError for negative dims, TypeError for a `dtype` that is not a dtype.

    >>> wnp.ones(3, dtype="int32")
    Array([1, 1, 1], dtype=int32)
    """
    return full(
        shape,
        1,
        dtypes.default_float_dtype() if dtype is None else dtype,
        device=device,
        out_sharding=out_sharding,
    )


empty = zeros


def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None) -> Any:
    """Return an array filled with `fill_value`.

    By default it has the shape, dtype and sharding of `a`.

    Inside shard_map it varies over the axes of `a`.
    """
    promote.check_arraylike("full_like", fill_value)
    aval = _model_type(a)
    out_dtype = aval.dtype if dtype is None else dtypes.check_dtype(dtype, "full_like")
    if out_dtype == dtypes.float0:
        return full(aval.shape if shape is None else shape, 0, out_dtype)
    if device is None and out_sharding is None:
        device, out_sharding = _model_placement(a, aval, shape is None)
    dims = aval.shape if shape is None else _shape(shape)
    if dtypes.is_extended(out_dtype):
        result = full(dims, fill_value, out_dtype)
    else:
        result = _fill(dims, fill_value, out_dtype, False, None)
    if dtype is None and aval.weak_type:
        result = promote.cast(result, out_dtype, True)
    if aval.vma:
        result = vary(result, aval.vma)
    return with_out_sharding(out_sharding, "full_like", lambda: _place_on(result, device))


def _model_type(a) -> ShapedArray:
    """Return the type of an array, a number, or an object with a shape and a dtype."""
    if hasattr(type(a), "aval"):
        return a.aval
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return ShapedArray(tuple(a.shape), dtypes.canonicalize_dtype(a.dtype))
    return typeof(a)


def _model_placement(a, aval: ShapedArray, has_same_shape: bool) -> tuple:
    """Return `device` and `out_sharding` of an array like `a`; None where `a` does not determine them."""
    sharding = None if isinstance(a, Tracer) else getattr(a, "sharding", None)
    if aval.explicit is not None:
        out_sharding = aval.explicit if sharding is None else sharding
        return None, out_sharding if has_same_shape else None
    if not isinstance(sharding, Sharding) or is_abstract(sharding):
        return None, None
    follows = getattr(a, "committed", True) and (has_same_shape or sharding.is_fully_replicated)
    return sharding if follows else None, None


def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Return zeros with the shape, dtype and sharding of `a` unless given.

    Raises TypeError if `a` is not an array or number, ShapeError for negative dims.

    >>> wnp.zeros_like(wnp.arange(3))
    Array([0, 0, 0], dtype=int32)
    """
    return full_like(a, 0, dtype, shape, device=device, out_sharding=out_sharding)


def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Return ones with the shape, dtype and sharding of `a` unless given.

    Raises TypeError if `a` is not an array or number, ShapeError for negative dims.

    >>> wnp.ones_like(wnp.arange(3.0))
    Array([1., 1., 1.], dtype=float32)
    """
    return full_like(a, 1, dtype, shape, device=device, out_sharding=out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Return an array like `prototype` with unspecified values; they are zeros.

    It has the shape, dtype and sharding of `prototype` unless given.
    """
    return zeros_like(prototype, dtype, shape, device=device, out_sharding=out_sharding)


class ZeroStepError(ValueError, ZeroDivisionError):
    """A step of zero: a ValueError, as in weft, and a ZeroDivisionError, as in NumPy."""


def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None):
    """Return evenly spaced values from `start` (or 0) up to, not including, `stop`.

    The dtype is the common dtype of the arguments unless given. The length depends on values, so
    these must be concrete.
    Raises ValueError for arguments with dims, ZeroDivisionError for a step of zero, and ConcretizationTypeError for tracers.

    >>> wnp.arange(2, 8, 3)
    Array([2, 5], dtype=int32)
    """
    parts = [x for x in (start, stop, step) if x is not None]
    _check_bounds(start, stop, step)
    if start is None:
        raise TypeError(
            f"arange: {'give at least `stop`, a number; got None' if not parts else '`start` must be a number, got None'}."
        )
    out_dtype = (
        dtypes.check_dtype(dtype, "arange") if dtype is not None else dtypes.result_type(*parts)
    )
    if out_dtype == np.bool_:
        raise TypeError(
            "arange: values of dtype bool are not evenly spaced. Give numbers, and cast what comes out."
        )
    lo, hi, by = _host_bounds(parts, stop is None, step is None)
    if by == 0:
        raise ZeroStepError(f"arange: `step` must not be zero, got {parts[-1]!r}.")
    n = _count_steps(lo, hi, by)
    is_rounded = np.issubdtype(out_dtype, np.integer) and not isinstance(n, SymbolicDim)
    if is_rounded and any(isinstance(v, (float, np.floating)) for v in (lo, by)):
        # as in NumPy, the first two values are rounded and determine the step
        lo, by = int(lo), int(lo + by) - int(lo)
    target = _target(device, out_sharding, "arange", 1)
    if current_trace() is eval_trace and not isinstance(n, SymbolicDim) and n <= 1 << 16:
        return _place_on(_arange_on_host(n, by, lo, out_dtype), target)
    x = broadcasted_iota(out_dtype, (n,), 0)
    if by != 1:
        x = ew.mul(x, _number_as(by, out_dtype))
    if lo != 0:
        x = ew.add(x, _number_as(lo, out_dtype))
    return _place_on(x, target)


def _arange_on_host(n: int, by, lo, dtype) -> Array:
    wide_dtype = np.float64 if np.dtype(dtype).kind in "fV" else np.int64
    numbers = np.arange(n, dtype=wide_dtype) * by + lo
    with AllowTransfers(NO_TRANSFER):  # the numbers do not come from a value of the host
        return from_numpy(numbers.astype(dtype), ShapedArray((n,), dtype), copy=False)


def _number_as(value, dtype) -> Any:
    return size_as(value, dtype) if isinstance(value, SymbolicDim) else np.asarray(value, dtype)[()]


def _host_bounds(parts: list, has_one_bound: bool, has_no_step: bool) -> tuple:
    """Return the first value, the end and the step as host numbers."""
    host = [x if isinstance(x, (int, float, SymbolicDim)) else np.asarray(x)[()] for x in parts]
    lo, hi = (0, host[0]) if has_one_bound else (host[0], host[1])
    return lo, hi, 1 if has_no_step else host[-1]


def _check_bounds(start, stop, step) -> None:
    """Raise for arguments of arange that are traced, have dims, or are complex."""
    for name, x in (("stop" if stop is None else "start", start), ("stop", stop), ("step", step)):
        if isinstance(x, Tracer):
            raise ConcretizationTypeError(
                f"arange: the length of the result depends on values, and those of a {x.aval.str_short()} are not known while tracing. "
                f"It arose in the weft.numpy.arange argument '{name}'. Pass it as a static argument (static_argnums), or make an arange "
                "of the greatest length and mask it."
            )
        if x is not None and np.ndim(x if hasattr(x, "ndim") else np.asarray(x)):
            raise (TypeError if isinstance(x, (list, tuple)) else ValueError)(
                f"arange: arguments must be scalars, got `{name}` {x!r}."
            )
        if x is not None and np.iscomplexobj(x):
            raise ValueError(
                f"arange: `{name}` is complex ({x!r}), and complex numbers have no order. "
                "Give real numbers, and dtype=complex for a complex result."
            )


def _count_steps(lo, hi, by) -> Any:
    """Return the number of values from `lo` to `hi`, which may depend on symbolic sizes."""
    if any(isinstance(v, SymbolicDim) for v in (lo, hi, by)):
        lo, hi, by = [
            v if isinstance(v, SymbolicDim) or v != int(v) else int(v) for v in (lo, hi, by)
        ]
        return max_dim((hi - lo + by - 1) // by if by > 0 else (lo - hi - by - 1) // -by, 0)
    if all(isinstance(v, (int, np.integer)) for v in (lo, hi, by)):
        return len(range(int(lo), int(hi), int(by)))
    return max(0, math.ceil((hi - lo) / by))


def _evenly_spaced(start, stop, num: int, div: int):
    """Return start + i (stop - start) / div for i below `num`, along a new first dim.

    The division is last, so that integer products round only once. Ends whose products would
    overflow are scaled.
    """
    dtype, shape = typeof(start).dtype, typeof(start).shape
    real = np.dtype(dtypes.to_real_dtype(dtype))
    as_number = lambda x: size_as(x, real)
    small = float(dtypes.finfo(real).eps) / 8  # below 1 for any i that the dtype holds exactly
    most = as_number(float(dtypes.finfo(real).max) * small)
    large = ew.bitwise_or(ew.gt(ew.abs(start), most), ew.gt(ew.abs(stop), most))
    scale = ew.select_n(large, full(shape, 1, real), full(shape, small, real))
    scale = promote.cast(scale, dtype)
    rows = lambda v: broadcast_in_dim(v, (num, *shape), tuple(range(1, len(shape) + 1)))
    scale, lo, hi = rows(scale), rows(ew.mul(start, scale)), rows(ew.mul(stop, scale))
    i = broadcasted_iota(real, (num, *shape), 0)
    total = ew.add(
        ew.mul(lo, promote.cast(ew.sub(as_number(div), i), dtype)),
        ew.mul(hi, promote.cast(i, dtype)),
    )
    return ew.div(total, ew.mul(size_as(div, dtype), scale))


def linspace(
    start,
    stop,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype=None,
    axis: int = 0,
    *,
    device=None,
) -> Any:
    """Return `num` evenly spaced values from `start` to `stop`.

    `stop` is included unless `endpoint` is false.

    `start` and `stop` broadcast; the values are along a new dim, `axis`. The dtype is floating
    unless given. With `retstep` the result is a pair with the distance between values. Raises
    ValueError for a negative `num`.

    >>> wnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    promote.check_arraylike("linspace", start, stop)
    num = as_size(num)
    if num < 0:
        raise ValueError(f"linspace: num must be non-negative, got {num}.")
    out_dtype = (
        dtypes.check_dtype(dtype, "linspace")
        if dtype is not None
        else dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    )
    work = dtypes.to_inexact_dtype(out_dtype)
    work = np.dtype(np.float32) if is_narrow(work) else work
    start, stop = [promote.cast(promote.concrete(promote.value(v)), work) for v in (start, stop)]
    shape = promote.broadcast_shapes(promote.shape_of(start), promote.shape_of(stop))
    start, stop = [
        promote.broadcast_to_shape(v, shape) for v in promote.broadcast("linspace", start, stop)
    ]
    out = _linspace_values(start, stop, num, endpoint)
    if axis:
        from weft._engine.transforms.batch import move_dim

        out = move_dim(out, 0, promote.canonical_axis(axis, out.ndim, "linspace"))
    if dtypes.is_native_integer(out_dtype):
        out = ew.floor(out)
    out = _place_on(promote.cast(out, out_dtype), device)
    return (out, _linspace_step(start, stop, num - 1 if endpoint else num)) if retstep else out


def _linspace_values(start, stop, num: int, endpoint: bool):
    """Return the values of `linspace` along a new first dim."""
    shape = typeof(start).shape
    rows = lambda v: broadcast_in_dim(v, (num, *shape), tuple(range(1, len(shape) + 1)))
    div = num - 1 if endpoint else num
    try:
        if num <= 1 or div <= 0:
            return rows(start)
    except InconclusiveDimensionOperation:
        div = max_dim(div, 1)  # a single value is the first one, with i = 0
    out = _evenly_spaced(start, stop, num, div)
    if not endpoint:
        return out
    i = broadcasted_iota(np.dtype(np.int32), (num, *shape), 0)
    last = ew.eq(i, size_as(num - 1, np.int32))
    if isinstance(num, SymbolicDim):
        last = ew.bitwise_and(last, ew.gt(i, np.int32(0)))
    return ew.select_n(last, out, rows(stop))


def _linspace_step(start, stop, div):
    """Return the distance between the values of `linspace`; NaN if `div` is 0."""
    dtype, shape = typeof(start).dtype, typeof(start).shape
    if not div:
        return full(shape, math.nan, dtype)
    step = ew.div(ew.sub(stop, start), size_as(div, dtype))
    if not isinstance(div, SymbolicDim):
        return step
    several = full(shape, ew.gt(size_as(div, dtype), np.zeros((), dtype)[()]))
    return ew.select_n(several, full(shape, math.nan, dtype), step)


def eye(N: int, M: int | None = None, k=0, dtype=None, *, device=None):
    """Return a matrix of shape (N, M) with ones on diagonal `k` and zeros elsewhere.

    It is float32 by default, and square without `M`.

    Raises TypeError for sizes that are not integers.

    >>> wnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    n, m = as_size(N), as_size(N if M is None else M)
    out_dtype = dtypes.default_float_dtype() if dtype is None else dtypes.check_dtype(dtype, "eye")
    i = broadcasted_iota(np.dtype(np.int32), (n, m), 0)
    j = broadcasted_iota(np.dtype(np.int32), (n, m), 1)
    if isinstance(k, (Tracer, SymbolicDim)):
        k = promote.cast(promote.value(k), np.dtype(np.int32))
    return _place_on(
        promote.cast(ew.eq(ew.add(i, k) if isinstance(k, Tracer) or k else i, j), out_dtype), device
    )


def identity(n: int, dtype=None):
    """Return the identity matrix of size n."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype=None):
    """Return a matrix with ones at and below diagonal `k`."""
    m = N if M is None else M
    out_dtype = np.dtype(np.float32) if dtype is None else dtypes.check_dtype(dtype, "tri")
    i = broadcasted_iota(np.dtype(np.int32), (N, m), 0)
    j = broadcasted_iota(np.dtype(np.int32), (N, m), 1)
    return promote.cast(ew.ge(ew.add(i, k), j), out_dtype)


def _triangle(m, k: int, lower: bool, api: str):
    m = promote.array_of(api, m)
    if m.ndim < 2:
        raise ValueError(f"{api} takes arrays of at least two dims, got shape {tuple(m.shape)}.")
    keep = tri(*m.shape[-2:], k=k if lower else k - 1, dtype=np.bool_)
    keep = promote.broadcast_to_shape(keep, tuple(m.shape))
    zero = zeros_like(m)
    return ew.select_n(keep, zero, m) if lower else ew.select_n(keep, m, zero)


def tril(m, k: int = 0):
    """Return the lower triangle of matrices, with zeros above diagonal `k`."""
    return _triangle(m, k, True, "tril")


def triu(m, k: int = 0):
    """Return the upper triangle of matrices, with zeros below diagonal `k`."""
    return _triangle(m, k, False, "triu")


def meshgrid(*xi, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list:
    """Return coordinate matrices from coordinate vectors.

    Raise ValueError for an `indexing` other than "xy" and "ij", and for `copy=False`, because
    arrays are not views.
    """
    if not copy:
        raise ValueError(
            f"meshgrid: only copy=True is supported, got {copy!r}: arrays are no views of others."
        )
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}.")
    promote.check_arraylike("meshgrid", *xi)
    args = [promote.concrete(promote.value(x)) for x in xi]
    is_swapped = indexing == "xy" and len(args) >= 2
    if is_swapped:
        args[0], args[1] = args[1], args[0]
    if any(x.ndim != 1 for x in args):
        raise ValueError(
            f"meshgrid: coordinates are vectors (1D), got shapes {[promote.shape_of(x) for x in xi]}."
        )
    full_shape = tuple(x.shape[0] for x in args)
    out = []
    for d, x in enumerate(args):
        shape = tuple(n if i == d or not sparse else 1 for i, n in enumerate(full_shape))
        out.append(broadcast_in_dim(x, shape, (d,)))
    if is_swapped:
        out[0], out[1] = out[1], out[0]
    return out


def indices(dimensions: Sequence[int], dtype=None, sparse: bool = False):
    """Return index grids of an array of shape `dimensions`, stacked.

    If `sparse`, they are a tuple of open grids.
    """
    out_dtype = (
        dtypes.default_int_dtype() if dtype is None else dtypes.check_dtype(dtype, "indices")
    )
    dims = tuple(dimensions)
    grids = [
        broadcasted_iota(
            out_dtype, tuple(n if i == d or not sparse else 1 for i, n in enumerate(dims)), d
        )
        for d in range(len(dims))
    ]
    if sparse:
        return tuple(grids)
    if not grids:
        return zeros((0,), out_dtype)
    from weft._engine.ops.slicing import concatenate

    return concatenate([reshape(g, (1, *dims)) for g in grids], 0)


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """Return `function` mapped over all indices of an array of `shape` by `vmap`.

    It is called with the indices of one element. Dims of its results follow the dims of `shape`; it
    may return a tree of results.

    >>> wnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    from weft._engine.api.vmap import vmap

    sizes = [as_size(n) for n in shape]
    mapped = functools.partial(function, **kwargs)
    for d in reversed(range(len(sizes))):
        mapped = vmap(mapped, in_axes=tuple(0 if d == k else None for k in range(len(sizes))))
    return mapped(*[arange(n, dtype=dtype) for n in sizes])


def frombuffer(buffer, dtype=float, count: int = -1, offset: int = 0):
    """Return a 1-d array from the bytes of a buffer."""
    return asarray(np.frombuffer(buffer, dtype=np.dtype(dtype), count=count, offset=offset))


def fromiter(iter, dtype, count: int = -1):  # noqa: A002
    """Return a 1-d array from an iterable."""
    return asarray(np.fromiter(iter, dtype=np.dtype(dtype), count=count))


def fromfile(file, dtype=float, count: int = -1, sep: str = "", offset: int = 0):
    """Return a 1-d array from a file, as bytes or, with `sep`, as text; arguments are NumPy's."""
    return asarray(np.fromfile(file, dtype=np.dtype(dtype), count=count, sep=sep, offset=offset))


def fromstring(string: str, dtype=float, count: int = -1, *, sep: str):
    """Return a 1-d array from text."""
    return asarray(np.fromstring(string, dtype=np.dtype(dtype), count=count, sep=sep))


def from_dlpack(x, /, *, device=None, copy: bool | None = None):
    """Return an array from any object that supports DLPack.

    Arrays of weft are returned unchanged, in every dtype.
    """
    from weft._engine.runtime import dlpack  # rarely needed

    if not isinstance(x, Array):
        on_device = dlpack.import_device_memory(x)
        x = dlpack.to_numpy(x) if on_device is None else Array(*on_device)
    return _place_on(asarray(x, copy=copy), device)
