"""The negative binomial distribution: failures before `n` successes of probability `p`."""

from __future__ import annotations

from weft.scipy.special import gammaln, xlog1py, xlogy
from weft.scipy.stats.family import discrete, whole, within


def _logpmf(k, n, p):
    return within(whole(k), k, 0.0, lambda k: gammaln(k + n) - gammaln(k + 1) - gammaln(n) + xlogy(n, p) + xlog1py(k, -p))


logpmf, pmf = discrete("nbinom", "logpmf pmf", "n p", logpmf=_logpmf)
