"""The Gumbel distribution of minima."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.stats.family import continuous

logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "gumbel_l", "logpdf pdf cdf logcdf sf logsf ppf", logpdf=lambda z: z - wnp.exp(z),
    cdf=lambda z: -wnp.expm1(-wnp.exp(z)), sf=lambda z: wnp.exp(-wnp.exp(z)), logsf=lambda z: -wnp.exp(z),
    ppf=lambda q: wnp.log(-wnp.log1p(-q)))
