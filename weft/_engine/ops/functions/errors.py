"""Error functions, and the functions of the normal distribution that use them."""

from __future__ import annotations

import math
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import add, div, mul, neg, square, sub
from weft._engine.ops.comparison import gt, le, select
from weft._engine.ops.families import FLOATING, function, of_scipy
from weft._engine.ops.functions.exponential import exp
from weft._engine.ops.functions.logarithmic import log_of_normal, rough_log_of_normal
from weft._engine.ops.functions.roots import sqrt
from weft._engine.util.lazy import scipy_module

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray, Value


def _bell(f: Formulas, x: FormulaValue, y: FormulaValue):
    """Return exp(-x y) from the exact product x y."""
    product = x * y
    e = f.exp(-product)
    return f.fma(-f.exact_fma(x, y, -product), e, e)


def _erfc_tail(f: Formulas, size: FormulaValue):
    """Return erfc(x) for x >= 0."""
    bound = 28.0 if f.wide else 11.0
    x = f.select(size > bound, bound, size)
    e = _bell(f, x, x)
    t = (x - 4.0) / (x + 4.0)
    return e * f.poly(t, "erfc") / f.fma(x, 2.0, 1.0)


def _erf_excess(f: Formulas, x: FormulaValue):
    """Return erf(x) / x - 1 for |x| <= 1: a small number, so that adding it to one rounds little."""
    return f.horner(x * x, (*f.table("erf")[:-1], 0.1283791670955126))


@function(
    FLOATING,
    of_scipy("erf"),
    jvp=[lambda t, out, x: mul(t, mul(2 / math.sqrt(math.pi), exp(neg(square(x)))))],
    ulp=(1.5, 2.5),
    ranges=((-6, 6), (-1, 1)),
)
def erf(f: Formulas, x: FormulaValue):
    """Return the error function of `x`."""
    size = f.abs(x)
    if not f.wide:
        return f.copysign(
            f.piecewise(f.select(size > 3.9375, 15.75, size * 4.0), "erf", 0.28125), x
        )
    near = f.fma(x, _erf_excess(f, x), x)
    far = f.copysign(1.0 - _erfc_tail(f, size), x)
    y = f.select(size < 1.0, near, far)
    return f.select(x.is_nan(), x, y)


@function(
    FLOATING,
    of_scipy("erfc"),
    jvp=[lambda t, out, x: mul(t, mul(-2 / math.sqrt(math.pi), exp(neg(square(x)))))],
    ulp=(4, 4.5),
    ranges=((-6, 10), (-1, 1), (0, 27)),
    points=(0.5, 10.0545, 26.543),
)
def erfc(f: Formulas, x: FormulaValue):
    """Return `1 - erf(x)`, accurate for large `x`."""
    size = f.abs(x)
    tail = _erfc_tail(f, size)
    near = (1.0 - x) - x * _erf_excess(f, x)
    y = f.select(x < 0.5, f.select(size < 1.0, near, 2.0 - tail), tail)
    return f.select(x.is_nan(), x, y)


#: polynomials of erf_inv(x) / x in single precision: in w = -log(1 - x^2) for w < 5, else in
#: sqrt(w) - 3
_ERF_INV_NEAR = (
    -9.195303e-09,
    2.304914e-07,
    -2.0692157e-06,
    4.477407e-06,
    4.301338e-05,
    -0.00012456848,
    -0.0023374597,
    0.011550473,
    0.23201336,
    0.88622695,
)
_ERF_INV_FAR = (
    0.00012895449,
    -0.0003173538,
    -7.737632e-05,
    0.0014934855,
    -0.0035859875,
    0.005684607,
    -0.0076398007,
    0.009445347,
    1.0016751,
    2.8329768,
)


def _erf_inv_far(f: Formulas, w: FormulaValue):
    return f.horner(f.sqrt(w) - 3.0, _ERF_INV_FAR)


def _erf_inv_ratio(f: Formulas, w: FormulaValue):
    """Return erf_inv(x) / x from w = -log(1 - x^2), in single precision."""
    return f.with_rare_case(f.horner(w, _ERF_INV_NEAR), w >= 5.0, _erf_inv_far, w)


