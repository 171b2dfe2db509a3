"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.cauchy import log1p_square
from weft.scipy.stats.family import continuous
from weft.util.source import guard_all


def _logpdf(z, df):
    least = 1e-20                                       # below, the beta function is 2 / df
    scale = wnp.log(wnp.minimum(df, least)) - math.log(least) - special.betaln(0.5, wnp.maximum(df, least) / 2)
    return scale - 0.5 * wnp.log(df) - (df + 1) / 2 * log1p_square(z, wnp.sqrt(df))


logpdf, pdf = continuous("t", "logpdf pdf", "df", logpdf=_logpdf)


guard_all(globals())
