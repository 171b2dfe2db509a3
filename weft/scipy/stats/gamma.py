"""The gamma distribution with shape parameter `a`."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft import numpy as wnp
from weft.control.custom_rules import custom_jvp
from weft.ops import elementwise as ew
from weft.ops.functions.gammas import log_less_digamma
from weft.ops.functions.incomplete import igamma_grad_x, log_igamma, log_igammac
from weft.scipy import special
from weft.scipy.stats.deviance import log_poisson_by_ratio, log_quotient
from weft.scipy.stats.family import continuous, within
from weft.util.source import guard_all


def log_density(unit: int) -> Callable:
    """log(m^(a - 1) exp(-m) / gamma(a)) of m = z / `unit`, which may be too small for a float."""
    @custom_jvp
    def fun(z, a):
        few, m = a < 1, z / unit
        many, order = wnp.where(few, 0, a - 1), wnp.where(few, a, 1)
        some = wnp.where(few & (z > 0), z, 1)
        near = log_quotient(order, some) + math.log(unit) + order * (wnp.log(some) - math.log(unit)) - m - ew.lgamma(order + 1)
        far = log_poisson_by_ratio(many, m, log_quotient(z, unit * wnp.where(many > 0, many, 1)))
        value = wnp.where(few, wnp.where(z > 0, near, math.inf), far)
        return wnp.where(a > 0, value, math.nan)
    fun.defjvps(lambda t, out, z, a: t * (wnp.where(a == 1, 0, (a - 1) / z) - 1 / unit),
                lambda t, out, z, a: t * (log_less_digamma(z, a) - math.log(unit)))
    return fun


_log_density = log_density(1)
logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "gamma", "logpdf pdf cdf logcdf sf logsf", "a",
    logpdf=lambda z, a: within(z >= 0, z, 1.0, lambda z: _log_density(z, a)),
    pdf=lambda z, a: within(z >= 0, z, 1.0, lambda z: igamma_grad_x(a, z), 0.0),
    cdf=lambda z, a: special.gammainc(a, wnp.maximum(z, 0)), sf=lambda z, a: special.gammaincc(a, wnp.maximum(z, 0)),
    logcdf=lambda z, a: log_igamma(a, wnp.maximum(z, 0)), logsf=lambda z, a: log_igammac(a, wnp.maximum(z, 0)))


guard_all(globals())
