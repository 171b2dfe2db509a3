"""NumPy's rules for arguments: array-likes, common dtypes, broadcast shapes, axes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.core.stage import innermost_stage_trace
from weft._engine.core.trace import Tracer, array_converter, trace_state, typeof
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ops.casting import convert_element_type, in_dtype
from weft._engine.ops.layout import broadcast_in_dim_p, reshape
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.errors import (
    ConcretizationTypeError,
    ShapeError,
    TracerIntegerConversionError,
    describe,
)
from weft._engine.util.source import is_own_arithmetic, user_frame, warn_user

PYTHON_SCALARS: tuple[type, ...] = (bool, int, float, complex)


def is_arraylike(x) -> bool:
    """Return whether `x` is an array, a tracer, a NumPy value or a Python number.

    Lists are not array-like.
    """
    return (
        isinstance(x, (Tracer, Array, np.ndarray, np.generic, *PYTHON_SCALARS))
        or array_converter(x) is not None
    )


def check_arraylike(api: str, *args) -> None:
    """Raise TypeError unless every argument is array-like."""
    for i, x in enumerate(args):
        if not is_arraylike(x):
            hint = " Convert it with weft.numpy.asarray." if isinstance(x, (list, tuple)) else ""
            raise TypeError(
                f"{api} requires ndarray or scalar arguments, got {type(x)} at position {i}.{hint}"
            )


def check_concrete(
    api: str, what: str, x, remedy: str = "Pass it as a static argument (static_argnums)."
) -> None:
    """Raise ConcretizationTypeError if `x` is traced.

    The shape of the result depends on it, as `what` describes.
    """
    if isinstance(x, Tracer) and x.concrete() is None:
        raise ConcretizationTypeError(
            describe(
                api,
                f"the shape of the result depends on {what}, but got {x.describe()}.",
                (),
                user_frame(),
                "Shapes must be known while tracing.",
                remedy,
            )
        )


def value(x) -> Any:
    """Return `x` as a value that operations accept.

    Objects with `__weft_array__` are converted; members of enumerations and other subclasses of
    numbers become Python numbers.
    """
    convert = array_converter(x)
    if convert is not None:
        return convert()
    if (
        isinstance(x, PYTHON_SCALARS)
        and type(x) not in PYTHON_SCALARS
        and not isinstance(x, np.generic)
    ):
        return next(t for t in PYTHON_SCALARS if isinstance(x, t))(x)
    return x


def is_shaped(x) -> bool:
    """Return whether an object has a dtype and the shape of one array.

    Containers of arrays may have a dtype, and tuples as sizes.
    """
    return hasattr(x, "dtype") and not any(
        isinstance(size, tuple) for size in getattr(x, "shape", ())
    )


def as_list(x) -> list | None:
    """Return the elements of a sequence that is not an array, or None.

    Sequences are Python's and classes with `__len__` and `__getitem__` or `__iter__`; iterators,
    mappings, sets and texts are not sequences.
    """
    if isinstance(x, (list, tuple)):
        return list(x)
    sort = type(x)
    if is_shaped(x) or isinstance(x, (str, bytes, Mapping, Set)) or hasattr(sort, "__next__"):
        return None
    if hasattr(sort, "__len__") and hasattr(sort, "__getitem__"):
        return [x[i] for i in range(len(x))]
    return list(x) if hasattr(sort, "__iter__") else None


def shape_of(x) -> tuple[int, ...]:
    return (
        ()
        if type(x) in PYTHON_SCALARS
        else tuple(np.shape(x))
        if isinstance(x, (np.ndarray, np.generic))
        else x.shape
    )


_PYTHON_TYPES = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def _python_type(dtype: np.dtype) -> type:
    """Return the Python type of numbers of a dtype's kind, including dtypes unknown to NumPy:
    bfloat16, float8 and int4.
    """
    return _PYTHON_TYPES.get(dtype.kind) or (
        float if dtypes.issubdtype(dtype, np.floating) else int
    )


def _number_of(dtype, number):
    """Return a Python number in `dtype`.

    An integer out of range wraps around, as it does as an argument of a program.
    """
    try:
        return dtype.type(number)
    except OverflowError:
        return np.asarray(number, dtypes.default_int_dtype()).astype(dtype)[()]


def cast(x, dtype, weak: bool = False) -> Any:
    """Return `x` with exactly `dtype` and weak flag;

    Python numbers become constants without an operation.
    """
    if type(x) in PYTHON_SCALARS:
        if weak:
            return _python_type(dtype)(x)
        number = _number_of(dtype, x)
        return number if dtype.itemsize < 8 or config.enable_x64 else scalar_of_dtype(number, dtype)
    aval = typeof(x)
    if aval.dtype == dtype and aval.weak_type == weak:
        return x
    return convert_element_type(x, dtype, weak_type=True) if weak else in_dtype(x, dtype)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which all of `shapes` broadcast.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    tuples = [(s,) if isinstance(s, (int, np.integer)) else tuple(s) for s in shapes]
    rank = max(map(len, tuples), default=0)
    out = []
    for dims in zip(*[(1,) * (rank - len(s)) + s for s in tuples]):
        sizes = {d for d in dims if d != 1}
        if len(sizes) > 1 and any(d != next(iter(sizes)) for d in sizes):
            raise ShapeError(
                describe(
                    "broadcast",
                    f"Incompatible shapes for broadcasting: shapes={tuples}.",
                    where=user_frame(),
                    rule="Trailing dims must be equal, or one of them 1.",
                )
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def broadcast_to_shape(x, shape: tuple[int, ...]) -> Any:
    """Return `x` broadcast to `shape` by NumPy's rule."""
    have = shape_of(x)
    if have == shape:
        return x
    lead = len(shape) - len(have)
    if lead < 0 or [d for d, n in enumerate(have) if n not in (1, shape[lead + d])]:
        raise ShapeError(
            describe(
                "broadcast",
                f"An array of shape {have} does not broadcast to shape {shape}.",
                where=user_frame(),
            )
        )
    return broadcast_in_dim_p.bind(
        x, shape=shape, broadcast_dimensions=tuple(range(lead, len(shape)))
    )


