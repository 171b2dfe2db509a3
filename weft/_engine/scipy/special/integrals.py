"""Integrals of exponentials and trigonometric functions: `dawsn`, `erfcx`, `exp1`, `expi`, `expn`, `fresnel`, `sici`, `spence`, `owens_t`.

In:   real arrays; `erfcx` takes complex ones too. Those of 16 bits compute in float32.
Out:  arrays of the common floating dtype.
Laws: the derivative of each function is its integrand, by a custom rule. Large arguments use the function without its
      exponential or trigonometric factor, which preserves relative accuracy.
Source: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964), chapters 5, 7 and 27, for the identities; D. B. Owen,
"Tables for computing bivariate normal probabilities", Annals of Mathematical Statistics 27 (1956).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.jit import jit
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import as_strong, concrete, inexact, promote_to_inexact
from weft._engine.scipy.special.basic import in_single, ndtr
from weft._engine.scipy.special.faddeeva import exp_of_square, wofz
from weft._engine.scipy.special.fits import Chebyshev, asymptotic, make_piecewise_series
from weft._engine.util import dtypes
from weft._engine.util.lazy import scipy_module
from weft._engine.util.source import guard_all, named

__all__ = ["dawsn", "erfcx", "exp1", "expi", "expn", "fresnel", "owens_t", "sici", "spence"]


def _is_complex(x) -> bool:
    return dtypes.issubdtype(x.dtype, np.complexfloating)


def real_argument(name: str, x):
    """Return `x` as floats; ValueError for complex numbers."""
    x = as_strong(inexact(name, x))
    if _is_complex(x):
        raise ValueError(f"{name} does not support complex-valued inputs.")
    return x


def _unary(name: str, fun: Callable, text: str) -> Callable:
    compiled = jit(in_single(fun))
    return named(lambda x: compiled(real_argument(name, x)), name, text)


def _reference(name: str) -> Callable:
    """Return a function of `scipy.special`, imported when it is called."""

    def call(*args):
        return getattr(scipy_module("special"), name)(*args)

    return call


# ---- Dawson's integral and the scaled complementary error function


def _dawsn_share(s):
    """D(x) / x and s = x^2 up to 50, on the host: exp(-s) times a series of positive terms, in extended precision if available."""
    s = np.asarray(s, np.longdouble)
    term = total = np.exp(-s)
    for k in range(1, 200):
        term = term * s / k
        total = total + term / (2 * k + 1)
    return total


def _dawsn_rest(u):
    """(2 x D(x) - 1) / u and u = 1 / x^2, on the host."""
    s = 1 / np.asarray(u, np.longdouble)
    far = asymptotic(s, lambda s, k: (2 * k + 1) / (2 * s), 48) / 2
    return np.where(s > 50, far, (2 * s * _dawsn_share(np.minimum(s, 50)) - 1) / u)


# smaller where it is multiplied by less
_DAWSN_NEAR = Chebyshev("dawsn_near", lambda s: (1 + s / 2) * _dawsn_share(s), 0.0, 9.0)
_DAWSN_FAR = Chebyshev("dawsn_far", lambda u: 1 + u * _dawsn_rest(u), 0.0, 1 / 9)
_DAWSN_REST = make_piecewise_series("dawsn_rest", _dawsn_rest, 0.0, 0.04, 0.25)


@custom_jvp
def _dawsn(x):
    size = wnp.abs(x)
    little, inverse = wnp.minimum(size, 3), 1 / wnp.maximum(size, 3)
    square = little * little
    near = x * _DAWSN_NEAR(square) / (1 + 0.5 * square)
    return wnp.where(size < 3, near, wnp.copysign(0.5 * inverse, x) * _DAWSN_FAR(inverse * inverse))


def _dawsn_slope(t, out, x):
    large = wnp.abs(x) > 2
    u = (1 / wnp.where(large, x, 2)) ** 2
    return t * wnp.where(large, -u * _DAWSN_REST(u), 1 - 2 * wnp.where(large, 0, x) * out)


_dawsn.defjvps(_dawsn_slope)


def _erfcx_below(x):
    """1 / (sqrt(pi) erfcx(x)) - x for x from 2 on, on the host: by Laplace's continued fraction."""
    below = np.zeros_like(x)
    for k in range(200, 0, -1):
        below = (k / 2) / (x + below)
    return below


