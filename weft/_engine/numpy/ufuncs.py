"""NumPy's elementwise functions, written from the operations of `weft._engine.ops.elementwise`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.numpy import promote as promotion
from weft._engine.numpy.creation import full_like, zeros_like
from weft._engine.numpy.kinds import (
    check_no_out,
    check_real,
    dtype_of,
    is_bool,
    is_complex,
    is_int,
    is_unsigned,
    magnitude,
    sign_bit,
    truth,
)
from weft._engine.ops import elementwise as ew, functions
from weft._engine.ops.comparison import select
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.source import named

# ---- makers of functions

_OF_ONE = "The result has the shape of `x`.{} Raises TypeError for what is not an array or number."
_OF_TWO = (
    "Shapes broadcast, and dtypes are promoted to their common one (see `result_type`).{}\n"
    "    Raises TypeError for what is not an array or number, ShapeError if shapes do not broadcast."
)
_FLOATS = " Integers give floats."
#: name -> arguments, result
_EXAMPLES = {
    "abs": ("-2.5", "Array(2.5, dtype=float32, weak_type=True)"),
    "add": ("wnp.arange(3), 0.5", "Array([0.5, 1.5, 2.5], dtype=float32, weak_type=True)"),
    "conjugate": ("1 + 2j", "Array(1.-2.j, dtype=complex64, weak_type=True)"),
    "cos": ("wnp.array([0.0, 0.5])", "Array([1.        , 0.87758255], dtype=float32)"),
    "exp": ("wnp.arange(3)", "Array([1.       , 2.7182817, 7.389056 ], dtype=float32)"),
    "real": ("1 + 2j", "Array(1., dtype=float32, weak_type=True)"),
    "sin": ("wnp.array([0.0, 0.5])", "Array([0.        , 0.47942555], dtype=float32)"),
    "sqrt": ("wnp.array([4, 9])", "Array([2., 3.], dtype=float32)"),
    "tanh": ("0.5", "Array(0.46211717, dtype=float32, weak_type=True)"),
}


def _named(fun: Callable, name: str, text: str, rule: str, dtypes_: str = "") -> Callable:
    example = (
        "\n\n    >>> wnp.{}({})\n    {}".format(name, *_EXAMPLES[name]) if name in _EXAMPLES else ""
    )
    return named(fun, name, f"{text}\n\n    {rule.format(dtypes_)}{example}")


def _by_name(fun: Callable) -> Callable:
    """The function of one array `fun`, which takes its argument also as `x=`."""

    def by_name(x):
        return fun(x)

    return named(by_name, fun.__name__, fun.__doc__ or "")


def _unary(name: str, op: Callable, text: str) -> Callable:
    """A function of one array."""

    def fun(x, /):
        return op(x if hasattr(type(x), "aval") else promotion.array_of(name, x))

    return _named(fun, name, text, _OF_ONE)


def _unary_inexact(name: str, op: Callable, text: str) -> Callable:
    """A function of one array with a floating (or complex) result."""

    def fun(x, /):
        return op(promotion.inexact(name, x))

    return _named(fun, name, text, _OF_ONE, _FLOATS)


def _binary(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        return op(*promotion.promote(name, x, y))

    return _named(fun, name, text, _OF_TWO)


def _binary_inexact(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        return op(*promotion.promote_to_inexact(name, x, y))

    return _named(fun, name, text, _OF_TWO, _FLOATS)


def _binary_numeric(name: str, op: Callable, text: str) -> Callable:
    """A function of two arrays that computes with bools as integers."""

    def fun(x, y, /):
        x, y = promotion.promote(name, x, y)
        if is_bool(x):
            x, y = [promotion.cast(v, np.dtype(np.int32)) for v in (x, y)]
        return op(x, y)

    return _named(fun, name, text, _OF_TWO)


def _bitwise(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        x, y = promotion.promote(name, x, y)
        if not (is_int(x) or is_bool(x)):
            raise TypeError(f"{name} takes integers or bools, got {dtype_of(x).name}.")
        return op(x, y)

    return _named(fun, name, text, _OF_TWO)


def _or_on_bools(op: Callable, on_bools: Callable) -> Callable:
    return lambda x, y: on_bools(x, y) if is_bool(x) else op(x, y)


# ---- one argument, any kind


def _square(x):
    return ew.square(promotion.cast(x, np.dtype(np.int32)) if is_bool(x) else x)


def _zeros(x):

    return zeros_like(x)


def _filled(x, fill, dtype=None):

    return full_like(x, fill, dtype=dtype)


def _count_ones(x):
    if is_bool(x):
        return promotion.cast(x, np.dtype(np.uint8))
    return promotion.cast(
        ew.population_count(x if is_unsigned(x) else ew.abs(x)), np.dtype(np.uint8)
    )


absolute = abs = _unary("abs", magnitude, "Absolute value; the modulus of complex numbers.")  # noqa: A001
negative = _unary("negative", ew.neg, "The value with opposite sign.")
positive = _unary("positive", lambda x: x, "The value itself.")
sign = _unary("sign", ew.sign, "-1, 0 or 1 by the sign of each element.")
square = _unary("square", _square, "The square of each element.")
conjugate = conj = _unary(
    "conjugate", lambda x: ew.conj(x) if is_complex(x) else x, "Complex conjugate."
)
real = _unary("real", lambda x: ew.real(x) if is_complex(x) else x, "Real part.")
imag = _unary("imag", lambda x: ew.imag(x) if is_complex(x) else _zeros(x), "Imaginary part.")
bitwise_not = bitwise_invert = invert = _unary(
    "invert", ew.bitwise_not, "Bitwise ~x of integers; logical of bools."
)
bitwise_count = _unary("bitwise_count", _count_ones, "Number of one bits of |x|.")


def _rounding(name: str, op: Callable, text: str) -> Callable:
    return _unary(name, lambda x: x if is_int(x) or is_bool(x) else op(x), text)


def _trunc(x):
    if is_complex(x):
        raise TypeError("trunc is not defined for complex numbers.")
    return select(ew.lt(x, 0), ew.ceil(x), ew.floor(x))


def _rint(x):
    if is_complex(x):
        return ew.complex(_rint(ew.real(x)), _rint(ew.imag(x)))
    return ew.round(x, ew.RoundingMethod.TO_NEAREST_EVEN)


floor = _rounding("floor", lambda x: ew.floor(x), "The largest integer not above each element.")
ceil = _rounding("ceil", lambda x: ew.ceil(x), "The smallest integer not below each element.")
trunc = fix = _by_name(_rounding("trunc", _trunc, "The integer part of each element."))
rint = _unary(
    "rint",
    lambda x: _rint(
        x
        if dtypes.issubdtype(x.dtype, np.inexact)
        else promotion.cast(x, dtypes.default_float_dtype())
    ),
    "The nearest integer as a float, halves to even.",
)


# ---- one argument, floating result


def _or_if_complex(op: Callable, on_complex: Callable) -> Callable:
    return lambda x: on_complex(x) if is_complex(x) else op(x)


def _log_to(base: int) -> Callable:
    def scaled(x):
        """The type is its own, also of a Python number: log2(2.0) beside bfloat16 gives float32."""
        return promotion.cast(ew.div(ew.log(x), math.log(base)), dtype_of(x))

    def on_complex(x):
        return ew.complex(
            scaled(ew.abs(x)), ew.div(ew.atan2(ew.imag(x), ew.real(x)), math.log(base))
        )

    return _or_if_complex(scaled, on_complex)


log2 = _unary_inexact("log2", _log_to(2), "Logarithm to base 2.")
log10 = _unary_inexact("log10", _log_to(10), "Logarithm to base 10.")
deg2rad = radians = _unary_inexact(
    "deg2rad", lambda x: ew.mul(x, math.pi / 180), "Degrees to radians."
)
rad2deg = degrees = _unary_inexact(
    "rad2deg", lambda x: ew.mul(x, 180 / math.pi), "Radians to degrees."
)
reciprocal = _unary_inexact(
    "reciprocal", lambda x: ew.integer_pow(x, -1), "1 / x, always floating."
)


def _fabs(x):
    if is_complex(x):
        raise TypeError("fabs is not defined for complex numbers; use abs.")
    return ew.abs(x)


#: the power series of sinc up to |x| = 1/2, where its remainder, also after several derivatives, is below the rounding of float64
_SINC_SERIES = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(15)]


def _sinc(x):
    """Within 1/2 of zero by a power series: the derivatives of the quotient are differences of nearly equal terms there."""
    close = ew.lt(ew.abs(x), 0.5)
    square = ew.square(select(close, x, 0))
    near = promotion.cast(0, dtype_of(x), True)
    for coefficient in reversed(_SINC_SERIES):
        near = ew.add(ew.mul(near, square), coefficient)
    px = ew.mul(select(close, 1, x), math.pi)
    return select(close, near, ew.div(ew.sin(px), px))


def _i0(x):
    from weft._engine.numpy.bessel import bessel_i0  # with its derivative, which few programs need

    check_real("i0", x)
    return bessel_i0(x)


fabs = _unary_inexact("fabs", _fabs, "Absolute value as a float.")
sinc = _unary_inexact("sinc", _sinc, "sin(pi x) / (pi x), 1 at 0.")
i0 = _by_name(_unary_inexact("i0", _i0, "Modified Bessel function of order 0."))


# ---- tests


def _finite_test(name: str, of_float: Callable, of_other: bool, text: str) -> Callable:
    def test(x):
        x = promotion.kept(x) if name.endswith("inf") else x
        if is_complex(x):
            if "pos" in name or "neg" in name:
                raise ValueError(f"{name} is not defined for complex numbers.")
            a, b = of_float(ew.real(x)), of_float(ew.imag(x))
            return ew.bitwise_and(a, b) if name == "isfinite" else ew.bitwise_or(a, b)
        return (
            of_float(x)
            if dtypes.issubdtype(x.dtype, np.inexact)
            else _filled(x, of_other, np.bool_)
        )

    return _unary(name, test, text)


isfinite = _finite_test("isfinite", lambda x: ew.is_finite(x), True, "Neither infinite nor NaN.")
isnan = _finite_test("isnan", lambda x: ew.ne(x, x), False, "Not a number.")
isinf = _finite_test(
    "isinf", lambda x: ew.eq(ew.abs(x), math.inf), False, "Positive or negative infinity."
)
_is_positive_infinity = _finite_test(
    "isposinf", lambda x: ew.eq(x, math.inf), False, "Positive infinity."
)
_is_negative_infinity = _finite_test(
    "isneginf", lambda x: ew.eq(x, -math.inf), False, "Negative infinity."
)


def isposinf(x, /, out=None):
    """Whether each element is positive infinity; `out` must be None."""
    check_no_out(out, "isposinf")
    return _is_positive_infinity(x)


def isneginf(x, /, out=None):
    """Whether each element is negative infinity; `out` must be None."""
    check_no_out(out, "isneginf")
    return _is_negative_infinity(x)


signbit = _unary_inexact(
    "signbit", lambda x: sign_bit(promotion.concrete(x)), "Whether the sign bit is set."
)
logical_not = _unary("logical_not", lambda x: ew.bitwise_not(truth(x)), "not x, elementwise.")
iscomplex = _by_name(
    _unary("iscomplex", lambda x: truth(imag(x)), "Where the imaginary part is not zero.")
)
isreal = _by_name(
    _unary("isreal", lambda x: ew.bitwise_not(truth(imag(x))), "Where the imaginary part is zero.")
)


def _logical(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        return op(*promotion.broadcast(name, *[truth(promotion.array_of(name, v)) for v in (x, y)]))

    return _named(fun, name, text, _OF_TWO)


logical_and = _logical("logical_and", ew.bitwise_and, "x and y, elementwise.")
logical_or = _logical("logical_or", ew.bitwise_or, "x or y, elementwise.")
logical_xor = _logical("logical_xor", ew.bitwise_xor, "Exactly one of x and y, elementwise.")


def _lexicographic(op: Callable) -> Callable:
    """Complex numbers are ordered by real part, then by imaginary part."""

    def compare(x, y):
        if not is_complex(x):
            return op(x, y)
        rx, ry = ew.real(x), ew.real(y)
        return select(ew.eq(rx, ry), op(ew.imag(x), ew.imag(y)), op(rx, ry))

    return compare


equal = _binary("equal", ew.eq, "x == y.")
not_equal = _binary("not_equal", ew.ne, "x != y.")
less = _binary("less", _lexicographic(ew.lt), "x < y.")
less_equal = _binary("less_equal", _lexicographic(ew.le), "x <= y.")
greater = _binary("greater", _lexicographic(ew.gt), "x > y.")
greater_equal = _binary("greater_equal", _lexicographic(ew.ge), "x >= y.")


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Where |a - b| <= atol + rtol * |b|; where they are equal, of random keys."""
    if all(dtypes.is_extended(getattr(x, "dtype", np.dtype(bool))) for x in (a, b)):
        return equal(a, b)
    a, b = map(promotion.kept, promotion.promote_to_inexact("isclose", a, b))
    near = ew.le(ew.abs(ew.sub(a, b)), ew.add(ew.mul(ew.abs(b), rtol), atol))
    finite = promotion.broadcast("isclose", isfinite(a), isfinite(b))
    result = select(ew.bitwise_and(*finite), near, ew.eq(a, b))
    if equal_nan:
        result = ew.bitwise_or(result, ew.bitwise_and(ew.ne(a, a), ew.ne(b, b)))
    return result


