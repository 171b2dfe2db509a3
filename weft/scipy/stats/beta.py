"""The beta distribution with shape parameters `a` and `b`."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops.functions.incomplete_beta import betaincc, log_betainc
from weft._engine.scipy.special.deviance import log_quotient
from weft._engine.scipy.special.gamma_ratios import _digamma_rise
from weft._engine.scipy.stats.deviance import log_binomial
from weft._engine.scipy.stats.family import continuous, evaluate_where, valid
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all
from weft.scipy import special


def _parts(z, a, b):
    """Return a binomial log-probability and three additional factors of the density, so that small parameters are not decremented."""
    y, is_a_below_one, is_b_below_one = 1 - z, a < 1, b < 1
    first, last = wnp.where(is_a_below_one, a, a - 1), wnp.where(is_b_below_one, b, b - 1)
    log = log_binomial(first, last, z, y)
    count = wnp.where(
        is_a_below_one & is_b_below_one,
        0,
        wnp.where(is_a_below_one | is_b_below_one, 1, first + last + 1),
    )
    none = count == 0
    return (
        log,
        (wnp.where(is_a_below_one, a, 1), wnp.where(is_a_below_one, z, 1)),
        (wnp.where(is_b_below_one, b, 1), wnp.where(none, a + b, 1)),
        (wnp.where(none, 1, count), wnp.where(is_b_below_one, y, 1)),
    )


@custom_jvp
def _logpdf(z, a, b):
    log, *factors = _parts(z, a, b)
    for top, bottom in factors:
        log = log + log_quotient(top, bottom)
    return wnp.where(((z == 0) & (a < 1)) | ((z == 1) & (b < 1)), math.inf, log)


def _by_z(z, a, b):
    return wnp.where(a == 1, 0, (a - 1) / z) - wnp.where(b == 1, 0, (b - 1) / (1 - z))


def _by_first(log_z, a, b):
    return log_z + _digamma_rise(a, b)


_logpdf.defjvps(
    lambda t, out, z, a, b: t * _by_z(z, a, b),
    lambda t, out, z, a, b: t * _by_first(wnp.log(z), a, b),
    lambda t, out, z, a, b: t * _by_first(wnp.log1p(-z), b, a),
)


@custom_jvp
def _pdf(z, a, b):
    log, *factors = _parts(z, a, b)
    (first, second, third) = (top / bottom for top, bottom in factors)
    product = first * (second * third)
    plain = (first > 0) & (product < math.inf)
    return wnp.where(plain, wnp.where(plain, product, 1) * wnp.exp(log), wnp.exp(_logpdf(z, a, b)))


def _slope(t, out, z, a, b):
    """The derivative of the density, computed by logarithms of both, as the density may underflow where its derivative does not."""
    little = out < 1e9 * float(dtypes.finfo(z.dtype).smallest_normal)
    y = 1 - z
    low = z < y
    size = wnp.exp(_logpdf(z, a, b) - wnp.log(wnp.where(low, z, y)))
    by_end = wnp.where(low, (a - 1) - (b - 1) * (z / y), (a - 1) * (y / z) - (b - 1))
    return t * wnp.where(little, size * by_end, out * wnp.where(little, 0, _by_z(z, a, b)))


_pdf.defjvps(
    _slope,
    lambda t, out, z, a, b: t * wnp.where(out == 0, 0, out * _by_first(wnp.log(z), a, b)),
    lambda t, out, z, a, b: t * wnp.where(out == 0, 0, out * _by_first(wnp.log1p(-z), b, a)),
)


def _in_unit(fun):
    """Return `fun(a, b, z)` for arguments broadcast to one shape, with z between 0 and 1."""
    return lambda z, a, b: fun(*wnp.broadcast_arrays(a, b, wnp.clip(z, 0, 1)))


def _inside(fun, outside: float):
    return lambda z, a, b: evaluate_where(
        (z >= 0) & (z <= 1), z, 0.5, lambda z: fun(z, a, b), outside
    )


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "beta",
    "logpdf pdf cdf logcdf sf logsf",
    "a b",
    "q",
    **valid(
        lambda a, b: (a > 0) & (b > 0),
        {
            "logpdf": _inside(_logpdf, -math.inf),
            "pdf": _inside(_pdf, 0.0),
            "cdf": _in_unit(special.betainc),
            "sf": _in_unit(betaincc),
            "logcdf": _in_unit(lambda a, b, z: log_betainc(a, b, z, 1 - z)),
            "logsf": _in_unit(lambda a, b, z: log_betainc(b, a, 1 - z, z)),
        },
    ),
)


guard_all(globals())
