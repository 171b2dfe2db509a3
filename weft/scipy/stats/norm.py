"""The normal distribution."""

from __future__ import annotations

import math

from weft._engine.scipy.stats.family import continuous, log_bell
from weft._engine.util.source import guard_all
from weft.scipy import special

logpdf, pdf, logcdf, cdf, logsf, sf, ppf, isf = continuous(
    "norm",
    "logpdf pdf logcdf cdf logsf sf ppf isf",
    logpdf=lambda z: log_bell(z) - 0.5 * math.log(2 * math.pi),
    cdf=special.ndtr,
    logcdf=special.log_ndtr,
    sf=lambda z: special.ndtr(-z),
    logsf=lambda z: special.log_ndtr(-z),
    ppf=special.ndtri,
    isf=lambda q: -special.ndtri(q),
)


guard_all(globals())
