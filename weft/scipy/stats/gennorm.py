"""The generalized normal distribution, of density proportional to exp(-|x|^beta)."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import continuous
from weft.util.source import guard_all

logpdf, pdf, cdf = continuous(
    "gennorm", "logpdf pdf cdf", "beta",
    logpdf=lambda z, beta: wnp.log(beta) - math.log(2) - special.gammaln(1 / beta) - wnp.power(wnp.abs(z), beta),
    cdf=lambda z, beta: 0.5 * (1 + wnp.sign(z) * special.gammainc(1 / beta, wnp.power(wnp.abs(z), beta))))


guard_all(globals())
