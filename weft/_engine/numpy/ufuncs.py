"""NumPy's elementwise functions, built on `weft._engine.ops.elementwise`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.numpy import promote as promotion
from weft._engine.numpy.creation import full_like, zeros_like
from weft._engine.numpy.dtype_kinds import (
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

# ---- function factories

_OF_ONE = "The result has the shape of `x`.{} Raises TypeError unless `x` is an array or number."
_OF_TWO = (
    "Shapes broadcast, and dtypes are promoted to their common one (see `result_type`).{}\n"
    "    Raises TypeError for arguments that are not arrays or numbers, ShapeError if shapes do not broadcast."
)
_FLOATS = " Integers give floats."
#: arguments and result of examples, by name
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
    """Return `fun`, a function of one array, with an argument that may also be passed as `x=`."""

    def by_name(x):
        return fun(x)

    return named(by_name, fun.__name__, fun.__doc__ or "")


def _unary(name: str, op: Callable, text: str) -> Callable:
    """Return a function of one array."""

    def fun(x, /):
        return op(x if hasattr(type(x), "aval") else promotion.array_of(name, x))

    return _named(fun, name, text, _OF_ONE)


def _unary_inexact(name: str, op: Callable, text: str) -> Callable:
    """Return a function of one array with a floating (or complex) result."""

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
    """Return a function of two arrays that computes bools as integers."""

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


def _fill(x, fill, dtype=None):

    return full_like(x, fill, dtype=dtype)


def _count_ones(x):
    if is_bool(x):
        return promotion.cast(x, np.dtype(np.uint8))
    return promotion.cast(
        ew.population_count(x if is_unsigned(x) else ew.abs(x)), np.dtype(np.uint8)
    )


absolute = abs = _unary(
    "abs", magnitude, "Return the absolute value; the modulus of complex numbers."
)  # noqa: A001
negative = _unary("negative", ew.neg, "Return the value with opposite sign.")
positive = _unary("positive", lambda x: x, "Return the value itself.")
sign = _unary("sign", ew.sign, "Return -1, 0 or 1 by the sign of each element.")
square = _unary("square", _square, "Return the square of each element.")
conjugate = conj = _unary(
    "conjugate", lambda x: ew.conj(x) if is_complex(x) else x, "Return the complex conjugate."
)
real = _unary("real", lambda x: ew.real(x) if is_complex(x) else x, "Return the real part.")
imag = _unary(
    "imag", lambda x: ew.imag(x) if is_complex(x) else _zeros(x), "Return the imaginary part."
)
bitwise_not = bitwise_invert = invert = _unary(
    "invert", ew.bitwise_not, "Return bitwise ~x of integers; logical not of bools."
)
bitwise_count = _unary("bitwise_count", _count_ones, "Return the number of one bits of |x|.")


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


floor = _rounding(
    "floor", lambda x: ew.floor(x), "Return the largest integer not above each element."
)
ceil = _rounding(
    "ceil", lambda x: ew.ceil(x), "Return the smallest integer not below each element."
)
trunc = fix = _by_name(_rounding("trunc", _trunc, "Return the integer part of each element."))
rint = _unary(
    "rint",
    lambda x: _rint(
        x
        if dtypes.issubdtype(x.dtype, np.inexact)
        else promotion.cast(x, dtypes.default_float_dtype())
    ),
    "Return the nearest integer as a float, halves to even.",
)


# ---- one argument, floating result


def _or_if_complex(op: Callable, on_complex: Callable) -> Callable:
    return lambda x: on_complex(x) if is_complex(x) else op(x)


def _log_to(base: int) -> Callable:
    def scaled(x):
        """Compute in x's own dtype, also for a Python number: log2(2.0) gives float32."""
        return promotion.cast(ew.div(ew.log(x), math.log(base)), dtype_of(x))

    def on_complex(x):
        return ew.complex(
            scaled(ew.abs(x)), ew.div(ew.atan2(ew.imag(x), ew.real(x)), math.log(base))
        )

    return _or_if_complex(scaled, on_complex)


