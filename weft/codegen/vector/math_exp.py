"""Exponentials, logarithms, powers and hyperbolic functions on lanes.

Each maps `V`s of one precision (see `math_real`) to `V`s. tests/codegen/test_accuracy.py tests the error of each.
"""

from __future__ import annotations

import math

from weft.codegen.vector.math_real import INF, NAN, Real, V

LOG2E = 1.4426950408889634
#: log(2), by parts whose leading one leaves room to be multiplied by small integers exactly
_LN2 = {"f32": (0.693359375, -2.12194440054690583e-4), "f64": (0.6931471803691238, 1.9082149292705877e-10)}
_EXP_RANGE = {"f32": (-105.0, 89.0), "f64": (-746.0, 710.0)}
#: sinh of it is infinite, and a quarter of its exponential finite
_SINH_TOP = {"f32": 89.5, "f64": 710.6}
#: tanh of it rounds to one
_TANH_IS_ONE = {"f16": 5.0, "bf16": 4.0}
#: of the terms of a quotient whose denominator shall not overflow before the result is zero
_LOGISTIC_SCALE = 2.0**-16
_EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}


def _reduced(f: Real, x: V) -> tuple[V, V]:
    """(k + magic, e^r - 1) with x = k log(2) + r."""
    shifted = f.fma(x, LOG2E, f.magic)
    k = shifted - f.magic
    high, low = _LN2[f.type]
    r = f.fma(k, -(high + low), x) if f.short else f.fma(k, -low, f.fma(k, -high, x))
    return shifted, f.fma(r * r, f.poly(r, "exp"), r)


def exp(f: Real, x: V) -> V:
    """e^x."""
    return _exp_within(f, x if f.brief else f.clamp(x, *_EXP_RANGE[f.type]))


def _exp_within(f: Real, x: V) -> V:
    """e^x of x in the range where it is neither zero nor infinite, or a little beyond."""
    if f.brief:
        return f.brief_power(x * LOG2E)
    shifted, small = _reduced(f, x)
    return f.ldexp(small + 1.0, shifted)


def exp2(f: Real, x: V) -> V:
    """2^x."""
    if f.brief:
        return f.brief_power(x)
    x = f.clamp(x, *_EXP2_RANGE[f.type])
    shifted = x + f.magic
    r = x - (shifted - f.magic)
    return f.ldexp(f.fma(r, f.poly(r, "exp2"), 1.0), shifted)


def expm1(f: Real, x: V) -> V:
    """e^x - 1."""
    low, high = _EXP_RANGE[f.type]
    shifted, small = _reduced(f, f.clamp(x, low / 2, high))
    k = shifted - f.magic
    bounded = f.select(k > f.bias - 1, f.bias - 1, k)
    scale = f.power_of_two(f.to_bits(bounded + f.magic) - f.magic_bits)
    near = f.fma(scale, small, scale - 1.0)
    far = f.ldexp(small + 1.0, shifted)
    y = f.select(k > 2.0 * f.mantissa / 2 + 8, far, near)
    return f.select(x.same(0.0), x, y)


def _expm1_of_double(f: Real, x: V) -> V:
    """e^2x - 1 for -25 <= x <= 0; zero may lose its sign."""
    # adding this leaves k as the exponent of a float in the low bits
    magic = f.magic + f.bias
    shifted = f.fma(x, 2.0 * LOG2E, magic)
    k = shifted - magic
    high, low = _LN2[f.type]
    # where k is large its rounded product moves e^2x, which then is little beside one
    r = f.fma(k, -(high + low), x + x)
    scale = f.from_bits(f.to_bits(shifted) << f.mantissa)
    return f.fma(scale, f.fma(r * r, f.poly(r, "exp"), r), scale - 1.0)


def _half_exp(f: Real, x: V) -> V:
    """e^x / 2, without overflow before its time; x >= 0."""
    shifted, small = _reduced(f, f.clamp(x, 0.0, _EXP_RANGE[f.type][1] + 1.0))
    return f.ldexp(small + 1.0, shifted - 1.0)


