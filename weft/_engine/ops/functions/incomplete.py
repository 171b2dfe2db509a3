"""The incomplete gamma functions and their derivatives.

In, out: floats of one dtype; everything is computed in doubles, as accurately as the result's type
can resolve.

How:  With D = x^a e^-x / gamma(a + 1), the lower function is D times the series 1 + x/(a+1) +
      x^2/((a+1)(a+2)) + ..., and the upper one D a times Legendre's continued fraction 1/(x+1-a +
      1(a-1)/(x+3-a + ...)). The series is used below x = a, the fraction above it, where each
      converges. If a is large and x close to it, neither converges, and Temme's uniform expansion
      is used. For small x and a the upper function is one minus an alternating series. Derivatives
      differentiate the same recurrences term by term. Each of these is a separate function, called
      by vectors with a lane in its region; its loop ends when all lanes have converged.

Source: DLMF 8.7.1, 8.7.3, 8.9.2 and 8.12; Steed's recurrence of a fraction by its differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.ops.arithmetic import add, div, mul, neg, sub
from weft._engine.ops.comparison import eq, le, lt, select
from weft._engine.ops.families import FLOATING, function, no_derivative, scipy_special
from weft._engine.ops.functions.errors import scaled_tail
from weft._engine.ops.functions.gammas import digamma, digamma_above_half, log_less_digamma
from weft._engine.ops.functions.incomplete_coefficients import (
    RECIPROCAL,
    STIRLING_SERIES,
    UNIFORM,
)
from weft._engine.ops.functions.logarithmic import log

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray, Value

_ROOT_OF_TURN = 2.5066282746310002
#: the least order for the uniform expansion, and the largest distance of x from a, relative to a
_LARGE, _NEAR = 20.0, 0.3
#: the largest argument for which the series of the lower function is short for every order; the
#: largest order for the series of small arguments
_LITTLE, _LITTLE_ORDER = 1.5, 2.0
#: orders above which Stirling's series is exact to double precision
_STIRLING = 10.0
#: the bound on omitted terms relative to the sum, by the type of the result
_LEFT_OUT = {"f64": 2.0**-54, "f32": 2.0**-32}
_LEFT_OUT_OF_HALVES = 2.0**-20


_ORDERS = ((0, 3), (0, 150), (150, 250))


def _by_slopes(name: str):
    """Return the reference of a derivative, imported on first use."""

    def reference(a: NumPyArray, x: NumPyArray):
        from weft._engine.ops import gamma_derivatives

        return getattr(gamma_derivatives, name)(a, x).astype(x.dtype)

    return reference


def _small(x: Value):
    """Return a mask of positive float64 arguments that SciPy's functions flush to zero."""
    return (x > 0) & (x < 1e-150)


def _igamma_reference(a: NumPyArray, x: NumPyArray):
    """Return SciPy's `gammainc`, or its limit for small arguments and for huge orders."""
    gammainc, gammaln = scipy_special("gammainc"), scipy_special("gammaln")
    a64, z = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        out = np.where(
            _small(z) & (a64 > 0), np.exp(a64 * np.log(z) - gammaln(a64 + 1)), gammainc(a64, z)
        )
        out = np.where(_small(a64) & (z > 0), 1.0, out)
        return np.where(_beyond(a64, z), z > a64, out).astype(x.dtype)


def _igammac_reference(a: NumPyArray, x: NumPyArray):
    """Return SciPy's `gammaincc`, or its limit for small orders and for huge orders.

    For small orders the limit is a times the exponential integral.
    """
    exp1, gammaincc = scipy_special("exp1"), scipy_special("gammaincc")
    a64, z = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        out = np.where(_small(a64) & (z > 0), a64 * exp1(z), gammaincc(a64, z))
        return np.where(_beyond(a64, z), z < a64, out).astype(x.dtype)


def _beyond(a: Value, x: Value):
    """Return masks of x < a and x > a for orders so large that both functions are steps."""
    return (a > 1e300) & (a < inf) & (x >= 0) & (x != a) & (x < inf)


