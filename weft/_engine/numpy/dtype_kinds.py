"""Kinds of numbers: predicates by which elementwise functions choose an operation."""

from __future__ import annotations

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import elementwise as ew
from weft._engine.util import dtypes


def dtype_of(x):
    """Return the dtype of an operand as operations take it.

    Without x64, NumPy's 64-bit values count as 32-bit ones.
    """
    return x.dtype if hasattr(type(x), "aval") else typeof(x).dtype


def is_bool(x) -> bool:
    return dtype_of(x) == np.bool_


def is_complex(x) -> bool:
    return dtypes.issubdtype(dtype_of(x), np.complexfloating)


def is_int(x) -> bool:
    return dtypes.issubdtype(dtype_of(x), np.integer)


def is_unsigned(x) -> bool:
    return dtypes.issubdtype(dtype_of(x), np.unsignedinteger)


def check_real(api: str, *args) -> None:
    """Raise ValueError if an argument is complex."""
    for x in args:
        if is_complex(x):
            raise ValueError(
                f"wnp.{api} is not well defined for complex-valued inputs, got {typeof(x).str_short()}."
            )


def magnitude(x):
    """Return the absolute value; for bools and unsigned integers, `x` itself."""
    return x if is_bool(x) or is_unsigned(x) else ew.abs(x)


def truth(x):
    """Return whether `x` is not zero."""
    return x if is_bool(x) else ew.ne(x, 0)


def sign_bit(x):
    """Return whether the sign bit of real floats is set, including -0.0 and NaN."""
    check_real("signbit", x)
    signed = np.dtype(f"int{8 * x.dtype.itemsize}")
    return ew.lt(ew.bitcast_convert_type(x, signed), signed.type(0))


def check_no_out(out, api: str, error: type[Exception] = NotImplementedError) -> None:
    """Raise an error for an `out` array."""
    if out is not None:
        raise error(
            f"The 'out' argument to weft.numpy.{api} is not supported: arrays are immutable."
        )
