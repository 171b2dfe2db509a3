"""Dtypes: which there are, what they are called, and what comes out when they meet.

In:  anything NumPy accepts as a dtype, small floats and integers of ml_dtypes, typed random keys, Python numbers.
Out: `np.dtype` objects (or a `KeyDType`), cut to 32 bits unless `config.enable_x64` is on.
Invariants: Python numbers are *weak*: they never widen an array. Promotion is the least upper bound in the lattice
below, so it is associative and commutative; pairs without an upper bound raise `TypePromotionError`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import ml_dtypes
import numpy as np

from weft.util.config import config
from weft.util.errors import TypePromotionError

DType = Any  # np.dtype or ExtendedDType
DTypeLike = Any

float0 = np.dtype([("float0", np.void, 0)])  # tangents of integers: no information, no bytes


# ---- the dtypes


def _small(*names: str) -> dict[str, np.dtype]:
    """Dtypes of ml_dtypes by name; older releases lack some."""
    return {name: np.dtype(getattr(ml_dtypes, name)) for name in names if hasattr(ml_dtypes, name)}


_FLOAT8 = _small(
    "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
_FLOAT4 = _small("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
_BFLOAT16 = _small("bfloat16")
_SMALL_SIGNED = _small("int1", "int2", "int4")
_SMALL_UNSIGNED = _small("uint1", "uint2", "uint4")
bfloat16 = _BFLOAT16["bfloat16"]

_SMALL_FLOATS = frozenset((*_FLOAT4.values(), *_FLOAT8.values()))
_SMALL_INTS = frozenset((*_SMALL_SIGNED.values(), *_SMALL_UNSIGNED.values()))

bool_dtype = np.dtype("bool")
unsigned_dtypes = (*_SMALL_UNSIGNED.values(), *map(np.dtype, ("uint8", "uint16", "uint32", "uint64")))
signed_dtypes = (*_SMALL_SIGNED.values(), *map(np.dtype, ("int8", "int16", "int32", "int64")))
float_dtypes = (*_FLOAT4.values(), *_FLOAT8.values(), bfloat16, *map(np.dtype, ("float16", "float32", "float64")))
complex_dtypes = tuple(map(np.dtype, ("complex64", "complex128")))
all_dtypes = (bool_dtype, *unsigned_dtypes, *signed_dtypes, *float_dtypes, *complex_dtypes)

_by_name = {dtype.name: dtype for dtype in all_dtypes}
_known = frozenset(all_dtypes)

_BITS = {"int1": 1, "uint1": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
         "float6_e2m3fn": 6, "float6_e3m2fn": 6}  # fmt: skip

_TO_32_BITS = {
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


class prng_key(extended):
    """Abstract type of typed random keys; for `issubdtype` only."""


class ExtendedDType:
    """Base class of dtypes that NumPy does not know."""

    __slots__ = ()

    name: str
    type: type
    itemsize: int
    kind = "V"


class KeyDType(ExtendedDType):
    """Dtype of typed random keys made by one generator; `impl` has a `tag` and a `key_shape`.

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


def is_extended(dtype: Any) -> bool:
    """Return whether a dtype is one that NumPy does not know."""
    return isinstance(dtype, ExtendedDType)


# ---- which dtype a value or a name stands for

_no_dtype = object()


def as_dtype(dtype: DTypeLike) -> DType:
    """Return the dtype object for a name, type or dtype, as it stands.

    >>> as_dtype('bfloat16'), as_dtype(float), as_dtype(np.int8)
    (dtype(bfloat16), dtype('float64'), dtype('int8'))
    """
    if isinstance(dtype, (np.dtype, ExtendedDType)):
        return dtype
    if isinstance(dtype, str):
        found = _by_name.get(dtype)
        return np.dtype(dtype) if found is None else found
    if type(dtype) is type and dtype in python_scalar_dtypes:
        return python_scalar_dtypes[dtype]
    if dtype is None:
        raise TypeError("a dtype is needed here, got None")
    inner = getattr(dtype, "dtype", None)
    if isinstance(inner, (np.dtype, ExtendedDType)):
        return inner
    return np.dtype(dtype)


