"""The negative binomial distribution: failures before `n` successes of probability `p`."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.special.deviance import log_quotient
from weft._engine.scipy.stats.deviance import binomial_slope, log_binomial
from weft._engine.scipy.stats.family import discrete, evaluate_where, is_count
from weft._engine.util.source import guard_all


def _logpmf(k, n, p):
    return log_binomial(n, k, p, 1 - p) + wnp.where(k == 0, 0, log_quotient(n, n + k))


def _part(k, n, slope=1.0):
    """n / (n + k), for failures k, in units of a derivative."""
    return wnp.where(k == 0, slope, n * (slope / (n + k)))


@custom_jvp
def _pmf(k, n, p):
    """The factor n of the probability of failures is separate: for the smallest n the logarithm's derivative overflows."""
    return _part(k, n) * wnp.exp(log_binomial(n, k, p, 1 - p))


def _slope(i, k, n, p, of_part):
    """The derivative, by the derivatives of the factor n and of the logarithm of the rest."""
    return binomial_slope(
        i,
        n,
        k,
        p,
        1 - p,
        lambda slope: wnp.where(k == 0, 0, of_part / (n + k)) + _part(k, n, slope),
    )


_pmf.defjvps(
    lambda t, out, k, n, p: t * _slope(1, k, n, p, -_part(k, n)),
    lambda t, out, k, n, p: t * _slope(0, k, n, p, k / (n + k)),
    lambda t, out, k, n, p: t * _slope(2, k, n, p, 0.0),
)
logpmf, pmf = discrete(
    "nbinom",
    "logpmf pmf",
    "n p",
    logpmf=lambda k, n, p: evaluate_where(is_count(k), k, 0.0, lambda k: _logpmf(k, n, p)),
    pmf=lambda k, n, p: evaluate_where(is_count(k), k, 0.0, lambda k: _pmf(k, n, p), 0.0),
)


guard_all(globals())
