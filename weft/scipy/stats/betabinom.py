"""The beta-binomial distribution: a binomial one whose probability is drawn from a beta distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft.control.custom_rules import custom_jvp
from weft.scipy.stats.deviance import log_beta_binomial, share
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


@custom_jvp
def _common(a, b):
    """a b / (a + b)."""
    return a / (a + b) * b


_common.defjvps(lambda t, out, a, b: t * wnp.square(b / (a + b)), lambda t, out, a, b: t * wnp.square(a / (a + b)))


def _pmf(k, n, a, b):
    """The factors a and b of small parameters stand apart: the logarithm's slope by the least of them is beyond all floats."""
    none, all_ = k == 0, k == n
    first, last = wnp.where(none, 0, k - 1), wnp.where(all_, 0, n - k - 1)
    outer = wnp.exp(log_beta_binomial(first, wnp.maximum(last, 0), a + 1, b + 1))
    total = a + b + 1
    # B(a, b) is B(a + 1, b + 1) (a + b) (a + b + 1) / (a b), and B(a, b + n) is B(a + 1, b + n) (a + b + n) / a
    middle = _common(a, b) / total * (n / wnp.maximum(k, 1)) * ((n - 1) / wnp.where(all_, 1, n - k))
    ends = wnp.where(none, share(b, a), share(a, b)) * ((a + b + n) / total)
    return wnp.where(none & all_, 1.0, outer * wnp.where(none | all_, ends, middle))


logpmf, pmf = discrete(
    "betabinom", "logpmf pmf", "n a b", logpmf=lambda k, n, a, b: within(
        whole(k) & (k <= n), k, 0.0, lambda k: log_beta_binomial(k, n - k, a, b)),
    pmf=lambda k, n, a, b: within(whole(k) & (k <= n), k, 0.0, lambda k: _pmf(k, n, a, b), 0.0))


guard_all(globals())
