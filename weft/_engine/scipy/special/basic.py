"""Special functions composed of a few operations: gamma functions, logarithms and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft._engine.control.custom_rules import custom_jvp
from weft._engine.core.trace import typeof
from weft._engine.numpy.bessel import bessel_i0, bessel_i1
from weft._engine.numpy.promote import (
    all_inexact,
    as_strong,
    broadcast,
    cast,
    inexact,
    promote_to_inexact,
)
from weft._engine.numpy.reductions import logsumexp
from weft._engine.numpy.ufuncs import subtract
from weft._engine.ops import elementwise as ew, functions
from weft._engine.ops.comparison import select
from weft._engine.scipy.special.deviance import deviance, log_quotient
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all, named

__all__ = [
    "betainc", "boxcox", "boxcox1p", "digamma", "entr", "erf", "erfc", "erfinv", "expit",
    "factorial", "gammainc", "gammaincc", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e", "kl_div",
    "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "rel_entr",
    "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


def in_single(fun: Callable) -> Callable:
    """Return `fun` with 16-bit floats computed in float32 and rounded once."""

    def wide(*xs):
        dtype = typeof(xs[0]).dtype
        if dtype.itemsize >= 4:
            return fun(*xs)
        return cast(fun(*[cast(x, np.dtype(np.float32)) for x in xs]), dtype)

    return wide


def _late(name: str) -> Callable:
    """Return a function of `ops.functions`, imported on the first call."""
    return lambda *xs: getattr(functions, name)(*xs)


def _unary(name: str, op: Callable | str, text: str, weak: bool = True) -> Callable:
    """Return a public function of one array from a function or a name in `ops.functions`.

    With `weak`, its result for a Python number is weakly typed.
    """
    apply = _late(op) if isinstance(op, str) else in_single(op)

    def fun(x):
        return apply(inexact(name, x) if weak else as_strong(inexact(name, x)))

    return named(fun, name, text)


#: argument names -> wrapper of a function of two arrays with these argument names, for calls by keyword
_WRITTEN: dict[str, Callable[[Callable], Callable]] = {
    "x y": lambda both: lambda x, y: both(x, y),
    "a b": lambda both: lambda a, b: both(a, b),
    "a x": lambda both: lambda a, x: both(a, x),
    "p q": lambda both: lambda p, q: both(p, q),
    "z m": lambda both: lambda z, m: both(z, m),
    "x lmbda": lambda both: lambda x, lmbda: both(x, lmbda),
}


def _binary(
    name: str, op: Callable | str, text: str, arguments: str = "x y", weak: bool = True
) -> Callable:
    apply = _late(op) if isinstance(op, str) else in_single(op)

    def apply_both(x, y):
        x, y = promote_to_inexact(name, x, y)
        return apply(x, y) if weak else apply(as_strong(x), as_strong(y))

    return named(_WRITTEN[arguments](apply_both), name, text)


erf = _unary("erf", "erf", "The error function.")
erfc = _unary("erfc", "erfc", "1 - erf(x), accurate for large x.")
erfinv = _unary("erfinv", "erf_inv", "The inverse of the error function.")
gammaln = _unary("gammaln", "lgamma", "The logarithm of the absolute value of the gamma function.")
digamma = _unary("digamma", "digamma", "The derivative of the logarithm of the gamma function.")
_expit = custom_jvp(_late("logistic"))


@custom_jvp
def _expit_slope(x):
    """expit(x) (1 - expit(x)), from the smaller factor as a quotient."""
    small = ew.exp(ew.neg(ew.abs(x)))
    complement = ew.div(1, ew.add(small, 1))
    return ew.mul(ew.mul(small, complement), complement)


_expit.defjvps(lambda t, out, x: ew.mul(t, _expit_slope(x)))
_expit_slope.defjvps(lambda t, out, x: ew.neg(ew.mul(t, ew.mul(out, ew.tanh(ew.mul(x, 0.5))))))
expit = _unary("expit", _expit, "1 / (1 + exp(-x)).")
logit = _unary(
    "logit",
    lambda x: ew.sub(ew.log(x), ew.log1p(ew.neg(x))),
    "log(x / (1 - x)), the inverse of `expit`.",
)
i0e = _unary("i0e", "bessel_i0e", "The modified Bessel function of order 0 times exp(-|x|).")
i1e = _unary("i1e", "bessel_i1e", "The modified Bessel function of order 1 times exp(-|x|).")
i0 = _unary("i0", bessel_i0, "The modified Bessel function of order 0.")
i1 = _unary("i1", bessel_i1, "The modified Bessel function of order 1.")


def _gammasgn(x):
    below, odd = ew.lt(x, 0), ew.ne(ew.rem(ew.floor(x), 2), 0)
    down = ew.bitwise_or(ew.bitwise_and(below, odd), ew.eq(ew.div(1, x), -math.inf))
    pole = ew.bitwise_or(ew.bitwise_and(below, ew.eq(ew.floor(x), x)), ew.ne(x, x))
    return select(
        pole,
        math.nan,
        select(down, -1.0, ew.add(ew.mul(select(ew.lt(ew.abs(x), math.inf), x, 0), 0), 1)),
    )


gammasgn = _unary(
    "gammasgn",
    _gammasgn,
    "The sign of the gamma function: at 0 the sign of the zero, NaN at the negative poles.",
    weak=False,
)


def _gamma(x):
    """The gamma function; near zero computed from gamma(1 + x), whose logarithm is more accurate."""
    near = ew.bitwise_and(ew.lt(ew.abs(x), 0.5), ew.ne(x, 0))
    size = ew.exp(ew.lgamma(select(near, ew.add(x, 1), x)))
    return select(near, ew.div(size, select(near, x, 1)), ew.mul(_gammasgn(x), size))


real_gamma = _unary("gamma", _gamma, "The gamma function of real numbers.")


def factorial(n, exact: bool = False):
    """n!, as a float."""
    if exact:
        raise NotImplementedError("factorial with exact=True is not supported; results are floats.")
    n = inexact("factorial", n)
    return select(ew.lt(n, 0), 0, ew.exp(ew.lgamma(ew.add(n, 1))))


gammainc = _binary("gammainc", "igamma", "The regularized lower incomplete gamma function.", "a x")
gammaincc = _binary("gammaincc", "igammac", "1 - gammainc, accurate for large x.", "a x")


def betainc(a, b, x):
    """The regularized incomplete beta function."""
    return functions.betainc(*broadcast("betainc", *all_inexact("betainc", a, b, x)))


def zeta(x, q=None):
    """The Hurwitz zeta function; without `q`, the Riemann zeta function (q = 1)."""
    return functions.zeta(*promote_to_inexact("zeta", x, 1.0 if q is None else q))


def _box(log_of):
    """(base^y - 1) / y and its derivatives, given the logarithm of the base, in factors that overflow no earlier than the result."""

    @custom_jvp
    def power(x, y):
        log, t, flat, y = parts(x, y)
        half = ew.expm1(ew.mul(t, 0.5))
        return select(flat, log, ew.mul(ew.div(half, y), ew.add(half, 2)))

    def parts(x, y):
        log = log_of(x)
        t = ew.mul(log, y)
        flat = ew.lt(ew.abs(t), float(dtypes.finfo(typeof(x).dtype).eps) / 4)
        flat = ew.bitwise_or(flat, ew.eq(y, 0))
        return log, select(flat, 0, t), flat, select(flat, 1, y)

    @custom_jvp
    def plain_power(x, y):
        """base^y as a product of two powers, since the power may overflow earlier than a product with it."""
        log = log_of(x)
        half = ew.exp(ew.mul(ew.mul(select(ew.eq(y, 0), 1, log), y), 0.5))
        return ew.mul(half, half)

    plain_power.defjvps(
        lambda t, out, x, y: ew.mul(t, ew.mul(y, plain_power(x, ew.sub(y, 1)))),
        lambda t, out, x, y: ew.mul(t, ew.mul(log_of(x), out)),
    )

    def by_x(tangent, out, x, y):
        return ew.mul(tangent, plain_power(x, ew.sub(y, 1)))

    def by_y(tangent, out, x, y):
        log, _, _, divisor = parts(x, y)
        t = ew.mul(select(ew.bitwise_and(ew.eq(y, 0), ew.eq(log, -math.inf)), 0, log), y)
        y = divisor
        small, positive = ew.lt(ew.abs(t), 0.5), ew.gt(t, 0)
        series, bounded = 0.0, select(small, t, 0)
        for k in range(14, -1, -1):
            series = ew.add(ew.mul(series, bounded), 1 / (math.factorial(k) * (k + 2)))
        half = ew.exp(ew.mul(t, 0.5))
        up = ew.mul(ew.mul(ew.div(half, y), half), ew.add(log, ew.div(ew.expm1(ew.neg(t)), y)))
        down = ew.div(ew.sub(ew.mul(log, ew.exp(t)), ew.div(ew.expm1(t), y)), y)
        return ew.mul(
            tangent, select(small, ew.mul(ew.mul(log, log), series), select(positive, up, down))
        )

    power.defjvps(by_x, by_y)
    return power


boxcox = _binary("boxcox", _box(_late("log")), "(x^y - 1) / y, log(x) where y is 0.", "x lmbda")
boxcox1p = _binary(
    "boxcox1p", _box(_late("log1p")), "((1 + x)^y - 1) / y, log(1 + x) where y is 0.", "x lmbda"
)


def polygamma(n, x):
    """The derivative of order `n` of `digamma`."""
    return ew.polygamma(*promote_to_inexact("polygamma", n, x))


_MOST_DIMENSIONS = 100_000  # each dimension is a term of the traced program


def multigammaln(a, d):
    """The logarithm of the multivariate gamma function of dimension `d`."""
    if not (isinstance(d, (int, float, np.number)) and 0 < d <= _MOST_DIMENSIONS and d == int(d)):
        raise ValueError(
            f"multigammaln: `d` must be a positive dimension of at most {_MOST_DIMENSIONS}, known while tracing, got {d!r}."
        )
    a = as_strong(inexact("multigammaln", a))
    total = ew.add(ew.mul(a, 0), 0.25 * d * (d - 1) * math.log(math.pi))
    for k in range(int(d)):
        total = ew.add(total, ew.lgamma(ew.sub(a, k / 2)))
    return total


def _times(log: Callable, shift: int):
    """x log(y + shift), 0 where x is 0, with derivatives equal to the limits for x towards 0."""

    @custom_jvp
    def product(x, y):
        zero = ew.bitwise_and(ew.eq(x, 0), ew.eq(y, y))
        return select(zero, 0, ew.mul(x, log(select(zero, 1, y))))

    def by_y(t, out, x, y):
        inner = ew.add(y, shift) if shift else y
        return ew.mul(t, ew.div(x, select(ew.bitwise_and(ew.eq(x, 0), ew.eq(inner, 0)), 1, inner)))

    product.defjvps(lambda t, out, x, y: ew.mul(t, log(y)), by_y)
    return product


_xlogy, _xlog1py = _times(_late("log"), 0), _times(_late("log1p"), 1)

xlogy = _binary("xlogy", _xlogy, "x log(y), 0 where x is.")
xlog1py = _binary("xlog1py", _xlog1py, "x log(1 + y), 0 where x is.")
_entr = custom_jvp(lambda x: select(ew.lt(x, 0), -math.inf, ew.neg(_xlogy(x, x))))
_entr.defjvps(lambda t, out, x: ew.neg(ew.mul(t, ew.add(ew.log(x), 1))))
entr = _unary("entr", _entr, "-x log(x), 0 at 0 and -inf below.")


def _inside(p, q):
    return ew.bitwise_and(ew.gt(p, 0), ew.gt(q, 0))


def _of_positive(p, q, fun: Callable):
    """Return `fun` where both arguments are positive, 0 elsewhere."""
    inside = _inside(p, q)
    return select(inside, fun(select(inside, p, 1), select(inside, q, 1)), 0)


def _of_support(p, q, value, at_zero):
    """Return a divergence: `value` where both arguments are positive, `at_zero` where p is 0, infinity elsewhere."""
    zero = ew.bitwise_and(ew.eq(p, 0), ew.ge(q, 0))
    return select(_inside(p, q), value, select(zero, at_zero, ew.add(ew.mul(value, 0), math.inf)))


@custom_jvp
def _rel_entr(p, q):
    value = _of_positive(p, q, lambda p, q: ew.mul(p, log_quotient(p, q)))
    return _of_support(p, q, value, 0.0)


_rel_entr.defjvps(
    lambda t, out, p, q: ew.mul(t, _of_positive(p, q, lambda p, q: ew.add(log_quotient(p, q), 1))),
    lambda t, out, p, q: ew.neg(ew.mul(t, _of_positive(p, q, ew.div))),
)


@custom_jvp
def _kl_div(p, q):
    value = _of_positive(p, q, lambda p, q: deviance(p, ew.sub(q, p), log_quotient(q, p)))
    return _of_support(p, q, value, q)


def _log_ratio(p, q):
    """log(p / q), accurate for nearly equal numbers."""
    near = ew.lt(ew.abs(ew.sub(p, q)), ew.mul(q, 0.5))
    return select(near, ew.log1p(ew.div(ew.sub(select(near, p, q), q), q)), log_quotient(p, q))


@custom_jvp
def _relative_gap(p, q):
    """(q - p) / q."""
    return ew.div(ew.sub(q, p), q)


_relative_gap.defjvps(
    lambda t, out, p, q: ew.neg(ew.div(t, q)),
    lambda t, out, p, q: ew.mul(t, ew.div(ew.div(p, q), q)),
)


def _kl_div_by_q(t, out, p, q):
    return ew.mul(t, select(ew.eq(p, 0), 1, _of_positive(p, q, _relative_gap)))


_kl_div.defjvps(lambda t, out, p, q: ew.mul(t, _of_positive(p, q, _log_ratio)), _kl_div_by_q)
rel_entr = _binary("rel_entr", _rel_entr, "p log(p / q), the terms of the relative entropy.", "p q")
kl_div = _binary("kl_div", _kl_div, "p log(p / q) - p + q.", "p q")


def log_softmax(x, /, *, axis=None):
    """x - logsumexp(x) over `axis`."""
    x = inexact("log_softmax", x)
    return subtract(x, logsumexp(x, axis=axis, keepdims=True))


def softmax(x, /, *, axis=None):
    """exp(x) divided by its sum over `axis`."""
    return ew.exp(log_softmax(x, axis=axis))


# ---- the normal distribution


def _ndtr(x):
    z = ew.mul(x, math.sqrt(0.5))
    far = ew.mul(ew.erfc(ew.abs(z)), 0.5)
    near = ew.add(ew.mul(ew.erf(z), 0.5), 0.5)
    return select(ew.lt(ew.abs(z), math.sqrt(0.5)), near, select(ew.gt(z, 0), ew.sub(1, far), far))


ndtr = _unary(
    "ndtr", _ndtr, "The distribution function of the standard normal distribution.", weak=False
)
_log_ndtr = _unary("log_ndtr", "log_ndtr", "", weak=False)
_ndtri = _unary("ndtri", "ndtri", "", weak=False)


def log_ndtr(x, series_order: int = 3):
    """The logarithm of `ndtr`, accurate far to the left.

    `series_order`, from 1 to 30, has no effect: the formula needs no series order. Raises TypeError or ValueError for other values.
    """
    if not isinstance(series_order, (int, np.integer)):
        raise TypeError(f"log_ndtr: series_order must be an int, got {series_order!r}.")
    if not 1 <= series_order <= 30:
        raise ValueError(f"log_ndtr: series_order must be from 1 to 30, got {series_order}.")
    return _log_ndtr(x)


def ndtri(p):
    """The inverse of `ndtr`."""
    return _ndtri(p)


guard_all(globals())