@function(
    FLOATING,
    _igamma_reference,
    ulp=(0.55, 1200),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(t, igamma_grad_a(a, x)),
        lambda t, out, a, x: mul(t, igamma_grad_x(a, x)),
    ],
)
def igamma(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the regularized lower incomplete gamma function.

    It is the integral of exp(-t) t^(a-1) / gamma(a) from 0 to `x`.

    >>> round(float(igamma(np.float32(1.0), np.float32(2.0))), 6)
    0.864665
    """
    return _of_doubles(_value, f, a, x, False)


@function(
    FLOATING,
    _igammac_reference,
    ulp=(0.55, 600),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: neg(mul(t, igamma_grad_a(a, x))),
        lambda t, out, a, x: neg(mul(t, igamma_grad_x(a, x))),
    ],
)
def igammac(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return `1 - igamma(a, x)`, accurate for large `x`."""
    return _of_doubles(_value, f, a, x, True)


@function(
    FLOATING,
    _by_slopes("igamma_grad_a"),
    ulp=(0.55, 1200),
    ranges=_ORDERS,
    jvp=[no_derivative("igamma_grad_a", "a"), no_derivative("igamma_grad_a", "x")],
)
def igamma_grad_a(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the derivative of `igamma(a, x)` by `a`."""
    return _of_doubles(_slope, f, a, x, True)


@function(
    FLOATING,
    _by_slopes("igamma_grad_x"),
    ulp=(0.55, 1200),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(t, _scaled_slope(out, log_less_digamma(x, a))),
        lambda t, out, a, x: mul(t, _density_slope(out, a, x)),
    ],
)
def igamma_grad_x(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the derivative of `igamma(a, x)` by `x`: x^(a-1) exp(-x) / gamma(a)."""
    return _of_doubles(_slope_by_x, f, a, x, False)


def _scaled_slope(density: Value, slope: Value):
    """Return the slope of a density from its logarithmic slope.

    The latter may be infinite where the density is zero.
    """
    return select(eq(density, 0), 0, mul(density, slope))


def _density_slope(out: Value, a: Value, x: Value) -> Any:
    """Return the slope of a density by x.

    For a <= 1 it uses the logarithmic slope, otherwise the density of the order a - 1, which loses
    no precision there.
    """
    is_small_order = le(a, 1)
    below = select(is_small_order, 1, sub(a, 1))
    return select(
        is_small_order,
        mul(out, sub(div(sub(a, 1), x), 1)),
        _scaled_slope(igamma_grad_x(below, x), div(sub(below, x), below)),
    )


@function(
    FLOATING,
    _by_slopes("random_gamma_grad"),
    ulp=(0.55, 1200),
    ranges=_ORDERS,
    jvp=[no_derivative("random_gamma_grad", "a"), no_derivative("random_gamma_grad", "x")],
)
def random_gamma_grad(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the derivative of a gamma sample `x` by its shape parameter `a`.

    It is the derivative of the inverse of `igamma(a, .)`.
    """
    return _of_doubles(_slope, f, a, x, False)


@function(
    FLOATING,
    _by_slopes("log_igamma"),
    ulp=(0.55, 3000),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(t, _log_slope_by_order(a, x)),
        lambda t, out, a, x: mul(t, igamma_hazard(a, x)),
    ],
)
def log_igamma(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the logarithm of `igamma(a, x)`, also where `igamma` underflows."""
    return _of_doubles(_log_value, f, a, x, False)


def _log_slope_by_order(a: Value, x: Value):
    """Return the derivative of `log_igamma` by the order.

    For the least `x` only the power of x matters, and quotients overflow.
    """
    is_tiny = lt(x, 1e-20)
    near = sub(log(select(is_tiny, x, 1)), digamma(add(a, 1)))
    x = select(is_tiny, 1, x)
    return select(is_tiny, near, neg(mul(igamma_hazard(a, x), random_gamma_grad(a, x))))


def _log_rest_slope(
    a: Value,
    x: Value,
    of_lower: Callable[[Value, Value], Value],
    hazard: Callable[[Value, Value], Value],
):
    """Return a derivative of `log_igammac`.

    Its hazard may be infinite for the least `x`; there the lower function is used.
    """
    is_tiny = lt(x, 1e-20)
    near, x = select(is_tiny, x, 1), select(is_tiny, 1, x)
    return neg(select(is_tiny, div(of_lower(a, near), igammac(a, near)), hazard(a, x)))


def _order_hazard(a: Value, x: Value):
    return neg(mul(igammac_hazard(a, x), random_gamma_grad(a, x)))


@function(
    FLOATING,
    _by_slopes("log_igammac"),
    ulp=(0.55, 3000),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(t, _log_rest_slope(a, x, igamma_grad_a, _order_hazard)),
        lambda t, out, a, x: mul(t, _log_rest_slope(a, x, igamma_grad_x, igammac_hazard)),
    ],
)
def log_igammac(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the logarithm of `igammac(a, x)`, also where `igammac` underflows."""
    return _of_doubles(_log_value, f, a, x, True)


@function(
    FLOATING,
    _by_slopes("igamma_hazard"),
    ulp=(0.55, 3000),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(
            t, mul(out, add(sub(log(x), digamma(a)), mul(out, random_gamma_grad(a, x))))
        ),
        lambda t, out, a, x: mul(t, mul(out, sub(sub(div(sub(a, 1), x), 1), out))),
    ],
)
def igamma_hazard(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the derivative of `log_igamma(a, x)` by `x`."""
    return _of_doubles(_hazard, f, a, x, False)


@function(
    FLOATING,
    _by_slopes("igammac_hazard"),
    ulp=(0.55, 3000),
    ranges=_ORDERS,
    jvp=[
        lambda t, out, a, x: mul(
            t, mul(out, sub(sub(log(x), digamma(a)), mul(out, random_gamma_grad(a, x))))
        ),
        lambda t, out, a, x: mul(t, mul(out, add(sub(div(sub(a, 1), x), 1), out))),
    ],
)
def igammac_hazard(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the negated derivative of `log_igammac(a, x)` by `x`."""
    return _of_doubles(_hazard, f, a, x, True)


def _of_doubles(
    function: Callable[..., Any], f: Formulas, a: FormulaValue, x: FormulaValue, which: bool
):
    g = f.in_double()
    left_out = g.c(_LEFT_OUT.get(f.demand, _LEFT_OUT_OF_HALVES))
    y = function(g, f.widen(a), f.widen(x), left_out, which)
    return y if f.wide else f.narrow(y)


def _cold(
    f: Formulas,
    y: FormulaValue | float,
    where: FormulaValue,
    function: Callable[..., Any],
    *args: FormulaValue | tuple[FormulaValue, float],
):
    """Evaluate as `f.with_rare_case`; lanes outside of the region get an ordinary argument."""
    passed = [f.select(where, *arg) if isinstance(arg, tuple) else arg for arg in args]
    return f.with_rare_case(f.c(y) if isinstance(y, float) else y, where, function, *passed)


def _regions(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return a mask of positive finite arguments, and its two parts.

    The first part uses the uniform expansion, the second does not.
    """
    inside = (a > 0.0) & (x > 0.0) & (a < inf) & (x < inf)
    uniform = inside & (a > _LARGE) & (f.abs(x - a) < a * _NEAR)
    return inside, uniform, inside & ~uniform


def _value(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue, upper: bool):
    inside, uniform, rest = _regions(f, a, x)
    little = rest & (x <= _LITTLE) & (a <= _LITTLE_ORDER) if upper else None
    if little is not None:
        series = rest & ~little & (x < a)
        fraction = rest & ~little & ~series
    else:
        series = rest & ((x <= a) | (x <= _LITTLE))
        fraction = rest & ~series
    factor = _density(f, series | fraction, a, x)
    y = factor * _cold(
        f,
        _cold(f, 0.0, series, _series, (a, 1.0), (x, 0.5), left_out),
        fraction,
        _fraction,
        (a, 1.0),
        (x, 4.0),
        left_out,
    )
    y = f.select(series if upper else fraction, 1.0 - y, y)
    if little is not None:
        y = _cold(f, y, little, _little, (a, 1.0), (x, 0.5), left_out)
    y = _cold(f, y, uniform, _uniform_upper if upper else _uniform_lower, (a, 32.0), (x, 32.0))
    none = (x.same(0.0) & (a > 0.0)) | (a.same(inf) & (x >= 0.0) & (x < inf))
    all_ = (x.same(inf) & (a >= 0.0) & (a < inf)) | (a.same(0.0) & (x > 0.0))
    edge = f.select(none, float(upper), f.select(all_, float(not upper), f.c(nan)))
    return f.select(inside, y, edge)


def _parts(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue, upper: bool):
    """Return (log of the factor, share, derivative / factor, log of the derivative, where own).

    One of the two functions is factor * share where `own` holds, and one minus that elsewhere.
    """
    # the upper function is proportional to the order for the least orders
    lift = f.select(a < 1e-200, 1e150, f.c(1.0))
    order, a = a, a * lift
    _, uniform, rest = _regions(f, a, x)
    series = rest & ((x <= a) | (x <= _LITTLE))
    fraction, is_small_order, log_ratio = rest & ~series, a < _STIRLING, f.log(order) - f.log(x)
    log_factor = _cold(f, 0.0, rest & is_small_order, _log_density_of_few, (a, 1.0), (x, 1.0))
    log_factor = _cold(
        f,
        log_factor,
        (rest | uniform) & ~is_small_order,
        _log_density_of_many,
        (a, _STIRLING),
        (x, _STIRLING),
    )
    log_slope = log_factor + log_ratio
    share = _cold(
        f,
        _cold(f, 1.0, series, _series, (a, 1.0), (x, 0.5), left_out),
        uniform,
        _uniform_share,
        (a, 32.0),
        (x, 32.0),
    )
    share = _cold(f, share, fraction, _fraction_by_slope, (a, 1.0), (x, 4.0), left_out)
    # for small orders the lower function is nearly one, and the upper one has a separate series
    little = series & (x <= _LITTLE) & (a <= _LITTLE_ORDER)
    value = _cold(f, 1.0, little, _little, (a, 1.0), (x, 0.5), left_out)
    little = little & (value < 0.5)
    share = f.select(little, value * f.exp(-log_factor), share)
    log_factor = f.select(
        fraction, log_slope, f.select(little, log_factor - f.log(lift), log_factor)
    )
    lower = (uniform & (x <= a)) | (series & ~little)
    return log_factor, share, f.select(fraction, 1.0, a / x), log_slope, ~lower if upper else lower


def _log_value(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue, upper: bool):
    inside, _, _ = _regions(f, a, x)
    log_factor, share, _, _, own = _parts(f, a, x, left_out, upper)
    y = log_factor + f.log(share)
    y = f.select(own, y, f.log1p(-f.exp(y)))
    none = (x.same(0.0) & (a > 0.0)) | (a.same(inf) & (x >= 0.0) & (x < inf))
    all_ = (x.same(inf) & (a >= 0.0) & (a < inf)) | (a.same(0.0) & (x > 0.0))
    edge = f.select(none, 0.0 if upper else -inf, f.select(all_, -inf if upper else 0.0, f.c(nan)))
    return f.select(inside, y, edge)


def _hazard(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue, upper: bool):
    inside, _, _ = _regions(f, a, x)
    log_factor, share, slope, log_slope, own = _parts(f, a, x, left_out, upper)
    y = f.select(own, slope / share, f.exp(log_slope) / (1.0 - f.exp(log_factor) * share))
    positive = (a > 0.0) & (a < inf)
    if upper:
        at_zero = f.select(a < 1.0, inf, f.select(a.same(1.0), 1.0, f.c(0.0)))
        edge = f.select(
            positive & x.same(inf),
            1.0,
            f.select(a.same(inf) & (x >= 0.0) & (x < inf), 0.0, f.c(nan)),
        )
        edge = f.select((a > 0.0) & x.same(0.0), at_zero, edge)
    else:
        edge = f.select(
            ((a > 0.0) & x.same(0.0)) | (a.same(inf) & (x >= 0.0) & (x < inf)), inf, f.c(nan)
        )
        edge = f.select((positive & x.same(inf)) | (a.same(0.0) & (x > 0.0)), 0.0, edge)
    return f.select(inside, y, edge)


def _slope(
    f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue, by_order: FormulaValue
):
    """Return the derivative by the order, or the negative of its ratio to the derivative by x."""
    inside, uniform, rest = _regions(f, a, x)
    series = rest & (x < a + 1.0)
    fraction = rest & ~series
    ratio = _cold(f, 0.0, rest, _log_ratio, (a, 1.0), (x, 1.0))
    y = _cold(f, 0.0, series, _slope_of_series, (a, 1.0), (x, 0.5), ratio, left_out)
    y = _cold(f, y, fraction, _slope_of_fraction, (a, 1.0), (x, 4.0), ratio, left_out)
    y = y * _density(f, rest, a, x) if by_order else -f.select(fraction, x * y / a, x / a * y)
    y = _cold(f, y, uniform, _uniform_slope if by_order else _uniform_ratio, (a, 32.0), (x, 32.0))
    zero = (a > 0.0) & (x.same(0.0) | x.same(inf) if by_order else x.same(0.0))
    return f.select(inside, y, f.select(zero, 0.0, f.c(nan)))


def _slope_by_x(f: Formulas, a: FormulaValue, x: FormulaValue, *_: FormulaValue):
    """Return x^(a-1) e^-x / gamma(a), the derivative by x.

    It is the density of the order below or, if that order is negative, the density of a times a /
    x.
    """
    inside, _, _ = _regions(f, a, x)
    below = a < 1.0
    y = _density(f, inside, f.select(below, a, a - 1.0), x)
    y = f.select(below, y * a / x, y)
    at_zero = f.select(below, inf, f.select(a.same(1.0), 1.0, f.c(0.0)))
    none = ((a >= 0.0) & (x > 0.0)) & (a.same(0.0) | (a.same(inf) ^ x.same(inf)))
    return f.select(
        inside, y, f.select((a > 0.0) & x.same(0.0), at_zero, f.select(none, 0.0, f.c(nan)))
    )


# --- factors


def _log_excess(f: Formulas, t: FormulaValue):
    """Return log(1 + t) - t for |t| <= 2/5.

    It is s (2 s^2 (1/3 + s^2/5 + ...) - t) with s = t / (2 + t).
    """
    s = t / (t + 2.0)
    square = s * s
    return s * (2.0 * square * f.horner(square, tuple([1 / k for k in range(31, 1, -2)])) - t)


def _stirling(f: Formulas, a: FormulaValue):
    """Return gamma(a) / (sqrt(2 pi / a) (a / e)^a) for a >= 10."""
    inverse = 1.0 / a
    return f.exp(inverse * f.horner(inverse * inverse, STIRLING_SERIES))


def _reciprocal_excess(f: Formulas, t: FormulaValue):
    """Return 1 / gamma(1 + t) - 1 for 0 <= t <= 1."""
    return t * (1.0 - t) * f.horner(t - 0.5, RECIPROCAL)


def _reciprocal(f: Formulas, a: FormulaValue):
    """Return 1 / gamma(1 + a) for 0 <= a < 10."""
    whole = f.trunc(a)
    product = f.c(1.0)
    for k in range(int(_STIRLING)):
        factor = a - float(k)
        product = f.select(factor >= 1.0, product * factor, product)
    return (_reciprocal_excess(f, a - whole) + 1.0) / product


def _density(f: Formulas, where: FormulaValue, a: FormulaValue, x: FormulaValue):
    """Return x^a e^-x / gamma(1 + a) where `where` holds, and zero elsewhere."""
    is_small_order = a < _STIRLING
    y = _cold(f, 0.0, where & is_small_order, _density_of_few, (a, 1.0), (x, 1.0))
    return _cold(f, y, where & ~is_small_order, _density_of_many, (a, _STIRLING), (x, _STIRLING))


def _density_of_few(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the density for a < 10."""
    bounded = f.select(x > 1000.0, 1000.0, x)
    root = f.exp(bounded * -0.5)  # e^-x may be subnormal where the result is not
    return f.pow(bounded, a) * root * root * _reciprocal(f, a)


def _density_of_many(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the density for a >= 10."""
    miss = (x - a) / a
    close = f.abs(miss) < 0.4
    excess = f.select(close, _log_excess(f, f.select(close, miss, 0.0)), f.log(x / a) - miss)
    return f.exp(a * excess) / (f.sqrt(a) * (_ROOT_OF_TURN * _stirling(f, a)))


def _log_density_of_few(f: Formulas, a: FormulaValue, x: FormulaValue):
    return a * f.log(x) - x + f.log(_reciprocal(f, a))


def _log_density_of_many(f: Formulas, a: FormulaValue, x: FormulaValue):
    miss, ratio, log_a = (x - a) / a, x / a, f.log(a)
    close, tiny = f.abs(miss) < 0.4, ratio < 1e-290
    far = f.log(f.select(tiny, x, ratio)) - f.select(tiny, log_a, 0.0) - miss
    excess = f.select(close, _log_excess(f, f.select(close, miss, 0.0)), far)
    inverse = 1.0 / a
    return (
        a * excess
        - 0.5 * log_a
        - 0.9189385332046728
        - inverse * f.horner(inverse * inverse, STIRLING_SERIES)
    )


def _log_ratio(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return log(x) minus the logarithmic derivative of gamma(1 + a)."""
    return f.log(x) - digamma_above_half(f, a + 1.0)


# --- series and fraction


def _series(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue):
    """Return the lower function divided by its density."""

    def step(n: FormulaValue, term: FormulaValue, total: FormulaValue):
        term = term * (x / (a + n))
        total = total + term
        return term > total * left_out, [term, total]

    return f.repeat(step, 1.0, 1.0)[1]


def _size(f: Formulas, total: FormulaValue, total_slope: FormulaValue):
    """Return the magnitude for the convergence test of a slope.

    It is the slope, which may be subnormal, plus a small part of the value to which it is added.
    """
    return f.fma(total, 2.0**-8, f.abs(total_slope))


def _slope_of_series(
    f: Formulas, a: FormulaValue, x: FormulaValue, ratio: FormulaValue, left_out: FormulaValue
):
    """Return the derivative by a of the density times its series, divided by the density."""

    def step(
        n: FormulaValue,
        term: FormulaValue,
        slope: FormulaValue,
        total: FormulaValue,
        total_slope: FormulaValue,
    ):
        inverse = 1.0 / (a + n)
        factor = x * inverse
        slope, term = (slope - term * inverse) * factor, term * factor
        total, total_slope = total + term, total_slope + slope
        more = (term > total * left_out) | (f.abs(slope) > _size(f, total, total_slope) * left_out)
        return more, [term, slope, total, total_slope]

    _, _, total, total_slope = f.repeat(step, 1.0, 0.0, 1.0, 0.0)
    return f.fma(total, ratio, total_slope)


def _clamp_order(f: Formulas, a: FormulaValue):
    """Return an order whose multiples are finite; larger orders are negligible compared with x^2."""
    return f.select(a > 1e300, 1e300, a)


def _fraction(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue):
    """Return the upper function divided by its density, for x >= a."""
    return a * _fraction_total(f, a, x, left_out)


def _fraction_by_slope(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue):
    return x * _fraction_total(f, a, x, left_out)


def _fraction_total(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue):
    order = _clamp_order(f, a)

    def step(n: FormulaValue, d: FormulaValue, difference: FormulaValue, total: FormulaValue):
        top = n * (order - n)
        denominator = 1.0 / f.fma(top, d, (x + 1.0 - a) + (n + n))
        difference = -(top * d * denominator * difference)
        total = total + difference
        return f.abs(difference) > total * left_out, [denominator, difference, total]

    first = 1.0 / (x + 1.0 - a)
    return f.repeat(step, first, first, first)[2]


def _slope_of_fraction(
    f: Formulas, a: FormulaValue, x: FormulaValue, ratio: FormulaValue, left_out: FormulaValue
):
    """Return the derivative by a of one minus the upper function, divided by the density."""
    order = _clamp_order(f, a)

    def step(
        n: FormulaValue,
        d: FormulaValue,
        d_slope: FormulaValue,
        difference: FormulaValue,
        slope: FormulaValue,
        total: FormulaValue,
        total_slope: FormulaValue,
    ):
        top = n * (order - n)
        denominator = 1.0 / f.fma(top, d, (x + 1.0 - a) + (n + n))
        moved = f.fma(top, d_slope, n * d)  # the derivative of top * d
        made_slope = -(denominator * denominator * (moved - 1.0))
        factor, factor_slope = (
            top * d * denominator,
            f.fma(moved, denominator, top * d * made_slope),
        )
        slope = -(factor_slope * difference + factor * slope)
        difference = -(factor * difference)
        total, total_slope = total + difference, total_slope + slope
        more = (f.abs(difference) > total * left_out) | (
            f.abs(slope) > _size(f, total, total_slope) * left_out
        )
        return more, [denominator, made_slope, difference, slope, total, total_slope]

    first = 1.0 / (x + 1.0 - a)
    square = first * first
    *_, total, total_slope = f.repeat(step, first, square, first, square, first, square)
    # a times the logarithmic derivative of gamma(a) is the one of gamma(1 + a) minus one
    return -f.fma(a, f.fma(total, ratio, total_slope), total)


def _little(f: Formulas, a: FormulaValue, x: FormulaValue, left_out: FormulaValue):
    """Return the upper function for x <= 3/2 and a <= 2.

    It is 1 - x^a / gamma(1 + a) (1 + a sum((-x)^n / (n! (a + n)))).
    """

    def step(n: FormulaValue, term: FormulaValue, total: FormulaValue):
        term = -(term * x) / n
        part = term / (a + n)
        total = total + part
        return f.abs(part) > f.abs(total) * left_out, [term, total]

    total = a * f.repeat(step, 1.0, 0.0)[1]
    below = a <= 1.0
    inside = f.select(below, a, 1.0)
    excess = f.select(below, _reciprocal_excess(f, inside), _reciprocal(f, a) - 1.0)
    power = f.expm1(a * f.log(x))
    # 1 - (1 + power) (1 + excess), with the ones cancelled
    return -(power + excess + power * excess) - (power + 1.0) * (excess + 1.0) * total


# --- the uniform expansion


def _by_orders(f: Formulas, a: FormulaValue, rows: Sequence[FormulaValue]):
    """Return a series in 1/a."""
    inverse, total = 1.0 / a, rows[-1]
    for row in rows[-2::-1]:
        total = f.fma(total, inverse, row)
    return total


def _eta(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return (miss, half, eta): x / a - 1, miss - log(1 + miss), and the signed root of 2 half."""
    miss = (x - a) / a
    half = -_log_excess(f, miss)
    return miss, half, f.copysign(f.sqrt(half + half), miss)


def _uniform_bell(f: Formulas, a: FormulaValue, half: FormulaValue):
    return f.exp(-(a * half)) / (f.sqrt(a) * _ROOT_OF_TURN)


def _uniform(f: Formulas, a: FormulaValue, x: FormulaValue, upper: bool):
    miss, half, eta = _eta(f, a, x)
    rest = _uniform_bell(f, a, half) * _by_orders(
        f, a, [f.horner(eta, row[::-1]) for row in UNIFORM]
    )
    root = f.copysign(f.sqrt(a * half), miss)
    return 0.5 * f.erfc(root) + rest if upper else 0.5 * f.erfc(-root) - rest


def _uniform_share(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return the smaller one of the two functions, divided by the density."""
    miss, half, eta = _eta(f, a, x)
    series = _by_orders(f, a, [f.horner(eta, row[::-1]) for row in UNIFORM])
    near, far, beyond = scaled_tail(f, f.sqrt(a * half))
    size = f.select(beyond, f.sqrt(a * half) * 1.772453850905516, 1.0)
    tail = f.select(beyond, far, near) / size * (0.5 * _ROOT_OF_TURN) * f.sqrt(a)
    return (tail + f.select(miss > 0.0, series, -series)) * _stirling(f, a)


def _uniform_lower(f: Formulas, a: FormulaValue, x: FormulaValue):
    return _uniform(f, a, x, False)


def _uniform_upper(f: Formulas, a: FormulaValue, x: FormulaValue):
    return _uniform(f, a, x, True)


def _uniform_parts(f: Formulas, a: FormulaValue, x: FormulaValue):
    """Return (miss, half, y); the derivative of the upper function by a is y times the bell."""
    miss, half, eta = _eta(f, a, x)
    stretch = f.select(miss.same(0.0), 1.0, miss / eta)  # -a times the derivative of eta by a
    inverse = 1.0 / a
    values = [f.horner(eta, row[::-1]) for row in UNIFORM]
    slopes = [
        f.horner(eta, tuple([m * c for m, c in enumerate(row)][:0:-1]))
        for row in UNIFORM
        if len(row) > 1
    ]
    total = _by_orders(f, a, values)
    by_eta = _by_orders(f, a, slopes)
    by_order = _by_orders(f, a, [float(k) * value for k, value in enumerate(values)][1:]) * inverse
    moved = (stretch * by_eta + by_order) * -inverse
    return miss, half, stretch - 0.5 * eta + total * ((miss - half) - 0.5 * inverse) + moved


def _uniform_slope(f: Formulas, a: FormulaValue, x: FormulaValue):
    _, half, y = _uniform_parts(f, a, x)
    return -(_uniform_bell(f, a, half) * y)


def _uniform_ratio(f: Formulas, a: FormulaValue, x: FormulaValue):
    miss, _, y = _uniform_parts(f, a, x)
    return (miss + 1.0) * _stirling(f, a) * y
