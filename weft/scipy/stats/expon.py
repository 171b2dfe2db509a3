"""The exponential distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.scipy.stats.family import continuous, one_less_exp
from weft._engine.util.source import guard_all

logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "expon",
    "logpdf pdf cdf logcdf sf logsf ppf",
    logpdf=lambda z: wnp.where(z < 0, -wnp.inf, -z),
    cdf=lambda z: one_less_exp(wnp.maximum(z, 0)),
    sf=lambda z: wnp.exp(-wnp.maximum(z, 0)),
    logsf=lambda z: -wnp.maximum(z, 0),
    ppf=lambda q: wnp.where((q >= 0) & (q <= 1), -wnp.log1p(-q), wnp.nan),
)


guard_all(globals())
