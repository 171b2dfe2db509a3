"""Promotion of dtypes.

In:  dtypes, arrays and Python numbers.
Out: one dtype, and whether it is *weak*: from Python numbers only, so that it yields to the dtype of any array.
Invariant: the result is the least upper bound in a lattice, so it does not depend on the order of the arguments; pairs
without an upper bound raise `TypePromotionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from weft._engine.util import dtype_table as table
from weft._engine.util.config import config
from weft._engine.util.errors import KeyPromotionError, TypePromotionError
from weft._engine.util.source import is_own_arithmetic

# A node is a dtype, or a Python type for a weak dtype. An edge leads to a node to which the first is promoted.
Node = Any


def _lattice(strict: bool, x64: bool) -> dict[Node, set[Node]]:
    """Return the direct edges of the promotion lattice.

    Only weak numbers are promoted to dtypes of ml_dtypes, so the lattice without these dtypes gives the same results while ml_dtypes
    is not loaded."""
    names = {dtype.name: dtype for dtype in table.kinds}
    edges: dict[Node, set[Node]] = {dtype: set() for dtype in table.kinds}
    if strict:  # only weak numbers are promoted
        edges[int] = {*_of_kind("iu"), float}
        edges[float] = {*_of_kind("f"), complex}
        edges[complex] = {*_of_kind("c")}
        return edges
    edges[table.bool_dtype] = {int}
    edges[int] = {dtype for dtype in _of_kind("iu") if dtype.itemsize == 1}
    edges[float] = {*[dtype for dtype in _of_kind("f") if dtype.itemsize <= 2], complex}
    edges[complex] = {names["complex64"]}
    # Without 64-bit types the join of uint32 and a signed type is int32, because the lattice has no larger type.
    above_uint32 = names["int64"] if x64 else names["int32"]
    chain = (
        ("uint8", "int16"), ("uint8", "uint16"), ("uint16", "int32"), ("uint16", "uint32"), ("uint32", "uint64"),
        ("int8", "int16"), ("int16", "int32"), ("int32", "int64"),
        ("bfloat16", "float32"), ("float16", "float32"), ("float32", "float64"), ("float32", "complex64"),
        ("float64", "complex128"), ("complex64", "complex128"),
    )  # fmt: skip
    for low, high in chain:
        if low in names:
            edges[names[low]].add(names[high])
    edges[names["uint32"]].add(above_uint32)
    edges[names["uint64"]].add(float)
    edges[names["int64"]].add(float)
    return edges


def _of_kind(letters: str) -> list[np.dtype]:
    return [dtype for dtype, kind in table.kinds.items() if kind is not None and kind in letters]


class _UpperSets(dict[Node, frozenset[Node]]):
    """node -> all nodes to which it may be promoted, including itself; computed on first use."""

    def __init__(self, edges: dict[Node, set[Node]]) -> None:
        self.edges = edges

    def __missing__(self, node: Node) -> frozenset[Node]:
        upper = self[node] = frozenset({node}.union(*[self[above] for above in self.edges[node]]))
        return upper


# by (strict, x64, number of dtypes), created on first use
_upper: dict[tuple[bool, bool, int], _UpperSets] = {}


def _join(nodes: Iterable[Node], strict: bool, x64: bool) -> Node:
    """Return the least upper bound of nodes."""
    nodes = list(nodes)
    for node in nodes:
        table.kinds[node]  # loads ml_dtypes if necessary
    mode = strict, x64, len(table.kinds)
    upper = _upper.get(mode)
    if upper is None:
        upper = _upper[mode] = _UpperSets(_lattice(strict, x64))
    try:
        shared = frozenset.intersection(*[upper[node] for node in nodes])
    except KeyError as error:
        if error.args[0] == table.float0:
            raise TypeError(
                "float0s do not support any operations by design: they are the derivatives with respect to integers, zeros "
                "without a meaning."
            ) from None
        raise ValueError(
            f"{error.args[0]} is not a valid dtype of numbers, and takes no part in promotion"
        ) from None
    for node in shared:
        if upper[node] == shared:
            return node
    raise TypePromotionError(_no_join(nodes, strict))


def _no_join(nodes: list[Node], strict: bool) -> str:
    names = " and ".join(
        dict.fromkeys(f"a Python {n.__name__}" if isinstance(n, type) else n.name for n in nodes)
    )
    if strict:
        return (
            f"{names} are not promoted together while numpy_dtype_promotion is 'strict'. "
            "Cast one of them with .astype, or set numpy_dtype_promotion to 'standard'."
        )
    if any(table.kinds[node] in ("i", "u") and table.is_small(node) for node in nodes):
        rule = "integers below 8 bits promote only with Python ints"
    else:
        width = min(table.itemsize_bits(node) for node in nodes if isinstance(node, np.dtype))
        rule = f"{width}-bit floats do not support implicit promotion to another float"
    return f"{names} are not promoted together: {rule}. Cast one of them with .astype."


def _node(dtype: table.DType, weak: bool) -> Node:
    if not weak:
        return dtype
    kind = table.kind_of(dtype)
    return {"i": int, "u": int, "f": float, "c": complex}.get(kind, dtype)


_promoted: dict[tuple[Any, ...], np.dtype] = {}


def promote_types(a: table.DTypeLike, b: table.DTypeLike) -> table.DType:
    """Return the dtype to which both are promoted; Python's int, float and complex stand for weak numbers.

    >>> promote_types('int32', 'float16'), promote_types('bfloat16', 'float16'), promote_types('int8', int)
    (dtype('float16'), dtype('float32'), dtype('int8'))
    """
    return _promoted_pair(a, b, config.numpy_dtype_promotion)


def common_dtype(a: table.DTypeLike, b: table.DTypeLike) -> table.DType:
    """Return `promote_types(a, b)` by the standard rules, regardless of `numpy_dtype_promotion`, for ops with operands of mixed dtypes."""
    return _promoted_pair(a, b, "standard")


def _promoted_pair(a: table.DTypeLike, b: table.DTypeLike, mode: str) -> table.DType:
    key = (a, b, config.enable_x64, mode)
    try:
        return _promoted[key]
    except (KeyError, TypeError):
        pass
    x64 = key[2]
    nodes = [x if table.is_weak_type(x) else table.as_dtype(x) for x in (a, b)]
    if any(isinstance(node, table.ExtendedDType) for node in nodes):
        if nodes[0] == nodes[1]:
            return nodes[0]
        raise _key_error(nodes)
    result = _join(nodes, mode == "strict", x64)
    result = table.python_scalar_dtypes[result] if isinstance(result, type) else result
    try:
        _promoted[key] = result
    except TypeError:
        pass  # an unhashable spelling of a dtype
    return result


# Results are cached by the kinds of the arguments: the type of a Python number, the dtype of a dtype or an array, ("weak", dtype) for
# a weak array, and ("held", dtype) for an array of a 64-bit dtype while x64 is disabled, which keeps its dtype among arrays of the same
# dtype. If `explicit_x64_dtypes` allows 64-bit dtypes, it is ("kept", dtype), and keeps its dtype among all arrays.
_results: dict[tuple[bool, str], dict[tuple[Any, ...], tuple[table.DType, bool]]] = {}


class _Readers(dict):
    """type of an argument -> function that returns its part of the key."""

    def __missing__(self, type_: type) -> Callable[[Any], Any]:
        if issubclass(type_, (np.ndarray, np.generic)):
            reader = attrgetter("dtype")
        elif issubclass(type_, (np.dtype, table.ExtendedDType, type, str)) or type_ is type(None):
            reader = _itself
        else:
            reader = _read_array if hasattr(type_, "aval") else _read_value
        self[type_] = reader
        return reader


def _itself(x: Any) -> Any:
    return x


def _read_array(x: Any) -> Any:
    aval = x.aval
    if aval.weak_type:
        return "weak", aval.dtype
    canonical = table.canonicalize_dtype(aval.dtype)
    if canonical == aval.dtype:
        return canonical
    return "kept" if config.explicit_x64_dtypes == "allow" else "held", aval.dtype


def _read_value(x: Any) -> Any:
    return ("weak", table.dtype_of(x)) if table.is_weak(x) else table.dtype_of(x)


_readers = _Readers(dict.fromkeys(table.python_scalar_dtypes, type))


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """Return the dtype of an operation on the given values or dtypes, and with `return_weak_type_flag` also whether it is weak.

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
        pairs = tuple([_dtype_and_weak(part) for part in key])
        whole = any(type(part) is tuple and part[0] == "kept" for part in key)
        try:
            result = _results.setdefault(mode, {})[key] = _join_pairs(
                pairs, mode[0], mode[1] == "strict", whole
            )
        except TypePromotionError:
            if mode[1] != "strict" or not is_own_arithmetic():
                raise
            result = _join_pairs(pairs, mode[0], False, whole)
    return result if return_weak_type_flag else result[0]