def sinh(f: Real, x: V) -> V:
    """Hyperbolic sine."""
    size = f.abs(x)
    top = _SINH_TOP[f.type]
    # a quarter of e^|x| - 1 does not overflow before its time
    shifted, small = _reduced(f, f.select(size > top, top, size))
    scale = f.power_of_two(f.to_bits(shifted) - (f.magic_bits + 2))
    e = f.fma(scale, small, scale - 0.25)
    half = e + e / f.fma(e, 4.0, 1.0)
    return f.copysign(f.select(size < 2.0**(-f.mantissa // 2), size, half + half), x)


def cosh(f: Real, x: V) -> V:
    """Hyperbolic cosine."""
    half = _half_exp(f, f.abs(x))
    return half + 0.25 / half


def tanh(f: Real, x: V) -> V:
    """Hyperbolic tangent."""
    if f.short:
        bound = _TANH_IS_ONE[f.goal]
        x = f.clamp(x, -bound, bound)
        square = x * x
        return x * f.poly(square, "tanh_top") / f.poly(square, "tanh_bottom")
    size = f.abs(x)
    bound = 22.0 if f.wide else 10.0
    e = _expm1_of_double(f, -f.select(size > bound, bound, size))
    return f.copysign(e / (e + 2.0), x)


def logistic(f: Real, x: V) -> V:
    """1 / (1 + e^-x)."""
    if f.brief:
        # both terms are scaled: one overflows where the result is below bfloat16's least subnormal number
        return _LOGISTIC_SCALE / (f.brief_power(f.fma(x, -LOG2E, math.log2(_LOGISTIC_SCALE))) + _LOGISTIC_SCALE)
    below, low = -f.abs(x), _EXP_RANGE[f.type][0]
    e = _exp_within(f, f.select(below < low, low, below))
    return f.select(x < 0.0, e, 1.0) / (e + 1.0)


def _log_tail(f: Real, x: V, half: V, k: V | None = None) -> V:
    """x^2/2 - x + log(1 + x), and the low part of k log(2), by the inverse hyperbolic tangent: -1/4 <= x <= 1/2."""
    s = x / (x + 2.0)
    z = s * s
    rest = s * half
    if k is not None:
        rest = f.fma(k, _LN2[f.type][1], rest)
    return f.fma(s * z, f.poly(z, "logs"), rest)


def _log_core(f: Real, k: V, x: V) -> V:
    """k log(2) + log(1 + x): -1/4 <= x <= 1/2."""
    if f.short:
        return _rough_log_core(f, k, x)
    half = (0.5 * x) * x
    return f.fma(k, _LN2[f.type][0], x - (half - _log_tail(f, x, half, k)))


def _rough_log_core(f: Real, k: V, x: V) -> V:
    """The same with an error of a unit in the last place of the greatest part of the sum."""
    s = x / (x + 2.0)
    z = s * s
    return f.fma(k, sum(_LN2[f.type]), s * f.fma(z, f.poly(z, "logs"), 2.0))


def _log_specials(f: Real, x: V, y: V) -> V:
    return f.at(y, x, zero=-INF, infinite=INF, negative=NAN)


def log(f: Real, x: V) -> V:
    """Natural logarithm."""
    k, m = f.split(x)
    return _log_specials(f, x, _log_core(f, k, m - 1.0))


def log_of_normal(f: Real, x: V) -> V:
    """Natural logarithm of positive normal numbers."""
    k, m = f.split_normal(x)
    return _log_core(f, k, m - 1.0)


def rough_log_of_normal(f: Real, x: V) -> V:
    """The same for sums with something as large as one or k: few instructions."""
    k, m = f.split_normal(x)
    return _rough_log_core(f, k, m - 1.0)


def log_by_parts(f: Real, x: V) -> tuple[V, V]:
    """The natural logarithm of positive numbers as an unevaluated sum."""
    k, m = f.split(x)
    x1 = m - 1.0
    half = (0.5 * x1) * x1
    most = k * _LN2[f.type][0]
    high = most + x1
    return high, ((most - high) + x1) - (half - _log_tail(f, x1, half, k))


def log2(f: Real, x: V) -> V:
    """Logarithm to base 2."""
    k, m = f.split(x)
    x1 = m - 1.0
    # log(m) as an unevaluated sum, so that the product with log2(e) rounds once
    half = (0.5 * x1) * x1
    high = f.from_bits(f.to_bits(x1 - half) & -(1 << (32 if f.wide else 12)))
    low = (x1 - high) - half + _log_tail(f, x1, half)
    e_high, e_low = _LOG2E_SPLIT[f.type]
    small = f.fma(low + high, e_low, low * e_high)
    y = f.fma(high, e_high, k)
    rest = f.fma(high, e_high, k - y)
    return _log_specials(f, x, y + (small + rest))


_LOG2E_SPLIT = {"f32": (1.4423828125, 0.00031222838896340733), "f64": (1.4426950216293335, 1.9259629911266175e-08)}


def log1p(f: Real, x: V) -> V:
    """log(1 + x)."""
    return f.copysign(_log_of_one_plus(f, x), x)


def _log_of_one_plus(f: Real, x: V) -> V:
    """log(1 + x); zero may lose its sign."""
    u = x + 1.0
    k = f.small_to_float((f.to_bits(u) - f.three_quarters) >> f.mantissa)
    # 2^-k (1 + x) - 1, rounded once though 1 + x was rounded
    scale = f.scale(f.c(1.0), -k)
    return _log_specials(f, u, _log_core(f, k, f.fma(x, scale, scale - 1.0)))


def logaddexp(f: Real, x: V, y: V) -> V:
    """log(e^x + e^y)."""
    gap, low = -f.abs(x - y), _EXP_RANGE[f.type][0]
    # NaN, the gap of equal infinities, counts as far apart
    e = _exp_within(f, f.select(gap > low, gap, low))
    rest = _log_of_one_plus(f, e) if f.wide else f.fma(e * e, f.poly(e, "log1p"), e)
    return f.max(x, y) + rest


def _powers(f: Real, bits: V) -> tuple[V, V]:
    """k and 2^k, where k >= 0 is what the bits have in the place of an exponent."""
    return f.small_to_float(bits >> f.mantissa), f.from_bits((bits & -(1 << f.mantissa)) + (f.bias << f.mantissa))


def _log_by_ratio(f: Real, k: V, top: V, bottom: V) -> V:
    """k log(2) + log((bottom + top) / (bottom - top)): |top / bottom| <= 1/5."""
    s = top / bottom
    z = s * s
    high, low = _LN2[f.type]
    return f.fma(k, high, f.fma(s, 2.0, f.fma(s * z, f.poly(z, "logs"), k * low)))


def _log_of_sum(f: Real, x: V, great: V, small: V, low: V, square: V) -> V:
    """log(great + small), which is the inverse hyperbolic sine of `low`, whose square is given; of large x log(2 x)."""
    near = f.fma(low * square, f.poly(square, "asinh"), low)
    total = great + small
    shifted = total * (4.0 / 3.0)
    power = f.leading_power(shifted)
    # what cancels first is at least half the power, so that the difference is exact
    far = _log_by_ratio(f, f.exponent(shifted), (great - power) + small, (great + power) + small)
    return f.cold(f.select(square < 0.36, near, far), x > _SQUARE_IS_INFINITE[f.type], _log_of_double, x)


def _log_of_double(f: Real, x: V) -> V:
    return f.at(log_of_normal(f, x) + sum(_LN2[f.type]), x, infinite=INF)


def asinh(f: Real, x: V) -> V:
    """Inverse hyperbolic sine."""
    size = f.abs(x)
    square = size * size
    return f.copysign(_log_of_sum(f, size, f.sqrt(f.fma(size, size, 1.0)), size, size, square), x)


def acosh(f: Real, x: V) -> V:
    """Inverse hyperbolic cosine."""
    t = x - 1.0
    square = f.fma(t, t, t + t)
    root = f.sqrt(square)
    return f.at(_log_of_sum(f, x, x, root, root, square), t, negative=NAN)


#: from here on the square is infinite, or nearly
_SQUARE_IS_INFINITE = {"f32": 2.0**60, "f64": 2.0**500}


def atanh(f: Real, x: V) -> V:
    """Inverse hyperbolic tangent."""
    size = f.abs(x)
    rest = 1.0 - size
    # the difference of their bits is nearly that of their logarithms, and plus one half has its next power of two
    k, power = _powers(f, (f.to_bits(size + 1.0) - f.to_bits(rest)) + (1 << f.mantissa - 1))
    more, less = power + 1.0, 1.0 - power
    # above one half `rest` is exact, and beside one the power is too large for one more
    upper = size > 0.5
    top = f.select(upper, f.fma(power, -rest, size) + 1.0, f.exact_fma(size, more, less))
    bottom = f.select(upper, f.fma(power, rest, size) + 1.0, f.exact_fma(size, less, more))
    y = 0.5 * _log_by_ratio(f, k, top, bottom)
    return f.copysign(f.at(y, rest, zero=INF, negative=NAN), x)


def sqrt(f: Real, x: V) -> V:
    """Square root."""
    return f.sqrt(x)


def rsqrt(f: Real, x: V) -> V:
    """1 / sqrt(x)."""
    return 1.0 / f.sqrt(x)


def cbrt(f: Real, x: V) -> V:
    """Cube root."""
    size = f.abs(x)
    k, m = f.split(size)
    third = f.fma(k, 1.0 / 3.0, f.magic) - f.magic
    rest = f.fma(third, -3.0, k)
    # a first 1 / cbrt, and that of 2^rest by a quadratic polynomial through the three cases
    z = f.poly(m, "rcbrt") * f.horner(rest, _RCBRT_OF_POWER)
    m = f.scale(m, rest)
    if f.wide:
        e = f.fma(-(m * z) * z, z, 1.0)
        z = f.fma(z * e, f.fma(e, 2.0 / 9.0, 1.0 / 3.0), z)
    y = m * (z * z)
    e = f.exact_fma(-y, z, f.c(1.0))
    y = f.fma(y * e, f.fma(e, 5.0 / 9.0, 2.0 / 3.0), y)
    return f.copysign(f.at(f.scale(y, third), size, zero=0.0, infinite=INF), x)


#: 2^(-r/3) for r = -1, 0, 1
_RCBRT_OF_POWER = (0.02681078747420308, -0.23311026254906957, 1.0)


def pow_(f: Real, x: V, y: V) -> V:
    """x to the power y, with the special values of IEEE."""
    if f.wide and not f.lanes.target.has_fma:
        return f.library("pow", x, y)      # whose products are not taken apart in halves
    size, g = f.abs(x), f.in_double()
    k, m = f.split(size)
    if f.wide:
        result = _power_by_parts(f, f.at(k, size, zero=-INF, infinite=INF), m - 1.0, y)
        return f.cold(result, (f.to_bits(x) < 0) | result.is_nan(), _power_with_care, result, x, y)
    m1 = f.widen(m - 1.0)
    s = m1 / (m1 + 2.0)
    logarithm = g.fma(s, g.poly(s * s, "log2s"), f.widen(f.at(k, size, zero=-INF, infinite=INF)))
    power = g.clamp(f.widen(y) * logarithm, -200.0, 200.0)
    whole = (power + g.magic) - g.magic
    r = f.narrow(power - whole)
    result = f.scale(f.fma(r, f.poly(r, "exp2"), 1.0), f.narrow(whole))
    return f.cold(result, (f.to_bits(x) < 0) | result.is_nan(), _power_with_care, result, x, y)


def _power_by_parts(f: Real, k: V, x: V, y: V) -> V:
    """2^(k y) (1 + x)^y in double precision: -1/4 <= x <= 1/2. The logarithm is an unevaluated sum of twice the digits, since
    the exponent has ten of them before its point."""
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
    power, rest = _product(f, y, high)
    rest = f.fma(y, low, rest)
    bounded = f.clamp(power, *_EXP2_RANGE["f64"])
    shifted = bounded + f.magic
    # beyond the bounds `rest` may be anything, and nothing depends on it
    r = (bounded - (shifted - f.magic)) + f.select(bounded.same(power), rest, 0.0)
    return f.ldexp(f.fma(r, f.poly(r, "exp2"), 1.0), shifted)


#: 1/3 and 2 log2(e), each as a sum
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_TWO_LOG2E = (2.8853900817779268, 4.0710547481862066e-17)


def _product(f: Real, x: V, y: V) -> tuple[V, V]:
    """x y as a sum."""
    high = x * y
    return high, f.exact_fma(x, y, -high)


def _sum(x: V, y: V, low: V) -> tuple[V, V]:
    """x + y + low as a sum, where x is zero or the greatest."""
    high = x + y
    return high, ((x - high) + y) + low


def _power_with_care(f: Real, result: V, x: V, y: V) -> V:
    """The sign of powers of negative numbers, and what is one or not a number."""
    whole = f.trunc(y).same(y)
    half = y * 0.5
    odd = whole & ~f.trunc(half).same(half)
    result = f.select(odd & (f.to_bits(x) < 0), -result, result)
    result = f.select((x < 0.0) & (x > -INF) & ~whole, NAN, result)
    result = f.select(x.is_nan() | y.is_nan(), NAN, result)
    unit = (f.abs(x).same(1.0) & f.abs(y).same(INF)) | x.same(1.0) | y.same(0.0)
    return f.select(unit, 1.0, result)


def remainder(f: Real, x: V, y: V) -> V:
    """What is left of x divided by y with the quotient truncated, exactly."""
    dividend, divisor = f.abs(x), f.abs(y)
    ratio = dividend / divisor
    quotient = f.trunc(ratio)
    # the ratio may have been rounded up to a whole number
    rest = f.exact_fma(-quotient, divisor, dividend)
    rest = f.select(rest < 0.0, rest + divisor, rest)
    rest = f.copysign(f.select(quotient.same(0.0), dividend, rest), x)
    return f.cold(rest, ratio >= 2.0**f.mantissa, "fmod", x, y)
