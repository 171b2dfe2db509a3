"""The Hurwitz zeta function and the derivatives of digamma.

In, out: floats of one dtype. Results in float32 are sums of doubles whose terms are accurate to
float32; smaller floats use these.

Source: Euler-Maclaurin formula for the sum of (q + k)^-s over k: explicit terms until q + k is
        large, an integral for the rest, and corrections with Bernoulli numbers. For negative q,
        where s must be an integer, the terms of either sign are two more such sums.
"""

from __future__ import annotations

import math
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import add, div, min, mul, neg, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.comparison import gt, select
from weft._engine.ops.families import FLOATING, function, of_scipy, scipy_special
from weft._engine.ops.functions.logarithmic import log
from weft._engine.ops.functions.powers import pow, power_in_double

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray, Value

#: the numbers of explicit terms and of corrections, by the bits of the result
_TERMS, _CORRECTIONS = {32: 4, 64: 8}, {32: 5, 64: 10}
# of s to the first q + k that is not summed: above it, the remaining terms are negligible
_LARGEST_RATIO = 40.0
_FACTORS = 20.0  # the largest argument whose factorial is exact in doubles
_STIRLING = 1e15  # orders above which the logarithm of a factorial needs only two terms
#: B(2j) / (2j)!: coefficients of the corrections, as many as a type can resolve
_BERNOULLI = [
    b / math.factorial(2 * j)
    for j, b in enumerate(
        (
            1 / 6,
            -1 / 30,
            1 / 42,
            -1 / 30,
            5 / 66,
            -691 / 2730,
            7 / 6,
            -3617 / 510,
            43867 / 798,
            -174611 / 330,
        ),
        1,
    )
]


# --- the formulas


def _corrections(f: Formulas, s: FormulaValue, a: FormulaValue, inverse: FormulaValue):
    """Return 1/2 plus the corrections for the terms from a^-s on, in units of a^-s."""
    first, *others = _BERNOULLI[: _CORRECTIONS[f.bits]]
    limit = a * _LARGEST_RATIO
    bounded = f.select(s > limit, limit, s)
    factor = bounded * inverse
    total = f.fma(factor, first, 0.5)
    for j, c in enumerate(others, 2):
        factor = factor * (
            ((bounded + (2.0 * j - 3)) * inverse) * ((bounded + (2.0 * j - 2)) * inverse)
        )
        total = f.fma(factor, c, total)
    return total


def _sum(f: Formulas, s: FormulaValue, q: FormulaValue):
    """Return zeta for finite s > 1 and finite q > 0, in doubles."""
    if not f.wide:
        return _sum_of_singles(f, s, q)
    total, a = f.pow(q, -s), q + float(_TERMS[64])
    for k in range(1, _TERMS[64]):
        total = total + f.pow(q + float(k), -s)
    inverse, power = 1.0 / a, f.pow(a, 1.0 - s)
    return total + (power / (s - 1.0) + power * inverse * _corrections(f, s, a, inverse))


def _sum_of_singles(f: Formulas, s: FormulaValue, q: FormulaValue):
    order, start = f.widen(s), f.widen(q)
    a, far = q + float(_TERMS[32]), start + float(_TERMS[32])
    total = power_in_double(f, far, -order) * (
        far / (order - 1.0) + f.widen(_corrections(f, s, a, 1.0 / a))
    )
    for k in range(_TERMS[32] - 1, 0, -1):
        total = total + power_in_double(f, start + float(k), -order)
    return total + power_in_double(f, start, -order)


def _round(f: Formulas, x: FormulaValue):
    """Round a double to the type of `f`."""
    return x if f.wide else f.narrow(x)


def _zeta_above_zero(f: Formulas, s: FormulaValue, q: FormulaValue):
    return _round(f, _sum(f, s, q))


def _is_whole(f: Formulas, x: FormulaValue):
    return f.trunc(x).same(x)


def _zeta_elsewhere(f: Formulas, s: FormulaValue, q: FormulaValue):
    return _zeta_of_any(f, s, q, _is_whole(f, s * 0.5))


