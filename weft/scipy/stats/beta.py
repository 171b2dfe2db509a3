"""The beta distribution with shape parameters `a` and `b`."""

from __future__ import annotations

from weft import numpy as wnp
from weft.ops.functions.incomplete_beta import betaincc, log_betainc
from weft.scipy import special
from weft.scipy.stats.family import continuous, valid, within
from weft.util.source import guard_all


def _logpdf(z, a, b):
    return within((z >= 0) & (z <= 1), z, 0.5,
                  lambda z: special.xlogy(a - 1, z) + special.xlog1py(b - 1, -z) - special.betaln(a, b))


def _in_unit(fun):
    """`fun(a, b, z)` of arguments of one shape, z between 0 and 1."""
    return lambda z, a, b: fun(*wnp.broadcast_arrays(a, b, wnp.clip(z, 0, 1)))


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "beta", "logpdf pdf cdf logcdf sf logsf", "a b", **valid(lambda a, b: (a > 0) & (b > 0), {
        "logpdf": _logpdf, "cdf": _in_unit(special.betainc), "sf": _in_unit(betaincc),
        "logcdf": _in_unit(lambda a, b, z: log_betainc(a, b, z, 1 - z)), "logsf": _in_unit(lambda a, b, z: log_betainc(b, a, 1 - z, z))}))


guard_all(globals())
