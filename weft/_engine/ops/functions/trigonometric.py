"""Trigonometric functions and their inverses.

Arguments are reduced by multiples of pi in three parts, which is exact enough below `_LIMIT`; the
rare lanes beyond it call the C library.
"""

from __future__ import annotations

from math import inf, nan, pi
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.ops.arithmetic import add, div, mul, neg, square, sub
from weft._engine.ops.families import FLOATING, INEXACT, function
from weft._engine.ops.functions.roots import rsqrt

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue

_PI = {
    "f32": (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    "f64": (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}

_LIMIT = {"f32": 2.0**16, "f64": 2.0**24}

#: below this argument the cosine rounds to 1, which the shifted sine may miss by a bit
_COSINE_IS_ONE = {"f32": 2.0**-12, "f64": 2.0**-27}

#: above this magnitude the sum of two coordinates may overflow; the error of a quarter of the other
#: one is then negligible
_SUM_OVERFLOWS = {"f32": 2.0**120, "f64": 2.0**1020}

_HALF_PI = pi / 2

#: the rounding errors of pi/2 and pi/4
_HALF_PI_LOW = {"f32": -4.371139000186241e-08, "f64": 6.123233995736766e-17}

_TURNS = ((-4, 4), (-100, 100), (-1e4, 1e4), (-1e7, 1e7))
_QUARTERS = (*[k * 0.7853981633974483 for k in range(-8, 9)], 65536.0, 2.0**24)


def _subtract_pi(f: Formulas, x: FormulaValue, k: FormulaValue, scale: float):
    """Return x - k * scale * pi for small integers k."""
    first, second, third = _PI[f.type]
    r = f.exact_fma(k, f.c(-first * scale), x)
    r = f.exact_fma(k, f.c(-second * scale), r)
    return f.fma(k, -third * scale, r)


def _half_turn_sine(f: Formulas, r: FormulaValue, flip: FormulaValue):
    """Return sin(r) for |r| <= pi/2, negated where the low bit of `flip` is set."""
    square = r * r
    y = f.fma(r * square, f.poly(square, "sin"), r)
    if f.type == "f64":
        y = f.clamp(y, -1.0, 1.0)  # near the maximum the last rounding may exceed 1, except in f32
    return f.from_bits(f.to_bits(y) ^ (f.to_bits(flip) << (f.bits - 1)))


def _beyond(f: Formulas, function: str, x: FormulaValue, y: FormulaValue):
    y = f.with_rare_case(y, f.abs(x) > _LIMIT[f.type], function, x)
    return f.select(x.same(0.0), x, y) if function != "cos" else y


@function(
    INEXACT,
    np.sin,
    jvp=[lambda t, out, x: mul(t, cos(x))],
    numpy="sin",
    ulp=(2, 2),
    ranges=_TURNS,
    points=_QUARTERS,
)
def sin(f: Formulas, x: FormulaValue):
    """Return the sine of `x` in radians.

    Raise TypeError for dtypes that are not floating or complex.

    >>> float(sin(np.float32(0.0)))
    0.0
    """
    shifted = f.fma(x, 1 / pi, f.magic)
    r = _subtract_pi(f, x, shifted - f.magic, 1.0)
    return _beyond(f, "sin", x, _half_turn_sine(f, r, shifted))


@function(
    INEXACT,
    np.cos,
    jvp=[lambda t, out, x: neg(mul(t, sin(x)))],
    numpy="cos",
    ulp=(2, 2),
    ranges=_TURNS,
    points=_QUARTERS,
)
def cos(f: Formulas, x: FormulaValue):
    """Return the cosine of `x` in radians.

    Raise TypeError for dtypes that are not floating or complex.

    >>> float(cos(np.float32(0.0)))
    1.0
    """
    # the sine shifted by a quarter turn, so reduced by odd multiples of pi/2
    shifted = f.fma(x, 1 / pi, -0.5) + f.magic
    odd = f.fma(shifted - f.magic, 2.0, 1.0)
    r = _subtract_pi(f, x, odd, 0.5)
    y = f.select(f.abs(x) < _COSINE_IS_ONE[f.type], 1.0, -_half_turn_sine(f, r, shifted))
    return _beyond(f, "cos", x, y)


@function(
    INEXACT,
    np.tan,
    jvp=[lambda t, out, x: mul(t, add(1, square(out)))],
    numpy="tan",
    ulp=(2.5, 2.5),
    ranges=_TURNS,
    points=_QUARTERS,
)
def tan(f: Formulas, x: FormulaValue):
    """Return the tangent of `x` in radians."""
    shifted = f.fma(x, 2 / pi, f.magic)
    r = _subtract_pi(f, x, shifted - f.magic, 0.5)
    square = r * r
    swap = (f.to_bits(shifted) & 1).same(1)
    y = f.fma(r * square, f.poly(square, "tan"), r)
    y = f.select(swap, -1.0 / y, y)
    return _beyond(f, "tan", x, y)


def _arc(f: Formulas, top: FormulaValue, bottom: FormulaValue):
    """Return atan(top / bottom) for top, bottom >= 0, not both zero or infinite."""
    swap = top > bottom
    small, large = f.select(swap, bottom, top), f.select(swap, top, bottom)
    steep = small > large * 0.4142135623730951
    q = f.select(steep, small - large, small) / f.select(steep, small + large, large)
    square = q * q
    y = f.fma(q * square, f.poly(square, "atan"), q)
    low = _HALF_PI_LOW[f.type]
    y = f.select(steep, _HALF_PI / 2 + (y + low / 2), y)
    return f.select(swap, _HALF_PI - (y - low), y)


@function(
    INEXACT,
    np.arctan,
    jvp=[lambda t, out, x: div(t, add(1, square(x)))],
    numpy="arctan atan",
    on_complex="atan",
    ulp=(2.5, 2.5),
    ranges=((-4, 4), (0.4, 0.5)),
    points=(0.4142135623730951, 2.414213562373095),
)
def atan(f: Formulas, x: FormulaValue):
    """Return the angle between -pi/2 and pi/2 whose tangent is `x`."""
    size = f.abs(x)
    y = _arc(f, size, f.c(1.0))
    return f.copysign(f.select(x.is_nan(), x, y), x)


@function(
    FLOATING,
    np.arctan2,
    jvp=[
        lambda t, out, x, y: mul(t, div(y, add(square(x), square(y)))),
        lambda t, out, x, y: mul(t, div(neg(x), add(square(x), square(y)))),
    ],
    numpy="arctan2 atan2",
    ulp=(2.5, 2.5),
    ranges=((-10, 10), (-1e-3, 1e3), (-3.3e38, 3.3e38)),
)
def atan2(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return the angle of the point (y, x): of `x / y`, in the right quadrant."""
    top, bottom = f.abs(x), f.abs(y)
    huge = (top > _SUM_OVERFLOWS[f.type]) | (bottom > _SUM_OVERFLOWS[f.type])
    scale = f.select(huge, f.c(0.25), 1.0)
    top, bottom = top * scale, bottom * scale
    both_infinite = top.same(bottom) & (top.same(inf) | top.same(0.0))
    zero = top.same(0.0)
    # two equal infinities have slope one; two zeros are on the axis
    angle = _arc(
        f,
        f.select(both_infinite, f.select(zero, f.c(0.0), 1.0), top),
        f.select(both_infinite, 1.0, bottom),
    )
    low = _HALF_PI_LOW[f.type]
    turned = pi - (angle - 2 * low)
    angle = f.select(f.to_bits(y) < 0, turned, angle)
    angle = f.select(y.is_nan() | x.is_nan(), nan, angle)
    return f.copysign(angle, x)


def _arc_sine_parts(f: Formulas, x: FormulaValue):
    """Return (large, p, s) with asin(s) = s + p; where |x| > 1/2, s = sqrt((1 - |x|) / 2)."""
    size = f.abs(x)
    large = size > 0.5
    square = f.select(large, (1.0 - size) * 0.5, size * size)
    s = f.select(large, f.sqrt(square), size)
    return large, s * square * f.poly(square, "asin"), s


@function(
    INEXACT,
    np.arcsin,
    jvp=[lambda t, out, x: mul(t, rsqrt(sub(1, square(x))))],
    numpy="arcsin asin",
    ulp=(2.5, 2.5),
    on_complex="asin",
    ranges=((-1, 1),),
    points=(0.5, -0.5),
)
def asin(f: Formulas, x: FormulaValue):
    """Return the angle between -pi/2 and pi/2 whose sine is `x`."""
    large, p, s = _arc_sine_parts(f, x)
    low = _HALF_PI_LOW[f.type]
    return f.copysign(f.select(large, (_HALF_PI - 2.0 * s) - (2.0 * p - low), s + p), x)


@function(
    INEXACT,
    np.arccos,
    jvp=[lambda t, out, x: neg(mul(t, rsqrt(sub(1, square(x)))))],
    numpy="arccos acos",
    ulp=(2, 2),
    on_complex="acos",
    ranges=((-1, 1), (0.99, 1)),
    points=(0.5, -0.5),
)
def acos(f: Formulas, x: FormulaValue):
    """Return the angle between 0 and pi whose cosine is `x`."""
    large, p, s = _arc_sine_parts(f, x)
    low = _HALF_PI_LOW[f.type]
    double = 2.0 * (s + p)
    negative = x < 0.0
    signed_p, signed_s = f.copysign(p, x), f.copysign(s, x)
    middle = _HALF_PI - (signed_s - (low - signed_p))
    far = f.select(negative, pi - (double - 2 * low), double)
    return f.select(large, far, middle)
