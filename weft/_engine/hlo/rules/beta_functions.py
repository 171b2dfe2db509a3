"""The incomplete beta function and its relatives as formulas, for plugins without SciPy.

In:   a, b > 0 and x from 0 to 1, with y = 1 - x; floats of one dtype, computed in doubles.
How:  As in `ops.functions.incomplete_beta`: the density by Loader's deviances, which do not cancel
      for large parameters, times a continued fraction for the smaller tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.hlo.lowering import result_types
from weft._engine.hlo.ops import HloBlock, HloValue
from weft._engine.hlo.replicas import plugin_rule
from weft._engine.hlo.rules.elementwise import broadcast_operands
from weft._engine.hlo.rules.formulas import apply_formula
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.functions.gammas import lgamma_in_double
from weft._engine.ops.functions.incomplete_beta import continued_fraction

#: coefficients in 1 / v of the series of log(gamma), highest power of 1 / v^2 first
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
#: coefficients of the series of the deviance in s^2, where s = t / (t + 2)
_DEVIANCE = tuple([1 / k for k in range(31, 1, -2)])
#: the smallest argument at which Stirling's formula is exact to double precision
_LARGE = 10.0


def _formula(name: str) -> Callable:
    """Return a decorator that registers the formula of the primitive `name` on plugins."""

    def register(formula: Callable) -> Callable:
        @plugin_rule(name)
        def rule(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
            (out,) = result_types(eqn)
            type_ = "f64" if out.dtype == np.float64 else "f32"
            write = lambda block, *xs: [
                block.convert(apply_formula(block, formula, xs, type_), out.dtype)
            ]
            return b.context.call_shared(b, name, (), broadcast_operands(b, args), write)

        return formula

    return register


@_formula("regularized_incomplete_beta")
def _betainc(f: Any, a: Any, b: Any, x: Any) -> Any:
    above, tail = _tail(f, a, b, x, 1.0 - x)
    value = f.select(above, 1.0 - f.exp(tail), f.exp(tail))
    return _on_unit_interval(f, a, b, x, value, 0.0, 1.0)


@_formula("betaincc")
def _betaincc(f: Any, a: Any, b: Any, x: Any) -> Any:
    above, tail = _tail(f, a, b, x, 1.0 - x)
    value = f.select(above, f.exp(tail), 1.0 - f.exp(tail))
    return _on_unit_interval(f, a, b, x, value, 1.0, 0.0)


@_formula("log_betainc")
def _log_betainc(f: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    x, y = _exact_pair(f, x, y)
    above, tail = _tail(f, a, b, x, y)
    value = f.select(above, f.log1p(-f.exp(tail)), tail)
    return f.select(y.same(0.0), 0.0, f.select(x.same(0.0), -math.inf, value))


@_formula("betainc_hazard")
def _betainc_hazard(f: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    x, y = _exact_pair(f, x, y)
    above, tail = _tail(f, a, b, x, y)
    density = f.exp(_log_density(f, a, b, x, y))
    low = a / (x * y * _fraction(f, a, b, f.select(above, 0.0, x)))
    return f.select(above, density / (1.0 - f.exp(tail)), low)


@_formula("beta_density")
def _beta_density(f: Any, a: Any, b: Any, x: Any) -> Any:
    value = f.exp(_log_density(f, a, b, x, 1.0 - x))
    pole = (x.same(0.0) & (a < 1.0)) | (x.same(1.0) & (b < 1.0))
    value = f.select(pole, math.inf, value)
    value = f.select((x < 0.0) | (x > 1.0), 0.0, value)
    return _valid(f, a, b, x, value)


def _exact_pair(f: Any, x: Any, y: Any) -> tuple:
    """Return x and y = 1 - x, computed from the smaller one, which is exact."""
    return f.select(x > y, 1.0 - y, x), f.select(x > y, y, 1.0 - x)


def _valid(f: Any, a: Any, b: Any, x: Any, value: Any) -> Any:
    """Return `value`, and NaN for parameters that are not positive and arguments that are NaN."""
    return f.select((a > 0.0) & (b > 0.0) & ~x.is_nan(), value, math.nan)


def _on_unit_interval(f: Any, a: Any, b: Any, x: Any, value: Any, first: float, last: float) -> Any:
    """Return `value` for 0 < x < 1, `first` at 0, `last` at 1 and NaN elsewhere."""
    value = f.select(x.same(0.0), first, f.select(x.same(1.0), last, value))
    return _valid(f, a, b, x, f.select((x >= 0.0) & (x <= 1.0), value, math.nan))


def _tail(f: Any, a: Any, b: Any, x: Any, y: Any) -> tuple:
    """Return whether x is above the mean, and the logarithm of the function's smaller tail."""
    above = x * (a + b + 2.0) > a + 1.0
    pairs = ((b, a), (a, b), (y, x), (x, y))
    p, q, u, v = [f.select(above, *pair) for pair in pairs]
    term = _log_density(f, a, b, x, y) + f.log(u) + f.log(v)
    return above, term - f.log(p) + f.log(_fraction(f, p, q, u))