log2 = _unary_inexact("log2", _log_to(2), "Return the logarithm to base 2.")
log10 = _unary_inexact("log10", _log_to(10), "Return the logarithm to base 10.")
deg2rad = radians = _unary_inexact(
    "deg2rad", lambda x: ew.mul(x, math.pi / 180), "Convert degrees to radians."
)
rad2deg = degrees = _unary_inexact(
    "rad2deg", lambda x: ew.mul(x, 180 / math.pi), "Convert radians to degrees."
)
reciprocal = _unary_inexact(
    "reciprocal", lambda x: ew.integer_pow(x, -1), "Return 1 / x, always floating."
)


def _fabs(x):
    if is_complex(x):
        raise TypeError("fabs is not defined for complex numbers; use abs.")
    return ew.abs(x)


#: the power series of sinc for |x| <= 1/2, where its remainder, even after several derivatives, is
#: below the rounding error of float64
_SINC_SERIES = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(15)]


def _sinc(x):
    """Return sinc, within 1/2 of zero by a power series.

    Derivatives of the quotient would be differences of nearly equal terms there.
    """
    close = ew.lt(ew.abs(x), 0.5)
    square = ew.square(select(close, x, 0))
    near = promotion.cast(0, dtype_of(x), True)
    for coefficient in reversed(_SINC_SERIES):
        near = ew.add(ew.mul(near, square), coefficient)
    px = ew.mul(select(close, 1, x), math.pi)
    return select(close, near, ew.div(ew.sin(px), px))


def _i0(x):
    from weft._engine.numpy.bessel import bessel_i0  # few programs need it and its derivative

    check_real("i0", x)
    return bessel_i0(x)


fabs = _unary_inexact("fabs", _fabs, "Return the absolute value as a float.")
sinc = _unary_inexact("sinc", _sinc, "Return sin(pi x) / (pi x), 1 at 0.")
i0 = _by_name(_unary_inexact("i0", _i0, "Return the modified Bessel function of order 0."))


# ---- tests


def _finite_test(name: str, of_float: Callable, of_other: bool, text: str) -> Callable:
    def test(x):
        x = promotion.as_strong(x) if name.endswith("inf") else x
        if is_complex(x):
            if "pos" in name or "neg" in name:
                raise ValueError(f"{name} is not defined for complex numbers.")
            a, b = of_float(ew.real(x)), of_float(ew.imag(x))
            return ew.bitwise_and(a, b) if name == "isfinite" else ew.bitwise_or(a, b)
        return (
            of_float(x) if dtypes.issubdtype(x.dtype, np.inexact) else _fill(x, of_other, np.bool_)
        )

    return _unary(name, test, text)


isfinite = _finite_test(
    "isfinite",
    lambda x: ew.is_finite(x),
    True,
    "Return whether each element is neither infinite nor NaN.",
)
isnan = _finite_test("isnan", lambda x: ew.ne(x, x), False, "Return whether each element is NaN.")
isinf = _finite_test(
    "isinf",
    lambda x: ew.eq(ew.abs(x), math.inf),
    False,
    "Return whether each element is positive or negative infinity.",
)
_is_positive_infinity = _finite_test(
    "isposinf",
    lambda x: ew.eq(x, math.inf),
    False,
    "Return whether each element is positive infinity.",
)
_is_negative_infinity = _finite_test(
    "isneginf",
    lambda x: ew.eq(x, -math.inf),
    False,
    "Return whether each element is negative infinity.",
)


def isposinf(x, /, out=None):
    """Return whether each element is positive infinity; `out` must be None."""
    check_no_out(out, "isposinf")
    return _is_positive_infinity(x)


def isneginf(x, /, out=None):
    """Return whether each element is negative infinity; `out` must be None."""
    check_no_out(out, "isneginf")
    return _is_negative_infinity(x)


