"""Dtypes: their names, families, limits and promotion.

In:  anything NumPy accepts as a dtype, small floats and integers of ml_dtypes, typed random keys, Python numbers.
Out: `np.dtype` objects (or a `KeyDType`), families, limits, names, and the scalar types that represent dtypes.
Next: `dtype_table` has the dtypes themselves, `promotion` the lattice; this module exports the names of both.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from typing import Any

import numpy as np

import weft
from weft._engine.util import dtype_table
from weft._engine.util.dtype_table import (
    DType,
    DTypeLike,
    ExtendedDType,
    KeyDType,
    as_dtype,
    bool_dtype,
    canonicalize_dtype,
    check_dtype,
    check_held,
    complex_dtypes,
    dtype_of,
    dtypes_by_name,
    extended,
    float0,
    is_complex,
    is_extended,
    is_half,
    is_native_float,
    is_native_integer,
    is_strings,
    is_weak,
    itemsize_bits,
    kind_of,
    kinds,
    named_dtype,
    narrow_dtypes,
    prng_key,
    python_scalar_dtypes,
)
from weft._engine.util.errors import TypePromotionError
from weft._engine.util.promotion import join_dtypes, promote_types, result_type

__all__ = [
    "DType", "DTypeLike", "ExtendedDType", "KeyDType", "TypePromotionError", "as_dtype",
    "bool_dtype", "canonicalize_dtype", "check_dtype", "check_held", "complex_dtypes",
    "default_float_dtype", "default_int_dtype", "default_uint_dtype", "dtype_of", "extended", "finfo", "float0",
    "iinfo", "is_complex", "is_extended", "is_half", "is_native_float", "is_native_integer",
    "is_strings", "is_weak", "isdtype", "issubdtype", "itemsize_bits",
    "join_dtypes", "named_dtype", "prng_key", "promote_types", "python_scalar_dtypes", "result_type", "scalar_type_of",
    "scalar_types", "short_name", "to_complex_dtype", "to_inexact_dtype", "to_real_dtype",
]  # fmt: skip

# ---- questions about dtypes

#: abstract type -> the kinds of its dtypes
_FAMILIES: dict[type, str] = {
    np.unsignedinteger: "u", np.signedinteger: "i", np.floating: "f", np.complexfloating: "c", np.bool_: "b",
    np.integer: "iu", np.inexact: "fc", np.number: "iufc",
}  # fmt: skip

_subdtype: dict[tuple[Any, Any], bool] = {}


def issubdtype(a: DTypeLike, b: DTypeLike) -> bool:
    """Return whether dtype `a` belongs to `b`: a dtype, or an abstract type such as `np.floating` or `prng_key`.

    Raises TypeError for other values.

    >>> issubdtype('bfloat16', np.floating), issubdtype(np.int32, np.inexact), issubdtype('int4', np.signedinteger)
    (True, False, True)
    """
    try:
        return _subdtype[a, b]
    except (KeyError, TypeError):
        pass
    result = _issubdtype(a, b)
    try:
        _subdtype[a, b] = result
    except TypeError:
        pass
    return result


def _abstract(x: Any) -> type | None:
    """Return `x` as an abstract scalar type, or None if it is not one."""
    is_abstract = (
        isinstance(x, type) and issubclass(x, np.generic) and (x in _FAMILIES or x in _ABSTRACT)
    )
    return x if is_abstract and x is not np.bool_ else None


_ABSTRACT = (np.generic, np.flexible, np.character, extended, prng_key)


def _issubdtype(a: Any, b: Any) -> bool:
    if (abstract_a := _abstract(a)) is not None:
        abstract_b = _abstract(b)
        return abstract_b is not None and issubclass(abstract_a, abstract_b)
    a, abstract = as_dtype(a, "issubdtype: `arg1`"), _abstract(b)
    if abstract is None:
        return a == as_dtype(b, "issubdtype: `arg2`")
    if isinstance(a, ExtendedDType):
        return issubclass(a.type, abstract)
    if abstract in _FAMILIES and (kind := kinds[a]) is not None:
        return kind in _FAMILIES[abstract]
    return issubclass(a.type, abstract)


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Return whether a dtype is of a kind: a dtype, 'bool', 'signed integer', …, or a tuple of these.

    >>> isdtype('float32', 'real floating'), isdtype('int8', ('bool', 'integral'))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return any(issubdtype(dtype, family) for family in _KINDS[kind])
    if isinstance(kind, str) and dtypes_by_name[kind] is None:
        raise ValueError(
            f"isdtype: kind {kind!r} is neither a dtype nor one of {', '.join(map(repr, _KINDS))}"
        )
    return as_dtype(dtype) == as_dtype(kind)


_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (np.bool_,),
    "signed integer": (np.signedinteger,),
    "unsigned integer": (np.unsignedinteger,),
    "integral": (np.integer,),
    "real floating": (np.floating,),
    "complex floating": (np.complexfloating,),
    "numeric": (np.number,),
}


@functools.cache
def _limits(dtype: np.dtype, of: str) -> Any:
    if not dtype_table.is_small(dtype):
        return getattr(np, of)(dtype)
    import ml_dtypes

    return getattr(ml_dtypes, of)(dtype)


class _LimitsMeta(type):
    """The metaclass of `finfo` and `iinfo`: instances of the classes of that name in NumPy and ml_dtypes are their instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        libraries = [np, sys.modules.get("ml_dtypes")]
        return isinstance(
            instance, tuple(getattr(library, cls.__name__) for library in libraries if library)
        )


