"""Special functions on lanes: error functions, digamma, lgamma, Bessel functions; and bit-level float functions."""

from __future__ import annotations

import math

from weft.codegen.vector.math_exp import exp, log, log_by_parts, log_of_normal, rough_log_of_normal
from weft.codegen.vector.math_real import INF, NAN, Real, V
from weft.codegen.vector.math_tables import TABLE


def _erfc_tail(f: Real, size: V) -> V:
    """erfc of x >= 0."""
    bound = 28.0 if f.wide else 11.0
    x = f.select(size > bound, bound, size)
    square = x * x
    lost = f.exact_fma(x, x, -square)
    e = exp(f, -square)
    e = f.fma(-lost, e, e)
    t = (x - 4.0) / (x + 4.0)
    return e * f.poly(t, "erfc") / f.fma(x, 2.0, 1.0)


def _erf_excess(f: Real, x: V) -> V:
    """erf(x) / x - 1 for |x| <= 1: small, so that adding it to one rounds little."""
    coefficients = TABLE["erf", f.type]
    return f.horner(x * x, (*coefficients[:-1], 0.1283791670955126))


def erf(f: Real, x: V) -> V:
    """Error function."""
    size = f.abs(x)
    if not f.wide:
        return f.copysign(f.pieces(f.select(size > 3.9375, 15.75, size * 4.0), "erf", 0.28125), x)
    near = f.fma(x, _erf_excess(f, x), x)
    far = f.copysign(1.0 - _erfc_tail(f, size), x)
    y = f.select(size < 1.0, near, far)
    return f.select(x.is_nan(), x, y)


def erfc(f: Real, x: V) -> V:
    """1 - erf(x)."""
    size = f.abs(x)
    tail = _erfc_tail(f, size)
    near = (1.0 - x) - x * _erf_excess(f, x)
    y = f.select(x < 0.5, f.select(size < 1.0, near, 2.0 - tail), tail)
    return f.select(x.is_nan(), x, y)


#: erf_inv(x) / x in single precision: for w = -log(1 - x^2) < 5 in w, else in sqrt(w) - 3
_ERF_INV_NEAR = (-9.195303e-09, 2.304914e-07, -2.0692157e-06, 4.477407e-06, 4.301338e-05, -0.00012456848, -0.0023374597,
               0.011550473, 0.23201336, 0.88622695)
_ERF_INV_FAR = (0.00012895449, -0.0003173538, -7.737632e-05, 0.0014934855, -0.0035859875, 0.005684607, -0.0076398007,
                0.009445347, 1.0016751, 2.8329768)


def _erf_inv_far(f: Real, w: V) -> V:
    return f.horner(f.sqrt(w) - 3.0, _ERF_INV_FAR)


def _erf_inv_ratio(f: Real, w: V) -> V:
    """erf_inv(x) / x of w = -log(1 - x^2), in single precision."""
    return f.cold(f.horner(w, _ERF_INV_NEAR), w >= 5.0, _erf_inv_far, w)


def erf_inv(f: Real, x: V) -> V:
    """Inverse error function: polynomials of -log(1 - x^2), as Giles has them, in double followed by two steps of Halley's method."""
    if not f.wide:
        below = f.exact_fma(x, -x, f.c(1.0))
        return f.at(_erf_inv_ratio(f, -rough_log_of_normal(f, below)), below, zero=INF, negative=NAN) * x
    size = f.abs(x)
    w = -log_of_normal(f, f.select(size.same(1.0), 0.5, (1.0 - size) * (1.0 + size)))
    # the polynomials end where single precision does; beyond, start from erfc(y) ~ e^(-y^2) / (y sqrt(pi))
    level = f.select(w > 15.0, w + 0.6931471805599453, 16.0)
    far = f.copysign(f.sqrt(level - 0.5 * log_of_normal(f, level * 3.141592653589793)), x)
    y = f.select(w > 15.0, far, _erf_inv_ratio(f, w) * x)
    y = _halley(f, _halley(f, y, x), x)
    y = f.select(size < 1e-300, x * 0.886226925452758, y)
    y = f.select(size.same(1.0), f.copysign(INF, x), y)
    return f.select(size <= 1.0, y, NAN)


