"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy import special
from weft.scipy.stats.family import continuous


def _logpdf(z, df):
    scale = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * wnp.log(df) - 0.5 * math.log(math.pi)
    return scale - (df + 1) / 2 * wnp.log1p(z * z / df)


logpdf, pdf = continuous("t", "logpdf pdf", "df", logpdf=_logpdf)
