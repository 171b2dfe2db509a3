"""Exponentials, logarithms, powers and hyperbolic functions on lanes.

Each takes and gives `V`s of one precision (see `math_real`). The error of each is tested in tests/codegen/test_accuracy.py.
"""

from __future__ import annotations

from weft.codegen.math_real import INF, NAN, Real, V

LOG2E = 1.4426950408889634
#: log(2), by parts whose leading one leaves room to be multiplied by small integers exactly
_LN2 = {"f32": (0.693359375, -2.12194440054690583e-4), "f64": (0.6931471803691238, 1.9082149292705877e-10)}
_EXP_RANGE = {"f32": (-105.0, 89.0), "f64": (-746.0, 710.0)}
_EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}


def _reduced(f: Real, x: V) -> tuple[V, V, V]:
    """(k + magic, r, e^r - 1 - r) with x = k log(2) + r."""
    shifted = f.fma(x, LOG2E, f.magic)
    k = shifted - f.magic
    high, low = _LN2[f.type]
    r = f.fma(k, -low, f.fma(k, -high, x))
    return shifted, r, (r * r) * f.poly(r, "exp")


def exp(f: Real, x: V) -> V:
    """e^x."""
    shifted, r, p = _reduced(f, f.clamp(x, *_EXP_RANGE[f.type]))
    return f.ldexp((r + p) + 1.0, shifted)


def exp2(f: Real, x: V) -> V:
    """2^x."""
    x = f.clamp(x, *_EXP2_RANGE[f.type])
    shifted = x + f.magic
    r = x - (shifted - f.magic)
    return f.ldexp(f.fma(r, f.poly(r, "exp2"), 1.0), shifted)


def expm1(f: Real, x: V) -> V:
    """e^x - 1."""
    low, high = _EXP_RANGE[f.type]
    shifted, r, p = _reduced(f, f.clamp(x, low / 2, high))
    small = r + p
    k = shifted - f.magic
    bounded = f.select(k > f.bias - 1, f.bias - 1, k)
    scale = f.power_of_two(f.to_bits(bounded + f.magic) - f.magic_bits)
    near = f.fma(scale, small, scale - 1.0)
    far = f.ldexp(small + 1.0, shifted)
    y = f.select(k > 2.0 * f.mantissa / 2 + 8, far, near)
    return f.select(x.same(0.0), x, y)


def _expm1_near(f: Real, x: V) -> V:
    """e^x - 1 for |x| <= 60, where no power of two leaves the normal numbers; zero may lose its sign."""
    shifted, r, p = _reduced(f, x)
    scale = f.power_of_two(f.to_bits(shifted) - f.magic_bits)
    return f.fma(scale, r + p, scale - 1.0)


def _half_exp(f: Real, x: V) -> V:
    """e^x / 2, without overflow before its time; x >= 0."""
    shifted, r, p = _reduced(f, f.clamp(x, 0.0, _EXP_RANGE[f.type][1] + 1.0))
    return f.ldexp((r + p) + 1.0, shifted - 1.0)


def sinh(f: Real, x: V) -> V:
    """Hyperbolic sine."""
    size = f.abs(x)
    e = _expm1_near(f, f.select(size > 30.0, 30.0, size))
    near = 0.5 * (e + e / (e + 1.0))
    return f.copysign(f.select(size > 30.0, _half_exp(f, size), near), x)


def cosh(f: Real, x: V) -> V:
    """Hyperbolic cosine."""
    half = _half_exp(f, f.abs(x))
    return half + 0.25 / half


def tanh(f: Real, x: V) -> V:
    """Hyperbolic tangent."""
    size = f.abs(x)
    bound = 22.0 if f.wide else 10.0
    e = _expm1_near(f, f.select(size > bound, bound, size) * -2.0)
    return f.copysign(e / (e + 2.0), x)


def logistic(f: Real, x: V) -> V:
    """1 / (1 + e^-x)."""
    e = exp(f, -f.abs(x))
    return f.select(x < 0.0, e, 1.0) / (e + 1.0)


def _split_normal(f: Real, x: V) -> tuple[V, V]:
    """(exponent, mantissa in [sqrt(1/2), sqrt(2))) of positive normal x."""
    bits = f.to_bits(x)
    root_half = 0x3FE6A09E667F3BCD if f.wide else 0x3F3504F3
    k = (bits - root_half) >> f.mantissa
    return k, f.from_bits(bits - (k << f.mantissa))


