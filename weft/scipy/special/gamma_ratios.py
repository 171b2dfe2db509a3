"""Functions of ratios of gammas: the beta function and its logarithm, the rising factorial.

In:   real arrays.
Out:  arrays of the same dtype.
Laws: where a gamma of a negative number enters, the reflection formula replaces it. Stirling's series is written so that its large
      terms cancel before they are computed. Derivatives are differences of digammas, taken as sums of terms of one sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.control.custom_rules import custom_jvp
from weft.ops import elementwise as ew
from weft.ops.comparison import select
from weft.scipy.special.basic import _binary
from weft.util.source import guard_all

__all__ = ["beta", "betaln", "poch"]


def _sine(x):
    """sin(pi x), whose zeros are exact."""
    nearest = ew.round(x, ew.RoundingMethod.TO_NEAREST_EVEN)
    sine = ew.sin(ew.mul(ew.sub(x, nearest), math.pi))
    return select(ew.eq(ew.rem(nearest, 2), 0), sine, ew.neg(sine))


@custom_jvp
def _sine_ratio(x, step):
    """sin(pi (x + step)) / sin(pi x); the limit that keeps an integer step where x is an integer."""
    cancelled = _all(_is_integer(x), _is_integer(step))
    sign = ew.sub(1, ew.mul(ew.abs(ew.rem(step, 2)), 2))
    return select(cancelled, sign, ew.div(_sine(ew.add(x, step)), select(cancelled, 1, _sine(x))))


def _sine_ratio_slope(t, out, x, step):
    sine = select(_all(_is_integer(x), _is_integer(step)), 1, _sine(x))
    return ew.neg(ew.mul(t, ew.mul(ew.div(_sine(step), sine), ew.div(math.pi, sine))))


_sine_ratio.defjvps(_sine_ratio_slope,
                    lambda t, out, x, step: ew.mul(t, ew.div(ew.mul(_sine(ew.add(ew.add(x, step), 0.5)), math.pi), _sine(x))))


def _is_integer(x):
    return ew.eq(ew.floor(x), x)


def _all(*conditions):
    out = conditions[0]
    for condition in conditions[1:]:
        out = ew.bitwise_and(out, condition)
    return out


@custom_jvp
def _log_beta_of_positive(a, b):
    """log B(a, b) for a, b >= 0.

    Where the greater argument is large, the logarithms of its gamma and of the sum's are large and nearly equal. Their difference is
    written by Stirling's series, of which the large terms cancel on paper.
    """
    low, high = ew.min(a, b), ew.max(a, b)
    long = _all(ew.ge(high, 10), ew.lt(high, math.inf))
    h, d = select(long, high, 10), select(long, low, 1)
    total = ew.add(h, d)
    fall = ew.sub(ew.sub(ew.mul(d, ew.sub(1, ew.log(total))), ew.mul(ew.sub(h, 0.5), ew.log1p(ew.div(d, h)))),
                  ew.sub(_stirling_rest(total), _stirling_rest(h)))
    infinite = _all(ew.eq(high, math.inf), ew.gt(low, 0))
    short = select(ew.eq(low, 0), 0, ew.sub(ew.lgamma(high), ew.lgamma(ew.add(low, high))))
    return select(infinite, -math.inf, ew.add(ew.lgamma(low), select(long, fall, short)))


_log_beta_of_positive.defjvps(lambda t, out, a, b: ew.neg(ew.mul(t, _digamma_rise(a, b))),
                              lambda t, out, a, b: ew.neg(ew.mul(t, _digamma_rise(b, a))))


class _Reflected(NamedTuple):
    """B(a, b) as exp(exponent) factor / divisor, or / divisor^2 where `twice`."""

    exponent: Any
    factor: Any
    divisor: Any
    twice: Any


def _reflected(a, b) -> _Reflected:
    """The parts of B(a, b) where an argument is negative, by the beta function of positive arguments.

    With s(x) = sin(pi x), a the smaller argument and c = a + b:

    - a < 0 <= b, c <= 0: B(a, b) = B(1 - c, b) s(c) / s(a)
    - a < 0 < b, 0 < c: B(a, b) = -pi / (a s(a)) / B(-a, c)
    - a <= b < 0: B(a, b) = pi s(c) / (s(a) s(b) (1 - c)) / B(1 - a, 1 - b)
    """
    swapped = ew.lt(b, a)
    low, high = select(swapped, b, a), select(swapped, a, b)
    total = ew.add(low, high)
    both, left = ew.lt(high, 0), _all(ew.ge(high, 0), ew.le(total, 0))
    middle = ew.gt(total, 0)
    p = select(middle, ew.neg(low), select(left, ew.sub(1, total), ew.sub(1, low)))
    q = select(middle, total, select(left, high, ew.sub(1, high)))
    size = _log_beta_of_positive(p, q)
    ratio = _sine_ratio(select(middle, -0.5, low), select(middle, 0.25, high))
    ratio = select(both, ew.mul(ratio, ew.div(math.pi, ew.sub(1, select(both, total, 0)))), ratio)
    beyond = ew.div(ew.mul(low, -math.pi), _sine(select(middle, low, 0.5)))
    divisor = select(middle, low, select(both, _sine(select(both, high, 0.5)), 1))
    return _Reflected(select(left, size, ew.neg(size)), select(middle, beyond, ratio), divisor, middle)


def _poles(a, b):
    """Where a gamma of the numerator has a pole that the denominator does not cancel; not where one argument is 0 and one positive.

    It cancels one where the other argument is a positive integer and the sum is not positive, in the limit that keeps that argument.
    """
    low, high = ew.min(a, b), ew.max(a, b)
    cancelled = _all(ew.lt(low, 0), _is_integer(high), ew.gt(high, 0), ew.le(ew.add(a, b), 0))
    at_pole = [_all(ew.le(x, 0), ew.gt(x, -math.inf), _is_integer(x)) for x in (low, high)]
    return _all(ew.bitwise_or(*at_pole), ew.bitwise_not(cancelled), ew.bitwise_or(ew.lt(low, 0), ew.eq(high, 0)))


def _by_sign(a, b, of_positive: Callable, of_negative: Callable):
    """One function where both arguments are positive, and one of the reflected parts where an argument is negative."""
    negative = ew.bitwise_or(ew.lt(a, 0), ew.lt(b, 0))
    inner = [select(negative, 1, x) for x in (a, b)]
    outer = [select(negative, x, y) for x, y in zip((a, b), (-0.5, 0.25))]
    return select(negative, of_negative(_reflected(*outer)), of_positive(*inner))


def _log_of_reflected(parts: _Reflected):
    log_divisor = ew.log(ew.abs(parts.divisor))
    log_divisor = ew.add(log_divisor, select(parts.twice, log_divisor, 0))
    return ew.add(parts.exponent, ew.sub(ew.log(ew.abs(parts.factor)), log_divisor))


def _betaln(a, b):
    return select(_poles(a, b), math.inf, _by_sign(a, b, _log_beta_of_positive, _log_of_reflected))


@custom_jvp
def _beta_of_positive(a, b):
    return ew.exp(_log_beta_of_positive(a, b))


def _beta_slope(t, out, a, b):
    """By the first argument. A small second one makes the value large and the logarithm's slope small: it goes from one to the other."""
    share = select(_all(ew.lt(b, 1), ew.gt(b, 0)), b, 1)
    size = ew.exp(ew.add(_log_beta_of_positive(a, b), ew.log(share)))
    return ew.neg(ew.mul(t, ew.mul(size, _digamma_rise(a, b, share))))


