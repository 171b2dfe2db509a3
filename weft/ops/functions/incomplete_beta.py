"""The incomplete beta function and its logarithm, on the host.

In, out: floats of one dtype; computed in doubles.
How:  SciPy's functions; where they underflow, the logarithm comes from a series: the regularized function is x^a y^b / (a B(a, b)) times
      1 + x (a+b)/(a+1) + x^2 (a+b)(a+b+1) / ((a+1)(a+2)) + ..., whose terms are positive and there fall fast. Functions of both x and
      y = 1 - x take each as precisely as the caller knows it, and differentiate by x alone, of which y is the rest.
Source: DLMF 8.17.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ops.arithmetic import add, div, mul, neg, sub
from weft.ops.comparison import lt, select
from weft.ops.families import FLOATING, HostSpec, elementwise, match, no_derivative, of_scipy
from weft.ops.functions.exponential import exp
from weft.ops.functions.gammas import lgamma
from weft.ops.functions.logarithmic import log, log1p
from weft.ops.functions.powers import pow

_FAR = 1e-280                   # below, the function is not known to full precision
_TERMS = 20_000


def _parts(a: Any, b: Any, x: Any, y: Any) -> tuple[np.ndarray, ...]:
    """(a, b, x, y, function, what it leaves of one, where it is far in its tail), in float64."""
    from scipy.special import betainc, betaincc
    a, b, x, y = np.broadcast_arrays(*[np.asarray(v, np.float64) for v in (a, b, x, y)])
    low = x <= y
    value = np.where(low, betainc(a, b, x), betaincc(b, a, y))
    rest = np.where(low, betaincc(a, b, x), betainc(b, a, y))
    return a, b, x, y, value, rest, (value < _FAR) & (x > 0) & (y > 0)


def _series(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    total, term = np.ones_like(x), np.ones_like(x)
    for n in range(_TERMS):
        term = term * (x * (a + b + n) / (a + 1 + n))
        total = total + term
        if np.all(term <= 1e-17 * total):
            break
    return total


def _log_betainc(a: Any, b: Any, x: Any, y: Any) -> np.ndarray:
    """The logarithm of the function at x, in float64 as all of this."""
    from scipy.special import betaln
    with np.errstate(all="ignore"):
        a, b, x, y, value, rest, far = _parts(a, b, x, y)
        out = np.asarray(np.where(value < 0.5, np.log(value), np.log1p(-rest)))
        if far.any():
            p, q, u, v = a[far], b[far], x[far], y[far]
            out[far] = p * np.log(u) + q * np.log(v) - np.log(p) - betaln(p, q) + np.log(_series(p, q, u))
    return out


def _betainc_hazard(a: Any, b: Any, x: Any, y: Any) -> np.ndarray:
    """The derivative of that by x: the density over the function."""
    with np.errstate(all="ignore"):
        a, b, x, y, value, _, far = _parts(a, b, x, y)
        out = np.asarray(_exact_density(a, b, x, y) / value)
        by_series = far | ((x <= 0.9) & (x * (a + b + 2) < a + 1))
        if by_series.any():
            p, q, u, v = a[by_series], b[by_series], x[by_series], y[by_series]
            out[by_series] = p / (u * v * _series(p, q, u))
    return out


def _exact_density(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x^(a-1) y^(b-1) / B(a, b), as a product of powers where these are floats."""
    from scipy.special import betaln, xlog1py, xlogy
    low, scale = x <= y, betaln(a, b)
    logs = np.where(low, xlogy(a - 1, x), xlog1py(a - 1, -y)) + np.where(low, xlog1py(b - 1, -x), xlogy(b - 1, y))
    power, rest = np.where(low, np.power(x, a - 1), np.power(y, b - 1)), np.where(low, xlog1py(b - 1, -x), xlog1py(a - 1, -y))
    plain = (power > 1e-300) & (power < 1e300) & (np.abs(rest - scale) < 600)
    return np.where(plain, power * np.exp(rest - scale), np.exp(logs - scale))


def _rounded(exact: Callable) -> Callable:
    """A reference that computes in float64."""
    return lambda *args: exact(*args).astype(args[-1].dtype)


def _density(a: Any, b: Any, x: Any) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b). Of a small `a` the power of `x` is a float, and more precise than by its logarithm."""
    few = lt(a, 2)
    power = select(few, pow(x, sub(select(few, a, 1), 1)), 1)
    logs = add(select(few, 0, mul(sub(a, 1), log(select(few, 1, x)))), mul(sub(b, 1), log1p(neg(x))))
    return mul(power, exp(add(logs, sub(lgamma(add(a, b)), add(lgamma(a), lgamma(b))))))


def _no_parameters(name: str) -> list:
    return [no_derivative(name, "a"), no_derivative(name, "b")]


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta", FLOATING, of_scipy("betainc", wide=True), lower=HostSpec(), kind="library",
    jvp=[*_no_parameters("betainc"), lambda t, out, a, b, x: mul(t, _density(a, b, x))])
betaincc_p = elementwise(
    "betaincc", FLOATING, of_scipy("betaincc", wide=True), lower=HostSpec(), kind="library",
    jvp=[*_no_parameters("betaincc"), lambda t, out, a, b, x: neg(mul(t, _density(a, b, x)))])
log_betainc_p = elementwise(
    "log_betainc", FLOATING, _rounded(_log_betainc), lower=HostSpec(), kind="library",
    jvp=[*_no_parameters("log_betainc"), lambda t, out, *args: mul(t, betainc_hazard(*args)), None])
betainc_hazard_p = elementwise(
    "betainc_hazard", FLOATING, _rounded(_betainc_hazard), lower=HostSpec(), kind="library",
    jvp=[*_no_parameters("betainc_hazard"), lambda t, out, a, b, x, y: mul(
        t, mul(out, sub(sub(div(sub(a, 1), x), div(sub(b, 1), y)), out))), None])


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function.

    >>> float(betainc(np.float32(1.0), np.float32(1.0), np.float32(0.25)))
    0.25
    """
    return regularized_incomplete_beta_p.bind(*match(a, b, x))


def betaincc(a: Any, b: Any, x: Any) -> Any:
    """`1 - betainc(a, b, x)`, accurate where that is close to one.

    >>> float(betaincc(np.float32(1.0), np.float32(1.0), np.float32(0.25)))
    0.75
    """
    return betaincc_p.bind(*match(a, b, x))


def log_betainc(a: Any, b: Any, x: Any, y: Any) -> Any:
    """The logarithm of `betainc(a, b, x)`, also where that is too small for a float, or as close to one as `y`, which is 1 - x, is to zero.

    >>> float(log_betainc(np.float32(2.0), np.float32(1.0), np.float32(0.5), np.float32(0.5)))
    -1.3862943649291992
    """
    return log_betainc_p.bind(*match(a, b, x, y))


def betainc_hazard(a: Any, b: Any, x: Any, y: Any) -> Any:
    """The derivative of `log_betainc(a, b, x, y)` by `x`: the density over the function.

    >>> float(betainc_hazard(np.float32(2.0), np.float32(1.0), np.float32(0.5), np.float32(0.5)))
    4.0
    """
    return betainc_hazard_p.bind(*match(a, b, x, y))
