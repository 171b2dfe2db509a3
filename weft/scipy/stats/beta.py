"""The beta distribution with shape parameters `a` and `b`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import continuous, within
from weft.util.source import guard_all


def _logpdf(z, a, b):
    return within((z >= 0) & (z <= 1), z, 0.5,
                  lambda z: special.xlogy(a - 1, z) + special.xlog1py(b - 1, -z) - special.betaln(a, b))


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "beta", "logpdf pdf cdf logcdf sf logsf", "a b", logpdf=_logpdf,
    cdf=lambda z, a, b: special.betainc(a, b, wnp.clip(z, 0, 1)),
    sf=lambda z, a, b: special.betainc(b, a, 1 - wnp.clip(z, 0, 1)))


guard_all(globals())
