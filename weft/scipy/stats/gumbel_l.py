"""The Gumbel distribution of minima: that of maxima, mirrored."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.stats.family import continuous
from weft.scipy.stats.gumbel_r import _density, distribution, log_density, log_survival, survival
from weft.util.source import guard_all

logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "gumbel_l", "logpdf pdf cdf logcdf sf logsf ppf", quantile="p", logpdf=lambda z: log_density(-z), pdf=lambda z: _density(-z),
    cdf=lambda z: survival(-z), logcdf=lambda z: log_survival(-z), sf=lambda z: distribution(-z), logsf=lambda z: -wnp.exp(z),
    ppf=lambda q: wnp.log(-wnp.log1p(-q)))


guard_all(globals())
