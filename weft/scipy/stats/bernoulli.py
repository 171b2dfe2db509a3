"""The Bernoulli distribution: 1 with probability `p`, else 0."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.scipy.stats.family import discrete, public
from weft._engine.util.source import guard_all
from weft.scipy.special import xlog1py, xlogy


def _logpmf(k, p):
    return wnp.where((k == 0) | (k == 1), xlogy(k, p) + xlog1py(1 - k, -p), -wnp.inf)


def _cdf(k, p):
    value = wnp.where(k < 0, 0.0, wnp.where(k < 1, 1 - p, 1.0))
    return wnp.where((p >= 0) & (p <= 1) & ~wnp.isnan(k), value, wnp.nan)


def _ppf(q, p):
    return wnp.where(
        (p >= 0) & (p <= 1) & (q >= 0) & (q <= 1), wnp.where(q <= 1 - p, 0.0, 1.0), wnp.nan
    )


logpmf, pmf = discrete(
    "bernoulli",
    "logpmf pmf",
    "p",
    logpmf=_logpmf,
    pmf=lambda k, p: wnp.where(
        (p >= 0) & (p <= 1), wnp.where(k == 1, p, wnp.where(k == 0, 1 - p, 0)), wnp.nan
    ),
)
cdf = public("bernoulli", "cdf", "k p", _cdf)
ppf = public("bernoulli", "ppf", "q p", _ppf)


guard_all(globals())
