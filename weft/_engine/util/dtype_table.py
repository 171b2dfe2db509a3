"""The dtypes of arrays, and the dtypes of names, types and values.

In:  anything NumPy accepts as a dtype, small floats and integers of ml_dtypes, typed random keys, Python numbers.
Out: `np.dtype` objects (or a `KeyDType`), truncated to 32 bits unless `config.enable_x64` is on.
Next: `promotion` joins dtypes; other packages import `dtypes`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from weft._engine.util.config import config
from weft._engine.util.source import warn_user

DType = Any  # np.dtype or ExtendedDType
DTypeLike = Any

float0 = np.dtype([("float0", np.void, 0)])  # tangents of integers: no information, no bytes


# ---- the dtypes


bool_dtype = np.dtype("bool")
complex_dtypes = (np.dtype("complex64"), np.dtype("complex128"))

#: the names of ml_dtypes, by kind; older releases lack some
_SMALL = {
    "u": ("uint1", "uint2", "uint4"),
    "i": ("int1", "int2", "int4"),
    "f": (
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e8m0fnu",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "bfloat16",
    ),
}
_PLAIN = {
    "u": ("uint8", "uint16", "uint32", "uint64"),
    "i": ("int8", "int16", "int32", "int64"),
    "f": ("float16", "float32", "float64"),
}
small_names = frozenset(name for names in _SMALL.values() for name in names)

#: NumPy numbers the dtypes of other packages from this number on
_FIRST_OF_OTHERS = 256


def is_small(dtype: np.dtype) -> bool:
    """Return whether a dtype is from ml_dtypes (or another package than NumPy).

    >>> is_small(as_dtype('int4')), is_small(np.dtype('int8'))
    (True, False)
    """
    return dtype.num >= _FIRST_OF_OTHERS


class _Kinds(dict[Any, "str | None"]):
    """dtype -> b, i, u, f or c; None for dtypes that arrays cannot have. Loads ml_dtypes for the first dtype that may be from it."""

    def __missing__(self, dtype: Any) -> str | None:
        if isinstance(dtype, np.dtype) and is_small(dtype):
            load_small()
        return self.get(dtype)


class _ByName(dict[str, "np.dtype | None"]):
    """name -> dtype; None for other names. Loads ml_dtypes for the first of its names."""

    def __missing__(self, name: str) -> np.dtype | None:
        if name in small_names:
            load_small()
        return self.get(name)


kinds = _Kinds(
    {
        bool_dtype: "b",
        **{np.dtype(name): kind for kind, names in _PLAIN.items() for name in names},
        **dict.fromkeys(complex_dtypes, "c"),
    }
)
dtypes_by_name = _ByName({dtype.name: dtype for dtype in kinds})
#: integers and floats of NumPy itself
_NATIVE_INTEGERS = frozenset(map(np.dtype, _PLAIN["u"] + _PLAIN["i"]))
_NATIVE_FLOATS = frozenset(map(np.dtype, _PLAIN["f"]))
_LATE = ("unsigned_dtypes", "signed_dtypes", "float_dtypes", "all_dtypes", "bfloat16")


def load_small() -> None:
    """Add the dtypes of ml_dtypes to all tables. Loading ml_dtypes takes longer than the rest of this package."""
    if "all_dtypes" in globals():
        return
    import ml_dtypes

    small_types = {
        kind: tuple(
            [np.dtype(getattr(ml_dtypes, name)) for name in names if hasattr(ml_dtypes, name)]
        )
        for kind, names in _SMALL.items()
    }
    for kind, small in small_types.items():
        kinds.update(dict.fromkeys(small, kind))
        dtypes_by_name.update({dtype.name: dtype for dtype in small})
    ordered = {kind: (*small, *map(np.dtype, _PLAIN[kind])) for kind, small in small_types.items()}
    globals().update(
        unsigned_dtypes=ordered["u"],
        signed_dtypes=ordered["i"],
        float_dtypes=ordered["f"],
        bfloat16=np.dtype(ml_dtypes.bfloat16),
        all_dtypes=(bool_dtype, *ordered["u"], *ordered["i"], *ordered["f"], *complex_dtypes),
    )


def __getattr__(name: str) -> Any:
    """Return a list that contains dtypes of ml_dtypes, after loading them."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_small()
    return globals()[name]


narrow_dtypes = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("uint64"): np.dtype("uint32"),
    np.dtype("float64"): np.dtype("float32"),
    np.dtype("complex128"): np.dtype("complex64"),
}

python_scalar_dtypes: dict[type, np.dtype] = {
    bool: bool_dtype,
    int: np.dtype("int64"),
    float: np.dtype("float64"),
    complex: np.dtype("complex128"),
}


# ---- extended dtypes: elements that are not numbers


class extended(np.generic):
    """Abstract type of elements that are not plain numbers; for `issubdtype` only."""

    __module__ = "weft.dtypes"