def _erfcx_rest(u):
    """(1 - sqrt(pi) x erfcx(x)) / u and u = 1 / x^2 for x from 2 on, on the host."""
    x = 1 / np.sqrt(u)
    return _erfcx_below(x) / (x + _erfcx_below(x)) / u


_ERFCX_SCALE, _ERFCX_SHIFT = 3.5, math.sqrt(math.pi) / 2


def _erfcx_flat(w):
    """(x + shift) erfcx(x) and w = scale / (x + scale), on the host, in extended precision if available: nearly constant for small x."""
    x = _ERFCX_SCALE / np.asarray(w, np.longdouble) - _ERFCX_SCALE
    little, root = np.minimum(x, 2), np.sqrt(np.arccos(np.longdouble(-1)))
    term, total = little, np.zeros_like(x)
    for k in range(60):
        total, term = total + term, term * little * little * 2 / (2 * k + 3)
    near = np.exp(little * little) - total * 2 / root
    return (x + _ERFCX_SHIFT) * np.where(
        x < 2, near, 1 / (x + _erfcx_below(np.maximum(x, 2))) / root
    )


_ERFCX = Chebyshev("erfcx", _erfcx_flat, 0.0, 1.0)
_ERFCX_REST = make_piecewise_series("erfcx_rest", _erfcx_rest, 0.0, 0.04, 0.25)


@custom_jvp
def _erfcx_real(x):
    size = wnp.abs(x)
    value = _ERFCX(_ERFCX_SCALE / (size + _ERFCX_SCALE)) / (size + _ERFCX_SHIFT)
    return wnp.where(x < 0, 2 * exp_of_square(x) - value, value)


def _erfcx_slope(t, out, x):
    large = x > 2
    u = (1 / wnp.where(large, x, 2)) ** 2
    slope = wnp.where(
        large, -u * _ERFCX_REST(u), math.sqrt(math.pi) * wnp.where(large, 0, x) * out - 1
    )
    return t * slope * (2 / math.sqrt(math.pi))


_erfcx_real.defjvps(_erfcx_slope)
_erfcx = jit(in_single(_erfcx_real))


def erfcx(x):
    """exp(x^2) erfc(x), which neither overflows nor vanishes early; `x` may be complex.

    >>> round(float(erfcx(0.0)), 4)
    1.0
    """
    x = as_strong(inexact("erfcx", x))
    return wofz(x * 1j) if _is_complex(x) else _erfcx(x)


dawsn = _unary(
    "dawsn", _dawsn, "Dawson's integral exp(-x^2) times the integral of exp(t^2) from 0 to x."
)


# ---- exponential integrals

_E1_NEAR = Chebyshev(
    "e1_near",
    lambda x: sum((-x) ** (k - 1) / (k * math.factorial(k)) for k in range(1, 22)),
    0.0,
    1.0,
)


def _e1_scaled(t):
    """x exp(x) E1(x) for x = 1 / t, on the host."""
    x = 1 / t
    near = np.minimum(x, 60)
    return np.where(
        x > 50,
        asymptotic(x, lambda x, k: -k / x, 30),
        near * np.exp(near) * _reference("exp1")(near),
    )


_E1_FAR = make_piecewise_series("e1_far", _e1_scaled, 0.0, 0.1, 0.25, 0.5, 1.0)


def _e1(x):
    """E1 for positive x."""
    little = wnp.minimum(x, 1)
    near = little * _E1_NEAR(little) - wnp.log(little) - np.euler_gamma
    t = 1 / wnp.maximum(x, 1)
    far = wnp.exp(-x) * t * _E1_FAR(t)
    return wnp.where(x <= 1, near, far)


@custom_jvp
def _exp1(x):
    positive = wnp.where(x > 0, x, 1)
    return wnp.where(x > 0, _e1(positive), wnp.where(x == 0, math.inf, math.nan))


_exp1.defjvps(lambda t, out, x: -t * wnp.exp(-x) / x)

#: the zero of Ei, and its rounding error in float64
_ROOT, _ROOT_REST = 0.37250741078136663446, -1.3140183414386028e-17


def _ei_slope(x):
    """(Ei(x) - log(x / root)) / (x - root), on the host."""
    d = (x - _ROOT) - _ROOT_REST
    return np.where(
        np.abs(d) < 1e-3,
        _ei_slope_near(d),
        (_reference("expi")(x) - np.log(x / _ROOT)) / np.where(d == 0, 1, d),
    )


