"""NumPy's elementwise functions, written from the operations of `weft.ops.elementwise`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from weft.core.trace import typeof
from weft.numpy.promote import (PYTHON_SCALARS, cast, check_arraylike, promote, promote_to_inexact, value)
from weft.ops import elementwise as ew
from weft.util import dtypes


def _document(fun: Callable, name: str, text: str, example: str = "") -> Callable:
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = f"{text}\n\n    Broadcasts its arguments and promotes their dtypes as NumPy does (see `result_type`).\n    {example}"
    return fun


def _unary(name: str, op: Callable, text: str) -> Callable:
    """A function of one argument that keeps its dtype."""
    def fun(x, /):
        if type(x) in PYTHON_SCALARS or not hasattr(x, "aval"):
            check_arraylike(name, x)
            x = value(x)
        return op(x)
    return _document(fun, name, text)


def _unary_inexact(name: str, op: Callable, text: str) -> Callable:
    """A function of one argument with a floating (or complex) result."""
    def fun(x, /):
        return op(promote_to_inexact(name, x)[0])
    return _document(fun, name, text)


def _binary(name: str, op: Callable, text: str, inexact: bool = False) -> Callable:
    prepare = promote_to_inexact if inexact else promote

    def fun(x, y, /):
        return op(*prepare(name, x, y))
    return _document(fun, name, text)


def _comparison(name: str, op: Callable, text: str) -> Callable:
    return _binary(name, op, text)


def _bitwise(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        x, y = promote(name, x, y)
        for v in (x, y):
            if not (dtypes.issubdtype(typeof(v).dtype, np.integer) or typeof(v).dtype == np.bool_):
                raise TypeError(f"{name} takes integers or bools, got {typeof(v).dtype.name}.")
        return op(x, y)
    return _document(fun, name, text)


def _is_bool(x) -> bool:
    return typeof(x).dtype == np.bool_


def _is_complex(x) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.complexfloating)


def _is_int(x) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.integer)


# ---- one argument, any kind
def _abs(x):
    return x if _is_bool(x) or dtypes.issubdtype(typeof(x).dtype, np.unsignedinteger) else ew.abs(x)


abs = _unary("abs", _abs, "Absolute value; the modulus of complex numbers.")  # noqa: A001
absolute = abs
negative = _unary("negative", ew.neg, "The value with opposite sign.")
positive = _unary("positive", lambda x: _array(x), "The value itself.")
sign = _unary("sign", lambda x: ew.sign(x), "-1, 0 or 1 by the sign of each element.")
square = _unary("square", lambda x: ew.square(x) if not _is_bool(x) else x, "The square of each element.")
conjugate = conj = _unary("conjugate", lambda x: ew.conj(x) if _is_complex(x) else _array(x), "Complex conjugate.")
real = _unary("real", lambda x: ew.real(x) if _is_complex(x) else _array(x), "Real part.")
imag = _unary("imag", lambda x: ew.imag(x) if _is_complex(x) else ew.mul(_array(x), 0), "Imaginary part.")


def _array(x):
    from weft.numpy.promote import concrete
    return concrete(x)


def _round_family(name: str, op: Callable, text: str) -> Callable:
    return _unary(name, lambda x: _array(x) if _is_int(x) or _is_bool(x) else op(x), text)


floor = _round_family("floor", ew.floor, "The largest integer not above each element.")
ceil = _round_family("ceil", ew.ceil, "The smallest integer not below each element.")
trunc = _round_family("trunc", lambda x: ew.mul(ew.sign(x), ew.floor(ew.abs(x))), "The integer part of each element.")
rint = _round_family("rint", lambda x: ew.round(x, "to_nearest_even"), "The nearest integer, halves to even.")
fix = trunc


def _logical(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        from weft.numpy.promote import broadcast
        check_arraylike(name, x, y)
        return op(*broadcast(name, *[_truth(value(v)) for v in (x, y)]))
    return _document(fun, name, text)


def _truth(x):
    return _array(x) if _is_bool(x) else ew.ne(_array(x), 0)


logical_and = _logical("logical_and", lambda x, y: ew.bitwise_and(x, y), "x and y, elementwise.")
logical_or = _logical("logical_or", lambda x, y: ew.bitwise_or(x, y), "x or y, elementwise.")
logical_xor = _logical("logical_xor", lambda x, y: ew.bitwise_xor(x, y), "Exactly one of x and y, elementwise.")
logical_not = _unary("logical_not", lambda x: ew.bitwise_not(_truth(x)), "not x, elementwise.")

bitwise_and = _bitwise("bitwise_and", ew.bitwise_and, "Bitwise x & y of integers; logical of bools.")
bitwise_or = _bitwise("bitwise_or", ew.bitwise_or, "Bitwise x | y of integers; logical of bools.")
bitwise_xor = _bitwise("bitwise_xor", ew.bitwise_xor, "Bitwise x ^ y of integers; logical of bools.")
bitwise_not = bitwise_invert = invert = _unary("invert", ew.bitwise_not, "Bitwise ~x of integers; logical of bools.")
left_shift = bitwise_left_shift = _bitwise("left_shift", ew.shift_left, "x << y.")


def _right_shift(x, y):
    unsigned = dtypes.issubdtype(typeof(x).dtype, np.unsignedinteger)
    return ew.shift_right_logical(x, y) if unsigned else ew.shift_right_arithmetic(x, y)


right_shift = bitwise_right_shift = _bitwise("right_shift", _right_shift, "x >> y, keeping the sign.")
bitwise_count = _unary("bitwise_count", lambda x: cast(ew.population_count(ew.abs(x) if not dtypes.issubdtype(
    typeof(x).dtype, np.unsignedinteger) else x), np.dtype(np.uint8)), "Number of one bits of |x|.")

# ---- one argument, floating result
for _name, _text in {
    "exp": "e to the x.", "exp2": "2 to the x.", "expm1": "exp(x) - 1, accurate near 0.", "log": "Natural logarithm.",
    "log1p": "log(1 + x), accurate near 0.", "sqrt": "Square root.", "cbrt": "Cube root.",
    "sin": "Sine; x in radians.", "cos": "Cosine; x in radians.", "tan": "Tangent; x in radians.",
    "sinh": "Hyperbolic sine.", "cosh": "Hyperbolic cosine.", "tanh": "Hyperbolic tangent.",
}.items():
    globals()[_name] = _unary_inexact(_name, getattr(ew, _name), _text)
for _name, _op, _text in [
    ("arcsin", "asin", "Inverse sine, in radians."), ("arccos", "acos", "Inverse cosine, in radians."),
    ("arctan", "atan", "Inverse tangent, in radians."), ("arcsinh", "asinh", "Inverse hyperbolic sine."),
    ("arccosh", "acosh", "Inverse hyperbolic cosine."), ("arctanh", "atanh", "Inverse hyperbolic tangent."),
]:
    globals()[_name] = globals()[_op] = _unary_inexact(_name, getattr(ew, _op), _text)
log2 = _unary_inexact("log2", lambda x: ew.mul(ew.log(x), 1 / math.log(2)), "Logarithm to base 2.")
log10 = _unary_inexact("log10", lambda x: ew.mul(ew.log(x), 1 / math.log(10)), "Logarithm to base 10.")
deg2rad = radians = _unary_inexact("deg2rad", lambda x: ew.mul(x, math.pi / 180), "Degrees to radians.")
rad2deg = degrees = _unary_inexact("rad2deg", lambda x: ew.mul(x, 180 / math.pi), "Radians to degrees.")
fabs = _unary_inexact("fabs", ew.abs, "Absolute value as a float.")


@functools.partial(_unary_inexact, "sinc", text="sin(pi x) / (pi x), 1 at 0.")
def sinc(x):
    zero = ew.eq(x, 0)
    px = ew.mul(select(zero, ew.add(ew.mul(x, 0), 1), x), math.pi)
    return select(zero, _series(x), ew.div(ew.sin(px), px))


def _series(x):
    """1 - (pi x)^2 / 6: the value and the first two derivatives of sinc at 0."""
    return ew.add(ew.mul(ew.square(x), -math.pi ** 2 / 6), 1)


def select(condition, on_true, on_false):
    return ew.select_n(condition, on_false, on_true)


def _finite_test(name: str, of_float: Callable, of_other: bool, text: str) -> Callable:
    def fun(x, /):
        check_arraylike(name, x)
        x = value(x)
        if _is_complex(x):
            a, b = of_float(ew.real(x)), of_float(ew.imag(x))
            return ew.bitwise_and(a, b) if name == "isfinite" else ew.bitwise_or(a, b)
        if not dtypes.issubdtype(typeof(x).dtype, np.inexact):
            from weft.numpy.creation import full_like
            return full_like(x, of_other, dtype=np.bool_)
        return of_float(_array(x))
    return _document(fun, name, text)


isfinite = _finite_test("isfinite", ew.is_finite, True, "Neither infinite nor NaN.")
isnan = _finite_test("isnan", lambda x: ew.ne(x, x), False, "Not a number.")
isinf = _finite_test("isinf", lambda x: ew.eq(ew.abs(x), math.inf), False, "Positive or negative infinity.")
isposinf = _finite_test("isposinf", lambda x: ew.eq(x, math.inf), False, "Positive infinity.")
isneginf = _finite_test("isneginf", lambda x: ew.eq(x, -math.inf), False, "Negative infinity.")


def _signbit(x):
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[typeof(x).dtype.itemsize]
    return ew.lt(ew.bitcast_convert_type(x, np.dtype(bits)), 0)


signbit = _unary_inexact("signbit", _signbit, "Whether the sign bit is set.")

# ---- two arguments
def _arith(op: Callable, on_bool: Callable | None) -> Callable:
    def apply(x, y):
        if on_bool is not None and _is_bool(x) and _is_bool(y):
            return on_bool(x, y)
        return op(x, y)
    return apply


add = _binary("add", _arith(ew.add, lambda x, y: ew.bitwise_or(x, y)), "x + y.")
subtract = _binary("subtract", ew.sub, "x - y.")
multiply = _binary("multiply", _arith(ew.mul, lambda x, y: ew.bitwise_and(x, y)), "x * y.")
true_divide = divide = _binary("true_divide", ew.div, "x / y, always floating.", inexact=True)
maximum = _binary("maximum", _arith(ew.max, lambda x, y: ew.bitwise_or(x, y)), "The larger of x and y; NaN wins.")
minimum = _binary("minimum", _arith(ew.min, lambda x, y: ew.bitwise_and(x, y)), "The smaller of x and y; NaN wins.")
arctan2 = atan2 = _binary("arctan2", ew.atan2, "Angle of the point (y, x), in radians.", inexact=True)
nextafter = _binary("nextafter", ew.nextafter, "The next number after x toward y.", inexact=True)
equal = _comparison("equal", ew.eq, "x == y.")
not_equal = _comparison("not_equal", ew.ne, "x != y.")
less = _comparison("less", ew.lt, "x < y.")
less_equal = _comparison("less_equal", ew.le, "x <= y.")
greater = _comparison("greater", ew.gt, "x > y.")
greater_equal = _comparison("greater_equal", ew.ge, "x >= y.")


def _floor_divide(x, y):
    if _is_int(x) and _is_int(y):
        q = ew.div(x, y)
        if dtypes.issubdtype(typeof(x if type(x) not in PYTHON_SCALARS else y).dtype, np.unsignedinteger):
            return q
        inexact = ew.bitwise_and(ew.ne(ew.sign(x), ew.sign(y)), ew.ne(ew.rem(x, y), 0))
        return select(inexact, ew.sub(q, 1), q)
    q = ew.floor(ew.div(x, y))
    r = _mod(x, y)
    exact = ew.round(ew.div(ew.sub(x, r), y), "to_nearest_even")
    return select(ew.is_finite(exact), exact, q)


floor_divide = _binary("floor_divide", _floor_divide, "The largest integer not above x / y.")


def _mod(x, y):
    r = ew.rem(x, y)
    wrong = ew.bitwise_and(ew.ne(r, 0), ew.ne(ew.lt(r, 0), ew.lt(y, 0)))
    if dtypes.issubdtype(typeof(r).dtype, np.unsignedinteger):
        return r
    return select(wrong, ew.add(r, y), r)


remainder = mod = _binary("remainder", _mod, "x - floor(x / y) * y: the remainder with the sign of y.")
fmod = _binary("fmod", ew.rem, "The remainder with the sign of x.")


def divmod(x, y, /):  # noqa: A001
    """`(floor_divide(x, y), remainder(x, y))`."""
    return floor_divide(x, y), remainder(x, y)


def modf(x, /):
    """Fractional and integral part of each element."""
    (x,) = promote_to_inexact("modf", x)
    whole = trunc(x)
    return ew.sub(x, whole), whole


def power(x, y, /):
    """x to the y. An integer constant y is computed by repeated squaring.

    >>> import weft.numpy as wnp
    >>> wnp.power(wnp.arange(4.), 2)
    Array([0., 1., 4., 9.], dtype=float32)
    """
    check_arraylike("power", x, y)
    x, y = value(x), value(y)
    if type(y) is int and type(x) not in PYTHON_SCALARS and not _is_bool(x):
        if y >= 0 or not _is_int(x):
            return ew.square(x) if y == 2 else ew.integer_pow(x, y)
    if isinstance(y, (np.integer, np.ndarray)) and np.ndim(y) == 0 and np.issubdtype(y.dtype, np.integer) and not _is_bool(x):
        if type(x) not in PYTHON_SCALARS and dtypes.issubdtype(typeof(x).dtype, np.inexact):
            return ew.integer_pow(x, int(y))
    a, b = promote("power", x, y)
    if _is_int(a) and _is_int(b):
        return _int_power(_array(a), _array(b))
    return ew.pow(_array(a), _array(b))


def _int_power(x, y):
    """Repeated squaring over the bits of y; negative powers give 0, as in integer division."""
    bits = 8 * typeof(x).dtype.itemsize
    result, base = ew.add(ew.mul(x, 0), 1), x
    if typeof(y).shape != typeof(result).shape:
        result = ew.add(result, ew.mul(y, 0))
    for i in range(bits):
        bit = ew.bitwise_and(ew.shift_right_logical(y, i), 1)
        result = select(ew.eq(bit, 1), ew.mul(result, base), result)
        if i + 1 < bits:
            base = ew.mul(base, base)
    return select(ew.lt(y, 0), ew.mul(result, 0), result)


pow = power  # noqa: A001


def float_power(x, y, /):
    """x to the y in floating point."""
    return ew.pow(*promote_to_inexact("float_power", x, y))


def logaddexp(x, y, /):
    """log(exp(x) + exp(y)) without overflow."""
    x, y = promote_to_inexact("logaddexp", x, y)
    x, y = _array(x), _array(y)
    high = ew.max(x, y)
    delta = ew.sub(x, y)
    return select(ew.ne(delta, delta), ew.add(x, y), ew.add(high, ew.log1p(ew.exp(ew.neg(ew.abs(delta))))))


def logaddexp2(x, y, /):
    """log2(2**x + 2**y) without overflow."""
    x, y = promote_to_inexact("logaddexp2", x, y)
    return ew.div(logaddexp(ew.mul(x, math.log(2)), ew.mul(y, math.log(2))), math.log(2))


def hypot(x, y, /):
    """sqrt(x**2 + y**2) without overflow."""
    x, y = promote_to_inexact("hypot", x, y)
    x, y = ew.abs(_array(x)), ew.abs(_array(y))
    high, low = ew.max(x, y), ew.min(x, y)
    ratio = ew.div(low, select(ew.eq(high, 0), ew.add(ew.mul(high, 0), 1), high))
    result = ew.mul(high, ew.sqrt(ew.add(ew.square(ratio), 1)))
    return select(ew.eq(high, math.inf), high, result)


def copysign(x, y, /):
    """|x| with the sign of y."""
    x, y = promote_to_inexact("copysign", x, y)
    return select(_signbit(_array(y)), ew.neg(ew.abs(_array(x))), ew.abs(_array(x)))


def heaviside(x, y, /):
    """0 where x < 0, y where x == 0, 1 where x > 0."""
    x, y = promote_to_inexact("heaviside", x, y)
    x = _array(x)
    step = cast(ew.gt(x, 0), typeof(x).dtype)
    return select(ew.ne(x, x), x, select(ew.eq(x, 0), ew.add(ew.mul(x, 0), y), step))


def fmax(x, y, /):
    """The larger of x and y, ignoring NaN where the other is a number."""
    x, y = promote("fmax", x, y)
    return select(ew.bitwise_or(ew.gt(x, y), ew.ne(y, y)), *_both(x, y))


def fmin(x, y, /):
    """The smaller of x and y, ignoring NaN where the other is a number."""
    x, y = promote("fmin", x, y)
    return select(ew.bitwise_or(ew.lt(x, y), ew.ne(y, y)), *_both(x, y))


def _both(x, y):
    from weft.numpy.promote import broadcast_shapes, broadcast_to_shape
    shape = broadcast_shapes(typeof(x).shape, typeof(y).shape)
    dtype = typeof(y if type(x) in PYTHON_SCALARS else x).dtype
    return [broadcast_to_shape(cast(v, dtype), shape) for v in (x, y)]


def gcd(x, y, /):
    """Greatest common divisor of integers (Euclid's algorithm in a loop)."""
    raise NotImplementedError("weft.numpy.gcd is not there yet.")


def lcm(x, y, /):
    """Least common multiple of integers."""
    raise NotImplementedError("weft.numpy.lcm is not there yet.")


def ldexp(x, n, /):
    """x * 2**n."""
    check_arraylike("ldexp", x, n)
    (x,) = promote_to_inexact("ldexp", value(x))
    x, n = promote("ldexp", x, cast(_array(n), typeof(x).dtype))
    return ew.mul(x, ew.exp2(n))


def nan_to_num(x, copy: bool = True, nan: float = 0.0, posinf=None, neginf=None):
    """`x` with NaN replaced by `nan` and infinities by the largest finite numbers (or the given ones)."""
    check_arraylike("nan_to_num", x)
    x = _array(value(x))
    if not dtypes.issubdtype(typeof(x).dtype, np.inexact):
        return x
    info = dtypes.finfo(typeof(x).dtype)
    x = select(ew.ne(x, x), ew.add(ew.mul(select(ew.ne(x, x), _zeros(x), x), 0), nan), x)
    x = select(ew.eq(x, math.inf), _filled(x, float(info.max) if posinf is None else posinf), x)
    return select(ew.eq(x, -math.inf), _filled(x, float(info.min) if neginf is None else neginf), x)


def _zeros(x):
    from weft.numpy.creation import zeros_like
    return zeros_like(x)


def _filled(x, fill):
    from weft.numpy.creation import full_like
    return full_like(x, fill)


def angle(z, deg: bool = False):
    """The argument of complex numbers, in radians (or degrees)."""
    check_arraylike("angle", z)
    z = value(z)
    if _is_complex(z):
        result = ew.atan2(ew.imag(z), ew.real(z))
    else:
        (z,) = promote_to_inexact("angle", z)
        result = select(ew.lt(z, 0), _filled(_array(z), math.pi), _zeros(_array(z)))
    return ew.mul(result, 180 / math.pi) if deg else result


def iscomplex(x, /):
    """Where the imaginary part is not zero."""
    return not_equal(imag(x), 0)


def isreal(x, /):
    """Where the imaginary part is zero."""
    return equal(imag(x), 0)


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Where |a - b| <= atol + rtol * |b|."""
    a, b = promote_to_inexact("isclose", a, b)
    a, b = _array(a), _array(b)
    near = ew.le(ew.abs(ew.sub(a, b)), ew.add(ew.mul(ew.abs(b), rtol), atol))
    finite = ew.bitwise_and(ew.is_finite(a), ew.is_finite(b)) if not _is_complex(a) else isfinite(ew.add(a, b))
    result = select(finite, near, ew.eq(a, b))
    if equal_nan:
        result = ew.bitwise_or(result, ew.bitwise_and(ew.ne(a, a), ew.ne(b, b)))
    return result
