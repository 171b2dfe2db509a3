"""The Hurwitz zeta function, computed with powers.

In, out: floats of one dtype, of 32 bits or more.
Source: Euler's and Maclaurin's formula for the sum of (q + k)^-s over k: terms one by one until q + k is large, an integral for the rest,
and corrections by Bernoulli's numbers. Below zero, where s is whole, the terms of either sign are two more such sums.
"""

from __future__ import annotations

import math

import numpy as np

from weft.core.trace import typeof
from weft.ops.arithmetic import add, div, floor, min, mul, neg, sub
from weft.ops.comparison import eq, le, lt, ne, select
from weft.ops.math import pow

_TERMS = 9                      # summed one by one
_LARGEST_RATIO = 40.0           # of s and q + _TERMS: beyond it, what follows these terms is nothing beside them
#: B(2j) / (2j)!: of the corrections, as many as a type can tell
_BERNOULLI = [b / math.factorial(2 * j) for j, b in enumerate(
    (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), 1)]
_CORRECTIONS = {"float32": 4, "float64": 10}


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


def zeta(s, q):
    """The sum of (q + k)^-s over k = 0, 1, ... of floats of at least 32 bits."""
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