# ---- two arguments


def _extremum(op: Callable, wins: Callable) -> Callable:
    def choose(x, y):
        return select(_lexicographic(wins)(x, y), x, y) if is_complex(x) else op(x, y)

    return choose


add = _binary("add", _or_on_bools(ew.add, ew.bitwise_or), "x + y.")
subtract = _binary("subtract", ew.sub, "x - y.")
multiply = _binary("multiply", _or_on_bools(ew.mul, ew.bitwise_and), "x * y.")
true_divide = divide = _binary_inexact("true_divide", ew.div, "x / y, always floating.")
maximum = _binary("maximum", _extremum(ew.max, ew.gt), "The larger of x and y; NaN wins.")
minimum = _binary("minimum", _extremum(ew.min, ew.lt), "The smaller of x and y; NaN wins.")
nextafter = _binary_inexact(
    "nextafter", lambda x, y: ew.nextafter(x, y), "The next number after x toward y."
)
bitwise_and = _bitwise(
    "bitwise_and", ew.bitwise_and, "Bitwise x & y of integers; logical of bools."
)
bitwise_or = _bitwise("bitwise_or", ew.bitwise_or, "Bitwise x | y of integers; logical of bools.")
bitwise_xor = _bitwise(
    "bitwise_xor", ew.bitwise_xor, "Bitwise x ^ y of integers; logical of bools."
)


