"""The Poisson distribution with rate `mu`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.special import gammaincc, gammaln, xlogy
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, mu):
    return within(whole(k), k, 0.0, lambda k: xlogy(k, mu) - gammaln(k + 1) - mu)


logpmf, pmf, cdf = discrete(
    "poisson", "logpmf pmf cdf", "mu", logpmf=_logpmf,
    cdf=lambda k, mu: within(k >= 0, wnp.floor(k), 0.0, lambda k: gammaincc(k + 1, mu), 0.0))


guard_all(globals())
