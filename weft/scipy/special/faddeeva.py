"""The Faddeeva function of complex numbers, `wofz`, and exponentials of squares without their rounding.

In:   complex or real arrays.
Out:  complex arrays; their error is small beside the absolute value of the result.
Laws: in the lower half plane w(z) = 2 exp(-z^2) - w(-z); dw/dz = 2 i / sqrt(pi) - 2 z w.
Source: J. A. C. Weideman, "Computation of the complex error function", SIAM Journal on Numerical Analysis 31 (1994), close to zero;
Laplace's continued fraction far away.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from weft import lax, numpy as wnp
from weft.api.jit import jit
from weft.control.custom_rules import custom_jvp
from weft.numpy.promote import concrete, inexact
from weft.util import dtypes
from weft.util.source import guard_all

__all__ = ["wofz"]

_TERMS = {8: 22, 16: 64}        # of Weideman's series, by the size of the complex type
_LEVELS = {8: 6, 16: 20}        # of the fraction
_FAR = {8: 5.5, 16: 7.5}        # |z| from where on it is as accurate


def _split(x):
    """`x` as two numbers of half as many digits: its first digits, and the others."""
    bits = 8 * x.dtype.itemsize
    mask = -1 << (np.finfo(x.dtype).nmant + 2) // 2
    word = lax.bitcast_convert_type(x, np.dtype(f"i{bits // 8}"))
    high = lax.bitcast_convert_type(word & mask, x.dtype)
    return high, x - high


def two_product(x, y):
    """x y and what its rounding leaves."""
    product = x * y
    (xh, xl), (yh, yl) = _split(x), _split(y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def exp_of_square(x, factor: float = 1.0):
    """exp(factor x^2) for a factor that is a power of two from 1/2 on or its negative, without the rounding of the square."""
    limit = 40.0                    # from where on it is nothing, or infinite
    safe = wnp.clip(x, -limit, limit)
    square, (high, low) = safe * safe, _split(safe)
    rest = (high * high - square) + low * (safe + high)
    value = wnp.exp(factor * square)
    return wnp.where(wnp.isinf(value), value, value + value * (factor * rest))


@functools.cache
def _weideman(count: int) -> tuple[float, np.ndarray]:
    """The scale and the polynomial of Weideman's series, highest power first."""
    m = 2 * count
    scale = math.sqrt(count / math.sqrt(2))
    k = np.arange(1 - m, m)
    t = scale * np.tan(k * np.pi / (2 * m))
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    terms = np.real(np.fft.fft(np.fft.fftshift(f))) / (2 * m)
    return scale, np.flipud(terms[1:count + 1])


def _near(x, y):
    """Weideman's series at x + i y: a polynomial with real coefficients, of a complex ratio."""
    scale, (*terms, last) = _weideman(_TERMS[2 * x.dtype.itemsize])
    top = scale + y
    inverse = 1 / (top * top + x * x)
    down_x, down_y = top * inverse, x * inverse                 # 1 / (scale - i z)
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
    """The continued fraction at x + i y, which is one quotient where the number is `big`."""
    limit_x, limit_y = x, y
    for k in range(_LEVELS[2 * x.dtype.itemsize], 0, -1):
        ratio = wnp.where(big, 0, k / 2) / (limit_x * limit_x + limit_y * limit_y)
        limit_x, limit_y = x - ratio * limit_x, y + ratio * limit_y
    inverse = (1 / math.sqrt(math.pi)) / (limit_x * limit_x + limit_y * limit_y)
    return limit_y * inverse, limit_x * inverse


def _upper(x, y):
    """The function at x + i y for y >= 0, as its two parts."""
    far = x * x + y * y > _FAR[2 * x.dtype.itemsize]**2
    near_x, near_y = _near(wnp.where(far, 0, x), wnp.where(far, 0, y))
    limit, most = float(np.sqrt(np.finfo(x.dtype).max)) / 4, wnp.maximum(wnp.abs(x), y)
    big = far & (most > limit)
    shrink = wnp.where(big, 1 / most, 1)
    far_x, far_y = _far(wnp.where(far, x * shrink, 8), wnp.where(far, y * shrink, 0), big)
    # on the real axis the real part is known
    re = wnp.where(y == 0, exp_of_square(x, -1.0), wnp.where(far, far_x * shrink, near_x))
    return re, wnp.where(far, far_y * shrink, near_y)


@custom_jvp
def _wofz(z):
    x, y = wnp.real(z), wnp.imag(z)
    lower = y < 0
    sign = wnp.where(lower, -1, 1).astype(x.dtype)
    re, im = _upper(sign * x, sign * y)
    px, py = wnp.where(lower, x, 0), wnp.where(lower, y, 0)
    angle, rest = two_product(wnp.clip(-2 * px, -1e15, 1e15), wnp.clip(py, -1e15, 1e15))
    grown = wnp.exp((py - px) * (py + px))
    cos, sin = wnp.cos(angle), wnp.sin(angle)
    cos, sin = cos - rest * sin, sin + rest * cos
    re = wnp.where(lower, 2 * grown * cos - re, re)
    im = wnp.where(lower, 2 * grown * sin - im, im)
    return lax.complex(re, im)


_wofz.defjvps(lambda t, out, z: t * (2j / math.sqrt(math.pi) - 2 * z * out))
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
