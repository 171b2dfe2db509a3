"""Logarithms of densities as sums of terms of one sign, where plain formulas are differences of large logarithms.

In:  arrays of one floating dtype; counts are real numbers here.
Out: `log_poisson`, `log_gamma_density`, `log_binomial`, `log_beta_binomial`, with accurate derivatives; `beta_binomial`.
How: `special.deviance.deviance`, x log(x / m) - (x - m), is zero at m = x and quadratic in the distance near it. The gamma
     functions contribute `_width`: half a logarithm and the remainder of Stirling's series.
Source: C. Loader, "Fast and accurate computation of binomial probabilities" (2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops import elementwise as ew
from weft._engine.ops.functions.gammas import log_less_digamma
from weft._engine.scipy.special.deviance import deviance, log_quotient, magnitude_exponent
from weft._engine.scipy.special.gamma_ratios import _digamma_rise, _stirling_rest
from weft._engine.util import dtypes

#: Stirling's series is accurate to float64 from here on
STIRLING = 10.0


def _log_of_sum(a, b):
    """log((a + b) / a)."""
    quotient, power = b / a, magnitude_exponent(a)
    over = quotient == math.inf
    moved = wnp.where(over, (b * 2.0**-power) / (a * 2.0**power), 1)
    return wnp.where(
        over, wnp.log(moved) + 2 * power * math.log(2), wnp.log1p(wnp.where(over, 0, quotient))
    )


def _width(x):
    """lgamma(x + 1) - x log(x) + x for x >= 0."""
    large, none = x >= STIRLING, x == 0
    far, near, log = (
        wnp.where(large, x, STIRLING),
        wnp.where(large | none, 1, x),
        wnp.log(wnp.where(none, 1, x)),
    )
    value = wnp.where(
        large,
        0.5 * log + 0.5 * math.log(2 * math.pi) + _stirling_rest(far),
        ew.lgamma(near + 1) - near * (log - 1),
    )
    return wnp.where(none, 0.0, value)


def _widening(x, step):
    """_width(x + step) - _width(x), without logarithms of large x."""
    large = x >= STIRLING
    far, near = wnp.where(large, x, STIRLING), wnp.where(large, 1, x)
    wide = 0.5 * wnp.log1p(step / far) + (_stirling_rest(far + step) - _stirling_rest(far))
    return wnp.where(large, wide, _width(near + step) - _width(near))


def log_poisson_by_ratio(x, m, log_ratio):
    """log(m^x exp(-m) / gamma(x + 1)) for x >= 0; `log_ratio` is log(m / x)."""
    return -deviance(x, m - x, log_ratio) - _width(x)


@custom_jvp
def log_poisson(x, m):
    """log(m^x exp(-m) / gamma(x + 1)) for x >= 0."""
    return log_poisson_by_ratio(x, m, log_quotient(m, wnp.where(x > 0, x, 1)))


def _per(a, x):
    """a / x, 0 where a is 0; finite, so that the derivative of a density is zero where the density is."""
    return wnp.where(a == 0, 0, wnp.minimum(a / x, float(dtypes.finfo(x.dtype).max)))


log_poisson.defjvps(
    lambda t, out, x, m: t * log_less_digamma(m, x + 1), lambda t, out, x, m: t * (_per(x, m) - 1)
)


def _deviances(a, b, x, y, gap):
    """The deviances of a and b from (a + b) x and (a + b) y, where x + y is 1 and `gap` is a y - b x."""
    return deviance(a, -gap, _log_against(a, b, x)) + deviance(b, gap, _log_against(b, a, y))


def _log_against(a, b, x):
    """log((a + b) x / a)."""
    a = wnp.where(a > 0, a, 1)
    quotient, power, info = b / a, magnitude_exponent(x), dtypes.finfo(x.dtype)
    ratio = x + quotient * x
    over, under = quotient == math.inf, ratio < float(info.smallest_normal) / float(info.eps)
    moved = (x * 2.0**power) * wnp.where(over, (b * 2.0**-power) / (a * 2.0**power), 1 + quotient)
    shift = wnp.where(over, power * math.log(2), wnp.where(under, -power * math.log(2), 0))
    return wnp.log(wnp.where(over | under, moved, ratio)) + shift


@custom_jvp
def log_binomial(a, b, x, y):
    """log(x^a y^b gamma(a + b + 1) / (gamma(a + 1) gamma(b + 1))), where y is 1 - x; the derivative by x includes y's."""
    low, high = wnp.minimum(a, b), wnp.maximum(a, b)
    return _widening(high, low) - _width(low) - _deviances(a, b, x, y, a * y - b * x)


