"""The gamma function of complex numbers and its logarithm, binomial coefficients, Bernoulli numbers.

In:   real or complex arrays.
Out:  arrays of the same dtype.
Laws: `loggamma` is analytic except on the negative real axis; it is the continuation of log(gamma), not always its principal value.
Source: Stirling's series after shifts to the right; left of the imaginary axis the reflection formula, where the logarithm
of the sine uses the exponential that is small in its half plane (D. E. G. Hare, "Computing the principal branch of log-Gamma", 1997).
"""

from __future__ import annotations

import functools
import math
import operator

import numpy as np

from weft import numpy as wnp
from weft._engine.api.jit import jit
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import as_strong, concrete, inexact, promote_to_inexact
from weft._engine.ops import elementwise as ew
from weft._engine.scipy.special import basic
from weft._engine.scipy.special.basic import in_single
from weft._engine.scipy.special.gamma_ratios import (
    _DIGAMMA_SERIES,
    _betaln,
    _digamma_rise,
    _stirling_rest,
)
from weft._engine.util import dtypes
from weft._engine.util.lazy import scipy_module
from weft._engine.util.source import guard_all

__all__ = ["bernoulli", "comb", "gamma", "loggamma"]

_SHIFTS = 8


_NEAR = 0.25  # distance from the zeros at 1 and 2 within which a power series is used


@functools.cache
def _zetas() -> list[float]:
    """(-1)^k zeta(k) / k, the coefficients of log gamma(1 + w) + gamma w."""
    zeta = scipy_module("special").zeta
    return [(-1) ** k * float(zeta(k)) / k for k in range(2, 28)]


def _close_to_one(w):
    """log gamma(1 + w) for small w."""
    total = wnp.zeros_like(w)
    for c in reversed(_zetas()):
        total = total * w + c
    return w * (total * w - np.euler_gamma)


def _right(z):
    """log gamma(z) for Re z >= 1/2."""
    one, two = wnp.abs(z - 1) < _NEAR, wnp.abs(z - 2) < _NEAR
    w = wnp.where(one, z - 1, wnp.where(two, z - 2, 0))
    near = _close_to_one(w) + wnp.where(two, wnp.log1p(w), 0)
    return wnp.where(one | two, near, _right_of_zeros(z))


def _right_of_zeros(z):
    far = wnp.abs(z) >= _SHIFTS + 2
    logs, shifted = wnp.zeros_like(z), wnp.where(far, z, z + _SHIFTS)
    for k in range(_SHIFTS):
        logs = logs + wnp.log(z + k)
    value = (
        (shifted - 0.5) * wnp.log(shifted)
        - shifted
        + math.log(2 * math.pi) / 2
        + _stirling_rest(shifted)
    )
    return wnp.where(far, value, value - logs)


def _log_sine(x, y):
    """log(sin(pi z)), continued from the reals between 0 and 1 through the upper half plane, for z = x + i y, y >= 0."""
    whole = wnp.floor(x)
    part = x - whole
    # sin(pi z) = exp(-i pi z) (1 - exp(2 i pi z)) i / 2
    decay = wnp.exp(-2 * math.pi * y)
    s = wnp.sin(math.pi * part)
    re = -wnp.expm1(-2 * math.pi * y) + 2 * decay * s * s
    im = -2 * decay * s * wnp.cos(math.pi * part)
    log = wnp.log(wnp.abs(re + 1j * im)) + 1j * wnp.arctan2(im, re)
    return log + (math.pi * y - math.log(2.0)) + 1j * (math.pi / 2 - math.pi * x)


def _left(z):
    x, y = wnp.real(z), wnp.imag(z)
    below = wnp.signbit(y)
    sine = _log_sine(x, wnp.abs(y))
    sine = wnp.where(below, wnp.conj(sine), sine)
    return math.log(math.pi) - sine - _right(1 - z)


def _pole(z):
    x = wnp.real(z)
    return (wnp.imag(z) == 0) & (x <= 0) & (x == wnp.floor(x))


def _digamma(z):
    """Digamma of complex z: its asymptotic series after shifts to the right; reflected left of the imaginary axis."""
    flip = wnp.real(z) < 0.5
    w = wnp.where(flip, 1 - z, z)
    far = wnp.abs(w) >= _SHIFTS + 2
    total, shifted = wnp.zeros_like(w), wnp.where(far, w, w + _SHIFTS)
    for k in range(_SHIFTS):
        total = total + 1 / (w + k)
    step, series = 1 / (shifted * shifted), wnp.zeros_like(w)
    for c in reversed(_DIGAMMA_SERIES):
        series = (series + c) * step
    value = wnp.log(shifted) - 0.5 / shifted - series - wnp.where(far, 0, total)
    x, y = wnp.real(z), wnp.imag(z)
    part = x - wnp.floor(x)
    near = wnp.clip(y, -18, 18)  # for larger y the tangent is -i or i
    tangent = wnp.tan(math.pi * (wnp.where(flip, part, 0.25) + 1j * near))
    return wnp.where(flip, value - math.pi / tangent, value)


@custom_jvp
def _complex_loggamma(z):
    flip = wnp.real(z) < 0.5
    value = wnp.where(flip, _left(wnp.where(flip, z, 0.25)), _right(wnp.where(flip, 1, z)))
    return wnp.where(_pole(z), complex(math.nan, math.nan), value)