def _halley(f: Real, y: V, x: V) -> V:
    """One step of solving erf(y) = x, from the side where no digits cancel."""
    size = f.abs(x)
    far = size > 0.5
    z = f.abs(y)
    miss = f.select(far, (1.0 - size) - _erfc_tail(f, z), erf(f, z) - size)
    slope = 1.1283791670955126 * exp(f, -(z * z))
    step = miss / slope
    z = z - step / f.fma(z, step, 1.0)
    return f.copysign(z, x)


def digamma(f: Real, x: V) -> V:
    """Logarithmic derivative of the gamma function."""
    if not f.wide:
        grown = x + 1.0
        y = rough_log_of_normal(f, x + 0.5) + (f.poly((x - 1.0) / grown, "digamma") - 1.0 / x)
        y = f.at(y, x, infinite=INF)
        return f.cold(y, x < 0.0, _digamma_in_double, x)
    low = x < 0.5
    y = digamma_above_half(f, f.select(low, 1.0 - x, x))
    from weft.codegen.vector.math_trig import PI, tan

    fraction = x - f.round_even(x)
    reflected = y - PI / tan(f, fraction * PI)
    y = f.select(low, reflected, y)
    pole = low & fraction.same(0.0)
    y = f.select(pole, NAN, y)
    y = f.select(x.same(0.0), f.copysign(INF, -x), y)
    return f.select(x.same(INF), INF, y)


def digamma_above_half(f: Real, z: V) -> V:
    """digamma of z >= 1/2 in doubles."""
    total, lost = f.c(0.0), f.c(0.0)
    for _ in range(10):
        # psi(z) = psi(z + 1) - 1/z, summed with the rounding errors kept
        small = z < 10.0
        term = 1.0 / z
        rest = term * f.exact_fma(-term, z, f.c(1.0))
        grown = total - term
        lost = f.select(small, lost + (((total - grown) - term) - rest), lost)
        total = f.select(small, grown, total)
        z = f.select(small, z + 1.0, z)
    inverse = 1.0 / z
    square = inverse * inverse
    series = f.horner(square, (3617 / 8160, -1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120,
                               -1 / 12))
    return (total + log(f, z)) + (lost + (-0.5 * inverse + square * series))


def _digamma_in_double(f: Real, x: V) -> V:
    return f.narrow(digamma(f.in_double(), f.widen(x)))


def lgamma(f: Real, x: V) -> V:
    """Logarithm of the magnitude of the gamma function."""
    if f.wide:
        return f.library("lgamma", x)
    # a log(x) + b: near zero log(1/x) and a polynomial, then a polynomial, then Stirling's formula; all of it in quarters,
    # whose terms do not overflow where the result does not
    large = x >= 2.875
    a = f.select(large, f.fma(x, 0.25, -0.125), f.select(x < 1.375, f.c(-0.25), 0.0))
    b = f.pieces(f.select(large, f.fma(1.0 / x, 8.5, 12.0), x * 4.0), "lgamma")
    high, low = log_by_parts(f, x)
    y = 4.0 * (f.exact_fma(a, high, f.select(large, x * -0.25, 0.0)) + f.fma(b, 0.25, a * low))
    return f.cold(f.at(y, x, zero=INF, infinite=INF), x < 0.0, _lgamma_in_double, x)


def _lgamma_in_double(f: Real, x: V) -> V:
    return f.narrow(_lgamma(f.in_double(), f.widen(x)))