_canonical: dict[bool, dict[Any, DType]] = {False: {}, True: {}}


def canonicalize_dtype(dtype: DTypeLike, allow_extended_dtype: bool = True) -> DType:
    """Return the dtype object in native byte order, 64-bit ones cut to 32 bits unless `config.enable_x64` is on.

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
        result = _TO_32_BITS.get(result, result)
    if isinstance(dtype, (np.dtype, str, type)):
        _canonical[x64][dtype] = result
    return result


def check_dtype(dtype: DTypeLike, api: str = "") -> DType:
    """Return the canonical dtype for one a user named; warn if it is cut, raise if arrays cannot hold it."""
    wanted = as_dtype(dtype)
    if isinstance(wanted, ExtendedDType) or wanted == float0:
        return wanted
    prefix = f"{api}: " if api else ""
    if wanted not in _known:
        raise TypeError(f"{prefix}dtype {wanted} is not one that arrays hold: they hold booleans and numbers")
    result = canonicalize_dtype(wanted)
    if result != wanted and not _is_weak_type(dtype) and config.explicit_x64_dtypes != "allow":
        message = (
            f"{prefix}dtype {wanted} was asked for and {result} is used, because 64-bit types are off. "
            "Turn them on with weft.config.update('enable_x64', True) or WEFT_ENABLE_X64=1."
        )
        if config.explicit_x64_dtypes == "error":
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=3)
    return result


def dtype_of(x: Any) -> DType:
    """Return the canonical dtype of a value: an array, a tracer or a Python number.

    >>> dtype_of(1), dtype_of(2.5), dtype_of(np.zeros(3)), dtype_of(True)
    (dtype('int32'), dtype('float32'), dtype('float32'), dtype('bool'))
    """
    scalar = python_scalar_dtypes.get(type(x))
    if scalar is not None:
        return canonicalize_dtype(scalar)
    found = getattr(x, "dtype", _no_dtype)
    if found is _no_dtype:
        found = _scalar_subclass_dtype(x)
    return canonicalize_dtype(found)


def _scalar_subclass_dtype(x: Any) -> np.dtype:
    for base in (bool, int, float, complex):  # an IntEnum, say
        if isinstance(x, base):
            return python_scalar_dtypes[base]
    if isinstance(x, (list, tuple)):
        return np.asarray(x).dtype
    raise TypeError(f"a value of type {type(x).__name__} has no dtype: {x!r}")


_WEAK_TYPES = (int, float, complex)


def _is_weak_type(x: Any) -> bool:
    # By identity: a dtype compares equal to the Python type it would be made from.
    return x is int or x is float or x is complex


def is_weak(x: Any) -> bool:
    """Return whether a value's dtype gives way to others: Python int, float, complex, and arrays made from them.

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


# ---- promotion

# A node is a dtype, or a Python type for the weak ones. An edge leads to what a node may become.
Node = Any


def _lattice(strict: bool, x64: bool) -> dict[Node, set[Node]]:
    """Return the direct edges of the promotion lattice."""
    names = _by_name
    floats = [bfloat16, names["float16"]]
    edges: dict[Node, set[Node]] = {dtype: set() for dtype in all_dtypes}
    edges[int] = {*unsigned_dtypes, *signed_dtypes}
    edges[float] = {*float_dtypes}
    edges[complex] = {*complex_dtypes}
    if strict:  # only weak numbers give way
        edges[int] |= {float}
        edges[float] |= {complex}
        return edges
    edges[bool_dtype] = {int}
    edges[int] = {*_SMALL_INTS, names["uint8"], names["int8"]}
    edges[float] = {*_SMALL_FLOATS, *floats, complex}
    edges[complex] = {names["complex64"]}
    # Without 64-bit types the join of uint32 and a signed type is int32: the lattice has no room above it.
    above_uint32 = names["int64"] if x64 else names["int32"]
    chain = (
        ("uint8", "int16"), ("uint8", "uint16"), ("uint16", "int32"), ("uint16", "uint32"), ("uint32", "uint64"),
        ("int8", "int16"), ("int16", "int32"), ("int32", "int64"),
        ("bfloat16", "float32"), ("float16", "float32"), ("float32", "float64"), ("float32", "complex64"),
        ("float64", "complex128"), ("complex64", "complex128"),
    )  # fmt: skip
    for low, high in chain:
        edges[names[low]].add(names[high])
    edges[names["uint32"]].add(above_uint32)
    edges[names["uint64"]].add(float)
    edges[names["int64"]].add(float)
    return edges