def _shift(op: Callable) -> Callable:
    return lambda x, y: (
        op(x, y) if not is_bool(x) else op(*[promotion.cast(v, np.dtype(np.int32)) for v in (x, y)])
    )


left_shift = bitwise_left_shift = _bitwise("left_shift", _shift(ew.shift_left), "x << y.")
right_shift = bitwise_right_shift = _bitwise(
    "right_shift",
    _shift(
        lambda x, y: (
            ew.shift_right_logical(x, y) if is_unsigned(x) else ew.shift_right_arithmetic(x, y)
        )
    ),
    "x >> y, keeping the sign.",
)


def _floor_divide(x, y):
    if is_int(x):
        quotient = ew.div(x, y)
        if is_unsigned(x):
            return quotient
        inexact_ = ew.bitwise_and(ew.ne(ew.sign(x), ew.sign(y)), ew.ne(ew.rem(x, y), 0))
        return select(inexact_, ew.sub(quotient, 1), quotient)
    if is_complex(x):
        raise TypeError("floor_divide is not defined for complex numbers.")
    # x - rem(x, y) is a multiple of y up to rounding, which the last step removes
    r = ew.rem(x, y)
    quotient = ew.div(ew.sub(x, r), y)
    below = ew.bitwise_and(ew.ne(r, 0), ew.ne(ew.sign(r), ew.sign(y)))
    quotient = ew.round(
        select(below, ew.sub(quotient, 1), quotient), ew.RoundingMethod.TO_NEAREST_EVEN
    )
    return select(ew.eq(y, 0), ew.div(x, y), quotient)


