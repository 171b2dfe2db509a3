"""The Pareto distribution with shape parameter `b`."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.scipy.stats.family import continuous, evaluate_where, log_of_part, one_less_exp
from weft._engine.util.source import guard_all


def _log(z):
    """log(z) where that is positive, else 0."""
    return wnp.log(wnp.where(z >= 1, z, 1))


def _logcdf(z, b):
    """The density, as a product whose small factors may underflow."""
    y, inside = b * _log(z), z > 1
    tiny = inside & (y < 1e-20)
    logs = wnp.log(wnp.where(tiny, b, 1)) + wnp.log(wnp.where(tiny, _log(wnp.where(tiny, z, 2)), 1))
    y = wnp.where(tiny, 1, y)
    return wnp.where(tiny, logs, log_of_part(one_less_exp(y), wnp.exp(-y)))


logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "pareto",
    "logpdf pdf cdf logcdf sf logsf ppf",
    "b",
    logpdf=lambda z, b: evaluate_where(z >= 1, z, 1.0, lambda z: wnp.log(b) - (b + 1) * wnp.log(z)),
    pdf=lambda z, b: evaluate_where(
        z >= 1, z, 1.0, lambda z: wnp.where(b > 0, b, wnp.nan) / z * wnp.power(z, -b), 0.0
    ),
    cdf=lambda z, b: one_less_exp(b * _log(z)),
    sf=lambda z, b: wnp.power(wnp.where(z >= 1, z, 1), -b),
    logcdf=_logcdf,
    logsf=lambda z, b: -b * _log(z),
    ppf=lambda q, b: wnp.exp(-wnp.log1p(-q) / b),
)


guard_all(globals())