def _upper_sets(edges: dict[Node, set[Node]]) -> dict[Node, frozenset[Node]]:
    """Return, for each node, everything it may become, itself included."""
    result: dict[Node, frozenset[Node]] = {}

    def visit(node: Node) -> frozenset[Node]:
        if node not in result:
            result[node] = frozenset({node}.union(*(visit(above) for above in edges[node])))
        return result[node]

    for node in edges:
        visit(node)
    return result


_upper: dict[tuple[bool, bool], dict[Node, frozenset[Node]]] = {}  # (strict, x64) -> upper sets, made on first use


def _join(nodes: Iterable[Node], strict: bool, x64: bool) -> Node:
    """Return the least upper bound of nodes."""
    nodes = list(nodes)
    upper = _upper.get((strict, x64))
    if upper is None:
        upper = _upper[strict, x64] = _upper_sets(_lattice(strict, x64))
    try:
        shared = frozenset.intersection(*[upper[node] for node in nodes])
    except KeyError as error:
        raise ValueError(f"dtype {error.args[0]} takes no part in promotion") from None
    for node in shared:
        if upper[node] == shared:
            return node
    raise TypePromotionError(_no_join(nodes, strict))


def _no_join(nodes: list[Node], strict: bool) -> str:
    names = " and ".join(dict.fromkeys(f"a Python {n.__name__}" if isinstance(n, type) else n.name for n in nodes))
    if strict:
        return (
            f"{names} are not promoted together while numpy_dtype_promotion is 'strict'. "
            "Cast one of them with .astype, or set numpy_dtype_promotion to 'standard'."
        )
    if any(node in _SMALL_INTS for node in nodes):
        rule = "integers below 8 bits promote only with Python ints"
    else:
        rule = "floats below 16 bits promote to no other float"
    return f"{names} are not promoted together: {rule}. Cast one of them with .astype."


def _node(dtype: DType, weak: bool) -> Node:
    if not weak:
        return dtype
    kind = _kind(dtype)
    return {"i": int, "u": int, "f": float, "c": complex}.get(kind, dtype)


def _kind(dtype: np.dtype) -> str:
    """One letter: b, i, u, f, c, with the small types counted among their families."""
    if dtype in _SMALL_FLOATS or dtype == bfloat16:
        return "f"
    if dtype in _SMALL_INTS:
        return "u" if dtype.name.startswith("u") else "i"
    return dtype.kind


_promoted: dict[tuple[Any, ...], np.dtype] = {}


def promote_types(a: DTypeLike, b: DTypeLike) -> DType:
    """Return the dtype that both may become; Python's int, float and complex stand for weak numbers.

    >>> promote_types('int32', 'float16'), promote_types('bfloat16', 'float16'), promote_types('int8', int)
    (dtype('float16'), dtype('float32'), dtype('int8'))
    """
    key = (a, b, config.enable_x64, config.numpy_dtype_promotion)
    try:
        return _promoted[key]
    except (KeyError, TypeError):
        pass
    _, _, x64, mode = key
    nodes = [x if _is_weak_type(x) else as_dtype(x) for x in (a, b)]
    if any(isinstance(node, ExtendedDType) for node in nodes):
        if nodes[0] == nodes[1]:
            return nodes[0]
        raise TypePromotionError(f"{nodes[0]} and {nodes[1]} are not promoted together: a key is not a number")
    result = _join(nodes, mode == "strict", x64)
    result = python_scalar_dtypes[result] if isinstance(result, type) else result
    try:
        _promoted[key] = result
    except TypeError:
        pass  # an unhashable spelling of a dtype
    return result


