"""The Faddeeva function `wofz` of complex numbers, and exponentials of squares without the rounding of the square.

In:   complex or real arrays.
Out:  complex arrays; their error is small relative to the absolute value of the result.
Laws: in the lower half plane w(z) = 2 exp(-z^2) - w(-z); dw/dz = 2 i / sqrt(pi) - 2 z w, without cancellation far away.
Source: J. A. C. Weideman, "Computation of the complex error function", SIAM Journal on Numerical Analysis 31 (1994), close to zero;
Laplace's continued fraction far away.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.jit import jit
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import concrete, inexact
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = ["wofz"]

_TERMS = {8: 22, 16: 64}  # number of terms of Weideman's series, by itemsize of the complex type
_LEVELS = {8: 6, 16: 20}  # levels of the continued fraction
_FAR = {8: 5.5, 16: 7.5}  # |z| from which the fraction is accurate


def _split(x):
    """Return `x` as the sum of two numbers with half as many digits each."""
    bits = 8 * x.dtype.itemsize
    mask = -1 << (np.finfo(x.dtype).nmant + 2) // 2
    word = lax.bitcast_convert_type(x, np.dtype(f"i{bits // 8}"))
    high = lax.bitcast_convert_type(word & mask, x.dtype)
    return high, x - high


def two_product(x, y):
    """Return x y and its rounding error."""
    product = x * y
    (xh, xl), (yh, yl) = _split(x), _split(y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def exp_of_square(x, factor: float = 1.0):
    """exp(factor x^2) without the rounding error of the square; +-factor is a power of two, at least 1/2."""
    limit = 40.0  # beyond it the result is 0 or infinite
    safe = wnp.clip(x, -limit, limit)
    square, (high, low) = safe * safe, _split(safe)
    error = (high * high - square) + low * (safe + high)
    value = wnp.exp(factor * square)
    return wnp.where(wnp.isinf(value), value, value + value * (factor * error))


@functools.cache
def _weideman(count: int) -> tuple[float, np.ndarray]:
    """Return the scale and the polynomial of Weideman's series, highest power first."""
    m = 2 * count
    scale = math.sqrt(count / math.sqrt(2))
    k = np.arange(1 - m, m)
    t = scale * np.tan(k * np.pi / (2 * m))
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    terms = np.real(np.fft.fft(np.fft.fftshift(f))) / (2 * m)
    return scale, np.flipud(terms[1 : count + 1])


def _near(x, y):
    """Weideman's series at x + i y: a polynomial with real coefficients, of a complex ratio."""
    scale, (*terms, last) = _weideman(_TERMS[2 * x.dtype.itemsize])
    top = scale + y
    inverse = 1 / (top * top + x * x)
    down_x, down_y = top * inverse, x * inverse  # 1 / (scale - i z)
    # (scale + i z) / (scale - i z)
    ratio_x, ratio_y = (scale**2 - (x * x + y * y)) * inverse, (2 * scale) * down_y
    # divided by (t - ratio) (t - its conjugate), which is t^2 - twice t + size
    twice, size = ratio_x + ratio_x, ratio_x * ratio_x + ratio_y * ratio_y
    this, before = wnp.full_like(x, terms[0]), wnp.zeros_like(x)
    for c in terms[1:]:
        this, before = twice * this + (float(c) - size * before), this
    total_x, total_y = ratio_x * this + (float(last) - size * before), ratio_y * this
    found_x = 2 * (total_x * down_x - total_y * down_y) + 1 / math.sqrt(math.pi)
    found_y = 2 * (total_x * down_y + total_y * down_x)
    return found_x * down_x - found_y * down_y, found_x * down_y + found_y * down_x


def _far(x, y, big):
    """The continued fraction at x + i y; a single quotient where the number is `big`."""
    limit_x, limit_y = x, y
    for k in range(_LEVELS[2 * x.dtype.itemsize], 0, -1):
        ratio = wnp.where(big, 0, k / 2) / (limit_x * limit_x + limit_y * limit_y)
        limit_x, limit_y = x - ratio * limit_x, y + ratio * limit_y
    inverse = (1 / math.sqrt(math.pi)) / (limit_x * limit_x + limit_y * limit_y)
    return limit_y * inverse, limit_x * inverse


