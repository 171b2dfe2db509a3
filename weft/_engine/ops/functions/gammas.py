"""The logarithm of the gamma function with its derivative, and modified Bessel functions."""

from __future__ import annotations

import math
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.primitive import registry
from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import abs, add, div, mul, neg, sign, sub
from weft._engine.ops.comparison import ge, lt, select
from weft._engine.ops.families import FLOATING, function, match_dtypes, of_scipy
from weft._engine.ops.functions.exponential import exp
from weft._engine.ops.functions.logarithmic import (
    log,
    log_by_parts,
    log_of_normal,
    rough_log_of_normal,
)
from weft._engine.ops.functions.roots import sqrt
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray, Value


@function(
    FLOATING,
    of_scipy("psi"),
    jvp=[lambda t, out, x: mul(t, registry["polygamma"].bind(*match_dtypes(1.0, x)))],
    ulp=(2.5, 8),
    ranges=((0, 100), (0.01, 1), (-10, 0)),
    points=(1.4616321449683623,),
)
def digamma(f: Formulas, x: FormulaValue):
    """Return the derivative of `lgamma` at `x`."""
    if not f.wide:
        grown = x + 1.0
        y = rough_log_of_normal(f, x + 0.5) + (f.poly((x - 1.0) / grown, "digamma") - 1.0 / x)
        y = f.at_special_arguments(y, x, infinite=inf)
        return f.with_rare_case(y, x < 0.0, _digamma_in_double, x)
    low = x < 0.5
    y = digamma_above_half(f, f.select(low, 1.0 - x, x))
    fraction = x - f.round_even(x)
    reflected = y - math.pi / f.tan(fraction * math.pi)
    y = f.select(low, reflected, y)
    pole = low & fraction.same(0.0)
    y = f.select(pole, nan, y)
    y = f.select(x.same(0.0), f.copysign(inf, -x), y)
    return f.select(x.same(inf), inf, y)


def log_less_digamma(x: Value, a: Value):
    """Return log(x) - digamma(a); for large `a` from the logarithm of x / a."""
    large = ge(a, 10)
    far, near = select(large, a, 10), select(large, 1, a)
    quotient = div(select(large, x, 1), far)
    plain = ge(quotient, float(dtypes.finfo(typeof(quotient).dtype).smallest_normal))
    step, series = div(1, mul(far, far)), 0.0
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = mul(add(series, c), step)
    logs = select(plain, log(select(plain, quotient, 1)), sub(log(x), log(far)))
    return select(large, add(logs, add(div(0.5, far), series)), sub(log(x), digamma(near)))


