"""The negative binomial distribution: failures before `n` successes of probability `p`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.stats.deviance import log_binomial, log_quotient, share
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, p):
    return log_binomial(n, k, p, 1 - p) + wnp.where(k == 0, 0, log_quotient(n, n + k))


def _pmf(k, n, p):
    """The factor n of the probability of failures stands apart: the logarithm's slope by the least n is beyond all floats."""
    return wnp.where(k == 0, 1, share(n, k)) * wnp.exp(log_binomial(n, k, p, 1 - p))


logpmf, pmf = discrete("nbinom", "logpmf pmf", "n p", logpmf=lambda k, n, p: within(whole(k), k, 0.0, lambda k: _logpmf(k, n, p)),
                       pmf=lambda k, n, p: within(whole(k), k, 0.0, lambda k: _pmf(k, n, p), 0.0))


guard_all(globals())
