"""The Pareto distribution with shape parameter `b`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.stats.family import continuous, within

logpdf, pdf, cdf, logcdf, sf, logsf, ppf = continuous(
    "pareto", "logpdf pdf cdf logcdf sf logsf ppf", "b",
    logpdf=lambda z, b: within(z >= 1, z, 1.0, lambda z: wnp.log(b) - (b + 1) * wnp.log(z)),
    cdf=lambda z, b: -wnp.expm1(-b * wnp.log(wnp.maximum(z, 1))), sf=lambda z, b: wnp.power(wnp.maximum(z, 1), -b),
    logsf=lambda z, b: -b * wnp.log(wnp.maximum(z, 1)), ppf=lambda q, b: wnp.power(1 - q, -1 / b))
