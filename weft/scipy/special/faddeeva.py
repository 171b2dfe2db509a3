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

_TERMS = {8: 28, 16: 64}        # of Weideman's series, by the size of the complex type
_LEVELS = {8: 9, 16: 20}        # of the fraction
_FAR = {8: 5.5, 16: 7.5}        # |z| from where on it is as accurate


def _split(x):
    """`x` as two numbers of half as many digits."""
    scale = float(2**np.ceil(np.finfo(x.dtype).nmant / 2) + 1)
    big = x * scale
    high = big - (big - x)
    return high, x - high


def two_product(x, y):
    """x y and what its rounding leaves."""
    product = x * y
    (xh, xl), (yh, yl) = _split(x), _split(y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def exp_of_square(x, factor: float = 1.0):
    """exp(factor x^2) for a factor that is a power of two or its negative, without the rounding of the square."""
    limit = 40.0
    safe = wnp.clip(x, -limit, limit)
    square, rest = two_product(safe, safe)
    value = wnp.exp(factor * square)
    value = wnp.where(wnp.isinf(value), value, value + value * (factor * rest))
    return wnp.where(wnp.abs(x) <= limit, value, wnp.exp(factor * x * x))


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


def _upper(x, y):
    """The function at x + i y for y >= 0, as its two parts."""
    size = 2 * x.dtype.itemsize
    far = x * x + y * y > _FAR[size]**2
    z = wnp.where(far, 0, x) + 1j * wnp.where(far, 0, y)
    scale, terms = _weideman(_TERMS[size])
    down = scale - 1j * z
    ratio = (scale + 1j * z) / down
    total = wnp.full_like(ratio, terms[0])
    for c in terms[1:]:
        total = total * ratio + float(c)
    near = 2 * total / (down * down) + (1 / math.sqrt(math.pi)) / down

    limit = float(np.sqrt(np.finfo(x.dtype).max)) / 4
    big = (wnp.maximum(wnp.abs(x), wnp.abs(y)) > limit) & far
    shrink = 1 / wnp.where(big, wnp.maximum(wnp.abs(x), wnp.abs(y)), 1)
    zx, zy = wnp.where(far, x * shrink, 8.0), wnp.where(far, y * shrink, 0.0)
    z = zx + 1j * zy
    below = z
    for k in range(_LEVELS[size], 0, -1):
        below = z - wnp.where(big, 0, k / 2) / below
    found = (1j / math.sqrt(math.pi)) / below * shrink
    out = wnp.where(far, found, near)
    # on the real axis the real part is known
    return wnp.where(y == 0, exp_of_square(x, -1.0), wnp.real(out)), wnp.imag(out)


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
