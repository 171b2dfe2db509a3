"""The normal distribution between `a` and `b`, counted in scales from the location."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy.special import log_ndtr
from weft.scipy.stats.family import continuous, within
from weft.util.source import guard_all


def _log1mexp(x):
    """log(1 - exp(-x)) for x >= 0, from the side on which nothing cancels."""
    near = x < math.log(2)
    close, far = wnp.where(near, x, 1.0), wnp.where(near, 1.0, x)
    return wnp.where(near, wnp.log(-wnp.expm1(-close)), wnp.log1p(-wnp.exp(-far)))


def _log_mass(a, b):
    """The logarithm of the probability of [a, b], from the tail in which both are small; of a narrow one by the density in the middle."""
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)
    width, middle = b - a, (low + high) / 2
    narrow = width * wnp.maximum(wnp.abs(middle), 1) < 1e-3
    low, safe = wnp.where(narrow, low - 1, low), wnp.where(narrow, width, 1)
    middle = wnp.where(narrow, middle, 0)
    bell = -0.5 * middle * middle - 0.5 * math.log(2 * math.pi)
    top = log_ndtr(high)
    return wnp.where(narrow, bell + wnp.log(safe) + safe * safe * (middle * middle - 1) / 24,
                     top + _log1mexp(wnp.maximum(top - log_ndtr(low), 0)))


def _logpdf(z, a, b):
    inside = (z >= a) & (z <= b)
    return within(inside, z, 0.0, lambda z: -0.5 * z * z - 0.5 * math.log(2 * math.pi) - _log_mass(a, b))


def _share(z, low, high, a, b):
    """log P(low..high) / P(a..b), -inf and 0 beyond the ends."""
    inside = (z > a) & (z < b)
    return wnp.where(inside, _log_mass(wnp.where(inside, low, a), wnp.where(inside, high, b)) - _log_mass(a, b), 0.0)


def _logcdf(z, a, b):
    return wnp.where(z <= a, -wnp.inf, _share(z, a, z, a, b))


def _logsf(z, a, b):
    return wnp.where(z >= b, -wnp.inf, _share(z, z, b, a, b))


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "truncnorm", "logpdf pdf cdf logcdf sf logsf", "a b", logpdf=_logpdf, logcdf=_logcdf, logsf=_logsf,
    cdf=lambda z, a, b: wnp.exp(_logcdf(z, a, b)), sf=lambda z, a, b: wnp.exp(_logsf(z, a, b)))


guard_all(globals())