@function(
    FLOATING,
    of_scipy("erfinv", odd=True),
    jvp=[lambda t, out, x: mul(t, mul(math.sqrt(math.pi) / 2, exp(square(out))))],
    cost=30,
    ulp=(2.5, 4),
    ranges=((-1, 1), (0.999, 1), (1 - 1e-11, 1)),
)
def erf_inv(f: Formulas, x: FormulaValue):
    """Return the number whose error function is `x`."""
    # Giles's polynomials of -log(1 - x^2); in double precision followed by two steps of Halley's
    # method
    if not f.wide:
        below = f.exact_fma(x, -x, f.c(1.0))
        return (
            f.at_special_arguments(
                _erf_inv_ratio(f, -rough_log_of_normal(f, below)), below, zero=inf, negative=nan
            )
            * x
        )
    size = f.abs(x)
    w = -log_of_normal(f, f.select(size.same(1.0), 0.5, (1.0 - size) * (1.0 + size)))
    # the polynomials end at the range of single precision; beyond, start from erfc(y) ~ e^(-y^2) /
    # (y sqrt(pi))
    level = f.select(w > 15.0, w + 0.6931471805599453, 16.0)
    far = f.copysign(f.sqrt(level - 0.5 * log_of_normal(f, level * 3.141592653589793)), x)
    y = f.select(w > 15.0, far, _erf_inv_ratio(f, w) * x)
    y = _halley(f, _halley(f, y, x), x)
    y = f.select(size < 1e-300, x * 0.886226925452758, y)
    y = f.select(size.same(1.0), f.copysign(inf, x), y)
    return f.select(size <= 1.0, y, nan)


def _halley(f: Formulas, y: FormulaValue, x: FormulaValue):
    """Return one Halley step for erf(y) = x, computed from the side without cancellation."""
    size = f.abs(x)
    far = size > 0.5
    z = f.abs(y)
    miss = f.select(far, (1.0 - size) - _erfc_tail(f, z), f.erf(z) - size)
    slope = 1.1283791670955126 * f.exp(-(z * z))
    step = miss / slope
    z = z - step / f.fma(z, step, 1.0)
    return f.copysign(z, x)


# --- the normal distribution


def scaled_tail(f: Formulas, x: FormulaValue):
    """Return (near, far, where far) for scaled tails of x >= 0.

    `near` is erfc(x) exp(x^2) for x <= 28 (11 in single precision); `far` is its ratio to 1 / (x
    sqrt(pi)) beyond.
    """
    bound = 28.0 if f.wide else 11.0
    beyond = x > bound
    near = f.select(beyond, bound, x)
    near = f.poly((near - 4.0) / (near + 4.0), "erfc") / f.fma(near, 2.0, 1.0)
    inverse = 1.0 / f.select(beyond, x, bound)
    return (
        near,
        f.horner(inverse * inverse, (10395 / 64, -945 / 32, 105 / 16, -15 / 8, 3 / 4, -1 / 2, 1.0)),
        beyond,
    )


def _log_tail(f: Formulas, size: FormulaValue):
    """Return the logarithm of the normal distribution function at -size <= 0.

    Also return its negated derivative by the size.
    """
    near, far, beyond = scaled_tail(f, size * math.sqrt(0.5))
    y = f.log(0.5 * f.select(beyond, far, near)) - f.select(
        beyond, f.log(size) - math.log(math.sqrt(2 / math.pi)), 0.0
    )
    return y - (0.5 * size) * size, f.select(beyond, size, math.sqrt(2 / math.pi)) / f.select(
        beyond, far, near
    )


def _normal_tail(f: Formulas, size: FormulaValue):
    """Return the normal distribution function at -size <= 0, and its derivative."""
    bounded = f.select(size > 40.0, 40.0, size)  # beyond 40 the function is zero
    bell = _bell(f, 0.5 * bounded, bounded)
    return 0.5 * scaled_tail(f, bounded * math.sqrt(0.5))[0] * bell, bell * math.sqrt(0.5 / math.pi)


@function(
    FLOATING,
    of_scipy("log_ndtr", wide=True),
    jvp=[lambda t, out, x: mul(t, normal_hazard(neg(x)))],
    cost=40,
    ulp=(6, 6),
    ranges=((-6, 6), (-40, 0), (-1, 1)),
    points=(-15.5, -39.6),
)
def log_ndtr(f: Formulas, x: FormulaValue):
    """Return the logarithm of the distribution function of the standard normal distribution."""
    size = f.abs(x)
    low, _ = _log_tail(f, size)
    return f.select(x < 0.0, low, f.log1p(-_normal_tail(f, size)[0]))


