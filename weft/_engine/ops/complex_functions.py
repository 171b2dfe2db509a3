"""Functions of complex numbers composed from operations: what compiled programs do for primitives that name them (`on_complex`).

Inverse functions go by the real functions of the parts of their roots.

The sign of a zero part chooses the side of a branch cut, so that 1 - z must negate it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import elementwise as ew
from weft._engine.ops.comparison import select
from weft._engine.ops.layout import full_like

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Value


def exp2(x: Value):
    """2 to the power x."""
    return ew.exp(ew.mul(x, math.log(2)))


def logaddexp(x: Value, y: Value):
    """log(exp(x) + exp(y)) with a phase in (-pi, pi], by the number with the larger real part."""
    rx, ry = ew.real(x), ew.real(y)
    first = select(ew.eq(rx, ry), ew.gt(ew.imag(x), ew.imag(y)), ew.gt(rx, ry))
    high = select(first, x, y)
    delta = select(ew.eq(x, y), 0, ew.sub(ew.sub(ew.add(x, y), high), high))
    return principal(ew.add(high, ew.log1p(ew.exp(delta))))


def principal(x: Value):
    """A logarithm with the same exponential whose phase is in (-pi, pi]."""
    phase = ew.imag(x)
    turned = ew.sub(
        phase, ew.mul(ew.floor(ew.div(ew.add(phase, math.pi), 2 * math.pi)), 2 * math.pi)
    )
    return ew.complex(
        ew.real(x),
        select(ew.bitwise_or(ew.gt(phase, math.pi), ew.le(phase, -math.pi)), turned, phase),
    )


def _sign_bit(x: Value):
    signed = np.dtype(f"int{8 * typeof(x).dtype.itemsize}")
    return ew.lt(ew.bitcast_convert_type(x, signed), signed.type(0))


def _roots(x: Value):
    """The parts of sqrt(1 - x) and of sqrt(1 + x)."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (
        ew.sqrt(ew.complex(ew.add(1, a), b)) for a, b in ((ew.neg(re), ew.neg(im)), (re, im))
    )
    return ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)


def _signed(size: Value, like: Value):
    """`size`, with the sign of `like`."""
    return select(_sign_bit(like), ew.neg(size), size)


def _unless_infinite(x: Value, re: Value, im: Value, re_at_infinity: Value, im_at_infinity: Value):
    """The parts re and im; the others where a part of x is infinite."""
    infinite = ew.bitwise_or(
        ew.eq(ew.abs(ew.real(x)), math.inf), ew.eq(ew.abs(ew.imag(x)), math.inf)
    )
    return ew.complex(select(infinite, re_at_infinity, re), select(infinite, im_at_infinity, im))


def _direction(x: Value):
    """The parts of x with infinite ones as 1 and finite ones as 0, the imaginary one without its sign; NaN stays."""
    unit: Callable[[Value], Value] = lambda part: select(
        ew.eq(ew.abs(part), math.inf), full_like(part, 1), ew.mul(0, part)
    )
    return _signed(ew.abs(unit(ew.real(x))), ew.real(x)), ew.abs(unit(ew.imag(x)))


def asin(x: Value):
    """The inverse sine."""
    a, b, c, d = _roots(x)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.atan2(ew.real(x), ew.sub(ew.mul(a, c), ew.mul(b, d))),
        ew.asinh(ew.sub(ew.mul(a, d), ew.mul(b, c))),
        ew.atan2(along, across),
        _signed(full_like(along, math.inf), ew.imag(x)),
    )


def acos(x: Value):
    """The inverse cosine."""
    a, b, c, d = _roots(x)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.mul(2, ew.atan2(a, c)),
        ew.asinh(ew.sub(ew.mul(c, b), ew.mul(d, a))),
        ew.atan2(across, along),
        ew.neg(_signed(full_like(along, math.inf), ew.imag(x))),
    )


def acosh(x: Value):
    """The inverse hyperbolic cosine."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (ew.sqrt(ew.complex(ew.add(re, shift), im)) for shift in (-1, 1))
    a, b, c, d = ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.asinh(ew.add(ew.mul(a, c), ew.mul(b, d))),
        ew.mul(2, ew.atan2(b, c)),
        full_like(along, math.inf),
        _signed(ew.atan2(across, along), im),
    )


def atanh(x: Value):
    """The inverse hyperbolic tangent."""
    re, im = ew.real(x), ew.imag(x)
    far = ew.abs(
        re
    )  # log1p loses digits near -1, so the side with the pole at +1 is computed and signed
    rest = ew.sub(1, far)
    size = ew.log1p(ew.div(ew.mul(4, far), ew.add(ew.square(rest), ew.square(im))))
    angle = ew.atan2(ew.mul(2, im), ew.sub(ew.mul(rest, ew.add(1, far)), ew.square(im)))
    quarter_turn = select(ew.ne(im, im), im, full_like(im, math.pi / 2))
    return _unless_infinite(
        x,
        ew.mul(0.25, _signed(size, re)),
        ew.mul(0.5, angle),
        _signed(full_like(re, 0), re),
        _signed(quarter_turn, im),
    )


def _rotated(op: Callable[..., Any]) -> Callable[..., Any]:
    """-i op(i x): the circular function of a hyperbolic one, and vice versa."""

    def on_complex(x: Value):
        out = op(ew.complex(ew.neg(ew.imag(x)), ew.real(x)))
        return ew.complex(ew.imag(out), ew.neg(ew.real(out)))

    return on_complex


atan = _rotated(atanh)
asinh = _rotated(asin)
