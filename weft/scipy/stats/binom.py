"""The binomial distribution: successes in `n` trials of probability `p`."""

from __future__ import annotations

from weft.scipy.stats.deviance import log_binomial
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, p):
    return within(whole(k) & (k <= n), k, 0.0, lambda k: log_binomial(k, n - k, p, 1 - p))


logpmf, pmf = discrete("binom", "logpmf pmf", "n p", logpmf=_logpmf)


guard_all(globals())
