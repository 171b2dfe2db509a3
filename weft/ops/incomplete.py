"""Incomplete gamma and beta functions, and the Hurwitz zeta function.

In:  floats of one dtype. Out: the same dtype, computed in float64 (zeta: see `ops.zeta`); the beta function on the host.
"""

from __future__ import annotations

import numpy as np

from weft.ops.arithmetic import add, div, mul, neg, sub
from weft.ops.families import FLOATING, elementwise, match_dtypes
from weft.ops.math import exp, log, log1p
from weft.ops.special import digamma, expanded, lgamma, on_host


def _wide(name: str):
    """The function of scipy.special in float64, rounded to the operands' dtype; imported when first used."""
    def reference(*xs):
        import scipy.special
        with np.errstate(all="ignore"):
            return np.asarray(getattr(scipy.special, name)(*(np.asarray(x, np.float64) for x in xs))).astype(xs[0].dtype)
    return reference


def _by_slopes(name: str):
    """The reference of a derivative; imported when first used."""
    def reference(a, x):
        from weft.util import gamma_slopes
        return getattr(gamma_slopes, name)(a, x).astype(x.dtype)
    return reference


# --- the ops ----------------------------------------------------------------------------------------------------------


def _no_derivative(name: str, operand: str):
    def rule(t, out, *primals):
        raise NotImplementedError(f"{name}: the derivative by {operand} is not there yet; keep {operand} constant "
                                  "(weft.lax.stop_gradient).")
    return rule


def _beta_density(a, b, x):
    power = add(mul(sub(a, 1), log(x)), mul(sub(b, 1), log1p(neg(x))))
    return exp(add(power, sub(lgamma(add(a, b)), add(lgamma(a), lgamma(b)))))


def _by_powers(x, q):
    from weft.ops import zeta as powers  # few programs need it
    return powers.zeta(x, q)


igamma_p = elementwise("igamma", FLOATING, _wide("gammainc"), jvp=[
    lambda t, out, a, x: mul(t, igamma_grad_a(a, x)), lambda t, out, a, x: mul(t, igamma_grad_x(a, x))])
igammac_p = elementwise("igammac", FLOATING, _wide("gammaincc"), jvp=[
    lambda t, out, a, x: neg(mul(t, igamma_grad_a(a, x))), lambda t, out, a, x: neg(mul(t, igamma_grad_x(a, x)))])
igamma_grad_a_p = elementwise("igamma_grad_a", FLOATING, _by_slopes("igamma_grad_a"), jvp=[
    _no_derivative("igamma_grad_a", "a"), _no_derivative("igamma_grad_a", "x")])
igamma_grad_x_p = elementwise("igamma_grad_x", FLOATING, _by_slopes("igamma_grad_x"), jvp=[
    lambda t, out, a, x: mul(t, mul(out, sub(log(x), digamma(a)))), lambda t, out, a, x: mul(t, mul(out, sub(div(sub(a, 1), x), 1)))])
random_gamma_grad_p = elementwise("random_gamma_grad", FLOATING, _by_slopes("random_gamma_grad"), jvp=[
    _no_derivative("random_gamma_grad", "a"), _no_derivative("random_gamma_grad", "x")])
regularized_incomplete_beta_p = on_host(
    "regularized_incomplete_beta", _wide("betainc"),
    [_no_derivative("betainc", "a"), _no_derivative("betainc", "b"), lambda t, out, a, b, x: mul(t, _beta_density(a, b, x))])
zeta_p = expanded("zeta", _by_powers, lambda x, q: _wide("zeta")(x, q),
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


def igamma_grad_x(a, x):
    """The derivative of `igamma(a, x)` by `x`: x^(a-1) exp(-x) / gamma(a)."""
    return igamma_grad_x_p.bind(*match_dtypes(a, x))


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