_beta_of_positive.defjvps(_beta_slope, lambda t, out, a, b: _beta_slope(t, out, b, a))


def _beta_of_reflected(parts: _Reflected):
    value = ew.div(ew.exp(parts.exponent), select(parts.twice, parts.divisor, 1))
    return ew.div(ew.mul(value, parts.factor), parts.divisor)


def _beta(a, b):
    return select(_poles(a, b), math.inf, _by_sign(a, b, _beta_of_positive, _beta_of_reflected))


def _stirling_rest(x):
    """lgamma(x) less (x - 1/2) log x - x + log(2 pi) / 2, for x from 10 up."""
    inverse = ew.div(1, x)
    step, out = ew.square(inverse), 0.0
    for term in reversed((1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)):
        out = ew.add(ew.mul(step, out), term)
    return ew.mul(out, inverse)


#: of the powers of 1 / x^2 in log(x) - 1 / (2 x) - digamma(x)
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma_rise(a, b, share=1.0):
    """digamma(a + b) - digamma(a) in units of `share`: for positive arguments a sum of terms that have the factor b and one sign."""
    total = ew.add(a, b)
    plain = ew.bitwise_or(ew.le(a, 0), ew.le(total, 0))
    x, y, step, out = select(plain, 1, a), select(plain, 1, total), ew.div(b, share), 0.0
    for k in range(10):                          # digamma(x + 1) = digamma(x) + 1 / x
        out = ew.add(out, ew.div(ew.div(step, ew.add(y, k)), ew.add(x, k)))
    x, y = ew.add(x, 10), ew.add(y, 10)
    ratio = select(plain, 0, ew.div(b, x))
    little = ew.lt(ew.abs(ratio), 1e-20)
    ratio = select(little, 1, ratio)
    logs = ew.add(select(little, 1, ew.div(ew.log1p(ratio), ratio)), ew.div(0.5, y))
    p, q = ew.square(ew.div(1, x)), ew.square(ew.div(1, y))
    series, powers, power = 0.0, 1.0, q          # p^j - q^j is p - q times a sum of powers
    for c in _DIGAMMA_SERIES:
        series, powers, power = ew.add(series, ew.mul(c, powers)), ew.add(ew.mul(powers, p), power), ew.mul(power, q)
    out = ew.add(out, ew.add(ew.mul(ew.div(step, x), logs), ew.mul(ew.mul(ew.mul(ew.div(step, y), p), ew.add(1, ew.div(x, y))), series)))
    return select(plain, ew.div(ew.sub(ew.digamma(total), ew.digamma(a)), share), out)


