"""The binomial distribution: successes in `n` trials of probability `p`."""

from __future__ import annotations

from weft.scipy.special import xlog1py, xlogy
from weft.scipy.stats.family import discrete, log_choice, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, p):
    return within(whole(k) & (k <= n), k, 0.0, lambda k: log_choice(n, k) + xlogy(k, p) + xlog1py(n - k, -p))


logpmf, pmf = discrete("binom", "logpmf pmf", "n p", logpmf=_logpmf)


guard_all(globals())