def _lgamma(f: Real, x: V) -> V:
    """lgamma with an absolute error of some 1e-15, in doubles: relative precision of an f32 even beside the zeros 1 and 2."""
    low = x < 0.5
    z = f.select(low, 1.0 - x, x)
    small = z < 8.0
    product = z
    for k in range(1, 8):
        product = product * (z + float(k))
    product, w = f.select(small, product, 1.0), f.select(small, z + 8.0, z)
    inverse = 1.0 / w
    series = f.horner(inverse * inverse, (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    stirling = f.fma(w - 0.5, log_of_normal(f, w), 0.9189385332046727 - w) + inverse * series
    # below one half: gamma(x) gamma(1 - x) = pi / sin(pi x)
    angle = (x - f.round_even(x)) * math.pi
    square = angle * angle
    sine = f.fma(angle * square, f.horner(square, tuple([(-1) ** k / math.factorial(2 * k + 1) for k in range(9, 0, -1)])), angle)
    rest = log(f, f.select(low, math.pi * product / f.abs(sine), product))
    y = f.select(low, rest - stirling, stirling - rest)
    y = f.select(((x - 1.0) * (x - 2.0)).same(0.0), 0.0, y)
    return f.select(f.abs(x).same(INF), INF, y)


def _bessel(f: Real, x: V, order: int) -> V:
    size = f.abs(x)
    if not f.wide:
        large = size >= 5.75
        y = f.pieces(f.select(large, f.fma(1.0 / size, 20.0, 12.0), size + size), f"i{order}e")
        if order:
            y = y * f.copysign(f.select(large, 1.0, size), x)
        return y / f.sqrt(f.select(large, size, 1.0))
    small = size <= 8.0
    bounded = f.select(small, size, 8.0)
    name = f"i{order}e"
    near = f.horner(f.fma(bounded, 0.25, -1.0), TABLE[f"{name}_small", "f64"])
    large = f.select(small, 8.0, size)
    far = f.horner(16.0 / large - 1.0, TABLE[f"{name}_big", "f64"]) / f.sqrt(large)
    grow = f.fma(bounded, 0.25, 1.0)  # flattens the function, so that the polynomial keeps its relative precision
    near = near * size / (grow * grow * grow) if order else near / grow
    y = f.select(small, near, far)
    y = f.select(size.same(INF), 0.0, y)
    return f.select(x.is_nan(), x, f.copysign(y, x) if order else y)


def bessel_i0e(f: Real, x: V) -> V:
    """e^-|x| times the modified Bessel function of order zero."""
    return _bessel(f, x, 0)


def bessel_i1e(f: Real, x: V) -> V:
    """e^-|x| times the modified Bessel function of order one."""
    return _bessel(f, x, 1)


def round_away(f: Real, x: V) -> V:
    """The nearest integer, halves away from zero."""
    whole = f.trunc(x)
    return f.copysign(f.select(f.abs(x - whole) >= 0.5, whole + f.copysign(1.0, x), whole), x)


def copysign(f: Real, x: V, y: V) -> V:
    """The size of x with the sign of y."""
    return f.copysign(x, y)


def nextafter(f: Real, x: V, y: V, type_: str = "") -> V:
    """The float next to x in the direction of y; `type_` is the half type that f32 values stand for."""
    bits, away = f.to_bits(x), (y > x) ^ (x < 0.0)
    step = {"bf16": 1 << 16, "f16": 1 << 13}.get(type_, 1)
    stepped = f.from_bits(f.select(away, bits + step, bits - step))
    if type_ == "f16":  # whose subnormal numbers and largest number are ordinary ones in f32
        size, least = f.abs(x), f.c(2.0**-24)
        even = (size < 2.0**-14) | (size.same(2.0**-14) & ~away)
        stepped = f.select(even, f.copysign(size + f.select(away, least, -least), x), stepped)
        stepped = f.select(size.same(INF), f.copysign(65504.0, x), stepped)
        least = f.copysign(least, y)
    else:
        least = f.from_bits(f.to_bits(f.copysign(0.0, y)) | step)
    result = f.select(x.same(0.0), least, stepped)
    result = f.select(x.same(y), y, result)
    return f.select(x.is_nan() | y.is_nan(), NAN, result)