def _dtype_and_weak(part: Any) -> tuple[table.DType, bool]:
    if part is None:
        return table.canonicalize_dtype(np.float64), False
    if type(part) is tuple:
        return (part[1], False) if part[0] != "weak" else (table.canonicalize_dtype(part[1]), True)
    return table.canonicalize_dtype(part), table.is_weak_type(part)


def join_dtypes(pairs: tuple[tuple[table.DType, bool], ...]) -> tuple[table.DType, bool]:
    """Join (canonical dtype, weak) pairs into one, as `result_type` does."""
    return _join_pairs(pairs, config.enable_x64, config.numpy_dtype_promotion == "strict")


_WIDEST = {
    "i": np.dtype("int64"),
    "u": np.dtype("uint64"),
    "f": np.dtype("float64"),
    "c": np.dtype("complex128"),
}


def _join_pairs(
    pairs: tuple[tuple[table.DType, bool], ...], x64: bool, strict: bool, whole: bool = False
) -> tuple[table.DType, bool]:
    """Join (dtype, weak) pairs. With `whole`, 64-bit dtypes are not truncated."""
    if not pairs:
        raise ValueError("result_type needs at least one array, number or dtype")
    # booleans are never weak because they have one width
    pairs = tuple([(dtype, weak and dtype != table.bool_dtype) for dtype, weak in pairs])
    first, weak = pairs[0][0], all(weak for _, weak in pairs)
    if not weak and all(dtype == first for dtype, _ in pairs):
        return first, False
    node = _join_weak(pairs, strict) if weak else None
    if node is None:
        node = _join_numbers(pairs, strict, x64)
    if isinstance(node, type):
        node, weak = table.python_scalar_dtypes[node], True
    return (node if whole and not weak else table.canonicalize_dtype(node)), weak


