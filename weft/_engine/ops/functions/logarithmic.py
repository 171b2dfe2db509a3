"""Logarithms and inverse hyperbolic functions."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.ops.arithmetic import add, div, mul, square, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.comparison import eq, ne, select
from weft._engine.ops.families import FLOATING, INEXACT, function
from weft._engine.ops.functions.exponential import EXP_RANGE, LN2, exp_within, logistic
from weft._engine.ops.functions.roots import rsqrt

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, Value


def _log_tail(f: Formulas, x: FormulaValue, half: FormulaValue, k: FormulaValue | None = None):
    """Return x^2/2 - x + log(1 + x) for -1/4 <= x <= 1/2, plus the low part of k log(2).

    It uses the series of the inverse hyperbolic tangent.
    """
    s = x / (x + 2.0)
    z = s * s
    rest = s * half
    if k is not None:
        rest = f.fma(k, LN2[f.type][1], rest)
    return f.fma(s * z, f.poly(z, "logs"), rest)


def _log_core(f: Formulas, k: FormulaValue, x: FormulaValue):
    """Return k log(2) + log(1 + x) for -1/4 <= x <= 1/2."""
    if f.short:
        return _rough_log_core(f, k, x)
    half = (0.5 * x) * x
    return f.fma(k, LN2[f.type][0], x - (half - _log_tail(f, x, half, k)))


def _rough_log_core(f: Formulas, k: FormulaValue, x: FormulaValue):
    """Return `_log_core` with a larger error.

    The error is one unit in the last place of the largest term of the sum.
    """
    s = x / (x + 2.0)
    z = s * s
    return f.fma(k, sum(LN2[f.type]), s * f.fma(z, f.poly(z, "logs"), 2.0))


def _log_specials(f: Formulas, x: FormulaValue, y: FormulaValue):
    return f.at_special_arguments(y, x, zero=-inf, infinite=inf, negative=nan)


@function(
    INEXACT,
    np.log,
    jvp=[lambda t, out, x: div(t, x)],
    numpy="log",
    ulp=(1.5, 1.5),
    ranges=((0, 4), (0.9, 1.1)),
    points=(1.0,),
)
def log(f: Formulas, x: FormulaValue):
    """Return the natural logarithm of `x`."""
    k, m = f.split(x)
    return _log_specials(f, x, _log_core(f, k, m - 1.0))


def log_of_normal(f: Formulas, x: FormulaValue):
    """Return the natural logarithm of positive normal numbers."""
    k, m = f.split_normal(x)
    return _log_core(f, k, m - 1.0)


def rough_log_of_normal(f: Formulas, x: FormulaValue):
    """Return the logarithm with few instructions, for sums with a term as large as one or k."""
    k, m = f.split_normal(x)
    return _rough_log_core(f, k, m - 1.0)


def log_by_parts(f: Formulas, x: FormulaValue):
    """Return the natural logarithm of positive numbers as an unevaluated sum."""
    k, m = f.split(x)
    x1 = m - 1.0
    half = (0.5 * x1) * x1
    most = k * LN2[f.type][0]
    high = most + x1
    return high, ((most - high) + x1) - (half - _log_tail(f, x1, half, k))


@function(None, np.log2, ulp=(1.5, 1.5), ranges=((0, 4), (0.9, 1.1)), points=(1.0, 2.0, 8.0))
def log2(f: Formulas, x: FormulaValue):
    """Return the logarithm of `x` to base 2."""
    k, m = f.split(x)
    x1 = m - 1.0
    # log(m) as an unevaluated sum, so that the product with log2(e) rounds once
    half = (0.5 * x1) * x1
    high = f.from_bits(f.to_bits(x1 - half) & -(1 << (32 if f.wide else 12)))
    low = (x1 - high) - half + _log_tail(f, x1, half)
    e_high, e_low = _LOG2E_SPLIT[f.type]
    small = f.fma(low + high, e_low, low * e_high)
    y = f.fma(high, e_high, k)
    low_part = f.fma(high, e_high, k - y)
    return _log_specials(f, x, y + (small + low_part))


_LOG2E_SPLIT = {
    "f32": (1.4423828125, 0.00031222838896340733),
    "f64": (1.4426950216293335, 1.9259629911266175e-08),
}


@function(
    INEXACT,
    np.log1p,
    jvp=[lambda t, out, x: div(t, add(x, 1))],
    numpy="log1p",
    ulp=(2, 2),
    ranges=((-1, 4), (-0.01, 0.01)),
    points=(-1.0, 0.0),
)
def log1p(f: Formulas, x: FormulaValue):
    """Return `log(1 + x)`, accurate near 0."""
    return f.copysign(_log_of_one_plus(f, x), x)


def _log_of_one_plus(f: Formulas, x: FormulaValue):
    """Return log(1 + x); zero may lose its sign."""
    u = x + 1.0
    k = f.small_to_float((f.to_bits(u) - f.three_quarters) >> f.mantissa)
    # 2^-k (1 + x) - 1, rounded once although 1 + x was rounded
    scale = f.scale(f.c(1.0), -k)
    return _log_specials(f, u, _log_core(f, k, f.fma(x, scale, scale - 1.0)))


def _share_of_first(x: Value, y: Value):
    gap = sub(x, y)
    equal_infinities = bitwise_and(eq(x, y), ne(gap, gap))
    return logistic(select(equal_infinities, 0, gap))


@function(
    FLOATING,
    np.logaddexp,
    numpy="logaddexp",
    jvp=[
        lambda t, out, x, y: mul(t, _share_of_first(x, y)),
        lambda t, out, x, y: mul(t, _share_of_first(y, x)),
    ],
    ulp=(2, 2),
    ranges=((-10, 10), (-100, 100), (-1, 0)),
)
def logaddexp(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return `log(exp(x) + exp(y))`, without overflow; -inf is neutral.

    >>> np.asarray(logaddexp(np.array([0.0, 1000.0]), 0.0), np.float64).round(4).tolist()
    [0.6931, 1000.0]
    """
    gap, low = -f.abs(x - y), EXP_RANGE[f.type][0]
    # NaN, the gap of equal infinities, counts as a large gap
    e = exp_within(f, f.select(gap > low, gap, low))
    log_term = _log_of_one_plus(f, e) if f.wide else f.fma(e * e, f.poly(e, "log1p"), e)
    return f.max(x, y) + log_term


