"""Functions of complex numbers composed from operations: what compiled programs do for primitives that name them (`on_complex`).

Inverse functions go by the real functions of the parts of their roots.

The sign of a zero part chooses the side of a branch cut, so that 1 - z must negate it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.core.trace import typeof
from weft.ops import elementwise as ew
from weft.ops.comparison import select


def exp2(x):
    """2 to the power x."""
    return ew.exp(ew.mul(x, math.log(2)))


def _sign_bit(x):
    signed = np.dtype(f"int{8 * typeof(x).dtype.itemsize}")
    return ew.lt(ew.bitcast_convert_type(x, signed), signed.type(0))


def _roots(x):
    """The parts of sqrt(1 - x) and of sqrt(1 + x)."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (ew.sqrt(ew.complex(ew.add(1, a), b)) for a, b in ((ew.neg(re), ew.neg(im)), (re, im)))
    return ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)


def asin(x):
    """The inverse sine."""
    a, b, c, d = _roots(x)
    return ew.complex(ew.atan2(ew.real(x), ew.sub(ew.mul(a, c), ew.mul(b, d))), ew.asinh(ew.sub(ew.mul(a, d), ew.mul(b, c))))


def acos(x):
    """The inverse cosine."""
    a, b, c, d = _roots(x)
    return ew.complex(ew.mul(2, ew.atan2(a, c)), ew.asinh(ew.sub(ew.mul(c, b), ew.mul(d, a))))


def acosh(x):
    """The inverse hyperbolic cosine."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (ew.sqrt(ew.complex(ew.add(re, shift), im)) for shift in (-1, 1))
    a, b, c, d = ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)
    return ew.complex(ew.asinh(ew.add(ew.mul(a, c), ew.mul(b, d))), ew.mul(2, ew.atan2(b, c)))


def atanh(x):
    """The inverse hyperbolic tangent."""
    re, im = ew.real(x), ew.imag(x)
    far = ew.abs(re)                  # log1p loses digits near -1, so the side with the pole at +1 is computed and signed
    rest = ew.sub(1, far)
    size = ew.log1p(ew.div(ew.mul(4, far), ew.add(ew.square(rest), ew.square(im))))
    angle = ew.atan2(ew.mul(2, im), ew.sub(ew.mul(rest, ew.add(1, far)), ew.square(im)))
    return ew.complex(ew.mul(0.25, select(_sign_bit(re), ew.neg(size), size)), ew.mul(0.5, angle))


def _rotated(op: Callable) -> Callable:
    """-i op(i x): the circular function of a hyperbolic one, and vice versa."""
    def on_complex(x):
        out = op(ew.complex(ew.neg(ew.imag(x)), ew.real(x)))
        return ew.complex(ew.imag(out), ew.neg(ew.real(out)))
    return on_complex


atan = _rotated(atanh)
asinh = _rotated(asin)