def _join_numbers(
    pairs: tuple[tuple[table.DType, bool], ...], strict: bool, x64: bool
) -> np.dtype | type:
    """Join the lattice nodes of (dtype, weak) pairs. Raises KeyPromotionError for keys."""
    dtypes = [dtype for dtype, _ in pairs]
    if any(isinstance(dtype, table.ExtendedDType) for dtype in dtypes):
        raise _key_error(dtypes)
    return _join([_node(dtype, weak) for dtype, weak in pairs], strict, x64)


def _key_error(dtypes: Iterable[Any]) -> KeyPromotionError:
    """Return the error for the promotion of keys with other dtypes."""
    return KeyPromotionError(
        f"{' and '.join(map(str, dtypes))} are not promoted together: a key is not a number. "
        "Derive keys with weft.random.split or weft.random.fold_in."
    )


def _join_weak(pairs: tuple[tuple[table.DType, bool], ...], strict: bool) -> np.dtype | None:
    """Return the widest dtype of weak numbers of one kind; None if the lattice must join them."""
    kinds = {table.kind_of(dtype) for dtype, _ in pairs}
    return None if len(kinds) > 1 or (strict and len(pairs) > 1) else _WIDEST[kinds.pop()]


def sum_dtype(lhs: np.dtype, rhs: np.dtype, out: np.dtype) -> np.dtype:
    """Return the compute dtype of a contraction; it represents both operands, and sums are rounded once to `out`.

    >>> sum_dtype(*map(np.dtype, ("float16", "float32", "int8"))), sum_dtype(*map(np.dtype, ("int32", "int32", "float32")))
    (dtype('float32'), dtype('float64'))
    """
    kinds = {table.kinds[lhs], table.kinds[rhs]}
    of_out = table.kinds[out]
    if of_out is None:
        raise TypeError(f"dtype {out} holds no numbers")
    if kinds <= set("biu") and of_out in "biu":
        if of_out != "b" and out.itemsize >= 4:
            return out
        return np.dtype(np.int64 if 8 in (lhs.itemsize, rhs.itemsize) else np.int32)
    is_double = any(_needs_double(x) for x in (lhs, rhs)) or (of_out in "fc" and _needs_double(out))
    if kinds <= set("biu"):
        is_double |= max(lhs.itemsize, rhs.itemsize) > 1  # products of 16-bit integers have 32 bits
    if "c" in kinds:
        return np.dtype(np.complex128 if is_double else np.complex64)
    return np.dtype(np.float64 if is_double else np.float32)


def _needs_double(dtype: np.dtype) -> bool:
    """Return whether float32 or complex64 cannot represent all numbers of a dtype."""
    return dtype.itemsize > {"c": 8, "f": 4}.get(table.kinds[dtype] or "", 2)
