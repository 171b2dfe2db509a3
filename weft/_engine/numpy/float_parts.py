"""Parts of floating-point numbers: mantissas and exponents, gaps between neighbors, replacement of
NaN and infinities.
"""

from __future__ import annotations

import math

import numpy as np

from weft._engine.numpy.dtype_kinds import (
    check_real,
    dtype_of,
    is_bool,
    is_complex,
    is_int,
    sign_bit,
)
from weft._engine.numpy.promote import (
    array_of,
    broadcast,
    cast,
    check_arraylike,
    concrete,
    inexact,
    value,
)
from weft._engine.ops import elementwise as ew
from weft._engine.ops.comparison import select
from weft._engine.util import dtypes


def ldexp(x, n, /):
    """Return x * 2**n."""
    check_arraylike("ldexp", x, n)
    x, n = inexact("ldexp", value(x)), concrete(value(n))
    if not (is_int(n) or is_bool(n)) or is_complex(x):
        raise ValueError(
            f"ldexp takes a real number and an integer, got {dtype_of(x).name} and {dtype_of(n).name}."
        )
    x, n = broadcast("ldexp", x, cast(n, np.dtype(np.int32)))
    half = ew.shift_right_arithmetic(n, 1)  # in two steps, since 2**n itself may overflow
    scale = lambda k: ew.exp2(cast(k, dtype_of(x)))
    scaled = ew.mul(ew.mul(x, scale(half)), scale(ew.sub(n, half)))
    # a scale of 0 or inf would turn these into NaN
    plain = ew.bitwise_or(ew.eq(x, 0), ew.bitwise_not(ew.is_finite(x)))
    return select(plain, x, scaled)


def frexp(x, /):
    """Return mantissa in [0.5, 1) and exponent: `x == mantissa * 2**exponent`."""
    x = inexact("frexp", x)
    if is_complex(x):
        raise TypeError("frexp is not defined for complex numbers.")
    dtype = dtype_of(x)
    x = cast(concrete(x), dtype)
    info = dtypes.finfo(dtype)
    bits, mantissa = 8 * dtype.itemsize, int(info.nmant)
    unsigned = np.dtype(f"uint{bits}")
    tiny = ew.lt(ew.abs(x), float(info.smallest_normal))
    word = ew.bitcast_convert_type(select(tiny, ew.mul(x, 2.0 ** (mantissa + 2)), x), unsigned)
    ones = (1 << (bits - 1 - mantissa)) - 1
    field = ew.bitwise_and(ew.shift_right_logical(word, mantissa), ones)
    exponent = ew.sub(cast(field, np.dtype(np.int32)), ones // 2 - 1)
    exponent = ew.sub(exponent, select(tiny, np.int32(mantissa + 2), 0))
    half = ew.bitwise_or(
        ew.bitwise_and(word, unsigned.type(~(ones << mantissa) & ((1 << bits) - 1))),
        unsigned.type((ones // 2 - 1) << mantissa),
    )
    plain = ew.bitwise_or(ew.eq(x, 0), ew.bitwise_not(ew.is_finite(x)))
    exponent = select(plain, 0, exponent)
    slope = ldexp(np.ones((), dtype), ew.min(ew.neg(exponent), np.int32(info.maxexp - 1)))
    # zero, whose derivative the bits do not give
    nothing = ew.mul(ew.sub(x, ew.stop_gradient(x)), slope)
    return select(plain, x, ew.add(ew.bitcast_convert_type(half, dtype), nothing)), exponent


def spacing(x, /):
    """Return the distance to the next number away from zero, with the sign of x.

    In float16 it is the distance to the next larger number, as in NumPy.
    """
    x = inexact("spacing", x)
    check_real("spacing", x)
    x = cast(concrete(x), dtype_of(x))
    toward = (
        cast(math.inf, x.dtype)
        if x.dtype == np.float16
        else select(sign_bit(x), cast(-math.inf, x.dtype), math.inf)
    )
    gap = ew.sub(ew.nextafter(x, toward), x)
    return select(ew.is_finite(x), gap, math.nan)


def nan_to_num(x, copy: bool = True, nan: float = 0.0, posinf=None, neginf=None):
    """Return `x` with NaN replaced by `nan` and infinities by `posinf` and `neginf`.

    By default these are the largest finite numbers.
    """
    x = array_of("nan_to_num", x)
    dtype = x.dtype
    if not dtypes.issubdtype(dtype, np.inexact):
        return x
    if is_complex(x):
        return ew.complex(
            *[nan_to_num(part, copy, nan, posinf, neginf) for part in (ew.real(x), ew.imag(x))]
        )
    info = dtypes.finfo(dtype)
    x = cast(x, dtype)
    x = select(ew.ne(x, x), cast(nan, dtype), x)
    x = select(ew.eq(x, math.inf), cast(info.max if posinf is None else posinf, dtype), x)
    return select(ew.eq(x, -math.inf), cast(info.min if neginf is None else neginf, dtype), x)
