"""The von Mises distribution on the circle."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import public
from weft.util.source import guard_all


def _logpdf(x, kappa):
    density = kappa * (wnp.cos(x) - 1) - math.log(2 * math.pi) - wnp.log(special.i0e(kappa))
    return wnp.where(kappa >= 0, density, wnp.nan)


logpdf = public("vonmises", "logpdf", "x kappa", _logpdf)
pdf = public("vonmises", "pdf", "x kappa", lambda x, kappa: wnp.exp(_logpdf(x, kappa)))


guard_all(globals())
