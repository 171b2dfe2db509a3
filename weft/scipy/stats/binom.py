"""The binomial distribution: successes in `n` trials of probability `p`."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.deviance import binomial_slope, log_binomial
from weft._engine.scipy.stats.family import discrete, evaluate_where, is_count
from weft._engine.util.source import guard_all


@custom_jvp
def _probability(k, m, p):
    return wnp.exp(log_binomial(k, m, p, 1 - p))


_probability.defjvps(
    *[lambda t, out, k, m, p, i=i: t * binomial_slope(i, k, m, p, 1 - p) for i in range(3)]
)
logpmf, pmf = discrete(
    "binom",
    "logpmf pmf",
    "n p",
    logpmf=lambda k, n, p: evaluate_where(
        is_count(k) & (k <= n), k, 0.0, lambda k: log_binomial(k, n - k, p, 1 - p)
    ),
    pmf=lambda k, n, p: evaluate_where(
        is_count(k) & (k <= n), k, 0.0, lambda k: _probability(k, n - k, p), 0.0
    ),
)


guard_all(globals())
