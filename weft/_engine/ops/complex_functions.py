"""Functions of complex numbers, composed from other operations: the expansions of primitives by
`on_complex`.

Inverse functions apply real functions to the parts of sqrt(1 - z) and sqrt(1 + z). The sign of a
zero part selects the side of a branch cut, so 1 - z must negate it.
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
    """Return 2 to the power x."""
    return ew.exp(ew.mul(x, math.log(2)))


def logaddexp(x: Value, y: Value):
    """Return log(exp(x) + exp(y)) with a phase in (-pi, pi].

    It is computed from the number with the larger real part.
    """
    rx, ry = ew.real(x), ew.real(y)
    first = select(ew.eq(rx, ry), ew.gt(ew.imag(x), ew.imag(y)), ew.gt(rx, ry))
    high = select(first, x, y)
    delta = select(ew.eq(x, y), 0, ew.sub(ew.sub(ew.add(x, y), high), high))
    return principal(ew.add(high, ew.log1p(ew.exp(delta))))


def principal(x: Value):
    """Return the logarithm with the same exponential whose phase is in (-pi, pi]."""
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
    """Return the parts of sqrt(1 - x) and of sqrt(1 + x)."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (
        ew.sqrt(ew.complex(ew.add(1, a), b)) for a, b in ((ew.neg(re), ew.neg(im)), (re, im))
    )
    return ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)


def _sign(size: Value, like: Value):
    """Return `size` with the sign of `like`."""
    return select(_sign_bit(like), ew.neg(size), size)


def _unless_infinite(x: Value, re: Value, im: Value, re_at_infinity: Value, im_at_infinity: Value):
    """Return the parts re and im, replaced where a part of x is infinite."""
    infinite = ew.bitwise_or(
        ew.eq(ew.abs(ew.real(x)), math.inf), ew.eq(ew.abs(ew.imag(x)), math.inf)
    )
    return ew.complex(select(infinite, re_at_infinity, re), select(infinite, im_at_infinity, im))


def _direction(x: Value):
    """Return the real part and the absolute imaginary part of x, infinite ones as 1.

    Finite parts become 0. NaN is unchanged.
    """
    unit: Callable[[Value], Value] = lambda part: select(
        ew.eq(ew.abs(part), math.inf), full_like(part, 1), ew.mul(0, part)
    )
    return _sign(ew.abs(unit(ew.real(x))), ew.real(x)), ew.abs(unit(ew.imag(x)))


def asin(x: Value):
    """Return the inverse sine."""
    a, b, c, d = _roots(x)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.atan2(ew.real(x), ew.sub(ew.mul(a, c), ew.mul(b, d))),
        ew.asinh(ew.sub(ew.mul(a, d), ew.mul(b, c))),
        ew.atan2(along, across),
        _sign(full_like(along, math.inf), ew.imag(x)),
    )


def acos(x: Value):
    """Return the inverse cosine."""
    a, b, c, d = _roots(x)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.mul(2, ew.atan2(a, c)),
        ew.asinh(ew.sub(ew.mul(c, b), ew.mul(d, a))),
        ew.atan2(across, along),
        ew.neg(_sign(full_like(along, math.inf), ew.imag(x))),
    )


def acosh(x: Value):
    """Return the inverse hyperbolic cosine."""
    re, im = ew.real(x), ew.imag(x)
    below, above = (ew.sqrt(ew.complex(ew.add(re, shift), im)) for shift in (-1, 1))
    a, b, c, d = ew.real(below), ew.imag(below), ew.real(above), ew.imag(above)
    along, across = _direction(x)
    return _unless_infinite(
        x,
        ew.asinh(ew.add(ew.mul(a, c), ew.mul(b, d))),
        ew.mul(2, ew.atan2(b, c)),
        full_like(along, math.inf),
        _sign(ew.atan2(across, along), im),
    )


def atanh(x: Value):
    """Return the inverse hyperbolic tangent."""
    re, im = ew.real(x), ew.imag(x)
    # log1p loses digits near -1, so the side with the pole at +1 is computed and then signed
    far = ew.abs(re)
    one_minus_far = ew.sub(1, far)
    size = ew.log1p(ew.div(ew.mul(4, far), ew.add(ew.square(one_minus_far), ew.square(im))))
    angle = ew.atan2(ew.mul(2, im), ew.sub(ew.mul(one_minus_far, ew.add(1, far)), ew.square(im)))
    quarter_turn = select(ew.ne(im, im), im, full_like(im, math.pi / 2))
    return _unless_infinite(
        x,
        ew.mul(0.25, _sign(size, re)),
        ew.mul(0.5, angle),
        _sign(full_like(re, 0), re),
        _sign(quarter_turn, im),
    )


def _rotate(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return -i op(i x), which maps a hyperbolic function to the circular one and vice versa."""

    def on_complex(x: Value):
        out = op(ew.complex(ew.neg(ew.imag(x)), ew.real(x)))
        return ew.complex(ew.imag(out), ew.neg(ew.real(out)))

    return on_complex


atan = _rotate(atanh)
asinh = _rotate(asin)