def _fraction(f: Any, p: Any, q: Any, u: Any) -> Any:
    left_out = 2.0**-64 if f.demand == "f64" else 2.0**-46
    return continued_fraction(f, p, q, u, left_out)


def _log_density(f: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return log(x^(a-1) y^(b-1) / B(a, b)).

    Subtracting 1 from a parameter below 1 would make it negative; its density is scaled instead.
    """
    is_a_below_one, is_b_below_one = a < 1.0, b < 1.0
    first, last = f.select(is_a_below_one, a, a - 1.0), f.select(is_b_below_one, b, b - 1.0)
    count = f.select(
        is_a_below_one & is_b_below_one,
        1.0 / (a + b),
        f.select(is_a_below_one | is_b_below_one, 1.0, first + last + 1.0),
    )
    sides = f.select(is_a_below_one, f.log(a) - f.log(x), 0.0) + f.select(
        is_b_below_one, f.log(b) - f.log(y), 0.0
    )
    return _log_binomial(f, first, last, x, y) + sides + f.log(count)


def _log_binomial(f: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return log(x^a y^b gamma(a + b + 1) / (gamma(a + 1) gamma(b + 1))) by Loader's method."""
    gap, low, high = a * y - b * x, f.select(a < b, a, b), f.max(a, b)
    large = f.max(high, f.c(_LARGE))
    wide = 0.5 * f.log1p(low / large) + _stirling_rest(f, a + b) - _stirling_rest(f, high)
    wide = f.select(high > _LARGE, wide, _width(f, a + b) - _width(f, high))
    first = x + b / f.select(a > 0.0, a, 1.0) * x
    second = y + a / f.select(b > 0.0, b, 1.0) * y
    return wide - _width(f, low) - _deviance(f, a, -gap, first) - _deviance(f, b, gap, second)


def _stirling_rest(f: Any, v: Any) -> Any:
    """Return the error of Stirling's formula for lgamma(v + 1)."""
    inverse = 1.0 / f.max(v, f.c(_LARGE))
    return inverse * f.horner(inverse * inverse, _STIRLING)


def _width(f: Any, v: Any) -> Any:
    """Return lgamma(v + 1) - v log(v) + v."""
    clipped = f.select(v < _LARGE, v, _LARGE)
    small = lgamma_in_double(f, clipped + 1.0) - _times_log(f, clipped, clipped) + clipped
    large = 0.5 * f.log(2 * math.pi * f.max(v, f.c(_LARGE))) + _stirling_rest(f, v)
    return f.select(v > _LARGE, large, small)


def _deviance(f: Any, v: Any, gap: Any, ratio: Any) -> Any:
    """Return v (r - 1 - log(r)) for the `ratio` r = 1 + gap / v."""
    t = gap / f.select(v > 0.0, v, 1.0)
    near = (v > 0.0) & (f.abs(t) < 0.4)
    t = f.select(near, t, 0.0)
    s = t / (t + 2.0)
    square = s * s
    by_series = v * (s * (t - 2.0 * square * f.horner(square, _DEVIANCE)))
    return f.select(near, by_series, gap - _times_log(f, v, ratio))


def _times_log(f: Any, v: Any, x: Any) -> Any:
    """Return v log(x), and 0 where v is 0."""
    return f.select(v.same(0.0), 0.0, v * f.log(x))
