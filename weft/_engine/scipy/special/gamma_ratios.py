"""Functions of ratios of gammas: the beta function and its logarithm, the rising factorial.

In:   real arrays.
Out:  arrays of the same dtype.
Laws: for negative arguments of a gamma function, the reflection formula applies. Stirling's series is written so that its
      large terms cancel algebraically. Derivatives are differences of digammas, as sums of terms of one sign.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops import elementwise as ew
from weft._engine.ops.comparison import select
from weft._engine.scipy.special.basic import _binary
from weft._engine.util.source import guard_all

__all__ = ["beta", "betaln", "poch"]


def _angle(x):
    """Return the nearest integer, and pi times the difference from it."""
    nearest = ew.round(x, ew.RoundingMethod.TO_NEAREST_EVEN)
    return nearest, ew.mul(select(ew.eq(nearest, 0), x, ew.sub(x, nearest)), math.pi)


def _sine(x):
    """sin(pi x), with exact zeros."""
    nearest, angle = _angle(x)
    sine = ew.sin(angle)
    return select(ew.eq(ew.rem(nearest, 2), 0), sine, ew.neg(sine))


def _cotangent(x):
    """pi cot(pi x)."""
    return ew.div(math.pi, ew.tan(_angle(x)[1]))


def _sine_ratio(x, step):
    """sin(pi (x + step)) / sin(pi x); at integers x, the limit for a fixed integer step."""
    cancelled = _all(_is_integer(x), _is_integer(step))
    sign = ew.sub(1, ew.mul(ew.abs(ew.rem(step, 2)), 2))
    return select(cancelled, sign, ew.div(_sine(ew.add(x, step)), select(cancelled, 1, _sine(x))))


def _is_integer(x):
    return ew.eq(ew.floor(x), x)


def _all(*conditions):
    out = conditions[0]
    for condition in conditions[1:]:
        out = ew.bitwise_and(out, condition)
    return out


def _log_beta_of_positive(a, b, scaled: Any = False):
    """Return log B(a, b) for a, b >= 0; with `scaled`, log(min(a, b) B(a, b)).

    For a large argument, the logarithms of two gammas are large and nearly equal. Their difference is computed by
    Stirling's series, whose large terms cancel algebraically.
    """
    low, high = ew.min(a, b), ew.max(a, b)
    long = _all(ew.ge(high, 10), ew.lt(high, math.inf))
    h, d = select(long, high, 10), select(long, low, 1)
    total = ew.add(h, d)
    fall = ew.sub(
        ew.sub(ew.mul(d, ew.sub(1, ew.log(total))), ew.mul(ew.sub(h, 0.5), ew.log1p(ew.div(d, h)))),
        ew.sub(_stirling_rest(total), _stirling_rest(h)),
    )
    infinite = _all(ew.eq(high, math.inf), ew.gt(low, 0))
    short = select(ew.eq(low, 0), 0, ew.sub(ew.lgamma(high), ew.lgamma(ew.add(low, high))))
    return select(
        infinite,
        -math.inf,
        ew.add(ew.lgamma(select(scaled, ew.add(low, 1), low)), select(long, fall, short)),
    )


class _Reflected(NamedTuple):
    """B(a, b) as B(*positive) or, where `inverse`, its reciprocal, times factor / divisor, or / divisor^2 where `twice`."""

    positive: tuple[Any, Any]
    inverse: Any
    factor: Any
    divisor: Any
    twice: Any


def _reflect(a, b) -> _Reflected:
    """Return the parts of B(a, b) where an argument is negative, in terms of the beta function of positive arguments.

    With s(x) = sin(pi x), a the smaller argument and c = a + b:

    - a < 0 <= b, c <= 0: B(a, b) = B(1 - c, b) s(c) / s(a)
    - a < 0 < b, 0 < c: B(a, b) = -pi / (a s(a)) / B(-a, c)
    - a <= b < 0: B(a, b) = pi s(c) / (s(a) s(b) (1 - c)) / B(1 - a, 1 - b)
    """
    swapped = ew.lt(b, a)
    low, high = select(swapped, b, a), select(swapped, a, b)
    total = ew.add(low, high)
    are_both_negative, left = ew.lt(high, 0), _all(ew.ge(high, 0), ew.le(total, 0))
    middle = ew.gt(total, 0)
    p = select(middle, ew.neg(low), select(left, ew.sub(1, total), ew.sub(1, low)))
    q = select(middle, total, select(left, high, ew.sub(1, high)))
    ratio = _sine_ratio(select(middle, -0.5, low), select(middle, 0.25, high))
    # s(b) as b times a quotient, which is pi where s(b) is inaccurate
    tiny = ew.bitwise_or(ew.lt(ew.abs(high), 1e-10), ew.bitwise_not(are_both_negative))
    quotient = select(tiny, math.pi, ew.div(_sine(select(tiny, 0.5, high)), select(tiny, 1, high)))
    ratio = select(
        are_both_negative,
        ew.mul(
            ratio, ew.div(ew.div(math.pi, quotient), ew.sub(1, select(are_both_negative, total, 0)))
        ),
        ratio,
    )
    beyond = ew.div(ew.mul(low, -math.pi), _sine(select(middle, low, 0.5)))
    divisor = select(middle, low, select(are_both_negative, high, 1))
    return _Reflected((p, q), ew.bitwise_not(left), select(middle, beyond, ratio), divisor, middle)


def _poles(a, b):
    """True where a gamma of the numerator has a pole that the denominator does not cancel; False if one argument is 0 and one positive.

    The pole cancels where the other argument is a positive integer and the sum is not positive, in the limit for a fixed integer.
    """
    low, high = ew.min(a, b), ew.max(a, b)
    cancelled = _all(ew.lt(low, 0), _is_integer(high), ew.gt(high, 0), ew.le(ew.add(a, b), 0))
    at_pole = [_all(ew.le(x, 0), ew.gt(x, -math.inf), _is_integer(x)) for x in (low, high)]
    return _all(
        ew.bitwise_or(*at_pole),
        ew.bitwise_not(cancelled),
        ew.bitwise_or(ew.lt(low, 0), ew.eq(high, 0)),
    )


def _roots(a, b):
    """True where only the gamma of the denominator has a pole."""
    total = ew.add(a, b)
    return _all(
        ew.le(total, 0), _is_integer(total), ew.bitwise_not(_is_integer(a)), ew.gt(total, -math.inf)
    )


def _parts(a, b) -> tuple[Any, tuple, _Reflected]:
    """Return a mask of negative arguments, the arguments where none is negative, and the reflected parts where one is."""
    negative = ew.bitwise_or(ew.lt(a, 0), ew.lt(b, 0))
    inner = tuple(select(negative, 1, x) for x in (a, b))
    return (
        negative,
        inner,
        _reflect(*[select(negative, x, y) for x, y in zip((a, b), (-0.5, 0.25))]),
    )


def _log_of_reflected(parts: _Reflected):
    log_divisor = ew.log(ew.abs(parts.divisor))
    log_divisor = ew.add(log_divisor, select(parts.twice, log_divisor, 0))
    size = _log_beta_of_positive(*parts.positive)
    return ew.add(
        select(parts.inverse, ew.neg(size), size), ew.sub(ew.log(ew.abs(parts.factor)), log_divisor)
    )


@custom_jvp
def _betaln(a, b):
    negative, inner, parts = _parts(a, b)
    value = select(negative, _log_of_reflected(parts), _log_beta_of_positive(*inner))
    return select(_poles(a, b), math.inf, value)


_betaln.defjvps(
    lambda t, out, a, b: ew.neg(ew.mul(t, _digamma_rise(a, b))),
    lambda t, out, a, b: ew.neg(ew.mul(t, _digamma_rise(b, a))),
)


def _shift(a, b) -> tuple[Any, Any, Any]:
    """Return, for a, b >= 0, log B of shifted arguments that are not small, a numerator and a denominator.

    B(a, b) is the exponential times the quotient.
    """
    low, high = ew.min(a, b), ew.max(a, b)
    small = ew.lt(low, 1)
    scaled = _all(small, ew.ge(high, 10))
    one, two = _all(small, ew.lt(high, 10)), ew.lt(high, 1)
    size = _log_beta_of_positive(
        select(one, ew.add(low, 1), low), select(two, ew.add(high, 1), high), scaled
    )
    total = ew.add(low, high)
    above = select(
        two,
        ew.mul(ew.add(total, 1), ew.add(ew.div(low, select(two, high, 1)), 1)),
        select(one, total, 1),
    )
    return size, above, select(small, low, 1)


def _beta_of_reflected(parts: _Reflected, scale):
    """The reflected value times `scale`, a small number that keeps the product finite."""
    size, above, below = _shift(*parts.positive)
    root = ew.exp(ew.mul(size, -0.5))
    inverse = ew.mul(
        ew.mul(ew.div(below, select(parts.twice, parts.divisor, 1)), root), ew.div(root, above)
    )
    root = ew.exp(ew.mul(size, 0.5))
    straight = ew.mul(ew.mul(ew.div(scale, below), root), ew.mul(above, root))
    return ew.mul(
        select(parts.inverse, ew.mul(inverse, ew.div(scale, parts.divisor)), straight), parts.factor
    )


def _scaled_beta(a, b, scale):
    """B(a, b) times `scale`."""
    negative, inner, parts = _parts(a, b)
    size, above, below = _shift(*inner)
    root = ew.exp(ew.mul(size, 0.5))  # multiplied twice, since the exponential may be subnormal
    value = ew.mul(ew.mul(ew.div(scale, below), root), ew.mul(above, root))
    value = select(negative, _beta_of_reflected(parts, scale), value)
    return select(_poles(a, b), ew.mul(math.inf, ew.sign(scale)), value)


@custom_jvp
def _beta_off_roots(a, b):
    return _scaled_beta(a, b, ew.add(ew.mul(b, 0), 1))


def _beta_slope(t, out, a, b):
    """The derivative by the first argument. For a small second one, combine a large value and a small logarithmic derivative."""
    share = select(_all(ew.lt(ew.abs(b), 1), ew.ne(b, 0)), b, 1)
    return ew.neg(ew.mul(t, ew.mul(_scaled_beta(a, b, share), _digamma_rise(a, b, share))))


_beta_off_roots.defjvps(_beta_slope, lambda t, out, a, b: _beta_slope(t, out, b, a))


@custom_jvp
def _beta_over_sine(a, b):
    """B(a, b) / sin(pi (a + b)) where an argument is negative and B is zero."""
    total = ew.add(a, b)
    left = ew.bitwise_or(ew.gt(a, 0), ew.gt(b, 0))
    low, high = ew.min(a, b), ew.max(a, b)
    p = select(left, ew.sub(1, total), ew.sub(1, low))
    size = _log_beta_of_positive(p, select(left, high, ew.sub(1, high)))
    outer = ew.div(ew.exp(select(left, size, ew.neg(size))), _sine(low))
    return select(
        left, outer, ew.div(ew.mul(outer, ew.div(math.pi, ew.sub(1, total))), _sine(high))
    )


def _beta_over_sine_slope(t, out, a, b):
    return ew.mul(t, ew.mul(out, ew.sub(ew.digamma(a), ew.digamma(ew.sub(1, ew.add(a, b))))))


_beta_over_sine.defjvps(
    _beta_over_sine_slope, lambda t, out, a, b: _beta_over_sine_slope(t, out, b, a)
)


def _beta(a, b):
    root = _roots(a, b)
    inner = [select(root, y, x) for x, y in zip((a, b), (1, 1))]
    outer = [select(root, x, y) for x, y in zip((a, b), (-0.5, 0.25))]
    return select(
        root, ew.mul(_beta_over_sine(*outer), _sine(ew.add(*outer))), _beta_off_roots(*inner)
    )


def _stirling_rest(x):
    """lgamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), for x >= 10."""
    inverse = ew.div(1, x)
    step, out = ew.square(inverse), 0.0
    for term in reversed((1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)):
        out = ew.add(ew.mul(step, out), term)
    return ew.mul(out, inverse)


#: coefficients of the powers of 1 / x^2 in log(x) - 1 / (2 x) - digamma(x)
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _rise_of_positive(x, y, b, share):
    """(digamma(y) - digamma(x)) / share for positive x and y = x + b, as a sum of terms with the factor b and one sign."""
    step, out = ew.div(b, share), 0.0
    for k in range(10):  # digamma(x + 1) = digamma(x) + 1 / x
        low, high = ew.add(x, k), ew.add(y, k)
        far = ew.gt(b, low)  # where the derivative of the product cancels
        term = ew.div(ew.div(step, high), low)
        out = ew.add(out, select(far, ew.div(ew.sub(ew.div(1, low), ew.div(1, high)), share), term))
    x, y = ew.add(x, 10), ew.add(y, 10)
    ratio = ew.div(b, x)
    little = ew.lt(ew.abs(ratio), 1e-20)
    ratio = select(little, 1, ratio)
    logs = ew.add(select(little, 1, ew.div(ew.log1p(ratio), ratio)), ew.div(0.5, y))
    p, q = ew.square(ew.div(1, x)), ew.square(ew.div(1, y))
    series, powers, power = 0.0, 1.0, q  # p^j - q^j is p - q times a sum of powers
    for c in _DIGAMMA_SERIES:
        series, powers, power = (
            ew.add(series, ew.mul(c, powers)),
            ew.add(ew.mul(powers, p), power),
            ew.mul(power, q),
        )
    return ew.add(
        out,
        ew.add(
            ew.mul(ew.div(step, x), logs),
            ew.mul(ew.mul(ew.mul(ew.div(step, y), p), ew.add(1, ew.div(x, y))), series),
        ),
    )


def _digamma_rise(a, b, share=1.0):
    """Return (digamma(a + b) - digamma(a)) / share; where both digammas have poles, the limit for integer b."""
    total = ew.add(a, b)
    from_left, to_left = ew.lt(a, 0), ew.le(total, 0)
    x, y = select(from_left, ew.sub(1, a), a), select(to_left, ew.sub(1, total), total)
    crossing = ew.ne(from_left, to_left)
    change = select(crossing, ew.sub(y, x), select(from_left, ew.neg(b), b))
    return ew.add(_rise_of_positive(x, y, change, share), _reflected_rise(a, b, total, share))


@custom_jvp
def _cotangent_difference(x, step):
    """pi cot(pi x) - pi cot(pi (x + step)); at integers x, the limit for a fixed integer step."""
    sine, sine_of_sum, sine_of_step = _sine(x), _sine(ew.add(x, step)), _sine(step)
    cancelled = _all(ew.eq(sine, 0), ew.eq(sine_of_step, 0))
    return ew.div(ew.mul(sine_of_step, math.pi), select(cancelled, 1, ew.mul(sine, sine_of_sum)))


def _cotangent_difference_slope(t, out, x, step):
    """The difference of the squares of pi / sin(pi x) and pi / sin(pi (x + step)) as a product."""
    is_noninteger = ew.bitwise_not(_is_integer(step))
    x = select(is_noninteger, x, 0.5)
    total = ew.add(x, step)
    sines = ew.mul(_sine(step), _sine(ew.add(x, total)))
    divisor = ew.mul(_sine(x), _sine(total))
    return ew.mul(
        t,
        select(
            is_noninteger, ew.neg(ew.mul(ew.div(sines, divisor), ew.div(math.pi**2, divisor))), 0
        ),
    )


_cotangent_difference.defjvps(
    _cotangent_difference_slope,
    lambda t, out, x, step: ew.mul(t, ew.square(ew.div(math.pi, _sine(ew.add(x, step))))),
)


def _reflected_rise(a, b, total, share):
    """The terms pi cot(pi z) of the reflection of a and of a + b, zero where both are positive."""
    from_left, to_left = ew.lt(a, 0), ew.le(total, 0)
    are_both_negative = _all(from_left, to_left)
    inner = select(are_both_negative, a, -0.5)
    tiny = ew.bitwise_and(ew.lt(ew.abs(b), 1e-10), ew.bitwise_not(_is_integer(inner)))
    little = ew.div(
        ew.mul(ew.div(b, share), math.pi**2), ew.square(_sine(select(tiny, inner, 0.5)))
    )
    difference = select(
        tiny,
        little,
        ew.div(_cotangent_difference(inner, select(are_both_negative, b, 0.25)), share),
    )
    from_right = ew.neg(_cotangent(select(_all(to_left, ew.bitwise_not(from_left)), total, 0.5)))
    to_right = _cotangent(select(_all(from_left, ew.bitwise_not(to_left)), a, 0.5))
    crossing = ew.div(select(from_left, to_right, from_right), share)
    return select(are_both_negative, difference, select(ew.ne(from_left, to_left), crossing, 0))


betaln = _binary("betaln", _betaln, "The logarithm of the beta function.", "a b")
beta = _binary("beta", _beta, "The beta function.", "a b", weak=False)


@custom_jvp
def _poch_away_from_zero(z, m):
    """Return the rising factorial by Stirling's series of both gammas.

    Their large terms cancel algebraically, after upward steps to the range of the series. The factors of the steps are multiplied between
    two halves of the exponential, which may overflow.
    """
    total = ew.add(z, m)
    inside = ew.bitwise_and(ew.gt(z, 0), ew.gt(total, 0))
    a, b, m = select(inside, z, 1), select(inside, total, 1), select(inside, m, 0)
    low, steps, factors = ew.min(a, b), ew.mul(m, 0), []
    for k in range(10):
        counts = ew.lt(ew.add(low, k), 10)
        steps = select(counts, k + 1, steps)
        numerator = ew.add(a, k)
        close = ew.lt(m, numerator)  # then one less a part of it, with one rounding
        share = ew.div(select(close, m, numerator), ew.add(b, k))
        factors.append(select(counts, select(close, ew.sub(1, share), share), 1))
    a, b = ew.add(a, steps), ew.add(b, steps)
    log = ew.add(
        ew.add(ew.mul(m, ew.sub(ew.log(b), 1)), ew.mul(ew.sub(a, 0.5), ew.log1p(ew.div(m, a)))),
        ew.sub(_stirling_rest(b), _stirling_rest(a)),
    )
    half = ew.exp(ew.mul(log, 0.5))
    out = half
    for factor in factors:
        out = ew.mul(out, factor)
    plain = ew.exp(ew.sub(ew.lgamma(total), ew.lgamma(z)))
    return select(
        ew.eq(m, 0),
        select(inside, 1, plain),
        select(ew.eq(half, math.inf), half, ew.mul(out, half)),
    )


_poch_away_from_zero.defjvps(
    lambda t, out, z, m: ew.mul(t, ew.mul(out, _digamma_rise(z, m))),
    lambda t, out, z, m: ew.mul(t, ew.mul(out, ew.digamma(ew.add(z, m)))),
)


def _poch(z, m):
    """The rising factorial; near z = 0 as z times a function of z + 1, so that derivatives are no differences of reciprocals."""
    near = _all(ew.gt(z, 0), ew.lt(z, 0.5), ew.ge(m, 0.5))
    value = _poch_away_from_zero(select(near, ew.add(z, 1), z), select(near, ew.sub(m, 1), m))
    return select(near, ew.mul(z, value), value)


poch = _binary(
    "poch",
    _poch,
    "The rising factorial gamma(z + m) / gamma(z), for positive z and z + m.",
    "z m",
    weak=False,
)

guard_all(globals())
