"""Exponentials and hyperbolic functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.ops.arithmetic import add, mul, square, sub
from weft._engine.ops.families import INEXACT, function

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray

LOG2E = 1.4426950408889634

#: log(2) in parts; the products of the first part with small integers are exact
LN2 = {
    "f32": (0.693359375, -2.12194440054690583e-4),
    "f64": (0.6931471803691238, 1.9082149292705877e-10),
}

EXP_RANGE = {"f32": (-105.0, 89.0), "f64": (-746.0, 710.0)}

#: at this argument sinh is infinite, but a quarter of exp is finite
_SINH_TOP = {"f32": 89.5, "f64": 710.6}

#: at this argument tanh rounds to one
_TANH_IS_ONE = {"f16": 5.0, "bf16": 4.0}

#: scale of the terms of a quotient whose denominator must not overflow before the result is zero
_LOGISTIC_SCALE = 2.0**-16

EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}

OVERFLOWS = (88.722839, 709.782712893384, -87.33655, -103.972, -708.396418532264, -745.1332191)
EXPONENTS = ((-110, 95), (-1, 1), (-750, 715))


def _reduce(f: Formulas, x: FormulaValue):
    """Return (k + magic, e^r - 1) with x = k log(2) + r."""
    shifted = f.fma(x, LOG2E, f.magic)
    k = shifted - f.magic
    high, low = LN2[f.type]
    r = f.fma(k, -(high + low), x) if f.short else f.fma(k, -low, f.fma(k, -high, x))
    return shifted, f.fma(r * r, f.poly(r, "exp"), r)


@function(
    INEXACT,
    np.exp,
    jvp=[lambda t, out, x: mul(t, out)],
    numpy="exp",
    brief=True,
    ulp=(1.5, 1.5),
    ranges=EXPONENTS,
    points=OVERFLOWS,
)
def exp(f: Formulas, x: FormulaValue):
    """Return e to the power `x`."""
    return exp_within(f, x if f.brief else f.clamp(x, *EXP_RANGE[f.type]))


def exp_within(f: Formulas, x: FormulaValue):
    """Return e^x where it is neither zero nor infinite, or slightly beyond."""
    if f.brief:
        return f.brief_power(x * LOG2E)
    shifted, small = _reduce(f, x)
    return f.ldexp(small + 1.0, shifted)


@function(
    INEXACT,
    np.exp2,
    jvp=[lambda t, out, x: mul(mul(t, math.log(2)), out)],
    numpy="exp2",
    on_complex="exp2",
    brief=True,
    ulp=(1.5, 1.5),
    ranges=((-155, 130), (-1, 1), (-1080, 1030)),
    points=(128.0, 1024.0, -126.0, -150.0, -1022.0, -1075.0),
)
def exp2(f: Formulas, x: FormulaValue):
    """Return 2 to the power `x`."""
    if f.brief:
        return f.brief_power(x)
    x = f.clamp(x, *EXP2_RANGE[f.type])
    shifted = x + f.magic
    r = x - (shifted - f.magic)
    return f.ldexp(f.fma(r, f.poly(r, "exp2"), 1.0), shifted)


@function(
    INEXACT,
    np.expm1,
    jvp=[lambda t, out, x: mul(t, add(out, 1))],
    numpy="expm1",
    ulp=(2, 2),
    ranges=(*EXPONENTS, (-1e-5, 1e-5)),
    points=OVERFLOWS,
)
def expm1(f: Formulas, x: FormulaValue):
    """Return `exp(x) - 1`, accurate near 0."""
    low, high = EXP_RANGE[f.type]
    shifted, small = _reduce(f, f.clamp(x, low / 2, high))
    k = shifted - f.magic
    bounded = f.select(k > f.bias - 1, f.bias - 1, k)
    scale = f.power_of_two(f.to_bits(bounded + f.magic) - f.magic_bits)
    near = f.fma(scale, small, scale - 1.0)
    far = f.ldexp(small + 1.0, shifted)
    y = f.select(k > 2.0 * f.mantissa / 2 + 8, far, near)
    return f.select(x.same(0.0), x, y)


def _expm1_of_double(f: Formulas, x: FormulaValue):
    """Return e^2x - 1 for -25 <= x <= 0; zero may lose its sign."""
    # the sum has k in the exponent position of its low bits
    magic = f.magic + f.bias
    shifted = f.fma(x, 2.0 * LOG2E, magic)
    k = shifted - magic
    high, low = LN2[f.type]
    # for large k its rounded product changes e^2x, which is then small compared with one
    r = f.fma(k, -(high + low), x + x)
    scale = f.from_bits(f.to_bits(shifted) << f.mantissa)
    return f.fma(scale, f.fma(r * r, f.poly(r, "exp"), r), scale - 1.0)


def _half_exp(f: Formulas, x: FormulaValue):
    """Return e^x / 2 for x >= 0, with no overflow of intermediate values."""
    shifted, small = _reduce(f, f.clamp(x, 0.0, EXP_RANGE[f.type][1] + 1.0))
    return f.ldexp(small + 1.0, shifted - 1.0)


@function(
    INEXACT,
    np.sinh,
    jvp=[lambda t, out, x: mul(t, cosh(x))],
    numpy="sinh",
    ulp=(2.5, 2.5),
    ranges=EXPONENTS,
    points=(*OVERFLOWS, 30.0, 89.415986, 710.475860073944),
)
def sinh(f: Formulas, x: FormulaValue):
    """Return the hyperbolic sine of `x`."""
    size = f.abs(x)
    top = _SINH_TOP[f.type]
    # a quarter of e^|x| - 1 does not overflow where the result does not
    shifted, small = _reduce(f, f.select(size > top, top, size))
    scale = f.power_of_two(f.to_bits(shifted) - (f.magic_bits + 2))
    e = f.fma(scale, small, scale - 0.25)
    half = e + e / f.fma(e, 4.0, 1.0)
    return f.copysign(f.select(size < 2.0 ** (-f.mantissa // 2), size, half + half), x)


@function(
    INEXACT,
    np.cosh,
    jvp=[lambda t, out, x: mul(t, sinh(x))],
    numpy="cosh",
    ulp=(2, 2),
    ranges=EXPONENTS,
    points=(*OVERFLOWS, 89.415986, 710.475860073944),
)
def cosh(f: Formulas, x: FormulaValue):
    """Return the hyperbolic cosine of `x`."""
    half = _half_exp(f, f.abs(x))
    return half + 0.25 / half


@function(
    INEXACT,
    np.tanh,
    jvp=[lambda t, out, x: mul(t, sub(1, square(out)))],
    numpy="tanh",
    ulp=(2.5, 2.5),
    ranges=((-12, 12), (-1, 1), (-25, 25)),
)
def tanh(f: Formulas, x: FormulaValue):
    """Return the hyperbolic tangent of `x`."""
    if f.short:
        bound = _TANH_IS_ONE[f.demand]
        x = f.clamp(x, -bound, bound)
        square = x * x
        return x * f.poly(square, "tanh_top") / f.poly(square, "tanh_bottom")
    size = f.abs(x)
    bound = 22.0 if f.wide else 10.0
    e = _expm1_of_double(f, -f.select(size > bound, bound, size))
    return f.copysign(e / (e + 2.0), x)


def _logistic_reference(x: NumPyArray):
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


@function(
    INEXACT,
    _logistic_reference,
    jvp=[lambda t, out, x: mul(t, mul(out, sub(1, out)))],
    brief=True,
    ulp=(2.5, 2.5),
    ranges=((-4, 4), (-85, 20), (-750, 40)),
    points=OVERFLOWS,
)
def logistic(f: Formulas, x: FormulaValue):
    """Return `1 / (1 + exp(-x))`, without overflow for large |x|.

    >>> np.asarray(logistic(np.array([-1000.0, 0.0, 1000.0]))).tolist()
    [0.0, 0.5, 1.0]
    """
    if f.brief:
        # both terms are scaled: one would overflow where the result is below bfloat16's least
        # subnormal number
        return _LOGISTIC_SCALE / (
            f.brief_power(f.fma(x, -LOG2E, math.log2(_LOGISTIC_SCALE))) + _LOGISTIC_SCALE
        )
    below, low = -f.abs(x), EXP_RANGE[f.type][0]
    e = exp_within(f, f.select(below < low, low, below))
    return f.select(x < 0.0, e, 1.0) / (e + 1.0)