betaln = _binary("betaln", _betaln, "The logarithm of the beta function.", "a b")
beta = _binary("beta", _beta, "The beta function.", "a b", weak=False)


@custom_jvp
def _poch(z, m):
    """By Stirling's series of both gammas, whose large terms cancel on paper, after steps up to where it holds: the ratio of the gammas
    changes by a factor each, and those are multiplied between two halves of the series' exponential, which alone might overflow."""
    total = ew.add(z, m)
    inside = ew.bitwise_and(ew.gt(z, 0), ew.gt(total, 0))
    a, b, m = select(inside, z, 1), select(inside, total, 1), select(inside, m, 0)
    low, steps, factors = ew.min(a, b), ew.mul(m, 0), []
    for k in range(10):
        counts = ew.lt(ew.add(low, k), 10)
        steps = select(counts, k + 1, steps)
        numerator = ew.add(a, k)
        close = ew.lt(m, numerator)                  # then one less a part of it, with one rounding
        share = ew.div(select(close, m, numerator), ew.add(b, k))
        factors.append(select(counts, select(close, ew.sub(1, share), share), 1))
    a, b = ew.add(a, steps), ew.add(b, steps)
    log = ew.add(ew.add(ew.mul(m, ew.sub(ew.log(b), 1)), ew.mul(ew.sub(a, 0.5), ew.log1p(ew.div(m, a)))),
                 ew.sub(_stirling_rest(b), _stirling_rest(a)))
    half = ew.exp(ew.mul(log, 0.5))
    out = half
    for factor in factors:
        out = ew.mul(out, factor)
    plain = ew.exp(ew.sub(ew.lgamma(total), ew.lgamma(z)))
    return select(ew.eq(m, 0), select(inside, 1, plain), select(ew.eq(half, math.inf), half, ew.mul(out, half)))


_poch.defjvps(lambda t, out, z, m: ew.mul(t, ew.mul(out, _digamma_rise(z, m))),
              lambda t, out, z, m: ew.mul(t, ew.mul(out, ew.digamma(ew.add(z, m)))))
poch = _binary("poch", _poch, "The rising factorial gamma(z + m) / gamma(z), for positive z and z + m.", "z m", weak=False)

guard_all(globals())
