"""Powers, and the remainder of floats."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families
from weft._engine.ops.arithmetic import mul, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.comparison import eq, select
from weft._engine.ops.families import INEXACT, INTEGER, dtype_in, function
from weft._engine.ops.functions.exponential import EXP2_RANGE
from weft._engine.ops.functions.logarithmic import log

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, Value


def _pow_type(x: ShapedArray, y: ShapedArray):
    families.check_dtype("pow", x, INEXACT, 0)
    if not dtype_in(y.dtype, INTEGER):
        families.same_dtypes("pow", (x, y))
    return ShapedArray(
        families.broadcast_shapes("pow", (x, y)),
        x.dtype,
        x.weak_type and y.weak_type,
        None,
        families.joined_vma((x, y)),
    )


def _pow_jvp_base(t: Value, out: Value, x: Value, y: Value):
    # y x^(y-1); if both are 0 the power is 1 for every x
    base = select(bitwise_and(eq(x, 0), eq(y, 0)), out, x)
    factor = convert_element_type(y, typeof(x).dtype)
    return mul(t, mul(factor, pow(base, sub(y, 1))))


def _pow_jvp_exponent(t: Value, out: Value, x: Value, y: Value):
    # out log(x), with 0 for the limit at x = 0
    return mul(t, mul(log(select(eq(x, 0), 1, x)), out))


@function(
    INEXACT,
    lambda x, y: np.power(x, y.astype(x.dtype)),
    jvp=[_pow_jvp_base, _pow_jvp_exponent],
    type_rule=_pow_type,
    emit=lambda b, x, y: b.op("pow", x, y if y.type == x.type else b.cast(y, x.type)),
    cost=30,
    ulp=(1, 1),
    ranges=((0, 10), (-10, 10), (0, 2)),
)
def pow(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return `x` to the power `y`, elementwise; `y` has the dtype of `x` or is an integer.

    >>> np.asarray(pow(np.array([2.0, 3.0]), 2.0)).tolist()
    [4.0, 9.0]
    """
    if f.wide and not f.has_fma:
        return f.library("pow", x, y)  # products are not split into halves there
    size = f.abs(x)
    k, m = f.split(size)
    k = f.at_special_arguments(k, size, zero=-inf, infinite=inf)
    if f.wide:
        result = _power_by_parts(f, k, m - 1.0, y)
    else:
        power, fraction = _power_of_parts(f, f.widen(k), f.widen(m - 1.0), f.widen(y), 200.0)
        result = f.scale(fraction, f.narrow(power))
    return f.with_rare_case(
        result, (f.to_bits(x) < 0) | result.is_nan(), _power_with_care, result, x, y
    )


def power_in_double(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return x^y of positive normal doubles to the precision of an f32."""
    g = f.in_double()
    k, m = g.split_normal(x)
    power, fraction = _power_of_parts(f, k, m - 1.0, y, 1000.0)
    return f.widen(fraction) * g.power_of_two(g.to_bits(power + g.magic) - g.magic_bits)


def _power_of_parts(f: Formulas, k: FormulaValue, x: FormulaValue, y: FormulaValue, limit: float):
    """Return 2^(k y) (1 + x)^y as a bounded exponent of two and a factor in single precision."""
    g = f.in_double()
    s = x / (x + 2.0)
    power = g.clamp(y * g.fma(s, g.poly(s * s, "log2s"), k), -limit, limit)
    whole = (power + g.magic) - g.magic
    r = f.narrow(power - whole)
    return whole, f.fma(r, f.poly(r, "exp2"), 1.0)


def _power_by_parts(f: Formulas, k: FormulaValue, x: FormulaValue, y: FormulaValue):
    """Return 2^(k y) (1 + x)^y in double precision for -1/4 <= x <= 1/2.

    The logarithm is an unevaluated sum with twice the digits, since ten digits of the exponent
    precede its binary point.
    """
    # s = x / (2 + x), and log2(1 + x) = 2 log2(e) s (1 + z / 3 + z^2 / 5 + ...) with z = s^2
    d = x + 2.0
    s = x / d
    s_low = f.fma(-s, x - (d - 2.0), f.exact_fma(-s, d, x)) / d
    z, z_low = _product(f, s, s)
    z_low = f.fma(s + s, s_low, z_low)
    q = f.poly(z, "atanh_rest")
    u, u_low = _product(f, z, q)
    u, u_low = _sum(f.c(_THIRD[0]), u, f.fma(z_low, q, u_low) + _THIRD[1])
    w, w_low = _product(f, z, u)
    w, w_low = _sum(f.c(1.0), w, f.fma(z, u_low, f.fma(z_low, u, w_low)))
    g, g_low = _product(f, s, w)
    g_low = f.fma(s, w_low, f.fma(s_low, w, g_low))
    high, low = _product(f, g, f.c(_TWO_LOG2E[0]))
    high, low = _sum(k, high, f.fma(g, _TWO_LOG2E[1], f.fma(g_low, _TWO_LOG2E[0], low)))
    power, low_part = _product(f, y, high)
    low_part = f.fma(y, low, low_part)
    bounded = f.clamp(power, *EXP2_RANGE["f64"])
    shifted = bounded + f.magic
    # beyond the bounds `low_part` is arbitrary and unused
    r = (bounded - (shifted - f.magic)) + f.select(bounded.same(power), low_part, 0.0)
    return f.ldexp(f.fma(r, f.poly(r, "exp2"), 1.0), shifted)


#: 1/3 and 2 log2(e), each as an unevaluated sum
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_TWO_LOG2E = (2.8853900817779268, 4.0710547481862066e-17)


def _product(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return x y as an unevaluated sum."""
    high = x * y
    return high, f.exact_fma(x, y, -high)


def _sum(x: Value, y: Value, low: Value):
    """Return x + y + low as an unevaluated sum, where x is zero or the largest."""
    high = x + y
    return high, ((x - high) + y) + low


def _power_with_care(f: Formulas, result: FormulaValue, x: FormulaValue, y: FormulaValue):
    """Return the result with the sign of powers of negative numbers.

    Results that are one or NaN are set, too.
    """
    whole = f.trunc(y).same(y)
    half = y * 0.5
    odd = whole & ~f.trunc(half).same(half)
    result = f.select(odd & (f.to_bits(x) < 0), -result, result)
    result = f.select((x < 0.0) & (x > -inf) & ~whole, nan, result)
    result = f.select(x.is_nan() | y.is_nan(), nan, result)
    unit = (f.abs(x).same(1.0) & f.abs(y).same(inf)) | x.same(1.0) | y.same(0.0)
    return f.select(unit, 1.0, result)


@function(None, np.fmod, cost=12, ranges=((-10, 10), (-1e3, 1e3)))
def fmod(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return the exact remainder of `x / y` with the quotient truncated: `rem` of floats."""
    dividend, divisor = f.abs(x), f.abs(y)
    ratio = dividend / divisor
    quotient = f.trunc(ratio)
    # the ratio may have been rounded up to an integer
    remainder = f.exact_fma(-quotient, divisor, dividend)
    remainder = f.select(remainder < 0.0, remainder + divisor, remainder)
    remainder = f.copysign(f.select(quotient.same(0.0), dividend, remainder), x)
    return f.with_rare_case(remainder, ratio >= 2.0**f.mantissa, "fmod", x, y)