log_binomial.defjvps(
    lambda t, out, *args: t * binomial_slopes(*args)[0],
    lambda t, out, *args: t * binomial_slopes(*args)[1],
    lambda t, out, *args: t * binomial_slopes(*args)[2],
    None,
)


def binomial_slope(i, a, b, x, y, factor=lambda slope: slope):
    """Return the `i`-th derivative of exp(log_binomial).

    `factor` is applied to the logarithm's derivative. The probability enters as two square roots, since it may underflow where its
    derivative does not.
    """
    root = wnp.exp(0.5 * log_binomial(a, b, x, y))
    if i < 2:
        return root * factor(binomial_slopes(a, b, x, y)[i]) * root
    some, rest = (a > 0) & (x > 0), (b > 0) & (y > 0)
    up = factor(root / wnp.where(some, x, 1) * a) * root
    return wnp.where(some, up, 0) - wnp.where(
        rest, factor(root / wnp.where(rest, y, 1) * b) * root, 0
    )


def binomial_slopes(a, b, x, y):
    """The derivatives of `log_binomial` by a and by b, and by x with y = 1 - x."""
    return (
        wnp.log(x) + _digamma_rise(a + 1, b),
        wnp.log(y) + _digamma_rise(b + 1, a),
        _per(a, x) - _per(b, y),
    )


def _rest(x):
    """lgamma(x + 1) minus Stirling's formula, for x > 0."""
    large = x >= STIRLING
    near = wnp.where(large, 1, x)
    value = ew.lgamma(near + 1) - (near + 0.5) * wnp.log(near) + near - 0.5 * math.log(2 * math.pi)
    return wnp.where(large, _stirling_rest(wnp.where(large, x, STIRLING)), value)


def _beta_binomial_exponent(k, m, a, b):
    """Return `log_beta_binomial` without half the logarithm of `_squares`.

    It has binomial log-probabilities at (a + k) / (a + b + k + m), and the difference to those at a / (a + b).
    """
    # scale of numbers whose sum may overflow
    scale = wnp.where(wnp.maximum(a, b) > 1e30, 0.125, 1.0)
    total = a * scale + b * scale + (k + m) * scale
    least = float(dtypes.finfo(total.dtype).smallest_normal)
    x, y = wnp.maximum((a + k) * scale / total, least), wnp.maximum((b + m) * scale / total, least)
    gap = a * (m * scale / total) - b * (k * scale / total)
    low, high = wnp.minimum(k, m), wnp.maximum(k, m)
    wide, far = _stirling(high), _stirling(low)
    widening = wnp.where(
        high >= STIRLING, _stirling(high + low) - wide, _widening(wnp.minimum(high, STIRLING), low)
    )
    binomial = (
        widening
        - wnp.where(low >= STIRLING, far, _width(wnp.minimum(low, STIRLING)))
        - _deviances(k, m, x, y, -gap)
    )
    rests = (
        (_rest(a + k) - _rest(a))
        + (_rest(b + m) - _rest(b))
        - (_rest(a + b + (k + m)) - _rest(a + b))
    )
    return binomial - _deviances(a, b, x, y, gap) + rests


def _stirling(x):
    return _stirling_rest(wnp.where(x >= STIRLING, x, STIRLING))


