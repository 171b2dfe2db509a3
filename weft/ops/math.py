"""Elementary functions of floats: powers, exponentials, trigonometry. Next: `special`, the functions made of these.

All are elementwise on floating dtypes, most on complex ones too; 16-bit and smaller floats compute in float32.
"""

from __future__ import annotations

import math

import numpy as np

from weft.core.trace import typeof
from weft.ir.types import ShapedArray
from weft.ops import families
from weft.ops.arithmetic import add, div, mul, neg, square, sub
from weft.ops.bitwise import bitwise_and
from weft.ops.casting import convert_element_type
from weft.ops.comparison import eq, ne, select
from weft.ops.families import FLOATING, INEXACT, INTEGER, dtype_in, elementwise, match_dtypes

# --- roots and powers -------------------------------------------------------------------------------------------------

sqrt_p = elementwise("sqrt", INEXACT, np.sqrt, jvp=[lambda t, out, x: mul(t, div(0.5, out))])
rsqrt_p = elementwise("rsqrt", INEXACT, lambda x: np.divide(np.ones((), x.dtype), np.sqrt(x)),
                      jvp=[lambda t, out, x: mul(t, mul(-0.5, div(out, x)))])
cbrt_p = elementwise("cbrt", FLOATING, np.cbrt, jvp=[lambda t, out, x: mul(t, div(div(1 / 3, out), out))])


def sqrt(x):
    """The square root of `x`.

    >>> import numpy as np
    >>> np.asarray(sqrt(np.array([4.0, 9.0]))).tolist()
    [2.0, 3.0]
    """
    return sqrt_p.bind(x)


def rsqrt(x):
    """`1 / sqrt(x)`."""
    return rsqrt_p.bind(x)


def cbrt(x):
    """The cube root of `x`, of the sign of `x`."""
    return cbrt_p.bind(x)


def _pow_type(x: ShapedArray, y: ShapedArray) -> ShapedArray:
    families.check_dtype("pow", x, INEXACT, 0)
    if not dtype_in(y.dtype, INTEGER):
        families.same_dtypes("pow", (x, y))
    return ShapedArray(families.broadcast_shapes("pow", (x, y)), x.dtype, x.weak_type and y.weak_type, None,
                       families.joined_vma((x, y)))


def _pow_emit(b, x, y):
    return b.op("pow", x, y if y.type == x.type else b.cast(y, x.type))


def _pow_jvp_base(t, out, x, y):
    # y x^(y-1), which is 0 where y is, whatever x
    lower = select(eq(y, 0), 1, sub(y, 1))
    factor = convert_element_type(y, typeof(x).dtype)
    return mul(t, mul(factor, pow(x, lower)))


def _pow_jvp_exponent(t, out, x, y):
    # out log(x), with 0 for the limit at x = 0
    return mul(t, mul(log(select(eq(x, 0), 1, x)), out))


pow_p = elementwise("pow", INEXACT, lambda x, y: np.power(x, y.astype(x.dtype)), type_rule=_pow_type, emit=_pow_emit,
                    jvp=[_pow_jvp_base, _pow_jvp_exponent])


def pow(x, y):
    """`x` to the power `y`, elementwise; `y` has the dtype of `x` or is an integer.

    >>> import numpy as np
    >>> np.asarray(pow(np.array([2.0, 3.0]), 2.0)).tolist()
    [4.0, 9.0]
    """
    return pow_p.bind(*match_dtypes(x, y))


# --- exponentials and logarithms --------------------------------------------------------------------------------------


def _logistic_reference(x):
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))           # never overflows
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


exp_p = elementwise("exp", INEXACT, np.exp, jvp=[lambda t, out, x: mul(t, out)])
exp2_p = elementwise("exp2", INEXACT, np.exp2, jvp=[lambda t, out, x: mul(mul(t, math.log(2)), out)])
expm1_p = elementwise("expm1", INEXACT, np.expm1, jvp=[lambda t, out, x: mul(t, add(out, 1))])
log_p = elementwise("log", INEXACT, np.log, jvp=[lambda t, out, x: div(t, x)])
log1p_p = elementwise("log1p", INEXACT, np.log1p, jvp=[lambda t, out, x: div(t, add(x, 1))])
logistic_p = elementwise("logistic", INEXACT, _logistic_reference,
                         jvp=[lambda t, out, x: mul(t, mul(out, sub(1, out)))])


def _share_of_first(x, y):
    gap = sub(x, y)
    equal_infinities = bitwise_and(eq(x, y), ne(gap, gap))
    return logistic(select(equal_infinities, 0, gap))


logaddexp_p = elementwise("logaddexp", FLOATING, np.logaddexp,
                          jvp=[lambda t, out, x, y: mul(t, _share_of_first(x, y)), lambda t, out, x, y: mul(t, _share_of_first(y, x))])