def _ei_slope_near(d):
    """`_ei_slope` near the root: the mean of (exp(x) - 1) / x over the interval."""
    at = _ROOT + d * (np.polynomial.legendre.leggauss(8)[0][:, None] + 1) / 2
    return np.tensordot(np.polynomial.legendre.leggauss(8)[1] / 2, np.expm1(at) / at, 1)


def _ei_scaled(t):
    """x exp(-x) Ei(x) for x = 1 / t, on the host."""
    x = 1 / t
    near = np.minimum(x, 60)
    return np.where(
        x > 50,
        asymptotic(x, lambda x, k: k / x, 40),
        near * np.exp(-near) * _reference("expi")(near),
    )


_EI_NEAR = make_piecewise_series("ei_near", _ei_slope, 0.0, 3.0, 6.0)
_EI_FAR = make_piecewise_series("ei_far", _ei_scaled, 0.0, 0.0125, 0.025, 0.05, 0.1, 1 / 6)


@custom_jvp
def _expi(x):
    size = wnp.where(x == 0, 1, wnp.abs(x))
    little = wnp.minimum(size, 6)
    d = (little - _ROOT) - _ROOT_REST
    is_tiny = little < 1e-3  # whose quotient may be subnormal
    far = wnp.log(wnp.where(is_tiny, little, little / _ROOT)) - wnp.where(
        is_tiny, math.log(_ROOT), 0
    )
    near = wnp.where(
        wnp.abs(d) < 0.2, wnp.log1p(wnp.where(wnp.abs(d) < 0.2, d, 0) / _ROOT), far
    ) + d * _EI_NEAR(little)
    t = 1 / wnp.maximum(size, 6)
    half = wnp.exp(size / 2)
    far = half * (t * _EI_FAR(t)) * half
    value = wnp.where(x < 0, -_e1(size), wnp.where(size <= 6, near, far))
    return wnp.where(x == 0, -math.inf, wnp.where(wnp.isnan(x) | (x == math.inf), x, value))


_expi.defjvps(lambda t, out, x: t * wnp.exp(x) / x)
exp1 = _unary(
    "exp1",
    _exp1,
    "The exponential integral E1, the integral of exp(-t) / t from x on; NaN below 0.",
)
expi = _unary(
    "expi",
    _expi,
    "The exponential integral Ei, the principal value of the integral of exp(t) / t up to x.",
)

_SERIES = {4: 20, 8: 34}  # terms of E_n's power series up to 2
_FRACTION = {4: 24, 8: 72}  # levels of its continued fraction from 2 on


@custom_jvp
def _expn(n, x):
    size = x.dtype.itemsize
    ok = (n >= 0) & (x >= 0) & (n == wnp.floor(n))
    order, near, far = (
        wnp.where(ok, n, 1),
        wnp.where((x > 0) & (x <= 2), x, 1),
        wnp.where(x > 2, x, 2),
    )
    whole = wnp.maximum(order, 1)
    # the power series: the sum of (-x)^k / (k! (n - 1 - k)) but for k = n - 1, whose term has a logarithm
    top = wnp.maximum(whole - 1, 0)

    def term(k, state):
        total, power, log_term = state
        distance = whole - 1 - k
        total = total + wnp.where(distance == 0, 0, power / wnp.where(distance == 0, 1, distance))
        log_term = wnp.where(distance == 0, power, log_term)
        return total, -power * near / (k + 1).astype(x.dtype), log_term

    zero, one = wnp.zeros_like(x), wnp.ones_like(x)
    total, _, log_term = lax.fori_loop(0, _SERIES[size], term, (zero, one, zero))
    psi = wnp.where(top > 0, lax.digamma(top + 1), -np.euler_gamma)
    series = log_term * (psi - wnp.log(near)) + total

    def level(i, below):
        k = (_FRACTION[size] - i).astype(x.dtype)
        return far + whole + 2 * k - (k + 1) * (whole + k) / below

    fraction = wnp.exp(-far) / lax.fori_loop(
        0, _FRACTION[size] + 1, level, far + whole + 2.0 * _FRACTION[size] + 2
    )
    value = wnp.where(x > 2, fraction, series)
    value = wnp.where(order == 0, wnp.exp(-x) / x, value)
    value = wnp.where(x == 0, wnp.where(order <= 1, math.inf, 1 / wnp.maximum(order - 1, 1)), value)
    return wnp.where(ok, value, math.nan)


