"""The uniform distribution on [loc, loc + scale]."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.scipy.stats.family import continuous
from weft._engine.util.source import guard_all

logpdf, pdf, cdf, ppf = continuous(
    "uniform",
    "logpdf pdf cdf ppf",
    logpdf=lambda z: wnp.where((z >= 0) & (z <= 1), 0.0 * z, -wnp.inf),
    cdf=lambda z: wnp.clip(z, 0, 1),
    ppf=lambda q: wnp.where((q >= 0) & (q <= 1), q, wnp.nan),
)


guard_all(globals())
