"""The Hurwitz zeta function and the derivatives of digamma, made of powers.

In, out: floats of one dtype; those of 16 bits and fewer compute in float32.
Source: Euler's and Maclaurin's formula for the sum of (q + k)^-s over k: terms one by one until q + k is large, an integral for the rest,
and corrections by Bernoulli's numbers. Below zero, where s is whole, the terms of either sign are two more such sums.
"""

from __future__ import annotations

import math

import numpy as np

from weft.core.trace import typeof
from weft.ops.arithmetic import add, div, min, mul, neg, sub
from weft.ops.bitwise import bitwise_and
from weft.ops.casting import convert_element_type
from weft.ops.comparison import eq, gt, le, lt, ne, select
from weft.ops.families import FLOATING, ExpandSpec, elementwise, match, of_scipy
from weft.ops.functions.exponential import exp
from weft.ops.functions.gammas import digamma, lgamma
from weft.ops.functions.logarithmic import log
from weft.ops.functions.powers import pow
from weft.ops.functions.rounding import floor

_TERMS = 9                      # summed one by one
_FACTORS = 20                   # of a factorial
_LARGEST_RATIO = 40.0           # of s and q + _TERMS: beyond it, what follows these terms is nothing beside them
#: B(2j) / (2j)!: of the corrections, as many as a type can resolve
_BERNOULLI = [b / math.factorial(2 * j) for j, b in enumerate(
    (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), 1)]
_CORRECTIONS = {"float32": 4, "float64": 10}


def _made_of_powers(function):
    """Lowering to other operations; sixteen bits are computed in float32."""
    def compute(*xs):
        dtype = typeof(xs[0]).dtype
        if dtype.itemsize >= 4:
            return function(*xs)
        return convert_element_type(function(*(convert_element_type(x, np.dtype("f4")) for x in xs)), dtype)
    return ExpandSpec(compute)


def _above_zero(s, q):
    """zeta of s > 1 and q >= 0."""
    corrections = _BERNOULLI[:_CORRECTIONS[typeof(q).dtype.name]]
    total = pow(q, neg(s))
    for k in range(1, _TERMS):
        total = add(total, pow(add(q, float(k)), neg(s)))
    a = add(q, float(_TERMS))
    bounded, inverse = min(s, mul(a, _LARGEST_RATIO)), div(1.0, a)
    factor = mul(bounded, inverse)
    rest = mul(factor, corrections[0])
    for j, c in enumerate(corrections[1:], 2):
        factor = mul(factor, mul(mul(add(bounded, 2.0 * j - 3), inverse), mul(add(bounded, 2.0 * j - 2), inverse)))
        rest = add(rest, mul(factor, c))
    power = pow(a, sub(1.0, s))
    return add(total, add(div(power, sub(s, 1.0)), mul(mul(power, inverse), add(rest, 0.5))))


def _zeta(s, q):
    below, start = lt(q, 0.0), sub(q, floor(q))
    value = _above_zero(s, select(below, start, q))
    # the terms below zero, that of -1 + start to that of q, are those of 1 - start to -q but for their sign; 1 - start is taken
    # from -q, since close below zero `start` is rounded
    aside = select(below, sub(neg(floor(neg(q))), q), 1.0)
    under = sub(_above_zero(s, aside), _above_zero(s, select(below, sub(1.0, q), 1.0)))
    odd = ne(floor(mul(s, 0.5)), mul(s, 0.5))
    value = select(below, add(value, select(odd, neg(under), under)), value)
    value = select(le(q, 0.0), select(eq(start, 0.0), np.inf, select(eq(floor(s), s), value, np.nan)), value)
    return select(lt(s, 1.0), np.nan, select(eq(s, 1.0), np.inf, value))


def _zeta_by_order(s, q):
    """The derivative of zeta by s, for s > 1 and q > 0: that of each term of `_above_zero`."""
    corrections = _BERNOULLI[:_CORRECTIONS[typeof(q).dtype.name]]
    total = mul(log(q), pow(q, neg(s)))
    for k in range(1, _TERMS):
        total = add(total, mul(log(add(q, float(k))), pow(add(q, float(k)), neg(s))))
    a = add(q, float(_TERMS))
    bounded, inverse = min(s, mul(a, _LARGEST_RATIO)), div(1.0, a)
    factor, slope = mul(bounded, inverse), inverse
    rest, rest_slope = mul(factor, corrections[0]), mul(slope, corrections[0])
    for j, c in enumerate(corrections[1:], 2):
        one, two = (mul(add(bounded, 2.0 * j - k), inverse) for k in (3, 2))
        slope = add(mul(slope, mul(one, two)), mul(factor, mul(inverse, add(one, two))))
        factor = mul(factor, mul(one, two))
        rest, rest_slope = add(rest, mul(factor, c)), add(rest_slope, mul(slope, c))
    less = sub(s, 1.0)
    power, log_a = pow(a, neg(less)), log(a)
    whole = add(mul(div(power, less), add(log_a, div(1.0, less))), mul(mul(power, inverse), sub(mul(log_a, add(rest, 0.5)), rest_slope)))
    return neg(add(total, whole))


def _slope_by_order(t, out, s, q):
    """Below zero zeta is there for whole s alone: it has no slope."""
    ok = bitwise_and(gt(s, 1.0), gt(q, 0.0))
    slope = _made_of_powers(_zeta_by_order).fn(select(ok, s, 2.0), select(ok, q, 1.0))
    return mul(t, select(ok, slope, np.nan))


def _polygamma(m, x):
    size = mul(_factorial(m), _zeta(add(m, 1.0), x))
    odd = ne(floor(mul(m, 0.5)), mul(m, 0.5))
    return select(eq(m, 0.0), digamma(x), select(odd, size, neg(size)))


def _factorial(m):
    """Exactly rounded where a product of whole numbers gives it."""
    product = m
    for k in range(1, _FACTORS):
        left = sub(m, float(k))
        product = mul(product, select(gt(left, 1.0), left, 1.0))
    listed = bitwise_and(le(m, float(_FACTORS)), eq(floor(m), m))
    return select(listed, product, exp(lgamma(add(m, 1.0))))


# --- the operations


def _polygamma_reference(m, x):
    from scipy.special import gamma, psi, zeta
    wide = np.asarray(x, np.float64)
    order = np.asarray(m, np.float64)
    sign_ = np.where(order % 2 == 0, -1.0, 1.0)
    return np.where(order == 0, psi(wide), sign_ * gamma(order + 1) * zeta(order + 1, wide)).astype(x.dtype)


polygamma_p = elementwise("polygamma", FLOATING, _polygamma_reference, lower=_made_of_powers(_polygamma),
                          jvp=[None, lambda t, out, m, x: mul(t, polygamma(add(m, 1), x))])
zeta_p = elementwise("zeta", FLOATING, lambda x, q: of_scipy("zeta", wide=True)(x, q), lower=_made_of_powers(_zeta),
                     jvp=[_slope_by_order, lambda t, out, x, q: neg(mul(t, mul(x, zeta(add(x, 1), q))))])


def polygamma(m, x):
    """The derivative of order `m` of `digamma` at `x`; `m` is a whole number of the dtype of `x`."""
    return polygamma_p.bind(*match(m, x))


def zeta(x, q):
    """The Hurwitz zeta function, the sum of 1 / (q + k)^x over k = 0, 1, ..."""
    return zeta_p.bind(*match(x, q))