_complex_loggamma.defjvps(lambda t, out, z: t * _digamma(z))


@custom_jvp
def _complex_gamma(z):
    flip = wnp.real(z) < 0.5
    w = wnp.where(flip, 1 - z, z)
    near = wnp.abs(w) < _SHIFTS + 2
    product, shifted = wnp.ones_like(w), wnp.where(near, w + _SHIFTS, w)
    for k in range(_SHIFTS):
        product = product * (wnp.where(near, w, 1) + k)
    value = wnp.exp(
        (shifted - 0.5) * wnp.log(shifted) - shifted + _stirling_rest(shifted)
    ) * math.sqrt(2 * math.pi)
    value = wnp.where(near, value / product, value)
    x, y = wnp.real(z), wnp.imag(z)
    whole = wnp.round(x)
    part = math.pi * wnp.where(flip, x - whole, 0.5)
    tall = wnp.where(flip, math.pi * y, 0)
    sine = wnp.sin(part) * wnp.cosh(tall) + 1j * (wnp.cos(part) * wnp.sinh(tall))
    sine = wnp.where(whole - 2 * wnp.floor(whole / 2) == 1, -sine, sine)
    value = wnp.where(flip, math.pi / (wnp.where(flip, sine, 1) * wnp.where(flip, value, 1)), value)
    return wnp.where(_pole(z), complex(math.nan, math.nan), value)


_complex_gamma.defjvps(lambda t, out, z: t * out * _digamma(z))
_loggamma_of_complex, _gamma_of_complex = jit(_complex_loggamma), jit(_complex_gamma)


def loggamma(x):
    """The logarithm of the gamma function, continued from the positive numbers; of negative real numbers NaN.

    >>> loggamma(wnp.array([1.0, 2.0, -0.5])).tolist()
    [0.0, 0.0, nan]
    """
    x = concrete(inexact("loggamma", x))
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return _loggamma_of_complex(as_strong(x))
    return wnp.where(x < 0, math.nan, ew.lgamma(x))


def gamma(x):
    """The gamma function of real or complex numbers; NaN at the negative whole numbers.

    >>> gamma(wnp.array([4.0, 0.5])).round(4)
    Array([6.    , 1.7725], dtype=float32)
    """
    x = as_strong(inexact("gamma", x))
    return (
        _gamma_of_complex(x)
        if dtypes.issubdtype(x.dtype, np.complexfloating)
        else basic.real_gamma(x)
    )


_FACTORS = 24


def _whole(x, exact: float):
    return wnp.where(x < exact, wnp.round(x), x)


def _comb(n, k):
    inside = (n >= 0) & (k >= 0) & (k <= n)
    top, part = wnp.where(inside, n, 1), wnp.where(inside, k, 0)
    part = wnp.minimum(part, top - part)
    log = -(wnp.log1p(top) + _betaln(top - part + 1, part + 1))
    value = wnp.exp(log)
    whole = (top == wnp.floor(top)) & (part == wnp.floor(part))
    # for integers the result is an integer: multiply the factors of the shorter side, rounding each product
    exact = 0.5 / float(np.finfo(top.dtype).eps)
    steps, product = wnp.minimum(part, _FACTORS), wnp.ones_like(top)
    for j in range(1, _FACTORS + 1):
        product = wnp.where(j <= steps, _whole(product * (top - part + j) / j, exact), product)
    value = wnp.where(whole & (part <= _FACTORS), product, value)
    return wnp.where(inside, value, wnp.where(wnp.isnan(n) | wnp.isnan(k), math.nan, 0))


_comb_of = custom_jvp(_comb)


def _inside_of_comb(out, n, k):
    none = out == 0
    return wnp.where(none, 1, n), wnp.where(none, 0, k)


def _comb_by_n(t, out, n, k):
    n, k = _inside_of_comb(out, n, k)
    return t * out * _digamma_rise(n - k + 1, k)


def _comb_by_k(t, out, n, k):
    n, k = _inside_of_comb(out, n, k)
    return t * out * _digamma_rise(k + 1, n - 2 * k)


_comb_of.defjvps(_comb_by_n, _comb_by_k)
_comb_compiled = jit(in_single(_comb_of))


def comb(N, k, *, repetition: bool = False):  # noqa: N803
    """Return the number of ways to choose `k` of `N` items, 0 if there is none; with `repetition`, with replacement.

    >>> comb(5.0, 2.0).item(), comb(3, 2, repetition=True).item()
    (10.0, 6.0)
    """
    n, k = map(concrete, promote_to_inexact("comb", N, k))
    n, k = wnp.broadcast_arrays(n, k)
    if repetition:
        nothing = (n == 0) & (k == 0)
        return wnp.where(nothing, 1, _comb_compiled(wnp.where(nothing, 1, n + k - 1), k))
    return _comb_compiled(n, k)


def bernoulli(n: int):
    """Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2; `n` is a Python integer.

    >>> bernoulli(4).round(4)
    Array([ 1.    , -0.5   ,  0.1667,  0.    , -0.0333], dtype=float32)
    """
    n = operator.index(n)
    if not 0 <= n < 1 << 31:
        raise ValueError(f"bernoulli: n must not be negative, and less than 2^31, got {n}.")
    return wnp.asarray(
        scipy_module("special").bernoulli(max(n, 2))[: n + 1], dtypes.canonicalize_dtype(np.float64)
    )


guard_all(globals())