def _squares(k, m, a, b):
    """Return quotients (p, q): half the logarithm of (p + q) / p of each is added to `log_beta_binomial`, or subtracted for
    the second group; and the additional number of the second group, without 2 pi, or zero."""
    low, high = wnp.minimum(k, m), wnp.maximum(k, m)
    is_large = high >= STIRLING
    return (
        [(wnp.where(is_large, high, 1), wnp.where(is_large, low, 0)), (a + b, k + m)],
        [(a, k), (b, m)],
        wnp.where(low >= STIRLING, low, 0),
    )


@custom_jvp
def log_beta_binomial(k, m, a, b):
    """log(B(a + k, b + m) / B(a, b)) plus the logarithm of k + m over k."""
    over, under, low = _squares(k, m, a, b)
    halves = [
        sum([wnp.where(q == 0, 0, _log_of_sum(p, q)) for p, q in pairs]) for pairs in (over, under)
    ]
    last = wnp.where(low > 0, wnp.log(wnp.where(low > 0, low, 1)) + math.log(2 * math.pi), 0)
    return _beta_binomial_exponent(k, m, a, b) + 0.5 * (halves[0] - halves[1] - last)


def beta_binomial(k, m, a, b):
    """exp(log_beta_binomial(k, m, a, b)), with square roots in place of half logarithms."""
    over, under, low = _squares(k, m, a, b)
    out = root = wnp.exp(0.5 * _beta_binomial_exponent(k, m, a, b))
    for p, q in over:
        out = out * wnp.sqrt(1 + q / p)
    out = out * root
    for p, q in under:
        out = out / wnp.sqrt(1 + q / p)
    return out * wnp.where(
        low > 0, math.sqrt(0.5 / math.pi) / wnp.sqrt(wnp.where(low > 0, low, 1)), 1
    )


def beta_binomial_slope(k, m, a, b):
    """The derivative by a: digamma(a + k) - digamma(a) - digamma(a + b + k + m) + digamma(a + b), in pairs of close terms."""
    low, high = wnp.minimum(b, k), wnp.maximum(b, k)
    return _digamma_rise(a, low) - _digamma_rise(a + high, low + m)


def count_slope(k, m, a, b):
    """The derivative by k."""
    return _digamma_rise(k + 1, m) - _digamma_rise(a + k, b + m)


log_beta_binomial.defjvps(
    lambda t, out, k, m, a, b: t * count_slope(k, m, a, b),
    lambda t, out, k, m, a, b: t * count_slope(m, k, b, a),
    lambda t, out, k, m, a, b: t * beta_binomial_slope(k, m, a, b),
    lambda t, out, k, m, a, b: t * beta_binomial_slope(m, k, b, a),
)


def log_gamma_density(unit: int) -> Callable:
    """Return log(m^(a - 1) exp(-m) / gamma(a)) as a function, where m = z / `unit` may underflow."""

    @custom_jvp
    def fun(z, a):
        is_small_shape, m = a < 1, z / unit
        many, order = wnp.where(is_small_shape, 0, a - 1), wnp.where(is_small_shape, a, 1)
        some = wnp.where(is_small_shape & (z > 0), z, 1)
        near = (
            log_quotient(order, some)
            + math.log(unit)
            + order * (wnp.log(some) - math.log(unit))
            - m
            - ew.lgamma(order + 1)
        )
        far = log_poisson_by_ratio(many, m, log_quotient(z, unit * wnp.where(many > 0, many, 1)))
        value = wnp.where(is_small_shape, wnp.where(z > 0, near, math.inf), far)
        return wnp.where(a > 0, value, math.nan)

    fun.defjvps(
        lambda t, out, z, a: t * (wnp.where(a == 1, 0, (a - 1) / z) - 1 / unit),
        lambda t, out, z, a: t * (log_less_digamma(z, a) - math.log(unit)),
    )
    return fun