class finfo(metaclass=_LimitsMeta):
    """The limits of a floating dtype, small ones included; None is float64. Raises ValueError for other dtypes.

    >>> float(finfo('bfloat16').eps), isinstance(finfo('bfloat16'), finfo)
    (0.0078125, True)
    """

    __module__ = "weft.numpy"

    def __new__(cls, dtype: DTypeLike | None) -> Any:
        dtype = as_dtype(dtype, "finfo: `dtype`")
        if not issubdtype(dtype, np.inexact):
            raise ValueError(f"finfo: {dtype} is not a floating dtype")
        return _limits(dtype, "finfo")


class iinfo(metaclass=_LimitsMeta):
    """The limits of an integer dtype, small ones included. Raises ValueError for other dtypes.

    >>> iinfo('int4').max, isinstance(iinfo('int4'), iinfo)
    (7, True)
    """

    __module__ = "weft.numpy"

    def __new__(cls, int_type: DTypeLike) -> Any:
        dtype = as_dtype(int_type, "iinfo: `int_type`")
        if not issubdtype(dtype, np.integer):
            raise ValueError(f"iinfo: {dtype} is not an integer dtype")
        return _limits(dtype, "iinfo")


def scalar_type_of(x: Any) -> type:
    """Return the Python type of an element: bool, int, float or complex.

    >>> scalar_type_of(np.float16(1)), scalar_type_of(3)
    (<class 'float'>, <class 'int'>)
    """
    kind = kind_of(dtype_of(x))
    try:
        return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[kind]
    except KeyError:
        raise TypeError(f"elements of {dtype_of(x)} are not numbers: {x!r}") from None


# ---- related dtypes


def default_int_dtype() -> np.dtype:
    """Return the dtype of Python ints."""
    return canonicalize_dtype(np.int64)


def default_uint_dtype() -> np.dtype:
    """Return the widest unsigned dtype: uint64 if x64 is enabled, otherwise uint32."""
    return canonicalize_dtype(np.uint64)


def default_float_dtype() -> np.dtype:
    """Return the dtype of Python floats."""
    return canonicalize_dtype(np.float64)


def to_inexact_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype itself if it is floating or complex, otherwise the float dtype for mathematical functions of integers.

    >>> to_inexact_dtype('int32'), to_inexact_dtype('bfloat16')
    (dtype('float32'), dtype(bfloat16))
    """
    dtype = as_dtype(dtype)
    if issubdtype(dtype, np.inexact):
        return dtype
    is_64_bit = not is_extended(dtype) and dtype in narrow_dtypes
    return named_dtype(np.float64 if is_64_bit else np.float32)


def to_complex_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the complex dtype whose real and imaginary parts can represent `dtype`.

    >>> to_complex_dtype('float32')
    dtype('complex64')
    """
    dtype = to_inexact_dtype(dtype)
    is_double = dtype.type in (np.float64, np.complex128)
    return np.dtype(np.complex128 if is_double else np.complex64)


def to_real_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of the parts of a complex dtype, and other dtypes unchanged.

    >>> to_real_dtype('complex64'), to_real_dtype('int8')
    (dtype('float32'), dtype('int8'))
    """
    dtype = as_dtype(dtype)
    return {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(
        dtype.name, dtype
    )


# ---- names

_short_names: dict[DType, str] = {}


def short_name(dtype: DType) -> str:
    """Return the short name of a dtype in printed programs.

    >>> [short_name(np.dtype(name)) for name in ('float32', 'int8', 'uint4', 'bool', 'complex64')]
    ['f32', 'i8', 'u4', 'bool', 'c64']
    """
    name = _short_names.get(dtype)
    if name is None:
        name = _short_names[dtype] = _short_name(as_dtype(dtype))
    return name


def _short_name(dtype: DType) -> str:
    if dtype == float0:
        return "float0"
    name = dtype.name
    for long, short in (
        ("bfloat", "bf"),
        ("float", "f"),
        ("uint", "u"),
        ("int", "i"),
        ("complex", "c"),
    ):
        if name.startswith(long):
            return short + name[len(long) :]
    return name


# ---- scalar types: `wnp.float32` behaves as a dtype, and creates arrays when called


class _ScalarMeta(type):
    """The metaclass of scalar types: a scalar type equals its dtype, has the hash of its NumPy type, and NumPy accepts it as a dtype."""

    dtype: np.dtype

    def __eq__(cls, other: object) -> bool:
        if cls is other:
            return True
        try:
            return cls.dtype == other
        except TypeError:
            return False

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __call__(cls, x: Any = 0) -> Any:
        return weft.numpy.asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'weft.numpy.{cls.__name__}'>"


def _scalar_type(name: str) -> type:
    return scalar_types[name]


# Classes are pickled by module and name, but scalar types are not attributes of this module.
copyreg.pickle(_ScalarMeta, lambda scalar: (_scalar_type, (scalar.__name__,)))


def _make_scalar_type(dtype: np.dtype) -> type:
    name = "bool" if dtype == bool_dtype else dtype.name
    doc = f"""The dtype {name}; called with a value, it returns an array of this dtype.

    >>> np.dtype(wnp.{name}).itemsize
    {dtype.itemsize}
    """
    attributes = {
        "dtype": dtype,
        "__numpy_dtype__": dtype,
        "__doc__": doc,
        "__module__": "weft.numpy",
    }
    return _ScalarMeta(name, (), attributes)


class _ScalarTypes(dict[str, type]):
    """name -> scalar type; the scalar types of ml_dtypes are created on first use."""

    def __missing__(self, name: str) -> type:
        dtype = dtypes_by_name[name]
        if dtype is None:
            raise KeyError(name)
        scalar_type = self[name] = _make_scalar_type(dtype)
        return scalar_type


scalar_types = _ScalarTypes({dtype.name: _make_scalar_type(dtype) for dtype in kinds})


def __getattr__(name: str) -> Any:
    """Return a list of `dtype_table` that requires ml_dtypes, after loading it."""
    return getattr(dtype_table, name)
