"""The chi-square distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.ops.functions.incomplete import log_igamma, log_igammac
from weft.scipy import special
from weft.scipy.stats.family import continuous, within
from weft.util.source import guard_all


def _logpdf(z, df):
    half = df / 2
    return within(z >= 0, z, 1.0, lambda z: special.xlogy(half - 1, z) - z / 2 - special.gammaln(half) - half * math.log(2))


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "chi2", "logpdf pdf cdf logcdf sf logsf", "df", logpdf=_logpdf,
    cdf=lambda z, df: special.gammainc(df / 2, wnp.maximum(z, 0) / 2),
    sf=lambda z, df: special.gammaincc(df / 2, wnp.maximum(z, 0) / 2),
    logcdf=lambda z, df: log_igamma(df / 2, wnp.maximum(z, 0) / 2), logsf=lambda z, df: log_igammac(df / 2, wnp.maximum(z, 0) / 2))


guard_all(globals())
