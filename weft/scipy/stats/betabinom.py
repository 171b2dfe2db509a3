"""The beta-binomial distribution: a binomial one whose probability is drawn from a beta distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft.control.custom_rules import custom_jvp
from weft.scipy.special import betaln
from weft.scipy.stats.family import discrete, log_choice, whole, within
from weft.util.source import guard_all


def _logpmf(k, n, a, b):
    return within(whole(k) & (k <= n), k, 0.0, lambda k: (
        betaln(k + a, n - k + b) - betaln(a, b) + log_choice(n, k)))


@custom_jvp
def _share(a, b):
    """a / (a + b)."""
    return a / (a + b)


_share.defjvps(lambda t, out, a, b: t * (b / (a + b)) / (a + b), lambda t, out, a, b: -t * out / (a + b))


@custom_jvp
def _common(a, b):
    """a b / (a + b)."""
    return a / (a + b) * b


_common.defjvps(lambda t, out, a, b: t * wnp.square(b / (a + b)), lambda t, out, a, b: t * wnp.square(a / (a + b)))


def _pmf(k, n, a, b):
    """The factors a and b of small parameters stand apart: the logarithm's slope by the least of them is beyond all floats."""
    none, all_ = k == 0, k == n
    first, last = wnp.where(none, a + 1, a + k), wnp.where(all_, b + 1, b + n - k)
    outer = wnp.exp(betaln(first, last) - betaln(a + 1, b + 1) + log_choice(n, k))
    total = a + b + 1
    # B(a, b) is B(a + 1, b + 1) (a + b) (a + b + 1) / (a b), and B(a, b + n) is B(a + 1, b + n) (a + b + n) / a
    middle = _common(a, b) / total
    ends = wnp.where(none, _share(b, a), _share(a, b)) * ((a + b + n) / total)
    return wnp.where(none & all_, 1.0, outer * wnp.where(none | all_, ends, middle))


logpmf, pmf = discrete("betabinom", "logpmf pmf", "n a b", logpmf=_logpmf, pmf=lambda k, n, a, b: within(
    whole(k) & (k <= n), k, 0.0, lambda k: _pmf(k, n, a, b), 0.0))


guard_all(globals())