_expn.defjvps(
    None,
    lambda t, out, n, x: -t * wnp.where(n == 0, (1 + 1 / x) * out, _expn(wnp.maximum(n - 1, 0), x)),
)
_expn_compiled = jit(in_single(_expn))


def expn(n, x):
    """The exponential integral E_n, the integral of exp(-x t) / t^n for t from 1 on; `n` is a whole number from 0 up.

    NaN for negative `x` or another `n`. The derivative is by `x` alone.
    """
    n, x = map(concrete, promote_to_inexact("expn", wnp.asarray(n), wnp.asarray(x)))
    if _is_complex(x):
        raise ValueError("expn does not support complex-valued inputs.")
    return _expn_compiled(*wnp.broadcast_arrays(n, x))


# ---- sine, cosine and Fresnel integrals


def _trig_auxiliary(u):
    """g + i f of the sine and cosine integrals for 1 / x^2 = u, on the host, where they are close to 1 / x^2 and 1 / x."""
    x = 1 / np.sqrt(u)
    near = np.minimum(x, 45)
    # the integral of exp(-x t) / (t + i) dt = g - i f
    exact = _reference("exp1")(1j * near) * np.exp(1j * near)
    return np.where(
        x > 40, asymptotic(x.astype(complex), lambda x, k: -k / (1j * x), 38) / (1j * x), exact
    )


_SI_NEAR = Chebyshev("si_near", lambda s: _reference("sici")(np.sqrt(s))[0] / np.sqrt(s), 0.0, 16.0)
_CIN_NEAR = Chebyshev("cin_near", lambda s: _cin(np.sqrt(s)) / s, 0.0, 16.0)
_TRIG_F = make_piecewise_series(
    "trig_f", lambda u: -_trig_auxiliary(u).imag / np.sqrt(u), 0.0, 1 / 144, 1 / 50, 1 / 16
)
_TRIG_G = make_piecewise_series(
    "trig_g", lambda u: _trig_auxiliary(u).real / u, 0.0, 1 / 144, 1 / 50, 1 / 16
)


def _cin(x):
    """Ci(x) - log(x) - gamma, on the host: by its series where that does not cancel."""
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 12):
        term = term * (-x * x) / ((2 * k - 1) * (2 * k))
        total = total + term / (2 * k)
    return np.where(x < 1, total, _reference("sici")(x)[1] - np.log(x) - np.euler_gamma)


@custom_jvp
def _sine_integral(x):
    size = wnp.abs(x)
    f, g = _trig_parts(size)
    angle = wnp.where(wnp.isinf(x), 0, size)
    far = math.pi / 2 - f * wnp.cos(angle) - g * wnp.sin(angle)
    return wnp.where(size <= 4, x * _SI_NEAR(wnp.minimum(size, 4) ** 2), wnp.copysign(far, x))


def _trig_parts(size):
    inverse = 1 / wnp.maximum(size, 4)
    u = inverse * inverse
    return inverse * _TRIG_F(u), u * _TRIG_G(u)


@custom_jvp
def _cosine_integral(x):
    size = wnp.where(x == 0, 1, wnp.abs(x))
    f, g = _trig_parts(size)
    angle = wnp.where(wnp.isinf(size), 0, size)
    far = f * wnp.sin(angle) - g * wnp.cos(angle)
    little = wnp.minimum(size, 4)
    near = np.euler_gamma + wnp.log(little) + little * little * _CIN_NEAR(little * little)
    value = wnp.where(size <= 4, near, far)
    return wnp.where(x == 0, -math.inf, wnp.where(x == -math.inf, math.nan, value))


_sine_integral.defjvps(lambda t, out, x: t * wnp.sinc(x / math.pi))
_cosine_integral.defjvps(lambda t, out, x: t * wnp.cos(x) / x)
_sici = jit(lambda x: (in_single(_sine_integral)(x), in_single(_cosine_integral)(x)))


def sici(x):
    """The sine integral Si and the cosine integral Ci; Ci is even, except that Ci(-inf) is NaN. Raises ValueError for complex numbers.

    >>> [float(part) for part in sici(np.inf)]
    [1.5707963705062866, 0.0]
    """
    x = as_strong(inexact("sici", x))
    if _is_complex(x):
        raise ValueError("Argument `x` to sici must be real-valued.")
    return _sici(x)


