"""The gamma distribution with shape parameter `a`."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.ops.functions.incomplete import igamma_grad_x, log_igamma, log_igammac
from weft._engine.scipy.stats.deviance import log_gamma_density
from weft._engine.scipy.stats.family import continuous, evaluate_where
from weft._engine.util.source import guard_all
from weft.scipy import special

_log_density = log_gamma_density(1)
logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "gamma",
    "logpdf pdf cdf logcdf sf logsf",
    "a",
    logpdf=lambda z, a: evaluate_where(z >= 0, z, 1.0, lambda z: _log_density(z, a)),
    pdf=lambda z, a: evaluate_where(z >= 0, z, 1.0, lambda z: igamma_grad_x(a, z), 0.0),
    cdf=lambda z, a: special.gammainc(a, wnp.maximum(z, 0)),
    sf=lambda z, a: special.gammaincc(a, wnp.maximum(z, 0)),
    logcdf=lambda z, a: log_igamma(a, wnp.maximum(z, 0)),
    logsf=lambda z, a: log_igammac(a, wnp.maximum(z, 0)),
)


guard_all(globals())