def _zeta_of_any(f: Formulas, s: FormulaValue, q: FormulaValue, even: FormulaValue):
    """Return zeta unless both arguments are finite, s > 1 and q > 0.

    If terms are negative, `even` tells whether s is even.
    """
    start, whole = q - f.floor(q), _is_whole(f, s)
    inside = (s > 1.0) & (s < inf) & (q < 0.0) & (start > 0.0) & whole
    order = f.select(inside, s, 2.0)

    def above_zero(x: FormulaValue):
        return f.with_rare_case(f.c(0.0), inside, _zeta_above_zero, order, f.select(inside, x, 1.0))

    # the negative terms, from -1 + start to q, are those from 1 - start to -q up to their sign; 1 -
    # start is computed from -q, since `start` is rounded just below zero
    aside = -f.floor(-q) - q
    above, below, rest = above_zero(start), above_zero(aside), above_zero(1.0 - q)
    odd = above - below
    odd = (
        f.select(
            start.same(aside), 0.0, f.select(odd.is_nan(), f.copysign(inf, aside - start), odd)
        )
        + rest
    )
    y = f.select(even, above + (below - rest), odd)
    y = f.select(inside, y, nan)
    # for infinite order
    far = f.select(q > 1.0, 0.0, f.select(q.same(1.0), 1.0, f.select(q < 1.0, inf, f.c(nan))))
    y = f.select(s.same(inf), far, f.select(q.same(inf), 0.0, y))
    y = f.select((q <= 0.0) & start.same(0.0), inf, y)
    return f.select(s > 1.0, y, f.select(s.same(1.0), inf, f.c(nan)))


def _factorial(f: Formulas, m: FormulaValue):
    """Return the factorial of integers up to 20, in doubles."""

    def step(n: FormulaValue, product: FormulaValue) -> tuple[FormulaValue, list[FormulaValue]]:
        return n < m, [product * n]

    return f.repeat(step, 1.0)[0]


def _small_factorial(f: Formulas, m: FormulaValue):
    """Return a mask of the integers m from 1 to 20, and their factorials in doubles."""
    small = (m >= 1.0) & (m <= _FACTORS) & _is_whole(f, m)
    return small, _factorial(f.in_double(), f.widen(f.select(small, m, 1.0)))


def _of_large_order(f: Formulas, m: FormulaValue, x: FormulaValue, inside: FormulaValue):
    """Return m! zeta(m + 1, x) for positive numbers in doubles, and m! outside of `inside`.

    It is x^-(m + 1) m!, which is finite wherever the result is, times a sum of ratios.
    """
    s, terms, inverse = m + 1.0, float(_TERMS[64]), 1.0 / x
    a = x + terms
    tail = _corrections(f, s, a, 1.0 / a) + a / m

    def step(k: FormulaValue, total: FormulaValue):
        ratio = f.exp(-s * f.log1p(k * inverse))
        more = k < terms
        return more, [total + ratio * f.select(more, 1.0, tail)]

    total = f.repeat(step, 1.0)[0]
    many = m > _STIRLING
    few = f.select(many, 1.0, m)
    size = f.select(many, m * (f.log(m / x) - 1.0), f.lgamma(few + 1.0) - (few + 1.0) * f.log(x))
    root = f.exp(0.5 * size)
    return root * f.select(inside, total, 1.0) * root


def _polygamma_general(f: Formulas, m: FormulaValue, x: FormulaValue):
    """Return polygamma for orders outside of 1, ..., 20, or arguments not positive and finite."""
    g, ordinary, even = (
        f.in_double(),
        (m >= 1.0) & (m < inf) & _is_whole(f, m),
        _is_whole(f, m * 0.5),
    )
    # terms of either sign cancel
    x = f.select(even & (x < 0.0) & (x - f.floor(x)).same(0.5), 1.0 - x, x)
    inside = ordinary & (x > 0.0) & (x < inf)
    small, factorial = _small_factorial(f, m)
    product = _of_large_order(
        g, f.widen(f.select(ordinary, m, 1.0)), f.widen(f.select(inside, x, 1.0)), inside
    )
    product = g.select(small & ~inside, factorial, g.select(ordinary, product, nan))
    product = _round(f, g.select(x.same(inf) & ordinary, 1.0, product))
    size = f.select(
        inside, product, product * _zeta_of_any(f, m + 1.0, f.select(inside, 0.0, x), ~even)
    )
    return f.select(m.same(0.0), f.digamma(x), f.select(even, -size, size))


# --- the derivative by the order