def _fresnel_auxiliary(u):
    """g + i f of the Fresnel integrals at 1 / x^2 = u, on the host."""
    x = 1 / np.sqrt(u)
    z = x * (math.sqrt(math.pi) / 2)
    return _reference("wofz")(z * (1 + 1j)) * (1 + 1j) / 2


def _by_power(s, which: int, power: int):
    """A Fresnel integral divided by a power of x = s^(1/4), on the host."""
    x = np.sqrt(np.sqrt(s))
    return _reference("fresnel")(x)[which] / x**power


def _fresnel_g(u):
    """pi^2 x^3 g(x) on the host: where the auxiliary function is much smaller than the other, by its asymptotic series."""
    x = 1 / np.sqrt(u)
    far = asymptotic(x, lambda x, k: -(4 * k - 1) * (4 * k + 1) / (math.pi * x * x) ** 2, 10)
    return np.where(x > 6, far, _fresnel_auxiliary(u).real * math.pi**2 * x**3)


_FRESNEL_S = Chebyshev("fresnel_s", lambda s: _by_power(s, 0, 3), 0.0, 1.6**4)
_FRESNEL_C = Chebyshev("fresnel_c", lambda s: _by_power(s, 1, 1), 0.0, 1.6**4)
_FRESNEL_F = make_piecewise_series(
    "fresnel_f",
    lambda u: _fresnel_auxiliary(u).imag * math.pi / np.sqrt(u),
    0.0,
    0.04,
    0.15,
    1 / 2.56,
)
_FRESNEL_G = make_piecewise_series("fresnel_g", _fresnel_g, 0.0, 0.04, 0.15, 1 / 2.56)


def _half_turns(x):
    """x^2 modulo 4, exact but for the rounding of a number below 4 |x|: of x = n + r it is n^2 + 2 n r + r^2."""
    n = wnp.round(x)
    r = x - n
    odd = n - 2 * wnp.floor(n / 2)
    cross = 2 * n * r
    return odd + (cross - 4 * wnp.floor(cross / 4)) + r * r


def _fresnel_parts(x):
    size = wnp.abs(x)
    s = wnp.minimum(size, 1.6) ** 4
    inverse = 1 / wnp.maximum(size, 1.6)
    u = inverse * inverse
    f, g = _FRESNEL_F(u) * inverse / math.pi, _FRESNEL_G(u) * u * inverse / math.pi**2
    turns = _half_turns(wnp.where(wnp.isinf(size), 0, size)) * (math.pi / 2)
    return size, s, f, g, wnp.sin(turns), wnp.cos(turns)


@custom_jvp
def _fresnel_sine(x):
    size, s, f, g, sin, cos = _fresnel_parts(x)
    return wnp.where(
        size <= 1.6,
        wnp.minimum(size, 1.6) ** 3 * wnp.copysign(_FRESNEL_S(s), x),
        wnp.copysign(0.5 - f * cos - g * sin, x),
    )


@custom_jvp
def _fresnel_cosine(x):
    size, s, f, g, sin, cos = _fresnel_parts(x)
    return wnp.where(size <= 1.6, x * _FRESNEL_C(s), wnp.copysign(0.5 + f * sin - g * cos, x))


_fresnel_sine.defjvps(lambda t, out, x: t * wnp.sin(_half_turns(x) * (math.pi / 2)))
_fresnel_cosine.defjvps(lambda t, out, x: t * wnp.cos(_half_turns(x) * (math.pi / 2)))
_fresnel = jit(lambda x: (in_single(_fresnel_sine)(x), in_single(_fresnel_cosine)(x)))


def fresnel(x):
    """The Fresnel integrals S and C, of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x.

    >>> [float(part) for part in fresnel(np.inf)]
    [0.5, 0.5]
    """
    return _fresnel(real_argument("fresnel", x))


# ---- the dilogarithm


def _spence_slope(t):
    """spence(1 + t) / t, on the host."""
    near = sum((-t) ** k / -((k + 1) ** 2) for k in range(20))
    return np.where(np.abs(t) < 0.05, near, _reference("spence")(1 + t) / np.where(t == 0, 1, t))


