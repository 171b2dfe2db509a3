"""The Gumbel distribution of maxima."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.family import continuous, one_less_exp
from weft._engine.util.source import guard_all

#: a z with exp(-exp(z)) equal to zero in every dtype
_HIGH = 30.0


@custom_jvp
def _log_density(z):
    """-z - exp(-z), with an accurate derivative near 0."""
    return -z - wnp.exp(-z)


_log_density.defjvps(lambda t, out, z: t * wnp.expm1(-z))


@custom_jvp
def _density(z):
    return wnp.exp(_log_density(z))


_density.defjvps(lambda t, out, z: t * wnp.where(out == 0, 0, out * wnp.expm1(-z)))


def _distribution(z):
    """exp(-exp(-z))."""
    return wnp.exp(-wnp.exp(wnp.minimum(-z, _HIGH)))


def _survival(z):
    """1 - exp(-exp(-z))."""
    return one_less_exp(wnp.exp(wnp.minimum(-z, _HIGH)))


def _log_survival(z):
    """log(1 - exp(-exp(-z))): for positive z it is -z and a correction, which fades."""
    y, right, far = wnp.exp(wnp.minimum(-z, _HIGH)), z > 0, z > 45
    small = wnp.where(right & ~far, y, 1)
    correction = wnp.where(far, 0, wnp.log(-wnp.expm1(-small) / small))
    return wnp.where(right, correction - z, wnp.log1p(-wnp.exp(-wnp.where(right, 1, y))))


logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "gumbel_r",
    "logpdf pdf cdf logcdf sf logsf ppf",
    quantile="p",
    logpdf=_log_density,
    pdf=_density,
    cdf=_distribution,
    logcdf=lambda z: -wnp.exp(-z),
    sf=_survival,
    logsf=_log_survival,
    ppf=lambda q: -wnp.log(-wnp.log(q)),
)


guard_all(globals())