def _powers(f: Formulas, bits: FormulaValue):
    """Return k and 2^k, where k >= 0 is the exponent field of the bits."""
    return f.small_to_float(bits >> f.mantissa), f.from_bits(
        (bits & -(1 << f.mantissa)) + (f.bias << f.mantissa)
    )


def _log_by_ratio(f: Formulas, k: FormulaValue, top: FormulaValue, bottom: FormulaValue):
    """Return k log(2) + log((bottom + top) / (bottom - top)) for |top / bottom| <= 1/5."""
    s = top / bottom
    z = s * s
    high, low = LN2[f.type]
    return f.fma(k, high, f.fma(s, 2.0, f.fma(s * z, f.poly(z, "logs"), k * low)))


def _log_of_sum(
    f: Formulas,
    x: FormulaValue,
    great: FormulaValue,
    small: FormulaValue,
    low: FormulaValue,
    square: FormulaValue,
):
    """Return log(great + small), the inverse hyperbolic sine of `low`; log(2 x) for large x."""
    near = f.fma(low * square, f.poly(square, "asinh"), low)
    total = great + small
    shifted = total * (4.0 / 3.0)
    power = f.leading_power(shifted)
    # the operand that cancels first is at least half the power, so that the difference is exact
    far = _log_by_ratio(f, f.exponent(shifted), (great - power) + small, (great + power) + small)
    return f.with_rare_case(
        f.select(square < 0.36, near, far), x > _SQUARE_IS_INFINITE[f.type], _log_of_double, x
    )


def _log_of_double(f: Formulas, x: FormulaValue):
    return f.at_special_arguments(log_of_normal(f, x) + sum(LN2[f.type]), x, infinite=inf)


@function(
    INEXACT,
    np.arcsinh,
    jvp=[lambda t, out, x: mul(t, rsqrt(add(square(x), 1)))],
    numpy="arcsinh asinh",
    on_complex="asinh",
    ulp=(2, 2),
    ranges=((-10, 10), (-1e6, 1e6)),
    points=(0.6, 1.15, 2.0**60, 2.0**500),
)
def asinh(f: Formulas, x: FormulaValue):
    """Return the number whose hyperbolic sine is `x`."""
    size = f.abs(x)
    square = size * size
    return f.copysign(_log_of_sum(f, size, f.sqrt(f.fma(size, size, 1.0)), size, size, square), x)


@function(
    INEXACT,
    np.arccosh,
    jvp=[lambda t, out, x: mul(t, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1))))],
    numpy="arccosh acosh",
    on_complex="acosh",
    ulp=(2, 2.5),
    ranges=((1, 10), (1, 1.001), (1, 1e6)),
    points=(1.0, 1.166, 2.0**60, 2.0**500),
)
def acosh(f: Formulas, x: FormulaValue):
    """Return the non-negative number whose hyperbolic cosine is `x`."""
    t = x - 1.0
    square = f.fma(t, t, t + t)
    root = f.sqrt(square)
    return f.at_special_arguments(_log_of_sum(f, x, x, root, root, square), t, negative=nan)


#: at this argument the square is infinite, or nearly
_SQUARE_IS_INFINITE = {"f32": 2.0**60, "f64": 2.0**500}


@function(
    INEXACT,
    np.arctanh,
    jvp=[lambda t, out, x: div(t, sub(1, square(x)))],
    numpy="arctanh atanh",
    on_complex="atanh",
    ulp=(3, 3),
    ranges=((-1, 1), (0.99, 1)),
    points=(1.0,),
)
def atanh(f: Formulas, x: FormulaValue):
    """Return the number whose hyperbolic tangent is `x`."""
    size = f.abs(x)
    complement = 1.0 - size
    # the difference of their bits is nearly the difference of their logarithms; plus one half it
    # contains the next power of two
    k, power = _powers(f, (f.to_bits(size + 1.0) - f.to_bits(complement)) + (1 << f.mantissa - 1))
    more, less = power + 1.0, 1.0 - power
    # above one half `complement` is exact, and the power is too large to add one
    upper = size > 0.5
    top = f.select(upper, f.fma(power, -complement, size) + 1.0, f.exact_fma(size, more, less))
    bottom = f.select(upper, f.fma(power, complement, size) + 1.0, f.exact_fma(size, less, more))
    y = 0.5 * _log_by_ratio(f, k, top, bottom)
    return f.copysign(f.at_special_arguments(y, complement, zero=inf, negative=nan), x)