_SPENCE = Chebyshev("spence", _spence_slope, -0.5, 0.5)


@custom_jvp
def _spence(x):
    positive = wnp.where(x > 0, x, 1)
    small, large = positive < 0.5, positive > 1.5
    inverse = 1 / positive
    t = wnp.where(small, -positive, wnp.where(large, inverse - 1, positive - 1))
    t = wnp.where(large & (inverse < 0.5), -inverse, t)
    core = t * _SPENCE(t)
    log = wnp.log(positive)
    tiny = wnp.where(small, positive, inverse)  # from there to spence(1 - it)
    reflected = (
        math.pi**2 / 6
        - wnp.where(small, log, -log) * wnp.log1p(-wnp.where(tiny < 0.5, tiny, 0))
        - core
    )
    value = wnp.where(small | (large & (inverse < 0.5)), reflected, core)
    value = wnp.where(large, -log * log / 2 - value, value)
    return wnp.where(
        x > 0,
        wnp.where(wnp.isinf(x), -math.inf, value),
        wnp.where(x == 0, math.pi**2 / 6, math.nan),
    )


def _spence_rule(t, out, x):
    """-t log(x) / (x - 1), near 1 by the series of the inverse hyperbolic tangent, whose derivatives do not cancel."""
    d = x - 1
    near = wnp.abs(d) < 0.5
    close = wnp.where(near, d, 0)
    square, series = (close / (close + 2)) ** 2, 0.0
    for k in range(17, -1, -1):
        series = series * square + 1 / (2 * k + 1)
    quotient = wnp.where(near, 2 * series / (close + 2), wnp.log(x) / wnp.where(near, 1, d))
    return -t * quotient


_spence.defjvps(_spence_rule)
spence = _unary(
    "spence",
    _spence,
    "Spence's function, the integral of log(t) / (1 - t) from 1 to x; NaN below 0.",
)


# ---- Owen's T function

_NODES = {4: 16, 8: 40}  # of the Gauss-Legendre rule
# number of deviations beyond which the normal density is negligible
_REACH = {
    4: 6.5,
    8: 9.5,
}


def _owens_inside(h, a):
    """For 0 <= a <= 1 and h >= 0."""
    reach = _REACH[h.dtype.itemsize]
    points, weights = np.polynomial.legendre.leggauss(_NODES[h.dtype.itemsize])
    end = wnp.minimum(a, reach / wnp.maximum(h, reach))
    total = wnp.zeros_like(h)
    for point, weight in zip(points, weights):
        s = end * float((point + 1) / 2)
        total = total + float(weight) * wnp.exp(-0.5 * (h * s) ** 2) / (1 + s * s)
    return exp_of_square(h, -0.5) * end * total / (4 * math.pi)


@custom_jvp
def _owens_t(h, a):
    height, slope = wnp.abs(h), wnp.abs(a)
    steep = slope > 1
    safe = wnp.where(steep, slope, 1)
    product = wnp.where(height == 0, 0, height * safe)
    inside = _owens_inside(wnp.where(steep, product, height), wnp.where(steep, 1 / safe, slope))
    upper, upper_product = ndtr(-height), ndtr(-product)
    outside = (upper + upper_product) / 2 - upper * upper_product - inside
    outside = wnp.where(height == 0, wnp.arctan(slope) / (2 * math.pi), outside)
    value = wnp.copysign(wnp.where(steep, outside, inside), a)
    return wnp.where(wnp.isnan(h) | wnp.isnan(a), math.nan, value)


_owens_t.defjvps(
    lambda t, out, h, a: (
        -t * exp_of_square(h, -0.5) * lax.erf(a * h * math.sqrt(0.5)) / math.sqrt(8 * math.pi)
    ),
    lambda t, out, h, a: t * wnp.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a)),
)
_owens_compiled = jit(in_single(_owens_t))


def owens_t(h, a):
    """Owen's T function: the probability of X > `h` and 0 < Y < `a` X, for independent standard normal variables X and Y.

    >>> round(8 * float(owens_t(0.0, 1.0)), 5)
    1.0
    """
    h, a = map(as_strong, promote_to_inexact("owens_t", h, a))
    if _is_complex(h):
        raise ValueError("owens_t does not support complex-valued inputs.")
    return _owens_compiled(*wnp.broadcast_arrays(h, a))


guard_all(globals())