def digamma_above_half(f: Formulas, z: FormulaValue):
    """Return digamma(z) for z >= 1/2, in doubles."""
    total, lost = f.c(0.0), f.c(0.0)
    for _ in range(10):
        # psi(z) = psi(z + 1) - 1/z, summed with compensation of rounding errors
        small = z < 10.0
        term = 1.0 / z
        correction = term * f.exact_fma(-term, z, f.c(1.0))
        grown = total - term
        lost = f.select(small, lost + (((total - grown) - term) - correction), lost)
        total = f.select(small, grown, total)
        z = f.select(small, z + 1.0, z)
    inverse = 1.0 / z
    square = inverse * inverse
    series = f.horner(
        square, (3617 / 8160, -1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
    )
    return (total + f.log(z)) + (lost + (-0.5 * inverse + square * series))


def _digamma_in_double(f: Formulas, x: FormulaValue):
    return f.narrow(f.in_double().digamma(f.widen(x)))


def _lgamma_reference(x: NumPyArray):
    """Return SciPy's gammaln, with -inf at -inf."""
    near_zero = of_scipy("gammaln", near_zero=lambda x: -np.log(np.abs(x)))
    return np.where(np.isinf(x), np.abs(x), near_zero(x))


@function(
    FLOATING,
    _lgamma_reference,
    jvp=[lambda t, out, x: mul(t, digamma(x))],
    ulp=(2, 4),
    ranges=((0, 100), (0, 0.5), (-10, 0), (4e36, 4.09e36)),
    points=(1.0, 2.0, 4.0850e36),
)
def lgamma(f: Formulas, x: FormulaValue):
    """Return the logarithm of the absolute value of the gamma function of `x`."""
    if f.wide:
        return f.library("lgamma", x)
    # a log(x) + b: near zero log(1/x) plus a polynomial, then a polynomial, then Stirling's
    # formula; all in quarters, whose terms do not overflow unless the result does
    large = x >= 2.875
    a = f.select(large, f.fma(x, 0.25, -0.125), f.select(x < 1.375, f.c(-0.25), 0.0))
    b = f.piecewise(f.select(large, f.fma(1.0 / x, 8.5, 12.0), x * 4.0), "lgamma")
    high, low = log_by_parts(f, x)
    y = 4.0 * (f.exact_fma(a, high, f.select(large, x * -0.25, 0.0)) + f.fma(b, 0.25, a * low))
    return f.with_rare_case(
        f.at_special_arguments(y, x, zero=inf, infinite=inf), x < 0.0, _lgamma_of_doubles, x
    )


def _lgamma_of_doubles(f: Formulas, x: FormulaValue):
    return f.narrow(lgamma_in_double(f.in_double(), f.widen(x)))


def lgamma_in_double(f: Formulas, x: FormulaValue):
    """Return lgamma with an absolute error of about 1e-15, in doubles.

    This gives relative precision of an f32 even near the zeros 1 and 2.
    """
    low = x < 0.5
    z = f.select(low, 1.0 - x, x)
    small = z < 8.0
    product = z
    for k in range(1, 8):
        product = product * (z + float(k))
    product, w = f.select(small, product, 1.0), f.select(small, z + 8.0, z)
    inverse = 1.0 / w
    series = f.horner(
        inverse * inverse, (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    )
    stirling = f.fma(w - 0.5, log_of_normal(f, w), 0.9189385332046727 - w) + inverse * series
    # below one half: gamma(x) gamma(1 - x) = pi / sin(pi x)
    angle = (x - f.round_even(x)) * math.pi
    square = angle * angle
    sine = f.fma(
        angle * square,
        f.horner(square, tuple([(-1) ** k / math.factorial(2 * k + 1) for k in range(9, 0, -1)])),
        angle,
    )
    rest = f.log(f.select(low, math.pi * product / f.abs(sine), product))
    y = f.select(low, rest - stirling, stirling - rest)
    y = f.select(((x - 1.0) * (x - 2.0)).same(0.0), 0.0, y)
    return f.select(f.abs(x).same(inf), inf, y)


#: Chebyshev series of exp(-x) (I0(x) - I1(x)): times (1 + x/2)^3 in x/3 - 1 for x up to 6, and then
#: times x^(3/2) in 12/x - 1
_BESSEL_GAP_NEAR = (
    0.8574863303875628,
    -0.03181627664911696,
    0.12693204487862128,
    -0.011637233605244521,
    -0.012972884734311293,
    0.009910361867074105,
    -0.004003287790012298,
    0.0010017834099722307,
    -8.936923497391769e-05,
    -5.462019979438328e-05,
    3.5220086917471855e-05,
    -1.2371006985997807e-05,
    3.0768633218017577e-06,
    -5.215412709307615e-07,
    2.7767418675127704e-08,
    2.0676335889238237e-08,
    -1.0685396972119848e-08,
    3.4408279439893626e-09,
    -8.947525657455728e-10,
    2.0227975782488204e-10,
    -4.1101138021404756e-11,
    7.64769963576668e-12,
    -1.3188849554531514e-12,
    2.125955699758748e-13,
    -3.223454988980353e-14,
    4.620232349241901e-15,
    -6.285348090488794e-16,
    8.142831832091403e-17,
    -1.007494303995368e-17,
    1.1934504933188274e-18,
    -1.3564477150329384e-19,
    1.482090426573119e-20,
    -1.5594391856081843e-21,
    1.582562161518722e-22,
)
_BESSEL_GAP_FAR = (
    0.2066591831610206,
    0.007554876466973185,
    0.0004019861423700645,
    4.035635504622373e-05,
    6.013436376380434e-06,
    8.294023489389652e-07,
    -4.208685273419653e-08,
    -8.768283488938232e-08,
    -2.7969137668354925e-08,
    3.637861583603733e-10,
    3.2631604392007326e-09,
    6.875137717960285e-10,
    -2.9583776126794285e-10,
    -1.3761180285208203e-10,
    2.720283423554939e-11,
    2.2899870531446828e-11,
    -3.1720804163729095e-12,
    -3.800379734236877e-12,
    5.696224895042609e-13,
    6.445402518016235e-13,
    -1.4125247449412185e-13,
    -1.0771322991501335e-13,
    3.835589459210071e-14,
    1.6125755474405708e-14,
    -1.0069225884933644e-14,
    -1.5988577971332579e-15,
    2.403300945776555e-15,
    -1.5479972590547505e-16,
    -4.87344892248536e-16,
    1.5163383151871204e-16,
    7.066532186263517e-17,
    -5.4000817856011555e-17,
    -8.5072277517428e-19,
    1.3005194601642624e-17,
)
_BESSEL_GAP_SINGLE = 15  # terms that affect a float32


def _bessel_gap(x: Value):
    """Return exp(-x) (I0(x) - I1(x)) for x >= 0, whose terms are nearly equal for large x."""
    large = ge(x, 6)
    far, grow = select(large, x, 6), add(mul(select(large, 0, x), 0.5), 1)
    dtype = typeof(x).dtype
    count = None if dtype.itemsize > 4 else _BESSEL_GAP_SINGLE
    first, *terms = [
        select(large, dtype.type(c), dtype.type(d))
        for c, d in zip(_BESSEL_GAP_FAR[:count], _BESSEL_GAP_NEAR[:count])
    ]
    t = sub(select(large, div(12, far), div(x, 3)), 1)
    turn, after, last = mul(t, 2), 0.0, 0.0
    for c in reversed(terms):
        after, last = add(sub(mul(turn, after), last), c), after
    series = add(sub(mul(t, after), last), first)
    return div(div(series, select(large, far, mul(grow, grow))), select(large, sqrt(far), grow))


#: up to this argument the functions differ enough, and their difference gives better second
#: derivatives
_BESSEL_APART = 0.5


def _bessel_i0e_slope(t: Value, out: Value, x: Value):
    size = abs(x)
    difference = sub(bessel_i1e(x), mul(sign(x), out))
    return mul(t, select(lt(size, _BESSEL_APART), difference, neg(mul(sign(x), _bessel_gap(size)))))


#: coefficients of 2 I1(x) / x in powers of (x / 2)^2
_BESSEL_RATIO = tuple(1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(15))


def bessel_ratio(x: Value, out: Value):
    """Return I1(x) / x: near zero by a power series without cancellation, elsewhere `out` / x."""
    near = lt(abs(x), 2)
    square, series = mul(select(near, mul(x, x), 0), 0.25), 0.0
    for c in reversed(_BESSEL_RATIO):
        series = add(mul(series, square), c)
    return select(near, mul(series, 0.5), div(out, select(near, 1, x)))


def _bessel_i1e_slope(t: Value, out: Value, x: Value):
    """Return the tangent by i0e - |x| r - r, where r is i1e / x."""
    size = abs(x)
    decay = exp(neg(select(lt(size, 2), size, 0)))
    ratio = mul(bessel_ratio(x, out), decay)
    apart = sub(bessel_i0e(x), mul(size, ratio))
    return mul(t, sub(select(lt(size, _BESSEL_APART), apart, _bessel_gap(size)), ratio))


def _bessel(f: Formulas, x: FormulaValue, order: int):
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
    # flattens the function, so that the polynomial keeps its relative precision
    grow = f.fma(bounded, 0.25, 1.0)
    near = near * size / (grow * grow * grow) if order else near / grow
    y = f.select(small, near, far)
    y = f.select(size.same(inf), 0.0, y)
    return f.select(x.is_nan(), x, f.copysign(y, x) if order else y)


@function(
    FLOATING,
    of_scipy("i0e"),
    jvp=[_bessel_i0e_slope],
    ulp=(2.5, 4),
    ranges=((-8, 8), (-100, 100)),
    points=(8.0, 16.0),
)
def bessel_i0e(f: Formulas, x: FormulaValue):
    """Return exp(-|x|) times the modified Bessel function of order 0."""
    return _bessel(f, x, 0)


@function(
    FLOATING,
    of_scipy("i1e", odd=True),
    jvp=[_bessel_i1e_slope],
    ulp=(2.5, 6),
    ranges=((-8, 8), (-100, 100)),
    points=(8.0, 16.0),
)
def bessel_i1e(f: Formulas, x: FormulaValue):
    """Return exp(-|x|) times the modified Bessel function of order 1."""
    return _bessel(f, x, 1)