# What is asked again and again is remembered by what the arguments are: a Python number by its type, a dtype or an
# array by its dtype, a weak array by ("weak", dtype).
_results: dict[tuple[bool, str], dict[tuple[Any, ...], tuple[DType, bool]]] = {}


class _Readers(dict):
    """type of an argument -> function that gives its part of the key."""

    def __missing__(self, type_: type) -> Callable[[Any], Any]:
        if issubclass(type_, (np.dtype, ExtendedDType, type, str)) or type_ is type(None):
            reader = _itself
        elif issubclass(type_, (np.ndarray, np.generic)):
            reader = attrgetter("dtype")
        else:
            reader = _read_value
        self[type_] = reader
        return reader


def _itself(x: Any) -> Any:
    return x


def _read_value(x: Any) -> Any:
    return ("weak", dtype_of(x)) if is_weak(x) else dtype_of(x)


_readers = _Readers(dict.fromkeys(python_scalar_dtypes, type))


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """Return the dtype of an operation on these values or dtypes, and whether it is weak if asked.

    >>> result_type(1, 2.5), result_type(np.int8(1), 2), result_type(np.int8(1), 2.5)
    (dtype('float32'), dtype('int8'), dtype('float32'))
    >>> result_type(1, 2.5, return_weak_type_flag=True)
    (dtype('float32'), True)
    """
    readers = _readers
    key = tuple([readers[type(x)](x) for x in args])
    mode = (config.enable_x64, config.numpy_dtype_promotion)
    try:
        result = _results[mode][key]
    except KeyError:
        result = _results.setdefault(mode, {})[key] = join_dtypes(tuple([_dtype_and_weak(part) for part in key]))
    return result if return_weak_type_flag else result[0]


def _dtype_and_weak(part: Any) -> tuple[DType, bool]:
    if part is None:
        return default_float_dtype(), False
    if type(part) is tuple:
        return canonicalize_dtype(part[1]), True
    return canonicalize_dtype(part), _is_weak_type(part)


def join_dtypes(pairs: tuple[tuple[DType, bool], ...]) -> tuple[DType, bool]:
    """Join (canonical dtype, weak) pairs into one; the heart of `result_type`."""
    if not pairs:
        raise ValueError("result_type needs at least one array, number or dtype")
    return _join_pairs(pairs, config.enable_x64, config.numpy_dtype_promotion == "strict")


_WIDEST = {"i": np.dtype("int64"), "u": np.dtype("uint64"), "f": np.dtype("float64"), "c": np.dtype("complex128")}


def _join_pairs(pairs: tuple[tuple[DType, bool], ...], x64: bool, strict: bool) -> tuple[DType, bool]:
    dtypes, weak = [dtype for dtype, _ in pairs], all(weak for _, weak in pairs)
    if any(isinstance(dtype, ExtendedDType) for dtype in dtypes):
        if all(dtype == dtypes[0] for dtype in dtypes):
            return dtypes[0], False
        raise TypePromotionError(f"{' and '.join(map(str, dtypes))} are not promoted together: a key is not a number")
    kinds = {_kind(dtype) for dtype in dtypes}
    if weak and len(kinds) == 1 and not (strict and len(pairs) > 1):
        node = _WIDEST[kinds.pop()]  # weak numbers among themselves take the widest dtype of their kind
    else:
        node = _join([_node(dtype, is_weak_) for dtype, is_weak_ in pairs], strict, x64)
    weak = weak or isinstance(node, type)
    return canonicalize_dtype(python_scalar_dtypes[node] if isinstance(node, type) else node), weak


# ---- questions about dtypes

