"""Incomplete gamma and beta functions, computed on the host; and the Hurwitz zeta function.

In:  floats of one dtype. Out: the same dtype, computed in float64 (zeta: see `ops.zeta`).
The derivative by the order `a` of the incomplete gamma functions has no closed form. It is found from the series of the
lower function where `x < a + 1` and from the continued fraction of the upper one elsewhere, both differentiated term by
term; the density, their common factor, stays outside, so that the quotient `random_gamma_grad` never underflows.
"""

from __future__ import annotations

import numpy as np

from weft.ops.arithmetic import add, mul, neg, sub
from weft.ops.families import match_dtypes
from weft.ops.math import exp, lgamma, log, log1p, made_of_powers, on_host

_TERMS = 10_000  # of a series, at most
_SMALL = 1e-300  # stands for the zero that a continued fraction must not divide by


def _wide(name: str):
    """The function of scipy.special in float64, rounded to the operands' dtype; imported when first used."""
    def reference(*xs):
        import scipy.special
        with np.errstate(all="ignore"):
            return np.asarray(getattr(scipy.special, name)(*(np.asarray(x, np.float64) for x in xs))).astype(xs[0].dtype)
    return reference


# --- the derivative by the order --------------------------------------------------------------------------------------


def _by_series(a, x):
    """The slope from P = density x/a S with S = 1 + x/(a+1) + x^2/((a+1)(a+2)) + ..."""
    from scipy.special import psi
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


def _by_fraction(a, x):
    """The slope from Q = density x h with the continued fraction h of Legendre, by Lentz's method on dual numbers."""
    from scipy.special import psi
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
        if np.all((np.abs(delta - 1) <= 4e-16) & (np.abs(h * delta_slope) <= 4e-16 * np.abs(h_slope) + _SMALL)):
            break
    return -x * (h * (np.log(x) - psi(a)) + h_slope)


def _order_slope(a, x):
    """The derivative of the lower function P(a, x) by `a`, divided by its derivative by `x`; nan outside of its domain."""
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


def _random_gamma_grad_reference(a, x):
    return (-_order_slope(a, x)).astype(x.dtype)


def _igamma_grad_a_reference(a, x):
    from scipy.special import gammaln
    wide, at = np.asarray(a, np.float64), np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        density = np.exp((wide - 1) * np.log(at) - at - gammaln(wide))
        value = _order_slope(wide, at) * density
    return np.where((wide > 0) & ((at == 0) | (at == np.inf)), 0.0, value).astype(x.dtype)


# --- the ops ----------------------------------------------------------------------------------------------------------


def _no_derivative(name: str, operand: str):
    def rule(t, out, *primals):
        raise NotImplementedError(f"{name}: the derivative by {operand} is not there yet; keep {operand} constant "
                                  "(weft.lax.stop_gradient).")
    return rule


def _density(a, x):
    """The derivative of igamma by `x`, exp(-x) x^(a-1) / gamma(a)."""
    return exp(sub(sub(mul(sub(a, 1), log(x)), x), lgamma(a)))


def _beta_density(a, b, x):
    power = add(mul(sub(a, 1), log(x)), mul(sub(b, 1), log1p(neg(x))))
    return exp(add(power, sub(lgamma(add(a, b)), add(lgamma(a), lgamma(b)))))


igamma_p = on_host("igamma", _wide("gammainc"), [lambda t, out, a, x: mul(t, igamma_grad_a(a, x)),
                                                  lambda t, out, a, x: mul(t, _density(a, x))])
igammac_p = on_host("igammac", _wide("gammaincc"), [lambda t, out, a, x: neg(mul(t, igamma_grad_a(a, x))),
                                                     lambda t, out, a, x: neg(mul(t, _density(a, x)))])
igamma_grad_a_p = on_host("igamma_grad_a", _igamma_grad_a_reference,
                           [_no_derivative("igamma_grad_a", "a"), _no_derivative("igamma_grad_a", "x")])
random_gamma_grad_p = on_host("random_gamma_grad", _random_gamma_grad_reference,
                               [_no_derivative("random_gamma_grad", "a"), _no_derivative("random_gamma_grad", "x")])
regularized_incomplete_beta_p = on_host(
    "regularized_incomplete_beta", _wide("betainc"),
    [_no_derivative("betainc", "a"), _no_derivative("betainc", "b"), lambda t, out, a, b, x: mul(t, _beta_density(a, b, x))])
zeta_p = made_of_powers("zeta", lambda x, q: _wide("zeta")(x, q),
                        [_no_derivative("zeta", "x"), lambda t, out, x, q: neg(mul(t, mul(x, zeta(add(x, 1), q))))])


def igamma(a, x):
    """The regularized lower incomplete gamma function: the integral of exp(-t) t^(a-1) / gamma(a) from 0 to `x`.

    >>> import numpy as np
    >>> round(float(igamma(np.float32(1.0), np.float32(2.0))), 6)
    0.864665
    """
    return igamma_p.bind(*match_dtypes(a, x))


def igammac(a, x):
    """`1 - igamma(a, x)`, accurate for large `x`."""
    return igammac_p.bind(*match_dtypes(a, x))


def igamma_grad_a(a, x):
    """The derivative of `igamma(a, x)` by `a`."""
    return igamma_grad_a_p.bind(*match_dtypes(a, x))


def random_gamma_grad(a, x):
    """How a gamma sample `x` moves with its shape parameter `a`: the derivative of the inverse of `igamma(a, .)`."""
    return random_gamma_grad_p.bind(*match_dtypes(a, x))


def betainc(a, b, x):
    """The regularized incomplete beta function.

    >>> import numpy as np
    >>> float(betainc(np.float32(1.0), np.float32(1.0), np.float32(0.25)))
    0.25
    """
    return regularized_incomplete_beta_p.bind(*match_dtypes(a, b, x))


def zeta(x, q):
    """The Hurwitz zeta function, the sum of 1 / (q + k)^x over k = 0, 1, ..."""
    return zeta_p.bind(*match_dtypes(x, q))
