"""The generalized normal distribution, of density proportional to exp(-|x|^beta)."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import continuous
from weft.util.source import guard_all


def _logpdf(z, beta):
    return wnp.log(beta) - math.log(2) - special.gammaln(1 / beta) - wnp.power(wnp.abs(z), beta)


def _pdf(z, beta):
    size = wnp.abs(z)
    inside = wnp.power(size, beta) < 1000               # beyond, zero in each type; the exponent and its slopes may be infinite
    return wnp.where(inside, wnp.exp(_logpdf(wnp.where(inside, z, 0), beta)), 0.0)


def _cdf(z, beta):
    """Close to zero the power may be zero where the argument is not; there the function is a half and a line. Far away it may be
    infinite, and nothing is left of the tail."""
    size = wnp.abs(z)
    line, far = wnp.power(size, beta) < 1e-20, wnp.power(size, beta) > 1000
    order = 1 / beta
    power = wnp.power(wnp.where(line | far, 1.0, size), beta)
    slope = wnp.exp(-special.gammaln(1 + order))
    tail = wnp.where(far, 0.0, 0.5 * special.gammaincc(order, power))
    return wnp.where(line, 0.5 + 0.5 * z * slope, wnp.where(z < 0, tail, 1 - tail))


logpdf, pdf, cdf = continuous("gennorm", "logpdf pdf cdf", "beta", logpdf=_logpdf, pdf=_pdf, cdf=_cdf)


guard_all(globals())
