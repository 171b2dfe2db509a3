"""The logarithm of the gamma function and its derivative, and modified Bessel functions."""

from __future__ import annotations

import math
from math import inf, nan

from weft.core.primitive import registry
from weft.core.trace import typeof
from weft.ops.arithmetic import abs, add, div, mul, sign, sub
from weft.ops.comparison import ge, lt, select
from weft.ops.families import FLOATING, function, match_dtypes, of_scipy
from weft.ops.functions.logarithmic import log, log_by_parts, log_of_normal, rough_log_of_normal
from weft.util import dtypes


@function(FLOATING, of_scipy("psi"), jvp=[lambda t, out, x: mul(t, registry["polygamma"].bind(*match_dtypes(1.0, x)))], ulp=(2.5, 8),
          ranges=((0, 100), (0.01, 1), (-10, 0)), points=(1.4616321449683623,))
def digamma(f, x):
    """The derivative of `lgamma` at `x`."""
    if not f.wide:
        grown = x + 1.0
        y = rough_log_of_normal(f, x + 0.5) + (f.poly((x - 1.0) / grown, "digamma") - 1.0 / x)
        y = f.at(y, x, infinite=inf)
        return f.cold(y, x < 0.0, _digamma_in_double, x)
    low = x < 0.5
    y = digamma_above_half(f, f.select(low, 1.0 - x, x))
    fraction = x - f.round_even(x)
    reflected = y - math.pi / f.tan(fraction * math.pi)
    y = f.select(low, reflected, y)
    pole = low & fraction.same(0.0)
    y = f.select(pole, nan, y)
    y = f.select(x.same(0.0), f.copysign(inf, -x), y)
    return f.select(x.same(inf), inf, y)


def log_less_digamma(x, a):
    """log(x) - digamma(a), where `a` is large by the logarithm of their quotient."""
    large = ge(a, 10)
    far, near = select(large, a, 10), select(large, 1, a)
    quotient = div(select(large, x, 1), far)
    plain = ge(quotient, float(dtypes.finfo(typeof(quotient).dtype).smallest_normal))
    step, series = div(1, mul(far, far)), 0.0
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = mul(add(series, c), step)
    logs = select(plain, log(select(plain, quotient, 1)), sub(log(x), log(far)))
    return select(large, add(logs, add(div(0.5, far), series)), sub(log(x), digamma(near)))


def digamma_above_half(f, z):
    """digamma of z >= 1/2 in doubles."""
    total, lost = f.c(0.0), f.c(0.0)
    for _ in range(10):
        # psi(z) = psi(z + 1) - 1/z, summed with the rounding errors kept
        small = z < 10.0
        term = 1.0 / z
        rest = term * f.exact_fma(-term, z, f.c(1.0))
        grown = total - term
        lost = f.select(small, lost + (((total - grown) - term) - rest), lost)
        total = f.select(small, grown, total)
        z = f.select(small, z + 1.0, z)
    inverse = 1.0 / z
    square = inverse * inverse
    series = f.horner(square, (3617 / 8160, -1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120,
                               -1 / 12))
    return (total + f.log(z)) + (lost + (-0.5 * inverse + square * series))


def _digamma_in_double(f, x):
    return f.narrow(f.in_double().digamma(f.widen(x)))


@function(FLOATING, of_scipy("gammaln"), jvp=[lambda t, out, x: mul(t, digamma(x))], ulp=(2, 4),
          ranges=((0, 100), (0, 0.5), (-10, 0), (4e36, 4.09e36)), points=(1.0, 2.0, 4.0850e36))
def lgamma(f, x):
    """The logarithm of the absolute value of the gamma function of `x`."""
    if f.wide:
        return f.library("lgamma", x)
    # a log(x) + b: near zero log(1/x) and a polynomial, then a polynomial, then Stirling's formula; all of it in quarters,
    # whose terms do not overflow where the result does not
    large = x >= 2.875
    a = f.select(large, f.fma(x, 0.25, -0.125), f.select(x < 1.375, f.c(-0.25), 0.0))
    b = f.piecewise(f.select(large, f.fma(1.0 / x, 8.5, 12.0), x * 4.0), "lgamma")
    high, low = log_by_parts(f, x)
    y = 4.0 * (f.exact_fma(a, high, f.select(large, x * -0.25, 0.0)) + f.fma(b, 0.25, a * low))
    return f.cold(f.at(y, x, zero=inf, infinite=inf), x < 0.0, _lgamma_in_double, x)