def _upper(x, y):
    """The function at x + i y for y >= 0, as real and imaginary part."""
    far = x * x + y * y > _FAR[2 * x.dtype.itemsize] ** 2
    near_x, near_y = _near(wnp.where(far, 0, x), wnp.where(far, 0, y))
    limit, most = float(np.sqrt(np.finfo(x.dtype).max)) / 4, wnp.maximum(wnp.abs(x), y)
    big = far & (most > limit)
    shrink = wnp.where(big, 1 / most, 1)
    far_x, far_y = _far(wnp.where(far, x * shrink, 8), wnp.where(far, y * shrink, 0), big)
    # on the real axis the real part is known
    re = wnp.where(y == 0, exp_of_square(x, -1.0), wnp.where(far, far_x * shrink, near_x))
    return re, wnp.where(far, far_y * shrink, near_y)


def _exp_of_minus_square(x, y):
    """exp(-z^2) at z = x + i y, as real and imaginary part."""
    angle, angle_error = two_product(wnp.clip(-2 * x, -1e15, 1e15), wnp.clip(y, -1e15, 1e15))
    size = wnp.exp((y - x) * (y + x))
    cos, sin = wnp.cos(angle), wnp.sin(angle)
    return size * (cos - angle_error * sin), size * (sin + angle_error * cos)


@custom_jvp
def _wofz(z):
    x, y = wnp.real(z), wnp.imag(z)
    lower = y < 0
    sign = wnp.where(lower, -1, 1).astype(x.dtype)
    re, im = _upper(sign * x, sign * y)
    grown_x, grown_y = _exp_of_minus_square(wnp.where(lower, x, 0), wnp.where(lower, y, 0))
    re = wnp.where(lower, 2 * grown_x - re, re)
    im = wnp.where(lower, 2 * grown_y - im, im)
    return lax.complex(re, im)


_wofz.defjvps(lambda t, out, z: t * _derivative(z, 1))


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def _derivative(z, n: int):
    """The derivative of order `n`.

    Near zero it uses w'' = -2 z w' - 2 w and its derivatives, which cancel for large |z|. There, in the upper half plane, each
    derivative is the previous one times -k / K_k, where K_k = z - (k + 1)/2 / K_{k+1} are the parts of w's continued fraction.
    """
    x, y = wnp.real(z), wnp.imag(z)
    is_far = x * x + y * y > _FAR[z.dtype.itemsize] ** 2
    lower = y < 0
    near_z = wnp.where(is_far, 0, z)
    near_value = _recurred(near_z, _wofz(near_z), 2j / math.sqrt(math.pi), n)
    up = wnp.where(is_far, wnp.where(lower, -z, z), 8j)
    part = up
    parts = [part := up - (k + 1) / 2 / part for k in range(_LEVELS[z.dtype.itemsize] + n, 0, -1)]
    decayed = _wofz(up)
    for k, part in enumerate(reversed(parts[-n:]), 1):
        decayed = -k * (decayed / part)
    below_z = wnp.where(is_far & lower, z, 0)
    grown = 2 * _recurred(
        below_z, lax.complex(*_exp_of_minus_square(wnp.real(below_z), wnp.imag(below_z))), 0, n
    )
    return wnp.where(is_far, wnp.where(lower, grown - (-1) ** n * decayed, decayed), near_value)


@_derivative.defjvp
def _derivative_slope(n: int, primals, tangents):
    return _derivative(*primals, n), tangents[0] * _derivative(*primals, n + 1)


def _recurred(z, value, constant: complex, n: int):
    """The derivative of order `n` of a function with f' = constant - 2 z f."""
    last, before = value, constant
    for k in range(n):
        last, before = (constant if k == 0 else -2 * k * before) - 2 * z * last, last
    return last


_compiled = jit(_wofz)


def wofz(z):
    """The Faddeeva function exp(-z^2) erfc(-i z) of complex numbers.

    >>> complex(wofz(0j))
    (1+0j)
    """
    z = concrete(inexact("wofz", z))
    if not dtypes.issubdtype(z.dtype, np.complexfloating):
        z = z.astype(dtypes.to_complex_dtype(z.dtype))
    return _compiled(z)


guard_all(globals())
