"""The Poisson distribution with rate `mu`."""

from __future__ import annotations

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.autodiff import jvp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import all_inexact, broadcast, concrete
from weft._engine.ops.functions.incomplete import igamma_grad_x
from weft._engine.scipy.special.basic import in_single
from weft._engine.scipy.stats.deviance import log_poisson
from weft._engine.scipy.stats.family import discrete, evaluate_where, is_count
from weft._engine.util.source import guard_all
from weft.scipy.special import gammaincc


@custom_jvp
def _pmf(k, mu):
    return wnp.exp(log_poisson(k, mu))


def _slope(fun, x, t):
    return jvp(fun, (x,), (t,))[1]


# the mass function as a density of the gamma distribution, whose derivatives are accurate where the probability underflows
_pmf.defjvps(
    lambda t, out, k, mu: _slope(lambda k: igamma_grad_x(k + 1, mu), k, t),
    lambda t, out, k, mu: _slope(lambda mu: igamma_grad_x(k + 1, mu), mu, t),
)

logpmf, pmf, cdf = discrete(
    "poisson",
    "logpmf pmf cdf",
    "mu",
    logpmf=lambda k, mu: evaluate_where(is_count(k), k, 0.0, lambda k: log_poisson(k, mu)),
    pmf=lambda k, mu: evaluate_where(is_count(k), k, 0.0, lambda k: _pmf(k, mu), 0.0),
    cdf=lambda k, mu: evaluate_where(
        k >= 0, wnp.floor(k), 0.0, lambda k: gammaincc(k + 1, mu), 0.0
    ),
)

_FEW = {4: 60, 8: 100}  # itemsize -> the rate up to which the entropy is summed term by term
_TERMS = 190


def entropy(mu, loc=0):
    """Return the entropy in nats of the Poisson distribution, which does not depend on `loc`; NaN for negative rates.

    >>> round(float(entropy(1.0)), 4)
    1.3048
    """
    mu, loc = all_inexact("poisson.entropy", mu, loc)
    return in_single(_entropy)(*map(concrete, broadcast("poisson.entropy", mu, loc)))


def _entropy(mu, loc):
    most = _FEW[mu.dtype.itemsize]
    is_small_mean = mu < most
    near, far = wnp.where((mu > 0) & is_small_mean, mu, 1), wnp.where(is_small_mean, most, mu)

    def term(carry, logs):
        """The sum of mu^k log(k!) / k!, times exp(-mu): what is carried is the probability of k."""
        total, probability = carry
        log_factorial, k = logs
        return (total + probability * log_factorial, probability * near / (k + 1)), None

    k = np.arange(_TERMS)
    logs = (np.cumsum(np.log(np.maximum(k, 1))).astype(mu.dtype), k.astype(mu.dtype))
    (total, _), _ = lax.scan(term, (wnp.zeros_like(near), wnp.exp(-near)), logs)
    inverse = 1 / far
    series = 0.5 * wnp.log(2 * np.pi * np.e * far) - inverse * (
        1 / 12 + inverse * (1 / 24 + inverse * (19 / 360))
    )
    value = wnp.where(is_small_mean, near * (1 - wnp.log(near)) + total, series)
    return wnp.where(mu < 0, wnp.nan, wnp.where(mu == 0, 0, value)) + 0 * loc


guard_all(globals())