def exp(x):
    """e to the power `x`."""
    return exp_p.bind(x)


def exp2(x):
    """2 to the power `x`."""
    return exp2_p.bind(x)


def expm1(x):
    """`exp(x) - 1`, accurate near 0."""
    return expm1_p.bind(x)


def log(x):
    """The natural logarithm of `x`."""
    return log_p.bind(x)


def log1p(x):
    """`log(1 + x)`, accurate near 0."""
    return log1p_p.bind(x)


def logistic(x):
    """`1 / (1 + exp(-x))`, stable at both ends.

    >>> import numpy as np
    >>> np.asarray(logistic(np.array([-1000.0, 0.0, 1000.0]))).tolist()
    [0.0, 0.5, 1.0]
    """
    return logistic_p.bind(x)


def logaddexp(x, y):
    """`log(exp(x) + exp(y))`, without overflow; -inf is neutral.

    >>> import numpy as np
    >>> np.asarray(logaddexp(np.array([0.0, 1000.0]), 0.0), np.float64).round(4).tolist()
    [0.6931, 1000.0]
    """
    return logaddexp_p.bind(*match_dtypes(x, y))


# --- trigonometry -----------------------------------------------------------------------------------------------------

sin_p = elementwise("sin", INEXACT, np.sin, jvp=[lambda t, out, x: mul(t, cos(x))])
cos_p = elementwise("cos", INEXACT, np.cos, jvp=[lambda t, out, x: neg(mul(t, sin(x)))])
tan_p = elementwise("tan", INEXACT, np.tan, jvp=[lambda t, out, x: mul(t, add(1, square(out)))])
asin_p = elementwise("asin", INEXACT, np.arcsin, jvp=[lambda t, out, x: mul(t, rsqrt(sub(1, square(x))))])
acos_p = elementwise("acos", INEXACT, np.arccos, jvp=[lambda t, out, x: neg(mul(t, rsqrt(sub(1, square(x)))))])
atan_p = elementwise("atan", INEXACT, np.arctan, jvp=[lambda t, out, x: div(t, add(1, square(x)))])
sinh_p = elementwise("sinh", INEXACT, np.sinh, jvp=[lambda t, out, x: mul(t, cosh(x))])
cosh_p = elementwise("cosh", INEXACT, np.cosh, jvp=[lambda t, out, x: mul(t, sinh(x))])
tanh_p = elementwise("tanh", INEXACT, np.tanh, jvp=[lambda t, out, x: mul(t, sub(1, square(out)))])
asinh_p = elementwise("asinh", INEXACT, np.arcsinh, jvp=[lambda t, out, x: mul(t, rsqrt(add(square(x), 1)))])
acosh_p = elementwise("acosh", INEXACT, np.arccosh,
                      jvp=[lambda t, out, x: mul(t, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1))))])
atanh_p = elementwise("atanh", INEXACT, np.arctanh, jvp=[lambda t, out, x: div(t, sub(1, square(x)))])
atan2_p = elementwise("atan2", FLOATING, np.arctan2,
                      jvp=[lambda t, out, x, y: mul(t, div(y, add(square(x), square(y)))),
                           lambda t, out, x, y: mul(t, div(neg(x), add(square(x), square(y))))])


def sin(x):
    """The sine of `x` in radians.

    >>> import numpy as np
    >>> float(sin(np.float32(0.0)))
    0.0
    """
    return sin_p.bind(x)


def cos(x):
    """The cosine of `x` in radians."""
    return cos_p.bind(x)


def tan(x):
    """The tangent of `x` in radians."""
    return tan_p.bind(x)


def asin(x):
    """The angle between -pi/2 and pi/2 whose sine is `x`."""
    return asin_p.bind(x)


def acos(x):
    """The angle between 0 and pi whose cosine is `x`."""
    return acos_p.bind(x)


def atan(x):
    """The angle between -pi/2 and pi/2 whose tangent is `x`."""
    return atan_p.bind(x)


def atan2(x, y):
    """The angle of the point (y, x): of `x / y`, in the right quadrant."""
    return atan2_p.bind(*match_dtypes(x, y))


def sinh(x):
    """The hyperbolic sine of `x`."""
    return sinh_p.bind(x)


def cosh(x):
    """The hyperbolic cosine of `x`."""
    return cosh_p.bind(x)


def tanh(x):
    """The hyperbolic tangent of `x`."""
    return tanh_p.bind(x)


def asinh(x):
    """The number whose hyperbolic sine is `x`."""
    return asinh_p.bind(x)


def acosh(x):
    """The non-negative number whose hyperbolic cosine is `x`."""
    return acosh_p.bind(x)


def atanh(x):
    """The number whose hyperbolic tangent is `x`."""
    return atanh_p.bind(x)
