"""The Cauchy distribution."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.family import continuous, log1p_square, log_of_part
from weft._engine.util.source import guard_all


def _shares(z):
    """1 / (1 + z^2) and z / (1 + z^2), even if the square overflows."""
    large = wnp.abs(z) > 1
    near, far = wnp.where(large, 0, z), 1 / wnp.where(large, z, 1)
    return (
        wnp.where(large, far * far / (1 + far * far), 1 / (1 + near * near)),
        wnp.where(large, far / (1 + far * far), near / (1 + near * near)),
    )


@custom_jvp
def _pdf(z):
    return _shares(z)[0] / math.pi


_pdf.defjvps(lambda t, out, z: -2 * t * (out * _shares(z)[1]))


@custom_jvp
def _sf(z):
    return wnp.arctan2(1, z) / math.pi


_sf.defjvps(lambda t, out, z: -t * _pdf(z))


def _logsf(z):
    """The survival function; for large z the tail is 1 / (pi z), whose derivative has squares."""
    far = z > 1e8
    near = wnp.where(far, 0, z)
    return wnp.where(
        far, -math.log(math.pi) - wnp.log(wnp.where(far, z, 1)), log_of_part(_sf(near), _sf(-near))
    )


def _ppf(q):
    """tan(pi (q - 1/2)), as -cot(pi q) near the ends."""
    middle, low = wnp.abs(q - 0.5) < 0.25, q < 0.5
    end = 1 / wnp.tan(math.pi * wnp.where(middle, 0.25, wnp.where(low, q, 1 - q)))
    return wnp.where(
        middle, wnp.tan(math.pi * (wnp.where(middle, q, 0.5) - 0.5)), wnp.where(low, -end, end)
    )


logpdf, pdf, cdf, logcdf, sf, logsf, ppf, isf = continuous(
    "cauchy",
    "logpdf pdf cdf logcdf sf logsf ppf isf",
    logpdf=lambda z: -math.log(math.pi) - log1p_square(z, wnp.ones_like(z)),
    pdf=_pdf,
    cdf=lambda z: _sf(-z),
    sf=_sf,
    logcdf=lambda z: _logsf(-z),
    logsf=_logsf,
    ppf=_ppf,
    isf=lambda q: -_ppf(q),
)


guard_all(globals())