def _split(f: Real, x: V) -> tuple[V, V]:
    """The same of any positive x, subnormal ones included."""
    tiny = x < f.tiny
    scale = f.mantissa + 2
    k, m = _split_normal(f, f.select(tiny, x * 2.0**scale, x))
    return f.select(tiny, k - scale, k), m


def _exponent_float(f: Real, k: V) -> V:
    """A small integer as a float, also where 64-bit conversions are slow."""
    if not f.wide:
        return f.to_float(k)
    return f.from_bits(k + f.magic_bits) - f.magic


def _log_core(f: Real, k: V, x: V) -> V:
    """k log(2) + log(1 + x) for k a float."""
    high, low = _LN2[f.type]
    square = x * x
    if f.wide:
        s = x / (x + 2.0)
        half = 0.5 * square
        tail = s * (half + _log_tail(f, s))
        return f.fma(k, high, x - (half - f.fma(k, low, tail)))
    y = (f.poly(x, "log") * x) * square
    y = f.fma(k, low, y)
    y = f.fma(square, -0.5, y)
    return f.fma(k, high, x + y)


def _log_tail(f: Real, s: V) -> V:
    z = s * s
    return z * f.poly(z, "logs")


def _log_specials(f: Real, x: V, y: V) -> V:
    y = f.select(x.same(INF), INF, y)
    y = f.select(x.same(0.0), -INF, y)
    return f.select(x >= 0.0, y, NAN)


def log(f: Real, x: V) -> V:
    """Natural logarithm."""
    k, m = _split(f, x)
    return _log_specials(f, x, _log_core(f, _exponent_float(f, k), m - 1.0))


def log_of_normal(f: Real, x: V) -> V:
    """Natural logarithm of positive normal numbers."""
    k, m = _split_normal(f, x)
    return _log_core(f, _exponent_float(f, k), m - 1.0)


def log2(f: Real, x: V) -> V:
    """Logarithm to base 2."""
    k, m = _split(f, x)
    x1 = m - 1.0
    # log(m) as an unevaluated sum, so that the product with log2(e) rounds once
    square = x1 * x1
    if f.wide:
        s = x1 / (x1 + 2.0)
        half = 0.5 * square
        high = f.from_bits(f.to_bits(x1 - half) & -(1 << 32))
        low = (x1 - high) - half + s * (half + _log_tail(f, s))
    else:
        half = 0.5 * square
        high = f.from_bits(f.to_bits(x1 - half) & -(1 << 12))
        low = (x1 - high) - half + (f.poly(x1, "log") * x1) * square
    e_high, e_low = _LOG2E_SPLIT[f.type]
    small = f.fma(low + high, e_low, low * e_high)
    kf = _exponent_float(f, k)
    y = kf + high * e_high
    rest = (kf - y) + high * e_high
    return _log_specials(f, x, y + (small + rest))


_LOG2E_SPLIT = {"f32": (1.4423828125, 0.00031222838896340733), "f64": (1.4426950216293335, 1.9259629911266175e-08)}


def log1p(f: Real, x: V) -> V:
    """log(1 + x)."""
    u = x + 1.0
    k, m = _split(f, u)
    # what 1 + x rounded away, in the scale of m
    lost = _rounded_away(f, x, u)
    bounded = f.select(k > f.bias - 2, f.bias - 2, k)
    lost = lost * f.power_of_two(-bounded)
    y = _log_core(f, _exponent_float(f, k), (m - 1.0) + lost)
    y = f.select(x.same(INF), INF, y)
    y = f.select(x.same(-1.0), -INF, y)
    y = f.select(x.same(0.0), x, y)
    return f.select(x >= -1.0, y, NAN)


def _rounded_away(f: Real, x: V, u: V) -> V:
    """(1 + x) - u exactly, where u is 1 + x rounded."""
    y = u - x
    return (1.0 - y) + (x - (u - y))