signbit = _unary_inexact(
    "signbit", lambda x: sign_bit(promotion.concrete(x)), "Return whether the sign bit is set."
)
logical_not = _unary(
    "logical_not", lambda x: ew.bitwise_not(truth(x)), "Return the logical not of x, elementwise."
)
iscomplex = _by_name(
    _unary("iscomplex", lambda x: truth(imag(x)), "Return whether the imaginary part is not zero.")
)
isreal = _by_name(
    _unary(
        "isreal",
        lambda x: ew.bitwise_not(truth(imag(x))),
        "Return whether the imaginary part is zero.",
    )
)


def _logical(name: str, op: Callable, text: str) -> Callable:
    def fun(x, y, /):
        return op(*promotion.broadcast(name, *[truth(promotion.array_of(name, v)) for v in (x, y)]))

    return _named(fun, name, text, _OF_TWO)


logical_and = _logical(
    "logical_and", ew.bitwise_and, "Return the logical and of x and y, elementwise."
)
logical_or = _logical("logical_or", ew.bitwise_or, "Return the logical or of x and y, elementwise.")
logical_xor = _logical(
    "logical_xor", ew.bitwise_xor, "Return whether exactly one of x and y is true, elementwise."
)


def _lexicographic(op: Callable) -> Callable:
    """Return a comparison that orders complex numbers by real part, then by imaginary part."""

    def compare(x, y):
        if not is_complex(x):
            return op(x, y)
        rx, ry = ew.real(x), ew.real(y)
        return select(ew.eq(rx, ry), op(ew.imag(x), ew.imag(y)), op(rx, ry))

    return compare


equal = _binary("equal", ew.eq, "Return x == y.")
not_equal = _binary("not_equal", ew.ne, "Return x != y.")
less = _binary("less", _lexicographic(ew.lt), "Return x < y.")
less_equal = _binary("less_equal", _lexicographic(ew.le), "Return x <= y.")
greater = _binary("greater", _lexicographic(ew.gt), "Return x > y.")
greater_equal = _binary("greater_equal", _lexicographic(ew.ge), "Return x >= y.")


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Return whether |a - b| <= atol + rtol * |b|; random keys are compared for equality."""
    if all(dtypes.is_extended(getattr(x, "dtype", np.dtype(bool))) for x in (a, b)):
        return equal(a, b)
    a, b = map(promotion.as_strong, promotion.promote_to_inexact("isclose", a, b))
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


add = _binary("add", _or_on_bools(ew.add, ew.bitwise_or), "Return x + y.")
subtract = _binary("subtract", ew.sub, "Return x - y.")
multiply = _binary("multiply", _or_on_bools(ew.mul, ew.bitwise_and), "Return x * y.")
true_divide = divide = _binary_inexact("true_divide", ew.div, "Return x / y, always floating.")
maximum = _binary(
    "maximum", _extremum(ew.max, ew.gt), "Return the larger of x and y; NaN propagates."
)
minimum = _binary(
    "minimum", _extremum(ew.min, ew.lt), "Return the smaller of x and y; NaN propagates."
)
nextafter = _binary_inexact(
    "nextafter", lambda x, y: ew.nextafter(x, y), "Return the next number after x toward y."
)
bitwise_and = _bitwise(
    "bitwise_and", ew.bitwise_and, "Return bitwise x & y of integers; logical and of bools."
)
bitwise_or = _bitwise(
    "bitwise_or", ew.bitwise_or, "Return bitwise x | y of integers; logical or of bools."
)
bitwise_xor = _bitwise(
    "bitwise_xor",
    ew.bitwise_xor,
    "Return bitwise x ^ y of integers; logical exclusive or of bools.",
)


def _shift(op: Callable) -> Callable:
    return lambda x, y: (
        op(x, y) if not is_bool(x) else op(*[promotion.cast(v, np.dtype(np.int32)) for v in (x, y)])
    )


left_shift = bitwise_left_shift = _bitwise("left_shift", _shift(ew.shift_left), "Return x << y.")
right_shift = bitwise_right_shift = _bitwise(
    "right_shift",
    _shift(
        lambda x, y: (
            ew.shift_right_logical(x, y) if is_unsigned(x) else ew.shift_right_arithmetic(x, y)
        )
    ),
    "Return x >> y, keeping the sign.",
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
    """Return the remainder with the sign of x; for integers by zero it is zero, as in NumPy."""
    return ew.rem(x, y) if not is_int(x) else select(ew.eq(y, 0), 0, ew.rem(x, y))


def _fmod(x, y):
    """Return `_rem`; for bools, division by zero returns the dividend, as in JAX."""
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
    "floor_divide", _floor_divide, "Return the largest integer not above x / y."
)
remainder = mod = _binary_numeric(
    "remainder", _mod, "Return x - floor(x / y) * y: the remainder with the sign of y."
)
fmod = _binary("fmod", _fmod, "Return the remainder with the sign of x; bools give int32.")


def divmod(x, y, /):  # noqa: A001
    """Return `(floor_divide(x, y), remainder(x, y))`."""
    return floor_divide(x, y), remainder(x, y)


def modf(x, /, out=None):
    """Return the fractional and integral part of each element."""
    check_no_out(out, "modf")
    x = promotion.inexact("modf", x)
    whole = trunc(x)
    return select(ew.eq(ew.abs(x), math.inf), 0, ew.sub(x, whole)), whole


def power(x, y, /):
    """Return x to the power y.

    With a static integer y the result has the dtype of x and is computed by repeated squaring.

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
    """Return the static integer value of `y`, or None.

    It may be a Python or NumPy integer, or an array of one that is not a tracer.
    """
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
    """Return x to the power y in floating point."""
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


