"""The Laplace distribution."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.scipy.stats.family import continuous
from weft._engine.util.source import guard_all

logpdf, pdf, cdf = continuous(
    "laplace",
    "logpdf pdf cdf",
    logpdf=lambda z: -wnp.abs(z) - math.log(2),
    cdf=lambda z: wnp.where(z <= 0, 0.5 * wnp.exp(-wnp.abs(z)), 1 - 0.5 * wnp.exp(-wnp.abs(z))),
)


guard_all(globals())
