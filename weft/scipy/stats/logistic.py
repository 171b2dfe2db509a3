"""The logistic distribution."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.family import continuous
from weft._engine.util.source import guard_all
from weft.scipy import special


@custom_jvp
def _logpdf(z):
    size = wnp.abs(z)
    return -size - 2 * wnp.log1p(wnp.exp(-size))


_logpdf.defjvps(lambda t, out, z: -t * wnp.tanh(z / 2))
_cdf = custom_jvp(special.expit)
_cdf.defjvps(lambda t, out, z: t * (out * special.expit(-z)))
logpdf, pdf, cdf, sf, ppf, isf = continuous(
    "logistic",
    "logpdf pdf cdf sf ppf isf",
    quantile="x",
    logpdf=_logpdf,
    cdf=_cdf,
    sf=lambda z: _cdf(-z),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
)


guard_all(globals())