def check_ranks(api: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Check operands of different ranks, none of which is 0, by the setting `numpy_rank_promotion`.

    It raises ValueError or warns.
    """
    if (
        config.numpy_rank_promotion == "allow"
        or len({len(s) for s in shapes if s}) <= 1
        or is_own_arithmetic()
    ):
        return
    shapes_text = " ".join(map(str, shapes))
    if config.numpy_rank_promotion == "raise":
        raise ValueError(
            f"{api}: operands with shapes {shapes_text} require rank promotion, and numpy_rank_promotion='raise' forbids it. "
            "Give all of them the same number of dims."
        )
    warn_user(
        f"{api}: operands with shapes {shapes_text} require rank promotion, which was done; numpy_rank_promotion='raise' forbids it.",
        UserWarning,
    )


def broadcast(api: str, *args, any_ranks: bool = False) -> list:
    """Return the arguments broadcast together.

    Rank-0 arguments are unchanged, since operations accept them. With `any_ranks` different ranks
    are never an error.
    """
    shapes = [shape_of(x) for x in args]
    ranked = [s for s in shapes if s]
    if not ranked or all(s == ranked[0] for s in ranked):
        return list(args)
    if not any_ranks:
        check_ranks(api, shapes)
    try:
        shape = broadcast_shapes(*ranked)
    except ShapeError:
        raise ShapeError(
            describe(
                f"{api} got incompatible shapes for broadcasting",
                ", ".join(str(s) for s in shapes) + ".",
                where=user_frame(),
                rule="Trailing dims must be equal, or one of them 1.",
            )
        ) from None
    return [x if not s else broadcast_to_shape(x, shape) for x, s in zip(args, shapes)]


def as_axes(axis, api: str) -> tuple[int, ...]:
    """Return the argument `axis`, an int or several (a tuple, list, range or array), as ints."""
    try:
        return (operator.index(axis),)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        pass
    try:
        return tuple([operator.index(a) for a in axis])
    except TypeError:
        raise TypeError(f"{api}: axis must be an int or several, got {axis!r}") from None


def canonical_axes(axis, ndim: int, api: str = "reduction") -> tuple[int, ...]:
    """Return `axis` (None, an int or several) as non-negative dims."""
    if axis is None:
        return tuple(range(ndim))
    axes = as_axes(axis, api)
    out = []
    for a in axes:
        if not -ndim <= a < ndim:
            raise np.exceptions.AxisError(
                f"{api}: axis {a} is out of bounds for array of dimension {ndim}"
            )
        out.append(a % ndim)
    if len(set(out)) != len(out):
        raise ValueError(f"{api}: duplicate value in axis (a repeated axis): {axes}.")
    return tuple(sorted(out))


def canonical_axis(axis, ndim: int, api: str = "array") -> int:
    """Return the index `axis` as a non-negative dim."""
    try:
        return canonical_axes(operator.index(axis), ndim, api)[0]
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise TypeError(f"{api}: axis must be an integer, got {axis!r:.60}.") from None


def flatten_for_axis(api: str, a, axis: int | None) -> tuple[Any, int]:
    """Return `a` as an array, and `axis` as a non-negative dim.

    Without an axis, return the flattened array and its only dim.
    """
    a = array_of(api, a)
    if axis is None:
        a, axis = reshape(a, (a.size,)), 0
    return a, canonical_axis(axis, a.ndim, api)


def promote_dtypes(*args) -> list:
    """Return the arguments converted to their common dtype."""
    dtype, weak = dtypes.result_type(*args, return_weak_type_flag=True)
    return [cast(x, dtype, weak) for x in args]


def promote_dtypes_inexact(*args) -> list:
    """Return the arguments converted to their common dtype, or to the corresponding floating one."""
    dtype, weak = dtypes.result_type(*args, return_weak_type_flag=True)
    dtype = dtypes.to_inexact_dtype(dtype)
    return [cast(x, dtype, weak) for x in args]


def promote_dtypes_complex(*args) -> list:
    """Return the arguments as arrays of the complex dtype for their common dtype."""
    dtype, weak = dtypes.result_type(*args, return_weak_type_flag=True)
    dtype = dtypes.to_complex_dtype(dtype)
    return [concrete(cast(x, dtype, weak)) for x in args]


class _AdoptableTypes(dict):
    """A table from dtypes to the Python types of numbers that adopt them."""

    def __missing__(self, dtype) -> frozenset:
        kinds = {
            np.integer: {int},
            np.floating: {int, float},
            np.complexfloating: {int, float, complex},
        }
        adoptable = frozenset().union(
            *(types for kind, types in kinds.items() if dtypes.issubdtype(dtype, kind))
        )
        self[dtype] = adoptable
        return adoptable


adopted = _AdoptableTypes()


def _ready_pair(x, y):
    """Return operands that need no conversion except of a Python number, or None.

    Most calls take this path. Operands of 64-bit dtypes that were created under x64 do not take it
    without x64.
    """
    # other objects may forward attributes of an array that they hold
    a = x.aval if hasattr(type(x), "aval") else None
    b = y.aval if hasattr(type(y), "aval") else None
    if a is not None:
        if a is b:
            return x, y
        if (
            b is None
            and type(y) in adopted[a.dtype]
            and (a.dtype.itemsize < 8 or config.enable_x64)
        ):
            return x, (_python_type(a.dtype)(y) if a.weak_type else _number_of(a.dtype, y))
    elif (
        b is not None
        and type(x) in adopted[b.dtype]
        and (b.dtype.itemsize < 8 or config.enable_x64)
    ):
        return (_python_type(b.dtype)(x) if b.weak_type else _number_of(b.dtype, x)), y
    return None


def promote(api: str, x, y) -> Sequence:
    """Return two array-likes with common dtype and broadcast shape."""
    pair = _ready_pair(x, y)
    if pair is not None:
        return pair
    check_arraylike(api, x, y)
    return broadcast(api, *promote_dtypes(value(x), value(y)))


def promote_to_inexact(api: str, x, y) -> Sequence:
    """Return two array-likes with a common floating or complex dtype and broadcast shape."""
    pair = _ready_pair(x, y)
    if pair is not None and is_inexact(x if hasattr(type(x), "aval") else y):
        return pair
    check_arraylike(api, x, y)
    return broadcast(api, *promote_dtypes_inexact(value(x), value(y)))


def as_strong(x):
    """Return `x` as an array whose dtype is not weak, even for a Python number."""
    x = concrete(x)
    return in_dtype(x, x.dtype) if x.weak_type else x


def all_inexact(api: str, *args) -> list:
    """Return array-likes with a common floating or complex dtype; their shapes are unchanged."""
    check_arraylike(api, *args)
    return promote_dtypes_inexact(*map(value, args))


def inexact(api: str, x) -> Any:
    """Return an array-like with a floating or complex dtype."""
    if hasattr(type(x), "aval") and is_inexact(x):
        return x
    check_arraylike(api, x)
    return promote_dtypes_inexact(value(x))[0]


def is_inexact(x) -> bool:
    return dtypes.issubdtype(x.aval.dtype, np.inexact)


def concrete(x) -> Any:
    """Return `x` as an Array or tracer: numbers and NumPy values become Arrays."""
    if isinstance(x, Tracer):
        return x
    program = innermost_stage_trace(trace_state.trace) if type(x) is np.ndarray and x.size else None
    return to_array(x) if program is None else program.array_of(x, to_array)


def array_of(api: str, x, parameter: str = "", dims: int = 0) -> Any:
    """Return the array-like `x` as an Array or tracer.

    Raise ValueError if the argument `parameter` has fewer than `dims` dims.
    """
    if not hasattr(type(x), "aval"):
        check_arraylike(api, x)
        x = concrete(value(x))
    if len(x.shape) < dims:
        raise ValueError(
            f"{api}: `{parameter}` must have at least {dims} dim{'s' * (dims > 1)}, got shape {tuple(x.shape)}."
        )
    return x
