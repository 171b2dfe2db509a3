"""The generalized normal distribution, of density proportional to exp(-|x|^beta)."""

from __future__ import annotations

import math
from typing import Any

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops import elementwise as ew
from weft._engine.ops.functions.incomplete import igamma_grad_a, igamma_grad_x
from weft._engine.scipy.stats.family import continuous
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all
from weft.scipy import special


def _log_scale(beta):
    """log(beta / gamma(1 / beta)), NaN unless beta is positive, and its derivative."""
    return wnp.where(beta > 0, -ew.lgamma(1 + 1 / beta), math.nan), ew.digamma(
        1 + 1 / beta
    ) / beta / beta


def _by_beta(z, beta):
    """The derivative of |z|^beta."""
    size = wnp.abs(z)
    return wnp.power(size, beta) * wnp.log(wnp.where(size == 0, 1, size))


@custom_jvp
def _logpdf(z, beta):
    return _log_scale(beta)[0] - math.log(2) - wnp.power(wnp.abs(z), beta)


def _by_size(size, beta, scale: Any = 1.0):
    """The derivative of size^beta by the nonzero size, in units of 1 / `scale`, by the power with the exponent closer to one."""
    is_small_shape = beta < 1
    slope = scale * (beta * wnp.power(size, wnp.where(is_small_shape, beta, beta - 1)))
    return wnp.where(is_small_shape, slope / size, slope)


def _logpdf_by_z(t, out, z, beta):
    return t * wnp.where(z == 0, 0, -wnp.sign(z) * _by_size(wnp.where(z == 0, 1, wnp.abs(z)), beta))


_logpdf.defjvps(_logpdf_by_z, lambda t, out, z, beta: t * (_log_scale(beta)[1] - _by_beta(z, beta)))


@custom_jvp
def _pdf(z, beta):
    return wnp.exp(_logpdf(z, beta))


def _pdf_by_z(t, out, z, beta):
    """The derivative of the density; near zero the power's derivative may be infinite, or the density may underflow."""
    safe = wnp.where(z == 0, 1, z)
    little, power = (
        out < 1e9 * float(dtypes.finfo(z.dtype).smallest_normal),
        wnp.power(wnp.abs(safe), beta),
    )
    ratio = wnp.exp(_logpdf(z, beta) - wnp.log(wnp.abs(safe))) * wnp.sign(z)
    size = wnp.where(
        little, ratio, wnp.sign(z) * _by_size(wnp.abs(safe), beta, wnp.where(little, 0, out))
    )
    return -t * wnp.where((z == 0) | (size == 0), 0, wnp.where(little, size * beta * power, size))


_pdf.defjvps(
    _pdf_by_z,
    lambda t, out, z, beta: (
        t * wnp.where(out == 0, 0, out * (_log_scale(beta)[1] - _by_beta(z, beta)))
    ),
)


def _regions(z, beta):
    """The power, with two special cases: where the distribution function is a half plus a linear term because the power
    underflows, and where the power may overflow and the tail is zero."""
    power = wnp.power(wnp.abs(z), beta)
    line, far = power < float(dtypes.finfo(z.dtype).eps) / 4, power > 1000
    return wnp.where(line | far, 1.0, power), line, far


@custom_jvp
def _cdf(z, beta):
    power, line, far = _regions(z, beta)
    tail = wnp.where(far, 0.0, 0.5 * special.gammaincc(1 / beta, power))
    return wnp.where(
        line, 0.5 + 0.5 * z * wnp.exp(_log_scale(beta)[0]), wnp.where(z < 0, tail, 1 - tail)
    )


#: powers up to which the series of the incomplete gamma function has few terms
_SHORT, _TERMS = 0.1, 11


def _cdf_by_beta(t, out, z, beta):
    """For a small power, the series of |z| / gamma(1 + 1 / beta), since the derivatives of the incomplete gamma function by
    its order and by the power cancel there."""
    power, line, far = _regions(z, beta)
    log, slope = _log_scale(beta)
    size = wnp.log(wnp.where(line | far | (z == 0), 1, wnp.abs(z)))
    short = line | (power < _SHORT)
    step, term, series, change = wnp.where(line | ~short, 0, -power), 1.0, 1.0, 0.0
    for k in range(1, _TERMS):
        term, part = term * step / k, 1 / (1 + k * beta)
        series, change = series + term * part, change + term * part * (size - part) * k
    order = 1 / beta
    inside = (
        igamma_grad_x(order, power) * (power * size) - igamma_grad_a(order, power) / beta / beta
    )
    return t * wnp.where(
        short,
        0.5 * z * (wnp.exp(log) * (slope * series + change)),
        wnp.where(far, 0, 0.5 * wnp.sign(z) * inside),
    )


_cdf.defjvps(lambda t, out, z, beta: t * _pdf(z, beta), _cdf_by_beta)
logpdf, pdf, cdf = continuous(
    "gennorm", "logpdf pdf cdf", "beta", logpdf=_logpdf, pdf=_pdf, cdf=_cdf
)


guard_all(globals())