def _zeta_by_order(s: Value, q: Value):
    """Return the derivative of zeta by s for s > 1 and q > 0, term by term as in `_sum`."""
    bits = 8 * typeof(q).dtype.itemsize
    terms, corrections = _TERMS[bits], _BERNOULLI[: _CORRECTIONS[bits]]
    total = mul(log(q), pow(q, neg(s)))
    for k in range(1, terms):
        total = add(total, mul(log(add(q, float(k))), pow(add(q, float(k)), neg(s))))
    a = add(q, float(terms))
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
    whole = add(
        mul(div(power, less), add(log_a, div(1.0, less))),
        mul(mul(power, inverse), sub(mul(log_a, add(rest, 0.5)), rest_slope)),
    )
    return neg(add(total, whole))


def _slope_by_order(t: Value, out: Value, s: Value, q: Value):
    """Return the tangent by the order s.

    For negative q zeta is defined only for integers s, so it has no derivative there.
    """
    ok = bitwise_and(gt(s, 1.0), gt(q, 0.0))
    s, q = select(ok, s, 2.0), select(ok, q, 1.0)
    dtype = typeof(q).dtype
    if dtype.itemsize < 4:
        slope = convert_element_type(
            _zeta_by_order(*[convert_element_type(x, np.dtype("f4")) for x in (s, q)]), dtype
        )
    else:
        slope = _zeta_by_order(s, q)
    return mul(t, select(ok, slope, np.nan))


# --- the operations


def _polygamma_reference(m: NumPyArray, x: NumPyArray):
    gamma, psi, zeta = (
        scipy_special("gamma"),
        scipy_special("psi"),
        scipy_special("zeta"),
    )
    x64 = np.asarray(x, np.float64)
    order = np.asarray(m, np.float64)
    x64 = np.where(x64 == -np.inf, np.nan, x64)  # poles at all negative integers
    sign_ = np.where(order % 2 == 0, -1.0, np.where(order % 2 == 1, 1.0, np.nan))
    size = np.where(
        (order > 150) & (x64 > 0),
        _large_derivative(order, x64),
        gamma(order + 1) * zeta(order + 1, x64),
    )
    return np.where(order == 0, psi(x64), sign_ * size).astype(x.dtype)


def _large_derivative(m: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return gamma(m + 1) zeta(m + 1, x) for large m, whose factors may over- and underflow."""
    gammaln = scipy_special("gammaln")
    exponent = np.where(m > 1e18, m * (np.log(m / x) - 1), gammaln(m + 1) - (m + 1) * np.log(x))
    ratios = 1 + sum(np.exp(-(m + 1) * np.log1p(k / x)) for k in range(1, 24))
    tail = np.exp(-(m + 1) * np.log1p(24 / x)) * ((x + 24) / m + 0.5)
    return np.where(np.isinf(x), 0.0, np.exp(exponent) * (ratios + tail))


@function(
    FLOATING,
    _polygamma_reference,
    jvp=[None, lambda t, out, m, x: mul(t, polygamma(add(m, 1), x))],
    ulp=(1.5, 2000),
    ranges=((0, 10), (0, 30), (0.5, 2)),
)
def polygamma(f: Formulas, m: FormulaValue, x: FormulaValue):
    """Return the derivative of order `m` of `digamma` at `x`; `m` has the dtype of `x`.

    It is NaN for orders that are negative or not integers.
    """
    small, factorial = _small_factorial(f, m)
    plain = small & (x > 0.0) & (x < inf)
    size = _round(f, factorial * _sum(f, m + 1.0, x))
    return f.with_rare_case(
        f.select(_is_whole(f, m * 0.5), -size, size), ~plain, _polygamma_general, m, x
    )


def _zeta_reference(x: NumPyArray, q: NumPyArray):
    # poles at all negative integers
    return of_scipy("zeta", wide=True)(x, np.where(q == -np.inf, np.nan, q))


@function(
    FLOATING,
    _zeta_reference,
    ulp=(1.5, 20),
    ranges=((0, 10), (1, 60), (0.5, 2)),
    jvp=[_slope_by_order, lambda t, out, x, q: neg(mul(t, mul(x, zeta(add(x, 1), q))))],
)
def zeta(f: Formulas, x: FormulaValue, q: FormulaValue):
    """Return the Hurwitz zeta function, the sum of 1 / (q + k)^x over k = 0, 1, ..."""
    plain = (x > 1.0) & (x < inf) & (q > 0.0) & (q < inf)
    return f.with_rare_case(_round(f, _sum(f, x, q)), ~plain, _zeta_elsewhere, x, q)