def _hazard_reference(x: NumPyArray):
    special = scipy_module("special")
    x64 = np.asarray(x, np.float64)
    return (np.sqrt(2 / np.pi) / special.erfcx(x64 / np.sqrt(2))).astype(x.dtype)


#: the argument above which the difference loses more than four bits; the levels of the continued
#: fraction that float64 and float32 need there
_HAZARD_FAR, _HAZARD_LEVELS = 3.3, (50, 14)


def _hazard_excess(out: Value, x: Value):
    """Return the hazard minus x.

    For large x these are nearly equal, and the difference is 1 / (x + 2 / (x + 3 / (x + ...))).
    """
    large = gt(x, _HAZARD_FAR)
    far = select(large, x, _HAZARD_FAR)
    levels = _HAZARD_LEVELS[typeof(x).dtype.itemsize < 8]
    fraction = mul(add(far, sqrt(add(square(far), 4 * levels))), 0.5)  # the limit for equal levels
    for k in range(levels, 1, -1):
        fraction = add(far, div(k, fraction))
    return select(large, div(1, fraction), sub(out, x))


@function(
    FLOATING,
    _hazard_reference,
    jvp=[lambda t, out, x: mul(t, mul(out, _hazard_excess(out, x)))],
    cost=40,
    ulp=(6, 6),
    ranges=((-6, 6), (0, 40), (-1, 1)),
    points=(15.5, 39.6),
)
def normal_hazard(f: Formulas, x: FormulaValue):
    """Return the hazard of the standard normal distribution at `x`.

    It is the density divided by the probability above `x`.

    It is the derivative of `log_ndtr` at `-x`.
    """
    size = f.abs(x)
    _, high = _log_tail(f, size)
    tail, bell = _normal_tail(f, size)
    return f.select(x < 0.0, bell / (1.0 - tail), high)


def _ndtri_slope(t: Value, out: Value, p: Value):
    """Return the tangent by the reciprocal of the density at `out`.

    The density is the probability of the tail times its hazard; 1/2 separates the tails.
    """
    low = le(p, 0.5)
    tail, size = select(low, p, sub(1, p)), select(low, neg(out), out)
    return div(t, mul(tail, normal_hazard(size)))


@function(
    FLOATING,
    of_scipy("ndtri", wide=True),
    jvp=[_ndtri_slope],
    cost=60,
    ulp=(4, 5),
    ranges=((0, 1), (0, 1e-3), (0.2, 0.8), (0, 1e-9)),
    points=(0.25, 0.5),
)
def ndtri(f: Formulas, p: FormulaValue):
    """Return the number below which the standard normal distribution has the probability `p`."""
    upper = p > 0.5
    q = f.select(upper, 1.0 - p, p)
    if not f.wide:
        y = (
            _erf_inv_ratio(f, -rough_log_of_normal(f, 4.0 * q * (1.0 - q)))
            * (p * 2.0 - 1.0)
            * math.sqrt(2)
        )
        return f.with_rare_case(y, ~(q >= 1e-6), _ndtri_in_double, p)
    log_q = f.log(q)
    w = -(log_q + 1.3862943611198906 + f.log(1.0 - q))
    near = _erf_inv_ratio(f, w) * (1.0 - 2.0 * q)
    level = f.select(w > 15.0, w + 0.6931471805599453, 16.0)
    size = f.select(w > 15.0, f.sqrt(level - 0.5 * f.log(level * math.pi)), near) * math.sqrt(2)
    for _ in range(2):  # Halley steps for the logarithm, which is nearly a parabola
        log_tail, hazard = _log_tail(f, size)
        step = (log_tail - log_q) / hazard
        size = size + step / f.fma(step, 0.5 * (hazard - size), 1.0)
    size = f.select(q.same(0.0), inf, f.select(q >= 0.0, size, nan))
    return f.select(q > 0.25, f.erf_inv(p * 2.0 - 1.0) * math.sqrt(2), f.copysign(size, p - 0.5))


def _ndtri_in_double(f: Formulas, p: FormulaValue):
    return f.narrow(f.in_double().ndtri(f.widen(p)))
