"""Trigonometric functions and their inverses on lanes.

Arguments are reduced by multiples of pi held in three parts, exactly enough below `_LIMIT`; the rare lanes
beyond it go to the C library.
"""

from __future__ import annotations

from weft.codegen.vector.math_real import NAN, Real, V

_PI = {
    "f32": (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    "f64": (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}
_LIMIT = {"f32": 2.0**16, "f64": 2.0**24}
#: below it the cosine rounds to 1, which the turned sine may miss by a bit
_COSINE_IS_ONE = {"f32": 2.0**-12, "f64": 2.0**-27}
#: beyond it the sum of two coordinates may overflow; beside such a one what a quarter of the other loses is nothing
_SUM_OVERFLOWS = {"f32": 2.0**120, "f64": 2.0**1020}
PI = 3.141592653589793
HALF_PI = 1.5707963267948966
#: what pi/2 and pi/4 lose when rounded
_HALF_PI_LOW = {"f32": -4.371139000186241e-08, "f64": 6.123233995736766e-17}


def _subtract_pi(f: Real, x: V, k: V, scale: float) -> V:
    """x - k * scale * pi for small integers k."""
    first, second, third = _PI[f.type]
    r = f.exact_fma(k, f.c(-first * scale), x)
    r = f.exact_fma(k, f.c(-second * scale), r)
    return f.fma(k, -third * scale, r)


def _half_turn_sine(f: Real, r: V, flip: V) -> V:
    """sin(r) for |r| <= pi/2, negated where the low bit of `flip` is set."""
    square = r * r
    y = f.fma(r * square, f.poly(square, "sin"), r)
    if f.type == "f64":
        y = f.clamp(y, -1.0, 1.0)            # near the crest the last rounding may go beyond; that of f32 does not
    return f.from_bits(f.to_bits(y) ^ (f.to_bits(flip) << (f.bits - 1)))


def _beyond(f: Real, function: str, x: V, y: V) -> V:
    y = f.cold(y, f.abs(x) > _LIMIT[f.type], function, x)
    return f.select(x.same(0.0), x, y) if function != "cos" else y


def sin(f: Real, x: V) -> V:
    """Sine."""
    shifted = f.fma(x, 1 / PI, f.magic)
    r = _subtract_pi(f, x, shifted - f.magic, 1.0)
    return _beyond(f, "sin", x, _half_turn_sine(f, r, shifted))


def cos(f: Real, x: V) -> V:
    """Cosine: the sine a quarter turn on, so reduced by odd multiples of pi/2."""
    shifted = f.fma(x, 1 / PI, -0.5) + f.magic
    odd = f.fma(shifted - f.magic, 2.0, 1.0)
    r = _subtract_pi(f, x, odd, 0.5)
    y = f.select(f.abs(x) < _COSINE_IS_ONE[f.type], 1.0, -_half_turn_sine(f, r, shifted))
    return _beyond(f, "cos", x, y)


def tan(f: Real, x: V) -> V:
    """Tangent."""
    shifted = f.fma(x, 2 / PI, f.magic)
    r = _subtract_pi(f, x, shifted - f.magic, 0.5)
    square = r * r
    swap = (f.to_bits(shifted) & 1).same(1)
    y = f.fma(r * square, f.poly(square, "tan"), r)
    y = f.select(swap, -1.0 / y, y)
    return _beyond(f, "tan", x, y)


def _arc(f: Real, top: V, bottom: V) -> V:
    """atan(top / bottom) for top, bottom >= 0, not both zero or infinite."""
    swap = top > bottom
    small, large = f.select(swap, bottom, top), f.select(swap, top, bottom)
    steep = small > large * 0.4142135623730951
    q = f.select(steep, small - large, small) / f.select(steep, small + large, large)
    square = q * q
    y = f.fma(q * square, f.poly(square, "atan"), q)
    low = _HALF_PI_LOW[f.type]
    y = f.select(steep, HALF_PI / 2 + (y + low / 2), y)
    return f.select(swap, HALF_PI - (y - low), y)


def atan(f: Real, x: V) -> V:
    """Inverse tangent."""
    size = f.abs(x)
    y = _arc(f, size, f.c(1.0))
    return f.copysign(f.select(x.is_nan(), x, y), x)


def atan2(f: Real, y: V, x: V) -> V:
    """The angle of the point (x, y)."""
    top, bottom = f.abs(y), f.abs(x)
    huge = (top > _SUM_OVERFLOWS[f.type]) | (bottom > _SUM_OVERFLOWS[f.type])
    scale = f.select(huge, f.c(0.25), 1.0)
    top, bottom = top * scale, bottom * scale
    both_infinite = top.same(bottom) & (top.same(float("inf")) | top.same(0.0))
    zero = top.same(0.0)
    # two equal infinities have slope one; two zeros lie on the axis
    angle = _arc(f, f.select(both_infinite, f.select(zero, f.c(0.0), 1.0), top), f.select(both_infinite, 1.0, bottom))
    low = _HALF_PI_LOW[f.type]
    turned = PI - (angle - 2 * low)
    angle = f.select(f.to_bits(x) < 0, turned, angle)
    angle = f.select(x.is_nan() | y.is_nan(), NAN, angle)
    return f.copysign(angle, y)


def _arc_sine_parts(f: Real, x: V) -> tuple[V, V, V]:
    """(large, p, s): asin of the reduced argument s is s + p; large where |x| > 1/2 and s = sqrt((1 - |x|) / 2)."""
    size = f.abs(x)
    large = size > 0.5
    square = f.select(large, (1.0 - size) * 0.5, size * size)
    s = f.select(large, f.sqrt(square), size)
    return large, s * square * f.poly(square, "asin"), s


def asin(f: Real, x: V) -> V:
    """Inverse sine."""
    large, p, s = _arc_sine_parts(f, x)
    low = _HALF_PI_LOW[f.type]
    return f.copysign(f.select(large, (HALF_PI - 2.0 * s) - (2.0 * p - low), s + p), x)


def acos(f: Real, x: V) -> V:
    """Inverse cosine."""
    large, p, s = _arc_sine_parts(f, x)
    low = _HALF_PI_LOW[f.type]
    double = 2.0 * (s + p)
    negative = x < 0.0
    signed_p, signed_s = f.copysign(p, x), f.copysign(s, x)
    middle = HALF_PI - (signed_s - (low - signed_p))
    far = f.select(negative, PI - (double - 2 * low), double)
    return f.select(large, far, middle)