def _lgamma_in_double(f, x):
    return f.narrow(_lgamma(f.in_double(), f.widen(x)))


def _lgamma(f, x):
    """lgamma with an absolute error of some 1e-15, in doubles: relative precision of an f32 even beside the zeros 1 and 2."""
    low = x < 0.5
    z = f.select(low, 1.0 - x, x)
    small = z < 8.0
    product = z
    for k in range(1, 8):
        product = product * (z + float(k))
    product, w = f.select(small, product, 1.0), f.select(small, z + 8.0, z)
    inverse = 1.0 / w
    series = f.horner(inverse * inverse, (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    stirling = f.fma(w - 0.5, log_of_normal(f, w), 0.9189385332046727 - w) + inverse * series
    # below one half: gamma(x) gamma(1 - x) = pi / sin(pi x)
    angle = (x - f.round_even(x)) * math.pi
    square = angle * angle
    sine = f.fma(angle * square, f.horner(square, tuple([(-1) ** k / math.factorial(2 * k + 1) for k in range(9, 0, -1)])), angle)
    rest = f.log(f.select(low, math.pi * product / f.abs(sine), product))
    y = f.select(low, rest - stirling, stirling - rest)
    y = f.select(((x - 1.0) * (x - 2.0)).same(0.0), 0.0, y)
    return f.select(f.abs(x).same(inf), inf, y)


def _bessel_i1e_jvp(t, out, x):
    # i0e - out (sign x + 1/x), whose limit at 0 is 1/2; 1/x of the least numbers is infinite
    at_zero = lt(abs(x), float(dtypes.finfo(typeof(x).dtype).eps) / 4)
    safe = select(at_zero, 1, x)
    slope = sub(bessel_i0e(safe), mul(out, add(sign(safe), div(1, safe))))
    return mul(t, select(at_zero, 0.5, slope))


def _bessel(f, x, order):
    size = f.abs(x)
    if not f.wide:
        large = size >= 5.75
        y = f.piecewise(f.select(large, f.fma(1.0 / size, 20.0, 12.0), size + size), f"i{order}e")
        if order:
            y = y * f.copysign(f.select(large, 1.0, size), x)
        return y / f.sqrt(f.select(large, size, 1.0))
    small = size <= 8.0
    bounded = f.select(small, size, 8.0)
    name = f"i{order}e"
    near = f.horner(f.fma(bounded, 0.25, -1.0), f.table(f"{name}_small"))
    large = f.select(small, 8.0, size)
    far = f.horner(16.0 / large - 1.0, f.table(f"{name}_big")) / f.sqrt(large)
    grow = f.fma(bounded, 0.25, 1.0)  # flattens the function, so that the polynomial keeps its relative precision
    near = near * size / (grow * grow * grow) if order else near / grow
    y = f.select(small, near, far)
    y = f.select(size.same(inf), 0.0, y)
    return f.select(x.is_nan(), x, f.copysign(y, x) if order else y)


@function(FLOATING, of_scipy("i0e"), jvp=[lambda t, out, x: mul(t, sub(bessel_i1e(x), mul(sign(x), out)))], ulp=(2.5, 4),
          ranges=((-8, 8), (-100, 100)), points=(8.0, 16.0))
def bessel_i0e(f, x):
    """exp(-|x|) times the modified Bessel function of order 0."""
    return _bessel(f, x, 0)


@function(FLOATING, of_scipy("i1e"), jvp=[_bessel_i1e_jvp], ulp=(2.5, 6), ranges=((-8, 8), (-100, 100)), points=(8.0, 16.0))
def bessel_i1e(f, x):
    """exp(-|x|) times the modified Bessel function of order 1."""
    return _bessel(f, x, 1)
