"""The incomplete beta function and its logarithm, on the host except for moderate parameters.

In, out: floats of one dtype; computed in doubles.

How:  In compiled programs, results narrower than doubles come from the continued fraction of
      `near_betainc`, for parameters within `_MODERATE`: for x on the side of the mean where it is
      used, it converges in some tens of steps. All others are SciPy's functions; where these
      underflow, the logarithm comes from a series: the regularized function is x^a y^b / (a B(a,
      b)) times 1 + x (a+b)/(a+1) + x^2 (a+b)(a+b+1) / ((a+1)(a+2)) + ..., whose terms are positive
      and decrease fast there. Functions of both x and y = 1 - x use both for full precision, and
      are differentiated by x alone.

Source: DLMF 8.17.8 and 8.17.22; Steed's recurrence of a fraction by its differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import ElementwiseOp, LibraryOp, Primitive
from weft._engine.ops.arithmetic import add, div, mul, neg, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.comparison import ge, gt, le, lt, select
from weft._engine.ops.families import (
    FLOATING,
    elementwise,
    elementwise_lowering,
    elementwise_type,
    function,
    in_float32,
    match,
    no_derivative,
    of_scipy,
    scipy_special,
)
from weft._engine.ops.functions.gammas import digamma, lgamma_in_double
from weft._engine.ops.functions.logarithmic import log, log1p
from weft._engine.ops.lowering_specs import HostLowering

if TYPE_CHECKING:
    from weft._engine.ir.formulas import Formulas
    from weft._engine.ir.jaxpr import Eqn
    from weft._engine.ops.rule_types import FormulaValue, NumPyArray, Value

_FAR = 1e-280  # below, the function is not accurate to full precision
_TERMS = 20_000
#: the range of parameters with a short fraction and accurate differences of log-gamma functions
_MODERATE = (1e-3, 4096.0)
#: the bound on omitted terms relative to the sum
_LEFT_OUT = 2.0**-36


def _parts(a: Any, b: Any, x: Any, y: Any) -> tuple[np.ndarray, ...]:
    """Return (a, b, x, y, function, one minus the function, where x is far in the tail)."""
    betainc, betaincc = scipy_special("betainc"), scipy_special("betaincc")
    a, b, x, y = np.broadcast_arrays(*[np.asarray(v, np.float64) for v in (a, b, x, y)])
    low = x <= y
    value = np.where(low, betainc(a, b, x), betaincc(b, a, y))
    complement = np.where(low, betaincc(a, b, x), betainc(b, a, y))
    return a, b, x, y, value, complement, (value < _FAR) & (x > 0) & (y > 0)


def _series(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    total, term = np.ones_like(x), np.ones_like(x)
    for n in range(_TERMS):
        term = term * (x * (a + b + n) / (a + 1 + n))
        total = total + term
        if np.all(term <= 1e-17 * total):
            break
    return total


def _log_betainc(a: Any, b: Any, x: Any, y: Any) -> np.ndarray:
    """Return the logarithm of the function at x, in float64."""
    betaln = scipy_special("betaln")
    with np.errstate(all="ignore"):
        a, b, x, y, value, complement, far = _parts(a, b, x, y)
        out = np.asarray(np.where(value < 0.5, np.log(value), np.log1p(-complement)))
        if far.any():
            p, q, u, v = a[far], b[far], x[far], y[far]
            out[far] = (
                p * np.log(u) + q * np.log(v) - np.log(p) - betaln(p, q) + np.log(_series(p, q, u))
            )
    return out


def _betainc_hazard(a: Any, b: Any, x: Any, y: Any) -> np.ndarray:
    """Return the derivative of the logarithm by x: the density over the function."""
    with np.errstate(all="ignore"):
        a, b, x, y, value, _, far = _parts(a, b, x, y)
        out = np.asarray(_exact_density(a, b, x, y) / value)
        by_series = far | ((x <= 0.9) & (x * (a + b + 2) < a + 1))
        if by_series.any():
            p, q, u, v = a[by_series], b[by_series], x[by_series], y[by_series]
            out[by_series] = p / (u * v * _series(p, q, u))
    return out


def _density(a: Any, b: Any, x: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        a, b, x = np.broadcast_arrays(*[np.asarray(v, np.float64) for v in (a, b, x)])
        inside = (x >= 0) & (x <= 1) & (a > 0) & (b > 0)
        value = _exact_density(*[np.where(inside, v, 0.5) for v in (a, b, x, 1 - x)])
        ends = np.where(((x == 0) & (a < 1)) | ((x == 1) & (b < 1)), np.inf, value)
        return np.where(inside, ends, np.where((a > 0) & (b > 0) & ~np.isnan(x), 0.0, np.nan))


def _exact_density(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x^(a-1) y^(b-1) / B(a, b).

    Subtracting one from a parameter below one would make it negative; factors are then applied to
    the binomial probability.
    """
    is_a_below_one, is_b_below_one = a < 1, b < 1
    first, last = np.where(is_a_below_one, a, a - 1), np.where(is_b_below_one, b, b - 1)
    log = _log_binomial(first, last, x, y)
    sides = np.where(is_a_below_one, a / x, 1.0), np.where(is_b_below_one, b / y, 1.0)
    count = np.where(
        is_a_below_one & is_b_below_one,
        1 / (a + b),
        np.where(is_a_below_one | is_b_below_one, 1.0, first + last + 1),
    )
    product = sides[0] * (sides[1] * count)
    logs = (
        np.where(is_a_below_one, np.log(a) - np.log(x), 0.0)
        + np.where(is_b_below_one, np.log(b) - np.log(y), 0.0)
        + np.log(count)
    )
    return np.where(
        np.isfinite(product) & (product > 1e-300), product * np.exp(log), np.exp(log + logs)
    )