class prng_key(extended):
    """Abstract type of typed random keys; for `issubdtype` only."""

    __module__ = "weft.dtypes"


class ExtendedDType:
    """The base class of dtypes that NumPy does not have."""

    __slots__ = ()

    name: str
    type: type
    itemsize: int
    kind = "V"


class KeyDType(ExtendedDType):
    """The dtype of typed random keys of one generator; `impl` has a `tag` and a `key_shape`.

    >>> from types import SimpleNamespace
    >>> KeyDType(SimpleNamespace(tag='fry', key_shape=(2,)))
    key<fry>
    """

    __slots__ = ("__weakref__", "impl", "itemsize", "name")

    type = prng_key

    def __init__(self, impl: Any) -> None:
        self.impl = impl
        self.name = f"key<{impl.tag}>"
        self.itemsize = 4 * int(np.prod(impl.key_shape))

    def __eq__(self, other: object) -> bool:
        return type(other) is KeyDType and (self.impl is other.impl or self.impl == other.impl)

    def __hash__(self) -> int:
        return hash((KeyDType, self.name))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyDType, (self.impl,)


def is_strings(dtype: Any) -> bool:
    """Return whether a dtype is NumPy's dtype of strings of variable length, `numpy.dtypes.StringDType`."""
    return getattr(dtype, "kind", None) == "T"


def is_extended(dtype: Any) -> bool:
    """Return whether a dtype is an `ExtendedDType`, which NumPy does not have."""
    return isinstance(dtype, ExtendedDType)


# ---- dtypes of names and values

_no_dtype = object()


def as_dtype(dtype: DTypeLike, what: str = "`dtype`") -> DType:
    """Return the dtype object for a name, type or dtype, unchanged; None is NumPy's default, float64. Errors name the argument `what`.

    >>> as_dtype('bfloat16'), as_dtype(float), as_dtype(np.int8)
    (dtype(bfloat16), dtype('float64'), dtype('int8'))
    """
    if isinstance(dtype, (np.dtype, ExtendedDType)):
        return dtype
    if isinstance(dtype, str):
        if (named := dtypes_by_name[dtype]) is not None:
            return named
    if type(dtype) is type and dtype in python_scalar_dtypes:
        return python_scalar_dtypes[dtype]
    if dtype is None:
        return dtypes_by_name["float64"]
    inner = getattr(dtype, "dtype", None)
    if isinstance(inner, (np.dtype, ExtendedDType)):
        return inner
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # NumPy parses strings as Python code
        raise TypeError(
            f"{what} must be a dtype or what NumPy takes for one, got {dtype!r:.80}: {error}"
        ) from error


_canonical: dict[bool, dict[Any, DType]] = {False: {}, True: {}}


def canonicalize_dtype(dtype: DTypeLike, allow_extended_dtype: bool = True) -> DType:
    """Return the dtype object in native byte order.

    64-bit dtypes are truncated to 32 bits unless `config.enable_x64` is on. None is NumPy's default, float64. Raises TypeError for dtypes
    that arrays cannot have.

    >>> canonicalize_dtype(np.float64), canonicalize_dtype('int8')
    (dtype('float32'), dtype('int8'))
    """
    x64 = config.enable_x64
    try:
        return _canonical[x64][dtype]
    except (KeyError, TypeError):
        pass
    result = as_dtype(dtype)
    if isinstance(result, ExtendedDType):
        if not allow_extended_dtype:
            raise ValueError(f"{result} is not a dtype of numbers")
        return result
    if not result.isnative:
        result = result.newbyteorder("=")
    if not x64:
        result = narrow_dtypes.get(result, result)
    check_held(result)
    if isinstance(dtype, (np.dtype, str, type)):
        _canonical[x64][dtype] = result
    return result


def named_dtype(dtype: DTypeLike) -> DType:
    """Return the canonical dtype for an explicit dtype.

    It is not truncated to 32 bits if `config.explicit_x64_dtypes` is "allow", unless it is Python's float, int or complex.

    >>> named_dtype(np.float64)
    dtype('float32')
    """
    result = canonicalize_dtype(dtype)
    if result is dtype or config.explicit_x64_dtypes != "allow":
        return result
    if dtype is None or is_weak_type(dtype) or isinstance(result, ExtendedDType):
        return result
    return as_dtype(dtype).newbyteorder("=")


def check_held(dtype: DType, api: str = "") -> None:
    """Raise TypeError for a dtype that arrays cannot have: object, strings of one width, dates, structures, long doubles."""
    if (
        not isinstance(dtype, ExtendedDType)
        and kinds[dtype] is None
        and dtype != float0
        and not is_strings(dtype)
    ):
        raise TypeError(
            f"{api + ': ' if api else ''}dtype {dtype} is not one that arrays hold: they hold booleans and numbers"
        )


