"""Roots."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.ops.arithmetic import div, mul
from weft._engine.ops.families import FLOATING, INEXACT, function

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray


@function(
    INEXACT,
    np.sqrt,
    jvp=[lambda t, out, x: mul(t, div(0.5, out))],
    numpy="sqrt",
    cost=4,
    ulp=(0.5, 0.5),
    ranges=((0, 10),),
)
def sqrt(f: Formulas, x: FormulaValue):
    """Return the square root of `x`.

    >>> np.asarray(sqrt(np.array([4.0, 9.0]))).tolist()
    [2.0, 3.0]
    """
    return f.sqrt(x)


def _rsqrt_reference(x: NumPyArray) -> NumPyArray:
    return np.divide(np.ones((), x.dtype), np.sqrt(x))


@function(
    INEXACT,
    _rsqrt_reference,
    jvp=[lambda t, out, x: mul(t, mul(-0.5, div(out, x)))],
    cost=4,
    ulp=(2, 2),
    ranges=((0, 10),),
)
def rsqrt(f: Formulas, x: FormulaValue):
    """Return `1 / sqrt(x)`."""
    return 1.0 / f.sqrt(x)


@function(
    FLOATING,
    np.cbrt,
    jvp=[lambda t, out, x: mul(t, div(div(1 / 3, out), out))],
    numpy="cbrt",
    ulp=(1, 1.5),
    ranges=((-10, 10),),
    points=(1.0, 8.0, 27.0),
)
def cbrt(f: Formulas, x: FormulaValue):
    """Return the cube root of `x`, with the sign of `x`."""
    size = f.abs(x)
    k, m = f.split(size)
    third = f.fma(k, 1.0 / 3.0, f.magic) - f.magic
    remainder = f.fma(third, -3.0, k)
    # a first 1 / cbrt; the one of 2^remainder is a quadratic polynomial through the three cases
    z = f.poly(m, "rcbrt") * f.horner(remainder, _RCBRT_OF_POWER)
    m = f.scale(m, remainder)
    if f.wide:
        e = f.fma(-(m * z) * z, z, 1.0)
        z = f.fma(z * e, f.fma(e, 2.0 / 9.0, 1.0 / 3.0), z)
    y = m * (z * z)
    e = f.exact_fma(-y, z, f.c(1.0))
    y = f.fma(y * e, f.fma(e, 5.0 / 9.0, 2.0 / 3.0), y)
    return f.copysign(f.at_special_arguments(f.scale(y, third), size, zero=0.0, infinite=inf), x)


#: 2^(-r/3) for r = -1, 0, 1
_RCBRT_OF_POWER = (0.02681078747420308, -0.23311026254906957, 1.0)
