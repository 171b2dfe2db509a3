"""The logistic distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import continuous

logpdf, pdf, cdf, sf, ppf, isf = continuous(
    "logistic", "logpdf pdf cdf sf ppf isf", logpdf=lambda z: -wnp.abs(z) - 2 * wnp.log1p(wnp.exp(-wnp.abs(z))),
    cdf=special.expit, sf=lambda z: special.expit(-z), ppf=special.logit, isf=lambda q: -special.logit(q))