_FAMILIES: dict[type, frozenset[np.dtype]] = {
    np.unsignedinteger: frozenset(unsigned_dtypes),
    np.signedinteger: frozenset(signed_dtypes),
    np.floating: frozenset(float_dtypes),
    np.complexfloating: frozenset(complex_dtypes),
    np.bool_: frozenset((bool_dtype,)),
}
_FAMILIES[np.integer] = _FAMILIES[np.unsignedinteger] | _FAMILIES[np.signedinteger]
_FAMILIES[np.inexact] = _FAMILIES[np.floating] | _FAMILIES[np.complexfloating]
_FAMILIES[np.number] = _FAMILIES[np.integer] | _FAMILIES[np.inexact]

_subdtype: dict[tuple[Any, Any], bool] = {}


def issubdtype(a: DTypeLike, b: DTypeLike) -> bool:
    """Return whether dtype `a` belongs to `b`: a dtype, or an abstract type such as `np.floating` or `prng_key`.

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
    """The abstract scalar type that `x` is, if it is one."""
    is_abstract = isinstance(x, type) and issubclass(x, np.generic) and (x in _FAMILIES or x in _ABSTRACT)
    return x if is_abstract and x is not np.bool_ else None


_ABSTRACT = (np.generic, np.flexible, np.character, extended, prng_key)


def _issubdtype(a: Any, b: Any) -> bool:
    if a is None:
        a = np.dtype("float64")
    if (abstract_a := _abstract(a)) is not None:
        abstract_b = _abstract(b)
        return abstract_b is not None and issubclass(abstract_a, abstract_b)
    a, abstract = as_dtype(a), _abstract(b)
    if abstract is None:
        return a == as_dtype(b)
    if isinstance(a, ExtendedDType):
        return issubclass(a.type, abstract)
    if abstract in _FAMILIES and a in _known:
        return a in _FAMILIES[abstract]
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
    if isinstance(kind, str) and kind not in _by_name:
        raise ValueError(f"isdtype: kind {kind!r} is neither a dtype nor one of {', '.join(map(repr, _KINDS))}")
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


def itemsize_bits(dtype: DTypeLike) -> int:
    """Return the number of bits of information in one element.

    >>> itemsize_bits('int4'), itemsize_bits('float32')
    (4, 32)
    """
    dtype = as_dtype(dtype)
    return _BITS.get(dtype.name) or 8 * dtype.itemsize


_finfo, _iinfo = functools.cache(ml_dtypes.finfo), functools.cache(ml_dtypes.iinfo)


def finfo(dtype: DTypeLike) -> Any:
    """Return the limits of a floating dtype, small ones included.

    >>> float(finfo('bfloat16').eps)
    0.0078125
    """
    dtype = as_dtype(dtype)
    if not issubdtype(dtype, np.inexact):
        raise ValueError(f"finfo: {dtype} is not a floating dtype")
    return _finfo(dtype)


def iinfo(dtype: DTypeLike) -> Any:
    """Return the limits of an integer dtype, small ones included.

    >>> iinfo('int4').max
    7
    """
    dtype = as_dtype(dtype)
    if not issubdtype(dtype, np.integer):
        raise ValueError(f"iinfo: {dtype} is not an integer dtype")
    return _iinfo(dtype)


def scalar_type_of(x: Any) -> type:
    """Return the Python type of an element: bool, int, float or complex.

    >>> scalar_type_of(np.float16(1)), scalar_type_of(3)
    (<class 'float'>, <class 'int'>)
    """
    kind = _kind(dtype_of(x))
    try:
        return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[kind]
    except KeyError:
        raise TypeError(f"elements of {dtype_of(x)} are not numbers: {x!r}") from None


# ---- neighbours of a dtype


def default_int_dtype() -> np.dtype:
    """The dtype of Python ints."""
    return canonicalize_dtype(np.int64)


def default_uint_dtype() -> np.dtype:
    """The widest unsigned dtype in use."""
    return canonicalize_dtype(np.uint64)


def default_float_dtype() -> np.dtype:
    """The dtype of Python floats."""
    return canonicalize_dtype(np.float64)


def default_complex_dtype() -> np.dtype:
    """The dtype of Python complex numbers."""
    return canonicalize_dtype(np.complex128)


def to_inexact_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype itself if floating or complex, else the float that an integer's mathematics is done in.

    >>> to_inexact_dtype('int32'), to_inexact_dtype('bfloat16')
    (dtype('float32'), dtype(bfloat16))
    """
    dtype = as_dtype(dtype)
    if issubdtype(dtype, np.inexact):
        return dtype
    wide = not is_extended(dtype) and dtype in _TO_32_BITS
    return canonicalize_dtype(np.float64 if wide else np.float32)


