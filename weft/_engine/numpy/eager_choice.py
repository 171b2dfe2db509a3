"""Public functions whose compiled form depends on the arguments."""

from __future__ import annotations

import functools
from typing import Any

from weft._engine.api.jit import eager_jit
from weft._engine.core.trace import typeof
from weft._engine.numpy import creation, promote, selection, ufuncs
from weft._engine.runtime.array import Array
from weft._engine.util.source import (
    api_boundary,
    array_method,
    clean_method_error,
    is_own_arithmetic,
    warn_user,
)

_power_by_constant = eager_jit(ufuncs.power, (0,))
_power = eager_jit(ufuncs.power, (0, 1))
_select = api_boundary(selection.where, "where")
_where = eager_jit(selection.where, (0, 1, 2))
_astype = eager_jit(creation.astype, (0,))


def power(x, y, /):
    """Return x to the power y; an integer constant y is computed by repeated squaring.

    >>> wnp.power(wnp.arange(4.), 2)
    Array([0., 1., 4., 9.], dtype=float32)
    """
    exponent = ufuncs.constant_int(y)
    return _power(x, y) if exponent is None else _power_by_constant(x, exponent)


def pow(x, y, /):  # noqa: A001
    """See `power`."""
    return power(x, y)


@functools.wraps(selection.where, updated=())
def where(
    condition, x=None, y=None, /, *, size=None, fill_value=None
) -> Any:  # an array; with one argument, a tuple of arrays
    if x is None or y is None:
        try:
            return _select(condition, x, y, size=size, fill_value=fill_value)
        except Exception as error:
            clean_method_error(error)
            raise
    return _where(condition, x, y)


@array_method
def astype(x, dtype, /, *, copy: bool = False, device=None):
    """Convert `x` to `dtype`; the shape is unchanged.

    If the dtype is unchanged, the result is `x` itself, or a copy if `copy` is true.

    Floats are truncated toward zero on the way to integers, and complex numbers lose their
    imaginary parts on the way to real ones. Raises TypeError unless `x` is an array or number and
    `dtype` a dtype; DeprecationWarning for complex numbers cast to real ones.

    >>> wnp.astype(wnp.array([1.7, -1.7]), "int32")
    Array([ 1, -1], dtype=int32)
    """
    promote.check_arraylike("astype", x)
    out_dtype, have = creation.cast_dtype(dtype), typeof(promote.value(x))
    if creation.loses_imaginary(have.dtype, out_dtype) and not is_own_arithmetic():
        warn_user(
            f"Casting from complex to real dtypes is deprecated, since it drops imaginary parts: astype({out_dtype.name}) of "
            f"{have.dtype.name}. Use weft.numpy.real(x) first.",
            DeprecationWarning,
        )
    if (
        type(x) is Array
        and have.dtype == out_dtype
        and not have.weak_type
        and not copy
        and device is None
    ):
        return x
    return _astype(x, out_dtype, copy=copy, device=device)
