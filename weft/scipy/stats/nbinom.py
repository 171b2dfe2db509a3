"""The negative binomial distribution: failures before `n` successes of probability `p`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.special import betaln, xlog1py, xlogy
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, p):
    return within(whole(k), k, 0.0, lambda k: xlogy(n, p) + xlog1py(k, -p) - betaln(n, k + 1) - wnp.log(n + k))


def _pmf(k, n, p):
    """The factor n of the probability of failures stands apart: the logarithm's slope by the least n is beyond all floats."""
    some = k > 0
    more = wnp.where(some, k, 1)
    rest = wnp.exp(xlogy(n, p) + xlog1py(more, -p) - betaln(n + 1, more) - wnp.log(n + more))
    return wnp.where(some, n / more * rest, wnp.exp(xlogy(n, p)))


logpmf, pmf = discrete("nbinom", "logpmf pmf", "n p", logpmf=_logpmf, pmf=lambda k, n, p: within(
    whole(k), k, 0.0, lambda k: _pmf(k, n, p), 0.0))


guard_all(globals())
