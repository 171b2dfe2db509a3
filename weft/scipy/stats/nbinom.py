"""The negative binomial distribution: failures before `n` successes of probability `p`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.special import betaln, xlog1py, xlogy
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, p):
    return within(whole(k), k, 0.0, lambda k: xlogy(n, p) + xlog1py(k, -p) - betaln(n, k + 1) - wnp.log(n + k))


logpmf, pmf = discrete("nbinom", "logpmf pmf", "n p", logpmf=_logpmf)


guard_all(globals())