def _rem(x, y):
    """The remainder with the sign of x; of integers by zero it is zero, as NumPy has it."""
    return ew.rem(x, y) if not is_int(x) else select(ew.eq(y, 0), 0, ew.rem(x, y))


def _fmod(x, y):
    """`_rem`; but of bools what is divided by zero is left as it is, as JAX has it."""
    return (
        ew.rem(*[promotion.cast(v, np.dtype(np.int32)) for v in (x, y)])
        if is_bool(x)
        else _rem(x, y)
    )


def _mod(x, y):
    r = _rem(x, y)
    if is_unsigned(r):
        return r
    wrong = ew.bitwise_and(ew.ne(r, 0), ew.ne(ew.lt(r, 0), ew.lt(y, 0)))
    return select(wrong, ew.add(r, y), r)


floor_divide = _binary_numeric(
    "floor_divide", _floor_divide, "The largest integer not above x / y."
)
remainder = mod = _binary_numeric(
    "remainder", _mod, "x - floor(x / y) * y: the remainder with the sign of y."
)
fmod = _binary("fmod", _fmod, "The remainder with the sign of x, as int32 of bools.")


def divmod(x, y, /):  # noqa: A001
    """`(floor_divide(x, y), remainder(x, y))`."""
    return floor_divide(x, y), remainder(x, y)


