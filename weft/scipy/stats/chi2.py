"""The chi-square distribution with `df` degrees of freedom."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft import numpy as wnp
from weft._engine.ops.functions.incomplete import igamma_grad_x, log_igamma, log_igammac
from weft._engine.scipy.stats.deviance import log_gamma_density
from weft._engine.scipy.stats.family import (
    continuous,
    evaluate_where,
    log_one_less_exp,
    one_less_exp,
)
from weft._engine.util.source import guard_all
from weft.scipy import special

_log_density = log_gamma_density(2)


def _pdf(z, df):
    """exp(-z / 2), which is 1 for the smallest z, whose half may be zero."""
    is_tiny = z < 1e4 * wnp.finfo(z.dtype).smallest_normal
    a = df / 2
    return igamma_grad_x(a, wnp.where(is_tiny, z, z / 2)) * wnp.where(is_tiny, wnp.exp2(-a), 0.5)


def _near_zero(small: Callable, regular: Callable) -> Callable:
    """Return a function of z and df: `regular(df / 2, z / 2)`, and for the smallest z, whose half may be zero,
    `small` of the first term of the log cdf."""

    def fun(z, df):
        a, z = wnp.broadcast_arrays(df / 2, wnp.maximum(z, 0))
        is_tiny = (z > 0) & (z < 1e4 * wnp.finfo(z.dtype).smallest_normal)
        first = a * (wnp.log(wnp.where(is_tiny, z, 1)) - math.log(2)) - special.gammaln(a + 1)
        return wnp.where(is_tiny, small(first), regular(a, wnp.where(is_tiny, 1, z) / 2))

    return fun


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "chi2",
    "logpdf pdf cdf logcdf sf logsf",
    "df",
    logpdf=lambda z, df: evaluate_where(
        z >= 0, z, 1.0, lambda z: _log_density(z, df / 2) - math.log(2)
    ),
    pdf=lambda z, df: evaluate_where(z >= 0, z, 1.0, lambda z: _pdf(z, df), 0.0),
    cdf=_near_zero(wnp.exp, special.gammainc),
    sf=_near_zero(lambda first: one_less_exp(-first), special.gammaincc),
    logcdf=_near_zero(lambda first: first, log_igamma),
    logsf=_near_zero(lambda first: log_one_less_exp(-first), log_igammac),
)


guard_all(globals())
