"""Mutable arrays for users: functions that create, read, write and free references."""

from __future__ import annotations

from typing import Any

from weft._engine.api.execute import to_array
from weft._engine.control.hijax_types import ValueRef, is_value, lower_value
from weft._engine.control.ref import AbstractRef, Ref, TransformedRef, free
from weft._engine.core.trace import Tracer, current_trace, eval_trace, typeof as typeof_array
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.elementwise import convert_element_type
from weft._engine.ops.families import zeros

KINDS = (None, "no_grad_no_remat")
_WRITABLE = (Ref, TransformedRef)


def new_ref(
    init_val: Any, *, memory_space: Any = None, kind: str | None = None, pin: bool = False
) -> Ref | ValueRef:
    """Return a reference to a mutable array with the initial value `init_val`, of its shape and dtype; or to a value of a `HiType`.

    With `kind="no_grad_no_remat"`, values that are being differentiated may be written; their derivatives are not. `memory_space` is a
    hint to the compiler, without effect on CPUs; `pin` has no effect.
    Raises TypeError if `init_val` is not an array, ValueError if it is a reference, NotImplementedError for a memory space outside of
    programs.

    >>> ref = weft.new_ref(wnp.arange(3))
    >>> ref[1] += 5
    >>> ref[...].tolist(), ref.shape
    ([0, 6, 2], (3,))
    """
    _check_memory_space("new_ref", memory_space)
    if not isinstance(kind, str | None) or kind not in KINDS:
        raise ValueError(f"new_ref: kind must be one of {KINDS}, got {kind!r}.")
    if isinstance(init_val, (Ref, ValueRef)):
        raise ValueError(
            f"new_ref: references to references are not possible, got {init_val.type}. Read it first: ref[...]."
        )
    if is_value(init_val):
        high_type: Any = typeof_array(init_val)
        parts = [_ref_of_array(x, kind) for x in lower_value(init_val, "new_ref")]
        return ValueRef(high_type, parts)
    return _ref_of_array(init_val, kind)


def _ref_of_array(init_val: Any, kind: str | None) -> Ref:
    value = init_val if isinstance(init_val, Tracer) else to_array(init_val)
    aval = typeof_array(value)
    return Ref.make(
        convert_element_type(value, aval.dtype) if aval.weak_type else value,
        no_grad=kind is not None,
    )


def empty_ref(ty: Any, memory_space: Any = None) -> Ref | ValueRef:
    """Return a reference to a mutable array of the type `ty`, initially zeros.

    `ty` is any object with a shape and a dtype, or a `HiType`: its arrays are then zeros. `memory_space` is as for `new_ref`.

    >>> weft.empty_ref(weft.ShapeDtypeStruct((2,), 'int32'))
    Ref([0, 0], dtype=int32)
    """
    _check_memory_space("empty_ref", memory_space)
    if getattr(ty, "is_high", False):
        return ValueRef(ty, list(map(_ref_to_zeros, ty.lo_ty())))
    if isinstance(ty, type) or not hasattr(ty, "shape") or not hasattr(ty, "dtype"):
        raise TypeError(
            f"empty_ref: `ty` must have a shape and a dtype, got {ty!r:.60}. Use weft.ShapeDtypeStruct(shape, dtype)."
        )
    return _ref_to_zeros(ty)


def _ref_to_zeros(ty: Any) -> Ref:
    value = zeros(
        ShapedArray(
            tuple(ty.shape),
            ty.dtype,
            sharding=getattr(ty, "sharding", None) if isinstance(ty, ShapedArray) else None,
        )
    )
    return Ref.make(value if isinstance(value, Tracer) else to_array(value))


def _check_memory_space(api: str, memory_space: Any) -> None:
    if memory_space is not None and current_trace() is eval_trace:
        raise NotImplementedError(
            f"{api}: a reference with a memory space, {memory_space!r}, is for programs: it works inside of a jitted "
            "function only. Leave memory_space out."
        )


def freeze(ref: Ref | ValueRef) -> Any:
    """Invalidate a reference and return its final value; raise ValueError if it was created outside of the function being traced.

    >>> weft.freeze(weft.new_ref(2.0)).item()
    2.0
    """
    return ref.free() if isinstance(ref, ValueRef) else free(_check(ref, "freeze"))


def free_ref(ref: Ref | ValueRef) -> None:
    """Invalidate a reference; raise ValueError if it was created outside of the function being traced.

    >>> weft.free_ref(weft.new_ref(2.0))
    """
    freeze(ref) if isinstance(ref, ValueRef) else free(_check(ref, "free_ref"))


def get(ref: Ref, idx: Any = ...) -> Any:
    """Return `ref[idx]`.

    >>> weft.ref.get(weft.new_ref(wnp.arange(3)), 1).item()
    1
    """
    return _check(ref, "get", (*_WRITABLE, ValueRef))[idx]


def set(ref: Ref, idx: Any, value: Any) -> None:
    """Set `ref[idx] = value`; raise ValueError for another shape or dtype.

    >>> ref = weft.new_ref(wnp.arange(3))
    >>> weft.ref.set(ref, slice(1, 3), 7)
    >>> ref[...].tolist()
    [0, 7, 7]
    """
    _check(ref, "set", _WRITABLE).set(value, idx=idx)


def swap(ref: Ref, idx: Any, value: Any, _function_name: str = "swap") -> Any:
    """Set `ref[idx] = value` and return the old value. Errors name `_function_name`.

    >>> weft.ref.swap(weft.new_ref(wnp.arange(3)), 2, 9).item()
    2
    """
    return _check(ref, _function_name, _WRITABLE).swap(value, idx=idx)


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """Add `x` to `ref[idx]`; the values of repeated indices add up.

    >>> ref = weft.new_ref(wnp.zeros(2))
    >>> weft.ref.addupdate(ref, np.array([1, 1]), 3.0)
    >>> ref[...].tolist()
    [0.0, 6.0]
    """
    _check(ref, "addupdate", _WRITABLE).addupdate(x, idx=idx)


def typeof(x: Any) -> ShapedArray | AbstractRef:
    """Return the type of a tracer, an Array, a NumPy array or scalar, a Python scalar (weakly typed), or a reference.

    Raises TypeError for values that have no type.

    >>> weft.typeof(2.0)
    ShapedArray(float32[], weak_type=True)
    """
    return x.type if isinstance(x, (Ref, ValueRef)) else typeof_array(x)


def _check(ref: Any, api: str, kinds: type | tuple[type, ...] = Ref) -> Any:
    if not isinstance(ref, kinds):
        raise TypeError(
            f"{api}: `ref` must be a reference to a mutable array, got {type(ref)}. Make one with weft.new_ref."
        )
    return ref
