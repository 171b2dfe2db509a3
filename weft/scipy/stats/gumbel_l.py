"""The Gumbel distribution of minima: the mirrored distribution of maxima."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.scipy.stats.family import continuous
from weft._engine.util.source import guard_all
from weft.scipy.stats.gumbel_r import (
    _density,
    _distribution,
    _log_density,
    _log_survival,
    _survival,
)

logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "gumbel_l",
    "logpdf pdf cdf logcdf sf logsf ppf",
    quantile="p",
    logpdf=lambda z: _log_density(-z),
    pdf=lambda z: _density(-z),
    cdf=lambda z: _survival(-z),
    logcdf=lambda z: _log_survival(-z),
    sf=lambda z: _distribution(-z),
    logsf=lambda z: -wnp.exp(z),
    ppf=lambda q: wnp.log(-wnp.log1p(-q)),
)


guard_all(globals())