def _log_binomial(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log(x^a y^b gamma(a + b + 1) / (gamma(a + 1) gamma(b + 1))) by Loader's method.

    It has no differences of large logarithms.
    """
    gammaln, xlogy = scipy_special("gammaln"), scipy_special("xlogy")

    def rest(v: NumPyArray) -> NumPyArray:  # error of Stirling's formula
        inverse = 1 / np.maximum(v, 10)
        return inverse * np.polyval(
            (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12),
            inverse * inverse,
        )

    def width(v: NumPyArray) -> NumPyArray:  # lgamma(v + 1) - v log(v) + v
        clipped = np.minimum(v, 10)
        return np.where(
            v > 10,
            0.5 * np.log(2 * np.pi * np.maximum(v, 10)) + rest(v),
            gammaln(clipped + 1) - xlogy(clipped, clipped) + clipped,
        )

    def deviance(
        v: NumPyArray, gap: NumPyArray, ratio: NumPyArray
    ) -> NumPyArray:  # v (r - 1 - log(r)) of r = 1 + gap / v, which is the ratio
        t = gap / np.where(v > 0, v, 1)
        near = (v > 0) & (np.abs(t) < 0.4)
        t = np.where(near, t, 0)
        s = t / (t + 2)
        series = np.polyval([1 / k for k in range(31, 1, -2)], s * s)
        return np.where(near, v * (s * (t - 2 * s * s * series)), gap - xlogy(v, ratio))

    gap, low, high = a * y - b * x, np.minimum(a, b), np.maximum(a, b)
    wide: NumPyArray = np.where(
        high > 10,
        0.5 * np.log1p(low / np.maximum(high, 10)) + rest(a + b) - rest(high),
        width(a + b) - width(high),
    )
    first, second = (x + b / np.where(a > 0, a, 1) * x, y + a / np.where(b > 0, b, 1) * y)
    return wide - width(low) - deviance(a, -gap, first) - deviance(b, gap, second)


def _round(exact: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reference that computes in float64."""

    def reference(*args: NumPyArray):
        with np.errstate(all="ignore"):
            return exact(*args).astype(args[-1].dtype)

    return reference


@function(
    None, of_scipy("betainc", wide=True), ulp=(0.55, 0), ranges=((0.5, 50), (0.5, 50), (0, 1))
)
def near_betainc(f: Formulas, a: FormulaValue, b: FormulaValue, x: FormulaValue):
    """Return `betainc` for parameters within `_MODERATE` and 0 < x < 1."""
    g = f.in_double()
    a, b, x = f.widen(a), f.widen(b), f.widen(x)
    above, complement = x * (a + b + 2.0) > a + 1.0, 1.0 - x
    p, q, u, v = [
        g.select(above, *pair) for pair in ((b, a), (a, b), (complement, x), (x, complement))
    ]
    log_factor = g.fma(p, g.log(u), q * g.log(v)) + (
        lgamma_in_double(g, a + b) - lgamma_in_double(g, a) - lgamma_in_double(g, b)
    )
    y = g.exp(log_factor) * continued_fraction(g, p, q, u, _LEFT_OUT) / p
    return f.narrow(g.select(above, 1.0 - y, y))


def continued_fraction(g: Value, p: Value, q: Value, u: Value, left_out: Value):
    """Return the continued fraction 1 / (1 + d1 / (1 + d2 / ...)).

    d(2m+1) = -(p+m)(p+q+m) u / ((p+2m)(p+2m+1)) and d(2m) = m(q-m) u / ((p+2m-1)(p+2m)).

    The fraction ends when terms are below `left_out` of the sum.
    """

    def half_step(top: Value, bottom: Value, d: Value, difference: Value, total: Value):
        denominator = 1.0 / (bottom + top * d)
        difference = -(top * d * denominator * difference)
        return bottom * denominator, difference, total + difference

    def step(n: Value, d: Value, difference: Value, total: Value):
        m = n - 1.0
        d, difference, total = half_step(
            -((p + m) * (p + q + m) * u), (p + m + m) * (p + m + n), d, difference, total
        )
        d, difference, total = half_step(
            n * (q - n) * u, (p + m + n) * (p + n + n), d, difference, total
        )
        return g.abs(difference) > total * left_out, [d, difference, total]

    return g.repeat(step, 1.0, 1.0, 1.0)[2]


def _compiled_betainc(a: NumPyArray, b: NumPyArray, x: NumPyArray):
    """Return betainc by the formula within its range, and by SciPy elsewhere.

    SciPy receives trivial arguments for the elements of the formula.
    """
    least, most = _MODERATE
    inside = [bitwise_and(ge(v, least), le(v, most)) for v in (a, b)]
    near = bitwise_and(bitwise_and(*inside), bitwise_and(gt(x, 0), lt(x, 1)))
    by_formula = _near_betainc_p.bind(*[select(near, v, 0.5) for v in (a, b, x)])
    return select(
        near,
        by_formula,
        _far_betainc_p.bind(*[select(near, v, w) for v, w in ((1, a), (1, b), (0, x))]),
    )


def _betainc_of(eqn: Eqn) -> Callable[..., Any] | None:
    return (
        None
        if eqn.outvars[0].aval.dtype == np.float64
        else lambda *args: [_compiled_betainc(*args)]
    )


def _unregistered(op: Primitive, lower: Any) -> Primitive:
    reference = in_float32(of_scipy("betainc", wide=True))
    return op.define(type=elementwise_type(op.name, FLOATING), reference=reference, lower=lower)


_near_betainc_p = _unregistered(
    ElementwiseOp("near_betainc", register=False), elementwise_lowering("near_betainc")
)
_far_betainc_p = _unregistered(
    LibraryOp("far_betainc", register=False), HostLowering(elementwise=True)
)


def _no_parameters(name: str) -> list[Any]:
    return [no_derivative(name, "a"), no_derivative(name, "b")]


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta",
    FLOATING,
    of_scipy("betainc", wide=True),
    lower=HostLowering(elementwise=True),
    op_class=LibraryOp,
    compiled=_betainc_of,
    jvp=[*_no_parameters("betainc"), lambda t, out, a, b, x: mul(t, beta_density(a, b, x))],
)
betaincc_p = elementwise(
    "betaincc",
    FLOATING,
    of_scipy("betaincc", wide=True),
    lower=HostLowering(elementwise=True),
    op_class=LibraryOp,
    jvp=[*_no_parameters("betaincc"), lambda t, out, a, b, x: neg(mul(t, beta_density(a, b, x)))],
)
beta_density_p = elementwise(
    "beta_density",
    FLOATING,
    _round(_density),
    lower=HostLowering(elementwise=True),
    op_class=LibraryOp,
    jvp=[
        lambda t, out, a, b, x: mul(t, mul(out, add(log(x), sub(digamma(add(a, b)), digamma(a))))),
        lambda t, out, a, b, x: mul(
            t, mul(out, add(log1p(neg(x)), sub(digamma(add(a, b)), digamma(b))))
        ),
        # the products come first, so that a density of zero is not multiplied by an infinite
        # quotient
        lambda t, out, a, b, x: mul(
            t, sub(div(mul(out, sub(a, 1)), x), div(mul(out, sub(b, 1)), sub(1, x)))
        ),
    ],
)
log_betainc_p = elementwise(
    "log_betainc",
    FLOATING,
    _round(_log_betainc),
    lower=HostLowering(elementwise=True),
    op_class=LibraryOp,
    jvp=[
        *_no_parameters("log_betainc"),
        lambda t, out, a, b, x, y: mul(t, betainc_hazard(a, b, x, y)),
        None,
    ],
)
betainc_hazard_p = elementwise(
    "betainc_hazard",
    FLOATING,
    _round(_betainc_hazard),
    lower=HostLowering(elementwise=True),
    op_class=LibraryOp,
    jvp=[
        *_no_parameters("betainc_hazard"),
        lambda t, out, a, b, x, y: mul(
            t, mul(out, sub(sub(div(sub(a, 1), x), div(sub(b, 1), y)), out))
        ),
        None,
    ],
)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularized incomplete beta function.

    >>> float(betainc(np.float32(1.0), np.float32(1.0), np.float32(0.25)))
    0.25
    """
    return regularized_incomplete_beta_p.bind(*match(a, b, x))


def betaincc(a: Any, b: Any, x: Any) -> Any:
    """Return `1 - betainc(a, b, x)`, accurate where `betainc` is close to one.

    >>> float(betaincc(np.float32(1.0), np.float32(1.0), np.float32(0.25)))
    0.75
    """
    return betaincc_p.bind(*match(a, b, x))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    """Return the derivative of `betainc(a, b, x)` by `x`: x^(a-1) (1-x)^(b-1) / B(a, b).

    >>> float(beta_density(np.float32(2.0), np.float32(1.0), np.float32(0.25)))
    0.5
    """
    return beta_density_p.bind(*match(a, b, x))


def log_betainc(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return the logarithm of `betainc(a, b, x)`, also where `betainc` underflows.

    Where `betainc` is close to one, the result is as accurate as `y`, which is 1 - x.

    >>> float(log_betainc(np.float32(2.0), np.float32(1.0), np.float32(0.5), np.float32(0.5)))
    -1.3862943649291992
    """
    return log_betainc_p.bind(*match(a, b, x, y))


def betainc_hazard(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return the derivative of `log_betainc(a, b, x, y)` by `x`: the density over the function.

    >>> float(betainc_hazard(np.float32(2.0), np.float32(1.0), np.float32(0.5), np.float32(0.5)))
    4.0
    """
    return betainc_hazard_p.bind(*match(a, b, x, y))
