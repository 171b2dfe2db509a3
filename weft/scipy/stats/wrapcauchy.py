"""The Cauchy distribution wrapped around the circle."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.scipy.stats.family import public
from weft._engine.util.source import guard_all


def _logpdf(x, c):
    distance = wnp.square(1 - c) + 4 * c * wnp.square(wnp.sin(x / 2))
    density = wnp.log((1 - c) * (1 + c)) - math.log(2 * math.pi) - wnp.log(distance)
    inside = (c > 0) & (c < 1)
    return wnp.where(inside, wnp.where((x >= 0) & (x <= 2 * math.pi), density, -wnp.inf), wnp.nan)


logpdf = public("wrapcauchy", "logpdf", "x c", _logpdf)
pdf = public("wrapcauchy", "pdf", "x c", lambda x, c: wnp.exp(_logpdf(x, c)))


guard_all(globals())
