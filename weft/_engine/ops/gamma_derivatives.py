"""Derivatives of the incomplete gamma functions and of their logarithms on NumPy: the reference of
native code.

In, out: arrays, computed in float64.
How:  The derivative by the order has no closed form. It is computed from the series of the lower
      function where `x < a + 1` and from the continued fraction of the upper one elsewhere, both
      differentiated term by term. Their common factor, the density, is left out, so that the
      quotient `random_gamma_grad` never underflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft._engine.ops.families import scipy_special

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import NumPyArray

_TERMS = 10_000  # the most terms of a series
_SMALL = 1e-300  # replaces the zero that a continued fraction must not divide by


def _by_series(a: NumPyArray, x: NumPyArray):
    """Return the slope from P = density x/a S with S = 1 + x/(a+1) + x^2/((a+1)(a+2)) + ..."""
    psi = scipy_special("psi")
    term, slope = np.ones_like(a), np.zeros_like(a)
    total, total_slope = np.ones_like(a), np.zeros_like(a)
    for n in range(1, _TERMS):
        factor = x / (a + n)
        slope = slope * factor - term * factor / (a + n)
        term = term * factor
        total, total_slope = total + term, total_slope + slope
        if np.all((term <= 1e-17 * total) & (np.abs(slope) <= 1e-17 * np.abs(total_slope))):
            break
    return x / a * (total * (np.log(x) - psi(a + 1)) + total_slope)


def _by_fraction(a: NumPyArray, x: NumPyArray):
    """Return the slope from Q = density x h with Legendre's continued fraction h.

    It is evaluated by Lentz's method on dual numbers.
    """
    psi = scipy_special("psi")
    b = x + 1 - a
    b = np.where(np.abs(b) < _SMALL, _SMALL, b)
    c, c_slope = np.full_like(a, 1 / _SMALL), np.zeros_like(a)
    d, d_slope = 1 / b, 1 / (b * b)
    h, h_slope = d, d_slope
    for n in range(1, _TERMS):
        top, top_slope = -n * (n - a), float(n)
        b = b + 2
        e, e_slope = top * d + b, top_slope * d + top * d_slope - 1
        e = np.where(np.abs(e) < _SMALL, _SMALL, e)
        f, f_slope = b + top / c, -1 + (top_slope - top * c_slope / c) / c
        f = np.where(np.abs(f) < _SMALL, _SMALL, f)
        d, d_slope = 1 / e, -e_slope / (e * e)
        c, c_slope = f, f_slope
        delta, delta_slope = d * c, d_slope * c + d * c_slope
        h_slope = h_slope * delta + h * delta_slope
        h = h * delta
        if np.all(
            (np.abs(delta - 1) <= 4e-16)
            & (np.abs(h * delta_slope) <= 4e-16 * np.abs(h_slope) + _SMALL)
        ):
            break
    return -x * (h * (np.log(x) - psi(a)) + h_slope)


def _order_slope(a: NumPyArray, x: NumPyArray):
    """Return the derivative of P(a, x) by `a`, divided by its derivative by `x`.

    P is the regularized lower incomplete gamma function; the result is nan outside of its domain.
    """
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    out = np.full(a.shape, np.nan)
    valid = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    series = valid & (x < a + 1)
    fraction = valid & ~series
    with np.errstate(all="ignore"):
        if series.any():
            out[series] = _by_series(a[series], x[series])
        if fraction.any():
            out[fraction] = _by_fraction(a[fraction], x[fraction])
    out[(a > 0) & (x == 0)] = 0.0
    return out


def random_gamma_grad(a: NumPyArray, x: NumPyArray):
    """Return the derivative of a gamma sample by its shape parameter."""
    return -_order_slope(a, x)


def igamma_grad_x(a: NumPyArray, x: NumPyArray):
    """Return the derivative of the lower incomplete gamma function by `x`."""
    gammaln, xlogy = scipy_special("gammaln"), scipy_special("xlogy")
    a, x = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        value = np.exp(xlogy(a - 1, x) - x - gammaln(a))
    none = (
        (np.isposinf(x) & (a >= 0) & (a < np.inf))
        | (np.isposinf(a) & (x >= 0) & (x < np.inf))
        | ((a == 0) & (x > 0))
    )
    inside = (a > 0) & (x >= 0) & ~(np.isposinf(a) & np.isposinf(x))
    return np.where(none, 0.0, np.where(inside, value, np.nan))


def igamma_grad_a(a: NumPyArray, x: NumPyArray):
    """Return the derivative of the lower incomplete gamma function by its order `a`."""
    a, x = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        value = _order_slope(a, x) * igamma_grad_x(a, x)
    return np.where((a > 0) & ((x == 0) | (x == np.inf)), 0.0, value)


def _log_density(a: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return the logarithm of x^a e^-x / gamma(1 + a)."""
    gammaln, xlogy = scipy_special("gammaln"), scipy_special("xlogy")
    return xlogy(a, x) - x - gammaln(a + 1)


def _log_value(a: NumPyArray, x: NumPyArray, upper: bool) -> NumPyArray:
    gammainc, gammaincc = scipy_special("gammainc"), scipy_special("gammaincc")
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    with np.errstate(all="ignore"):
        value, complement = (gammaincc, gammainc)[:: 1 if upper else -1]
        value, complement = value(a, x), complement(a, x)
        out = np.where(value < 0.5, np.log(value), np.log1p(-complement))
        far = (value < 1e-290) & (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        b, y = a[far], x[far]
        share = np.ones_like(b)
        for n in range(500, 0, -1):
            share = n * (b - n) / (y + 2 * n + 1 - b + share) if upper else 1 + share * y / (b + n)
        out[far] = _log_density(b, y) + np.log(b / (y + 1 - b + share) if upper else share)
    return out


def log_igamma(a: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return the logarithm of the regularized lower incomplete gamma function."""
    return _log_value(a, x, False)


def log_igammac(a: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return the logarithm of the regularized upper incomplete gamma function."""
    return _log_value(a, x, True)


def _hazard(a: NumPyArray, x: NumPyArray, upper: bool) -> NumPyArray:
    a, x = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        value = np.exp(_log_density(a, x) + np.log(a) - np.log(x) - _log_value(a, x, upper))
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    start, end = (a > 0) & (x == 0), (a > 0) & np.isfinite(a) & np.isposinf(x)
    none = np.isposinf(a) & (x >= 0) & np.isfinite(x)
    if upper:
        edge = np.where(start, igamma_grad_x(a, x), np.where(end, 1.0, np.where(none, 0.0, np.nan)))
    else:
        edge = np.where(start | none, np.inf, np.where(end | ((a == 0) & (x > 0)), 0.0, np.nan))
    return np.where(inside, value, edge)


def igamma_hazard(a: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return the derivative of `log_igamma` by `x`."""
    return _hazard(a, x, False)


def igammac_hazard(a: NumPyArray, x: NumPyArray) -> NumPyArray:
    """Return the derivative of `log_igammac` by `x`, negated."""
    return _hazard(a, x, True)