def modf(x, /, out=None):
    """Fractional and integral part of each element."""
    check_no_out(out, "modf")
    x = promotion.inexact("modf", x)
    whole = trunc(x)
    return select(ew.eq(ew.abs(x), math.inf), 0, ew.sub(x, whole)), whole


def power(x, y, /):
    """x to the y. With an integer y that is known while a program is traced the result has the dtype of x, and is computed by repeated
    squaring.

    >>> wnp.power(wnp.arange(4.), 2)
    Array([0., 1., 4., 9.], dtype=float32)
    """
    exponent = constant_int(y)
    if exponent is not None:
        x = promotion.array_of("power", x)
        if is_bool(x):
            x = promotion.cast(x, np.dtype(np.int32))
        if exponent < 0 and is_int(x):
            raise TypeError(
                f"power: integers cannot be raised to negative powers, got {typeof(x).str_short()} to the {exponent}. "
                "Cast to a floating dtype first."
            )
        return ew.integer_pow(x, exponent)
    promotion.check_arraylike("power", x, y)
    by_integers = (is_int(y) or (is_bool(y) and is_int(x))) and not typeof(y).weak_type
    x, y = promotion.promote("power", x, y)
    if by_integers and typeof(x).weak_type:
        x = promotion.cast(x, dtype_of(x))
    if is_bool(x):
        x, y = [promotion.cast(v, np.dtype(np.int32)) for v in (x, y)]
    if not is_int(x):
        return ew.pow(x, y)
    from weft._engine.numpy.integers import int_power

    return int_power(x, y)


def constant_int(y) -> int | None:
    """The integer that `y` is known to be while a program is traced, or None: a Python or NumPy integer, or an array of one that is
    no tracer."""
    if type(y) is int or type(y) is bool:
        return int(y)
    if type(y) is Array:
        return int(y) if y.ndim == 0 and is_int(y) and y.is_fully_addressable else None
    if (
        isinstance(y, (np.integer, np.ndarray))
        and y.ndim == 0
        and dtypes.is_native_integer(y.dtype)
    ):
        return int(y)
    return None


pow = power  # noqa: A001


def float_power(x, y, /):
    """x to the y in floating point."""
    return ew.pow(*promotion.promote_to_inexact("float_power", x, y))


