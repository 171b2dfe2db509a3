"""Quotients and their logarithms: x log(x / m) - (x - m) without cancellation, log(x / y) beyond the range of x / y.

In:  arrays of one floating dtype.
Out: arrays of that dtype.
Source: C. Loader, "Fast and accurate computation of binomial probabilities" (2000).
"""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.util import dtypes

#: coefficients of the powers of s^2, s = t / (2 + t), in t - log(1 + t) for |t| < 2/5
_ODD = tuple([1 / k for k in range(3, 33, 2)])
_NEAR = 0.4


def deviance(x, gap, log_ratio):
    """x (r - 1 - log(r)) for x >= 0, where r - 1 is `gap` / x; `log_ratio` is log(r), used where r is not close to 1."""
    is_positive = x > 0
    t = gap / wnp.where(is_positive, x, 1)
    near = is_positive & (wnp.abs(t) < _NEAR)
    t = wnp.where(near, t, 0)
    s = t / (t + 2)
    square, series = s * s, 0.0
    for c in reversed(_ODD if x.dtype.itemsize > 4 else _ODD[:6]):
        series = series * square + c
    far = is_positive & ~near & (gap < math.inf)
    return wnp.where(
        near, x * (s * (t - 2 * square * series)), gap - wnp.where(far, x * log_ratio, 0)
    )


def magnitude_exponent(x) -> int:
    """Return an exponent of two that scales the smallest, or the largest, numbers into the middle of the type's range."""
    return int(dtypes.finfo(x.dtype).maxexp * 0.6)


@custom_jvp
def log_quotient(x, y):
    """log(x / y) of positive numbers, even if the quotient overflows or underflows."""
    quotient, power = x / y, magnitude_exponent(x)
    over, under = quotient == math.inf, quotient < float(dtypes.finfo(x.dtype).smallest_normal)
    up, down = 2.0**power, 2.0**-power
    moved = (x * wnp.where(under, up, down)) / (y * wnp.where(under, down, up))
    shift = wnp.where(over, 2 * power * math.log(2), wnp.where(under, -2 * power * math.log(2), 0))
    return wnp.log(wnp.where(over | under, moved, quotient)) + shift


log_quotient.defjvps(lambda t, out, x, y: t / x, lambda t, out, x, y: -t / y)
