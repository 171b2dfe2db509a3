"""Special functions of floats: error functions, gamma and its derivatives, Bessel functions.

All are elementwise; 16-bit and smaller floats compute in float32. Next: `incomplete`, the functions made of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.core.trace import typeof
from weft.ops import families
from weft.ops.arithmetic import add, div, floor, mul, neg, sign, square, sub
from weft.ops.bitwise import bitwise_and
from weft.ops.casting import convert_element_type
from weft.ops.comparison import eq, gt, le, ne, select
from weft.ops.families import FLOATING, elementwise, match_dtypes
from weft.ops.math import exp

_FACTORS = 20                   # of a factorial


def _special(name: str):
    """The reference in scipy.special, imported when first used."""
    def reference(*xs):
        import scipy.special
        return np.asarray(getattr(scipy.special, name)(*xs)).astype(xs[-1].dtype)
    return reference


def _bessel_i1e_jvp(t, out, x):
    # i0e - out (sign x + 1/x), whose limit at 0 is 1/2
    at_zero = eq(x, 0)
    safe = select(at_zero, 1, x)
    slope = sub(bessel_i0e(safe), mul(out, add(sign(safe), div(1, safe))))
    return mul(t, select(at_zero, 0.5, slope))


erf_p = elementwise("erf", FLOATING, _special("erf"),
                    jvp=[lambda t, out, x: mul(t, mul(2 / math.sqrt(math.pi), exp(neg(square(x)))))])
erfc_p = elementwise("erfc", FLOATING, _special("erfc"),
                     jvp=[lambda t, out, x: mul(t, mul(-2 / math.sqrt(math.pi), exp(neg(square(x)))))])
erf_inv_p = elementwise("erf_inv", FLOATING, _special("erfinv"),
                        jvp=[lambda t, out, x: mul(t, mul(math.sqrt(math.pi) / 2, exp(square(out))))])
lgamma_p = elementwise("lgamma", FLOATING, _special("gammaln"), jvp=[lambda t, out, x: mul(t, digamma(x))])
digamma_p = elementwise("digamma", FLOATING, _special("psi"), jvp=[lambda t, out, x: mul(t, polygamma(1.0, x))])
bessel_i0e_p = elementwise("bessel_i0e", FLOATING, _special("i0e"),
                           jvp=[lambda t, out, x: mul(t, sub(bessel_i1e(x), mul(sign(x), out)))])
bessel_i1e_p = elementwise("bessel_i1e", FLOATING, _special("i1e"), jvp=[_bessel_i1e_jvp])


def erf(x):
    """The error function of `x`."""
    return erf_p.bind(x)


def erfc(x):
    """`1 - erf(x)`, accurate for large `x`."""
    return erfc_p.bind(x)


def erf_inv(x):
    """The number whose error function is `x`."""
    return erf_inv_p.bind(x)


def lgamma(x):
    """The logarithm of the absolute value of the gamma function of `x`."""
    return lgamma_p.bind(x)


def digamma(x):
    """The derivative of `lgamma` at `x`."""
    return digamma_p.bind(x)


def bessel_i0e(x):
    """exp(-|x|) times the modified Bessel function of order 0."""
    return bessel_i0e_p.bind(x)


def bessel_i1e(x):
    """exp(-|x|) times the modified Bessel function of order 1."""
    return bessel_i1e_p.bind(x)


# --- functions without scalar code ------------------------------------------------------------------------------------


def on_host(name: str, reference, jvp):
    """An elementwise op without scalar code: the compiler calls its reference."""
    p = elementwise(name, FLOATING, reference, jvp=jvp)
    p.kind = "library"
    p.rules["lower"] = families.HostSpec()
    return p


def _polygamma_reference(m, x):
    from scipy.special import gamma, psi, zeta
    wide = np.asarray(x, np.float64)
    order = np.asarray(m, np.float64)
    sign_ = np.where(order % 2 == 0, -1.0, 1.0)
    return np.where(order == 0, psi(wide), sign_ * gamma(order + 1) * zeta(order + 1, wide)).astype(x.dtype)


def _in_wide(function: Callable) -> Callable:
    """`function`, computed in float32 for floats of 16 bits and fewer."""
    def compute(*xs):
        dtype = typeof(xs[0]).dtype
        if dtype.itemsize >= 4:
            return function(*xs)
        return convert_element_type(function(*(convert_element_type(x, np.dtype("f4")) for x in xs)), dtype)
    return compute


def expanded(name: str, function: Callable, reference, jvp):
    """An elementwise op that the compiler replaces by the operations of `function`."""
    p = elementwise(name, FLOATING, reference, jvp=jvp)
    p.rules["lower"] = families.ExpandSpec(_in_wide(function))
    return p


def _polygamma(m, x):
    from weft.ops.zeta import zeta  # few programs need it
    size = mul(_factorial(m), zeta(add(m, 1.0), x))
    odd = ne(floor(mul(m, 0.5)), mul(m, 0.5))
    return select(eq(m, 0.0), digamma(x), select(odd, size, neg(size)))


def _factorial(m):
    """Correctly rounded where it is a product of at most `_FACTORS` whole numbers."""
    product = m
    for k in range(1, _FACTORS):
        left = sub(m, float(k))
        product = mul(product, select(gt(left, 1.0), left, 1.0))
    listed = bitwise_and(le(m, float(_FACTORS)), eq(floor(m), m))
    return select(listed, product, exp(lgamma(add(m, 1.0))))


polygamma_p = expanded("polygamma", _polygamma, _polygamma_reference,
                       [None, lambda t, out, m, x: mul(t, polygamma(add(m, 1), x))])


def polygamma(m, x):
    """The derivative of order `m` of `digamma` at `x`; `m` is a whole number of the dtype of `x`."""
    return polygamma_p.bind(*match_dtypes(m, x))
