"""The Cauchy distribution."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy.stats.family import continuous

logpdf, pdf, cdf, logcdf, sf, logsf, ppf, isf = continuous(
    "cauchy", "logpdf pdf cdf logcdf sf logsf ppf isf",
    logpdf=lambda z: -math.log(math.pi) - wnp.log1p(z * z),
    cdf=lambda z: wnp.arctan2(1, -z) / math.pi, sf=lambda z: wnp.arctan2(1, z) / math.pi,
    ppf=lambda q: wnp.tan(math.pi * (q - 0.5)), isf=lambda q: -wnp.tan(math.pi * (q - 0.5)))