def check_dtype(dtype: DTypeLike, api: str = "") -> DType:
    """Return the canonical dtype for a user's explicit dtype; warn if it is truncated, raise if arrays cannot have it."""
    if (
        isinstance(dtype, np.dtype)
        and kinds[dtype] is not None
        and canonicalize_dtype(dtype) is dtype
    ):
        return dtype
    requested = as_dtype(dtype)
    if isinstance(requested, ExtendedDType) or requested == float0:
        return requested
    if is_strings(requested):
        raise TypeError(
            f"{api + ': ' if api else ''}dtype {requested} is that of arrays of strings, which array, asarray and device_put "
            "make of NumPy arrays alone"
        )
    check_held(requested.newbyteorder("="), api)
    prefix = f"{api}: " if api else ""
    result = canonicalize_dtype(requested) if is_weak_type(dtype) else named_dtype(requested)
    if result != requested and not is_weak_type(dtype):
        message = (
            f"{prefix}Explicitly requested dtype {requested} is not available and {result} is used, because 64-bit types are off. "
            "Turn them on with weft.config.update('enable_x64', True) or WEFT_ENABLE_X64=1."
        )
        if config.explicit_x64_dtypes == "error":
            raise ValueError(message)
        warn_user(message, UserWarning)
    return result


def dtype_of(x: Any) -> DType:
    """Return the canonical dtype of a value: an array, a tracer or a Python number.

    >>> dtype_of(1), dtype_of(2.5), dtype_of(np.zeros(3)), dtype_of(True)
    (dtype('int32'), dtype('float32'), dtype('float32'), dtype('bool'))
    """
    scalar = python_scalar_dtypes.get(type(x))
    if scalar is not None:
        return canonicalize_dtype(scalar)
    dtype = getattr(x, "dtype", _no_dtype)
    if dtype is _no_dtype:
        dtype = _scalar_subclass_dtype(x)
    return canonicalize_dtype(dtype)


def _scalar_subclass_dtype(x: Any) -> np.dtype:
    for base in (bool, int, float, complex):  # for example an IntEnum
        if isinstance(x, base):
            return python_scalar_dtypes[base]
    if isinstance(x, (list, tuple)):
        with suppress(ValueError):  # parts of different shapes
            if not (inferred := np.asarray(x).dtype).hasobject:
                return inferred
    convert = getattr(x, "__weft_array__", None) or getattr(x, "__jax_array__", None)
    if convert is not None:
        return dtype_of(convert())
    raise TypeError(f"a value of type {type(x).__name__} has no dtype: {x!r}")


_WEAK_TYPES = (int, float, complex)


def is_weak_type(x: Any) -> bool:
    # By identity, because a dtype compares equal to the Python type that is converted to it.
    return x is int or x is float or x is complex


def is_weak(x: Any) -> bool:
    """Return whether a value's dtype yields to others: Python int, float, complex, and arrays created from them.

    >>> is_weak(1), is_weak(True), is_weak(np.float32(1))
    (True, False, False)
    """
    type_ = type(x)
    if type_ in _WEAK_TYPES:
        return True
    if type_ is np.ndarray or isinstance(x, (np.generic, bool)):
        return False
    weak = getattr(x, "weak_type", None)
    return isinstance(x, _WEAK_TYPES) if weak is None else bool(weak)


def is_complex(dtype: DType) -> bool:
    """Return whether a dtype is complex.

    >>> is_complex(np.dtype("complex64")), is_complex(np.dtype("float32"))
    (True, False)
    """
    return dtype in complex_dtypes


def is_native_integer(dtype: DType) -> bool:
    """Return whether a dtype is one of NumPy's integers, of 8 to 64 bits."""
    return dtype in _NATIVE_INTEGERS


def is_native_float(dtype: DType) -> bool:
    """Return whether a dtype is one of NumPy's floats, of 16 to 64 bits."""
    return dtype in _NATIVE_FLOATS


def is_half(dtype: DType) -> bool:
    """Return whether a dtype is a float of 16 bits: float16 or bfloat16."""
    return dtype.itemsize == 2 and kinds[dtype] == "f"


def kind_of(dtype: np.dtype) -> str:
    """Return the kind of a dtype as one letter: b, i, u, f or c. The dtypes of ml_dtypes have the kinds of their families.

    >>> kind_of(as_dtype('bfloat16')), kind_of(np.dtype('uint8'))
    ('f', 'u')
    """
    return kinds[dtype] or dtype.kind


_BITS = {"int1": 1, "uint1": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
         "float6_e2m3fn": 6, "float6_e3m2fn": 6}  # fmt: skip


def itemsize_bits(dtype: DTypeLike) -> int:
    """Return the number of bits of information in one element.

    >>> itemsize_bits('int4'), itemsize_bits('float32')
    (4, 32)
    """
    dtype = as_dtype(dtype)
    return _BITS.get(dtype.name) or 8 * dtype.itemsize