logaddexp2 = _binary_inexact(
    "logaddexp2", _logaddexp2, "Return log2(2**x + 2**y) without overflow."
)
hypot = _binary_inexact("hypot", _hypot, "Return sqrt(x**2 + y**2) without overflow.")
copysign = _binary_inexact("copysign", _copysign, "Return |x| with the sign of y.")
heaviside = _binary_inexact(
    "heaviside", _heaviside, "Return 0 where x < 0, y where x == 0, 1 where x > 0."
)


def fmax(x1, x2):
    """Return the larger of `x1` and `x2`, ignoring NaN where the other is a number."""
    x, y = promotion.promote("fmax", x1, x2)
    return select(ew.bitwise_or(_lexicographic(ew.gt)(x, y), ew.ne(y, y)), x, y)


def fmin(x1, x2):
    """Return the smaller of `x1` and `x2`, ignoring NaN where the other is a number."""
    x, y = promotion.promote("fmin", x1, x2)
    return select(ew.bitwise_or(_lexicographic(ew.lt)(x, y), ew.ne(y, y)), x, y)


# ---- the functions of `ops.functions`


def _complex_arctan2(x, y):
    turned = ew.add(y, ew.mul(x, 1j))  # -i log((y + ix) / sqrt(x^2 + y^2))
    return ew.mul(ew.log(ew.div(turned, ew.sqrt(ew.add(ew.square(x), ew.square(y))))), -1j)


def _complex_logaddexp(x, y):
    from weft._engine.ops.complex_functions import logaddexp

    return logaddexp(x, y)


#: complex versions of functions whose native version is real only
_OF_COMPLEX = {"atan2": _complex_arctan2, "logaddexp": _complex_logaddexp}


def __getattr__(name: str) -> Callable:
    """Return the function of `ops.functions` that NumPy calls `name`."""
    function = functions.named_by_numpy(name)
    if function is None or function.op is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    op, of_complex = function.op, _OF_COMPLEX.get(function.name)
    chosen = (
        op if of_complex is None else lambda *xs: (of_complex if is_complex(xs[0]) else op)(*xs)
    )
    make = _unary_inexact if function.arity == 1 else _binary_inexact
    public = make(function.numpy[0], chosen, (op.__doc__ or "").partition("\n")[0])
    globals().update(dict.fromkeys(function.numpy, public))
    return public


def angle(z, deg: bool = False):
    """Return the argument of complex numbers, in radians (or degrees)."""
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
