"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Sequence
from typing import Any, Literal, overload
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike

@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any: ...
def bernoulli(n: int) -> Array:
    r"""Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2; `n` is a Python integer."""
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    r"""Return the Bessel functions of the first kind of orders 0 to `v` at real `z`, stacked along a new first dim."""
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    r"""The beta function."""
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    r"""The regularized incomplete beta function."""
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    r"""The logarithm of the beta function."""
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    r"""(x^y - 1) / y, log(x) where y is 0."""
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    r"""((1 + x)^y - 1) / y, log(1 + x) where y is 0."""
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    r"""Return the number of ways to choose `k` of `N` items, 0 if there is none; with `repetition`, with replacement."""
def dawsn(x: ArrayLike) -> Array:
    r"""Dawson's integral exp(-x^2) times the integral of exp(t^2) from 0 to x."""
def digamma(x: ArrayLike) -> Array:
    r"""The derivative of the logarithm of the gamma function."""
def entr(x: ArrayLike) -> Array:
    r"""-x log(x), 0 at 0 and -inf below."""
def erf(x: ArrayLike) -> Array:
    r"""The error function."""
def erfc(x: ArrayLike) -> Array:
    r"""1 - erf(x), accurate for large x."""
def erfcx(x: ArrayLike) -> Array:
    r"""exp(x^2) erfc(x), which neither overflows nor vanishes early; `x` may be complex."""
def erfinv(x: ArrayLike) -> Array:
    r"""The inverse of the error function."""
def exp1(x: ArrayLike) -> Array:
    r"""The exponential integral E1, the integral of exp(-t) / t from x on; NaN below 0."""
def expi(x: ArrayLike) -> Array:
    r"""The exponential integral Ei, the principal value of the integral of exp(t) / t up to x."""
def expit(x: ArrayLike) -> Array:
    r"""1 / (1 + exp(-x))."""
def expn(n: ArrayLike, x: ArrayLike) -> Array:
    r"""The exponential integral E_n, the integral of exp(-x t) / t^n for t from 1 on; `n` is a whole number from 0 up."""
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    r"""n!, as a float."""
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    r"""The Fresnel integrals S and C, of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
def gamma(x: ArrayLike) -> Array:
    r"""The gamma function of real or complex numbers; NaN at the negative whole numbers."""
def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    r"""The regularized lower incomplete gamma function."""
def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    r"""1 - gammainc, accurate for large x."""
def gammaln(x: ArrayLike) -> Array:
    r"""The logarithm of the absolute value of the gamma function."""
def gammasgn(x: ArrayLike) -> Array:
    r"""The sign of the gamma function: at 0 the sign of the zero, NaN at the negative poles."""
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    r"""Return Kummer's confluent hypergeometric function 1F1(a; b; x); infinite where `b` is 0 or a negative integer."""
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    r"""Return Gauss's hypergeometric function 2F1(a, b; c; x), infinite for x > 1 unless its series terminates."""
def i0(x: ArrayLike) -> Array:
    r"""The modified Bessel function of order 0."""
def i0e(x: ArrayLike) -> Array:
    r"""The modified Bessel function of order 0 times exp(-|x|)."""
def i1(x: ArrayLike) -> Array:
    r"""The modified Bessel function of order 1."""
def i1e(x: ArrayLike) -> Array:
    r"""The modified Bessel function of order 1 times exp(-|x|)."""
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    r"""p log(p / q) - p + q."""
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    r"""The logarithm of `ndtr`, accurate far to the left."""
def log_softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    r"""x - logsumexp(x) over `axis`."""
def loggamma(x: ArrayLike) -> Array:
    r"""The logarithm of the gamma function, continued from the positive numbers; of negative real numbers NaN."""
def logit(x: ArrayLike) -> Array:
    r"""log(x / (1 - x)), the inverse of `expit`."""
def lpmn(m: int, n: int, z: ArrayLike) -> tuple[Any, ...]:
    r"""Return the associated Legendre functions of orders 0 to `m` and degrees 0 to `n` at a vector z, [order, degree, z], and derivatives."""
def lpmn_values(m: int, n: int, z: ArrayLike, is_normalized: bool) -> Array:
    r"""Return the associated Legendre functions of `lpmn`; the normalized ones are factors of spherical harmonics."""
def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    r"""The logarithm of the multivariate gamma function of dimension `d`."""
def ndtr(x: ArrayLike) -> Array:
    r"""The distribution function of the standard normal distribution."""
def ndtri(p: ArrayLike) -> Array:
    r"""The inverse of `ndtr`."""
def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    r"""Owen's T function: the probability of X > `h` and 0 < Y < `a` X, for independent standard normal variables X and Y."""
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    r"""The rising factorial gamma(z + m) / gamma(z), for positive z and z + m."""
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    r"""The derivative of order `n` of `digamma`."""
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    r"""p log(p / q), the terms of the relative entropy."""
def sici(x: ArrayLike) -> tuple[Array, Array]:
    r"""The sine integral Si and the cosine integral Ci; Ci is even, except that Ci(-inf) is NaN. Raises ValueError for complex numbers."""
def softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    r"""exp(x) divided by its sum over `axis`."""
def spence(x: ArrayLike) -> Array:
    r"""Spence's function, the integral of log(t) / (1 - t) from 1 to x; NaN below 0."""
def sph_harm_y(n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None, n_max: int | None = None) -> Array:
    r"""Return the spherical harmonics of degree `n` and order `m` at polar angle `theta` and azimuth `phi`, as complex numbers."""
def wofz(z: ArrayLike) -> Array:
    r"""The Faddeeva function exp(-z^2) erfc(-i z) of complex numbers."""
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    r"""x log(1 + y), 0 where x is."""
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    r"""x log(y), 0 where x is."""
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    r"""The Hurwitz zeta function; without `q`, the Riemann zeta function (q = 1)."""

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn",
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn",
    "factorial", "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1",
    "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit",
    "logsumexp", "lpmn", "lpmn_values", "multigammaln", "ndtr", "ndtri", "owens_t", "poch",
    "polygamma", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy",
    "zeta",
]