def to_complex_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the complex dtype whose parts hold `dtype`.

    >>> to_complex_dtype('float32')
    dtype('complex64')
    """
    dtype = to_inexact_dtype(dtype)
    wide = dtype.name in ("float64", "complex128")
    return np.dtype(np.complex128 if wide else np.complex64)


def to_real_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of the parts of a complex dtype; others stay.

    >>> to_real_dtype('complex64'), to_real_dtype('int8')
    (dtype('float32'), dtype('int8'))
    """
    dtype = as_dtype(dtype)
    return {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(dtype.name, dtype)


def to_numeric_dtype(dtype: DTypeLike) -> DType:
    """Return the dtype that sums are made in: the default int for booleans, else the dtype itself."""
    dtype = as_dtype(dtype)
    return default_int_dtype() if dtype == bool_dtype else dtype


# ---- names

_short_names: dict[DType, str] = {}


def short_name(dtype: DType) -> str:
    """Return a dtype's name as programs print it.

    >>> [short_name(np.dtype(name)) for name in ('float32', 'int8', 'uint4', 'bool', 'complex64')]
    ['f32', 'i8', 'u4', 'bool', 'c64']
    """
    found = _short_names.get(dtype)
    if found is None:
        found = _short_names[dtype] = _short_name(as_dtype(dtype))
    return found


def _short_name(dtype: DType) -> str:
    if dtype == float0:
        return "float0"
    name = dtype.name
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        if name.startswith(long):
            return short + name[len(long) :]
    return name


def from_short_name(text: str) -> np.dtype:
    """Return the dtype that a short name stands for.

    >>> from_short_name('bf16')
    dtype(bfloat16)
    """
    if not _from_short:
        _from_short.update({short_name(dtype): dtype for dtype in (*all_dtypes, float0)})
    try:
        return _from_short[text]
    except KeyError:
        raise ValueError(f"{text!r} is not the short name of a dtype") from None


_from_short: dict[str, np.dtype] = {}


# ---- scalar types: `wnp.float32` is a dtype in all but class, and makes arrays when called

_array_factory: Callable[[Any, np.dtype], Any] = lambda x, dtype: np.asarray(x, dtype)


def set_array_factory(factory: Callable[[Any, np.dtype], Any]) -> None:
    """Install `factory(value, dtype)`, which scalar types call to make an array."""
    global _array_factory
    _array_factory = factory


class _ScalarMeta(type):
    """The type of scalar types: equal and hashed like their dtype, accepted by NumPy as one."""

    dtype: np.dtype

    def __eq__(cls, other: object) -> bool:
        if cls is other:
            return True
        try:
            return cls.dtype == other
        except TypeError:
            return False

    def __hash__(cls) -> int:
        return hash(cls.dtype)

    def __call__(cls, x: Any = 0) -> Any:
        return _array_factory(x, cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'weft.numpy.{cls.__name__}'>"

    def __reduce__(cls) -> tuple[Any, ...]:
        return _scalar_type, (cls.__name__,)


def _scalar_type(name: str) -> type:
    return scalar_types[name]


def _make_scalar_type(dtype: np.dtype) -> type:
    name = "bool" if dtype == bool_dtype else dtype.name
    doc = f"The dtype {name}; called with a value it makes an array of it."
    attributes = {"dtype": dtype, "__numpy_dtype__": dtype, "__doc__": doc, "__module__": "weft.numpy"}
    return _ScalarMeta(name, (), attributes)


scalar_types: dict[str, type] = {dtype.name: _make_scalar_type(dtype) for dtype in all_dtypes}
