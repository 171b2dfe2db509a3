"""The beta-binomial distribution: a binomial distribution whose probability is drawn from a beta distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.deviance import (
    beta_binomial,
    beta_binomial_slope,
    count_slope,
    log_beta_binomial,
)
from weft._engine.scipy.stats.family import discrete, evaluate_where, is_count
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all


def _outer(k, m, a, b):
    """Return the probability without its factors a and b, which may be subnormal: the probability with one count less of
    each kind that occurs, and the remaining factors
    other than B(a + 1, b + 1) (a + b) (a + b + 1) / (a b) or B(a, b + n) (a + b) / (a + b + n)."""
    none, all_, n, total = k == 0, m == 0, k + m, a + b + 1
    outer = (
        beta_binomial(wnp.where(none, 0, k - 1), wnp.where(all_, 0, m - 1), a + 1, b + 1) / total
    )
    return outer * wnp.where(
        none | all_, a + b + n, n / wnp.where(none, 1, k) * ((n - 1) / wnp.where(all_, 1, m))
    )


@custom_jvp
def _pmf(k, m, a, b):
    none, all_ = k == 0, m == 0
    factor = wnp.where(none | all_, wnp.where(none, b, a) / (a + b), a / (a + b) * b)
    return wnp.where(none & all_, 1.0, _outer(k, m, a, b) * factor)


def _slope(t, out, k, m, a, b):
    """The derivative by a; for tiny a, where the logarithm's derivative is infinite, by the derivative of the factors."""
    none, all_ = k == 0, m == 0
    part = b / (a + b)
    factor = wnp.where(none | all_, wnp.where(all_, part, -part) / (a + b), part * part)
    by_factor = wnp.where(none & all_, 0, _outer(k, m, a, b) * factor)
    least = float(dtypes.finfo(a.dtype).smallest_normal)
    is_small = (a < 4 * least) | ((a < 1e-20) & (out < 1e9 * least))
    return t * wnp.where(is_small, by_factor, out * beta_binomial_slope(k, m, a, b))


_pmf.defjvps(
    lambda t, out, k, m, a, b: t * (out * count_slope(k, m, a, b)),
    lambda t, out, k, m, a, b: t * (out * count_slope(m, k, b, a)),
    _slope,
    lambda t, out, k, m, a, b: _slope(t, out, m, k, b, a),
)
logpmf, pmf = discrete(
    "betabinom",
    "logpmf pmf",
    "n a b",
    logpmf=lambda k, n, a, b: evaluate_where(
        is_count(k) & (k <= n), k, 0.0, lambda k: log_beta_binomial(k, n - k, a, b)
    ),
    pmf=lambda k, n, a, b: evaluate_where(
        is_count(k) & (k <= n), k, 0.0, lambda k: _pmf(k, n - k, a, b), 0.0
    ),
)


guard_all(globals())