def _logaddexp2(x, y):
    op = _complex_logaddexp if is_complex(x) else ew.logaddexp
    return ew.div(op(ew.mul(x, math.log(2)), ew.mul(y, math.log(2))), math.log(2))


def _hypot(x, y):
    check_real("hypot", x)
    x, y = ew.abs(x), ew.abs(y)
    high, low = ew.max(x, y), ew.min(x, y)
    zero = ew.eq(high, 0)
    ratio = ew.div(low, select(zero, 1, high))
    result = ew.mul(high, ew.sqrt(ew.add(ew.square(ratio), 1)))
    return select(ew.bitwise_or(ew.eq(x, math.inf), ew.eq(y, math.inf)), math.inf, result)


def _copysign(x, y):
    if is_complex(x):
        raise TypeError("copysign is not defined for complex numbers.")
    size = ew.abs(x)
    return select(sign_bit(promotion.concrete(y)), ew.neg(size), size)


def _heaviside(x, y):
    check_real("heaviside", x)
    step = promotion.cast(ew.gt(x, 0), dtype_of(x), typeof(x).weak_type)
    return select(ew.ne(x, x), x, select(ew.eq(x, 0), y, step))


logaddexp2 = _binary_inexact("logaddexp2", _logaddexp2, "log2(2**x + 2**y) without overflow.")
hypot = _binary_inexact("hypot", _hypot, "sqrt(x**2 + y**2) without overflow.")
copysign = _binary_inexact("copysign", _copysign, "|x| with the sign of y.")
heaviside = _binary_inexact(
    "heaviside", _heaviside, "0 where x < 0, y where x == 0, 1 where x > 0."
)


def fmax(x1, x2):
    """The larger of `x1` and `x2`, ignoring NaN where the other is a number."""
    x, y = promotion.promote("fmax", x1, x2)
    return select(ew.bitwise_or(_lexicographic(ew.gt)(x, y), ew.ne(y, y)), x, y)


def fmin(x1, x2):
    """The smaller of `x1` and `x2`, ignoring NaN where the other is a number."""
    x, y = promotion.promote("fmin", x1, x2)
    return select(ew.bitwise_or(_lexicographic(ew.lt)(x, y), ew.ne(y, y)), x, y)


# ---- the functions of `ops.functions`


def _complex_arctan2(x, y):
    turned = ew.add(y, ew.mul(x, 1j))  # -i log((y + ix) / sqrt(x^2 + y^2))
    return ew.mul(ew.log(ew.div(turned, ew.sqrt(ew.add(ew.square(x), ew.square(y))))), -1j)


def _complex_logaddexp(x, y):
    from weft._engine.ops.complex_functions import logaddexp

    return logaddexp(x, y)


#: of complex numbers, what is native of real ones alone
_OF_COMPLEX = {"atan2": _complex_arctan2, "logaddexp": _complex_logaddexp}


def __getattr__(name: str) -> Callable:
    """The function that NumPy calls `name`, of those that `ops.functions` states."""
    function = functions.named_by_numpy(name)
    if function is None or function.op is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    op, of_complex = function.op, _OF_COMPLEX.get(function.name)
    chosen = (
        op if of_complex is None else lambda *xs: (of_complex if is_complex(xs[0]) else op)(*xs)
    )
    make = _unary_inexact if function.arity == 1 else _binary_inexact
    made = make(function.numpy[0], chosen, (op.__doc__ or "").partition("\n")[0])
    globals().update(dict.fromkeys(function.numpy, made))
    return made


def angle(z, deg: bool = False):
    """The argument of complex numbers, in radians (or degrees)."""
    z = promotion.array_of("angle", z)
    kind = dtype_of(z)
    if not dtypes.issubdtype(kind, np.inexact):
        z = promotion.cast(z, dtypes.default_float_dtype())
    dtype = dtypes.to_real_dtype(dtype_of(z))
    result = (
        ew.atan2(ew.imag(z), ew.real(z))
        if is_complex(z)
        else ew.atan2(dtype.type(0), promotion.cast(promotion.concrete(z), dtype))
    )
    return ew.mul(result, 180 / math.pi) if deg else result
