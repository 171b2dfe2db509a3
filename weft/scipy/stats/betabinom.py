"""The beta-binomial distribution: a binomial one whose probability is drawn from a beta distribution."""

from __future__ import annotations

from weft.scipy.special import betaln
from weft.scipy.stats.family import discrete, log_choice, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, a, b):
    return within(whole(k) & (k <= n), k, 0.0, lambda k: (
        betaln(k + a, n - k + b) - betaln(a, b) + log_choice(n, k)))


logpmf, pmf = discrete("betabinom", "logpmf pmf", "n a b", logpmf=_logpmf)


guard_all(globals())
