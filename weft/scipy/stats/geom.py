"""The geometric distribution: trials of probability `p` up to the first success."""

from __future__ import annotations

from weft import numpy as wnp
from weft.scipy.special import xlog1py
from weft.scipy.stats.family import discrete, whole, within
from weft.util.source import guard_all


def _logpmf(k, p):
    return within(whole(k) & (k >= 1), k, 1.0, lambda k: xlog1py(k - 1, -p) + wnp.log(p))


def _pmf(k, p):
    return within(whole(k) & (k >= 1), k, 1.0, lambda k: p * wnp.exp(xlog1py(k - 1, -p)), 0.0)


logpmf, pmf = discrete("geom", "logpmf pmf", "p", logpmf=_logpmf, pmf=_pmf)


guard_all(globals())