def asinh(f: Real, x: V) -> V:
    """Inverse hyperbolic sine."""
    size = f.abs(x)
    large = size > (2.0**28 if f.wide else 2.0**13)
    a = f.select(large, 1.0, size)
    square = a * a
    near = log1p(f, a + square / (f.sqrt(square + 1.0) + 1.0))
    far = log(f, size) + 0.6931471805599453
    return f.copysign(f.select(large, far, near), x)


def acosh(f: Real, x: V) -> V:
    """Inverse hyperbolic cosine."""
    large = x > (2.0**28 if f.wide else 2.0**13)
    t = f.select(large, 1.0, x - 1.0)
    near = log1p(f, t + f.sqrt(f.fma(t, t, t + t)))
    y = f.select(large, log(f, x) + 0.6931471805599453, near)
    return f.select(x >= 1.0, y, NAN)


def atanh(f: Real, x: V) -> V:
    """Inverse hyperbolic tangent."""
    size = f.abs(x)
    y = 0.5 * log1p(f, (size + size) / (1.0 - size))
    y = f.select(size < 2.0**-12 if not f.wide else size < 2.0**-28, size, y)
    return f.copysign(f.select(size > 1.0, NAN, y), x)


def sqrt(f: Real, x: V) -> V:
    """Square root."""
    return f.sqrt(x)


def rsqrt(f: Real, x: V) -> V:
    """1 / sqrt(x)."""
    return 1.0 / f.sqrt(x)


def cbrt(f: Real, x: V) -> V:
    """Cube root."""
    if not f.wide:
        return f.narrow(_cbrt(f.in_double(), f.widen(x), 2))
    return _cbrt(f, x, 3)


def _cbrt(f: Real, x: V, steps: int) -> V:
    size = f.abs(x)
    tiny, huge = size < 2.0**-600, size > 2.0**600
    size = f.select(tiny, size * 2.0**600, f.select(huge, size * 2.0**-300, size))
    # no fourth power of the root leaves the range now
    # the exponent divided by three, through a float: the bits as a number are nearly linear in log2
    high = _bits_as_float(f, size)
    y = f.from_bits(_float_as_bits(f, f.fma(high, 1.0 / 3.0, 715094163.0)))
    for _ in range(steps):
        cube = y * y * y
        y = y * (cube + (size + size)) / (cube + cube + size)
    # one Newton step whose residual is exact to first order
    square = y * y
    low = f.exact_fma(y, y, -square)
    residual = f.exact_fma(square, y, -size) + low * y
    y = y - residual / (3.0 * square)
    y = f.select(tiny, y * 2.0**-200, f.select(huge, y * 2.0**100, y))
    plain = size > 0.0
    y = f.select(plain & (size < INF), y, f.abs(x))
    return f.select(x.is_nan(), x, f.copysign(y, x))


def _bits_as_float(f: Real, x: V) -> V:
    """The high 32 bits of positive doubles, as numbers."""
    return f.from_bits(f.to_bits(x).lshr(32) + f.magic_bits) - f.magic


def _float_as_bits(f: Real, x: V) -> V:
    """The inverse: numbers below 2^31 as the high 32 bits of doubles."""
    return f.to_bits(x + f.magic) << 32


def pow_(f: Real, x: V, y: V) -> V:
    """x to the power y, with the special values of IEEE."""
    if f.wide:
        return f.library("pow", x, y)
    g = f.in_double()
    size = f.abs(x)
    k, m = _split(g, f.widen(size))
    s = m - 1.0
    logarithm = g.fma(_log_core(g, g.c(0.0), s), LOG2E, _exponent_float(g, k))
    logarithm = g.select(f.widen(size).same(0.0), -INF, g.select(f.widen(size).same(INF), INF, logarithm))
    result = f.narrow(exp2(g, g.clamp(f.widen(y) * logarithm, -1100.0, 1100.0)))
    whole = f.trunc(y).same(y)
    half = y * 0.5
    odd = whole & ~f.trunc(half).same(half)
    negative = f.to_bits(x) < 0
    result = f.select(odd & negative, -result, result)
    result = f.select((x < 0.0) & (x > -INF) & ~whole, NAN, result)
    result = f.select(x.is_nan() | y.is_nan(), NAN, result)
    unit = (size.same(1.0) & f.abs(y).same(INF)) | x.same(1.0) | y.same(0.0)
    return f.select(unit, 1.0, result)
