"""Types of values, effects and tokens, for libraries.

In, out: avals (`ShapedArray`), dtypes, values.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from weft._engine.control.hijax_types import AbstractValue
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.lax.tokens import Token as Token
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes, errors

Value = Any


class AbstractToken(AbstractValue):
    """The type of a token."""

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        return "Tok"

    def to_tangent_aval(self) -> "AbstractToken":
        return self

    to_ct_aval = to_tangent_aval


class Effect:
    """Base class of the effects of a primitive: see `Primitive.def_effectful_abstract_eval`."""


Effects = Set[Effect]
no_effects: frozenset = frozenset()

#: the Python types of arrays and of values that are accepted as arrays
array_types: set[type] = {
    Array,
    np.ndarray,
    *{t for t in np.sctypeDict.values() if issubclass(t, (np.number, np.bool_))},
}


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """Return the type of one element along `axis`, of size `size`, of a value of type `aval`; return `aval` for axis None.

    Raises TypeError if the dim does not have that size.

    >>> mapped_aval(3, 0, weft.typeof(wnp.ones((3, 2))))
    ShapedArray(float32[2])
    """
    if axis is None:
        return aval
    if not 0 <= axis < aval.ndim or aval.shape[axis] != size:
        raise TypeError(f"mapped_aval: {aval.str_short()} has no dim {axis} of size {size}.")
    return aval.without_dim(axis)


def unmapped_aval(
    size: int, axis: int | None, aval: ShapedArray, explicit_mesh_axis: Any = None
) -> ShapedArray:
    """Return the type of `size` values of type `aval` stacked along `axis`; return `aval` for axis None.

    >>> unmapped_aval(3, 1, weft.typeof(wnp.ones(2)))
    ShapedArray(float32[2,3])
    """
    axes = (
        ()
        if explicit_mesh_axis is None
        else explicit_mesh_axis
        if isinstance(explicit_mesh_axis, tuple)
        else (explicit_mesh_axis,)
    )
    return aval if axis is None else aval.with_dim(axis, size, axes)


def valid_jaxtype(x: Any) -> bool:
    """Return True if `x` is an array, a number, or a traced value.

    >>> valid_jaxtype(1.5), valid_jaxtype("text")
    (True, False)
    """
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def is_concrete(x: Any) -> bool:
    """Return True if the value of `x` is known: `x` is not traced, or traced only by differentiation."""
    return not isinstance(x, Tracer) or x.concrete() is not None


def concrete_or_error(force: Callable | None, val: Any, context: str = "") -> Any:
    """Return `force(val)`, or `val` without `force`. Raise ConcretizationTypeError, with `context`, for a traced value.

    >>> concrete_or_error(int, 3.0)
    3
    """
    if isinstance(val, Tracer):
        value = val.concrete()
        if value is None:
            raise errors.ConcretizationTypeError(
                errors.describe(
                    "concrete_or_error",
                    f"a concrete value is needed, got {val.describe()}: {val.why_no_value}.",
                    [context] if context else (),
                    getattr(val, "source", None),
                    "Pass it as a static argument, or compute it outside of what is traced.",
                )
            )
        val = value
    return val if force is None else force(val)


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> np.dtype:
    """Return the dtype of tangents of values of a dtype: `float0` unless the dtype is floating or complex.

    >>> primal_dtype_to_tangent_dtype(np.dtype("float32")), primal_dtype_to_tangent_dtype(np.dtype("int32")) == weft.float0
    (dtype('float32'), True)
    """
    return primal_dtype if dtypes.issubdtype(primal_dtype, np.inexact) else dtypes.float0
