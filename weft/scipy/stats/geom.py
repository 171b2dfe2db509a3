"""The geometric distribution: trials of probability `p` up to the first success."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.stats.family import discrete, evaluate_where, is_count
from weft._engine.util.source import guard_all
from weft.scipy.special import xlog1py


def _logpmf(k, p):
    return evaluate_where(is_count(k) & (k >= 1), k, 1.0, lambda k: xlog1py(k - 1, -p) + wnp.log(p))


@custom_jvp
def _probability(k, p):
    return p * wnp.exp(xlog1py(k - 1, -p))


def _by_p(t, out, k, p):
    """(1 - p)^(k - 2) (1 - k p), by a root of the power, which may underflow where the derivative does not."""
    first = k == 1
    root = wnp.exp(0.5 * xlog1py(wnp.where(first, 0, k - 2), -p))
    return t * wnp.where(first, 1, root * (1 - k * p) * root)


_probability.defjvps(lambda t, out, k, p: t * (out * wnp.log1p(-p)), _by_p)


def _pmf(k, p):
    return evaluate_where(is_count(k) & (k >= 1), k, 1.0, lambda k: _probability(k, p), 0.0)


logpmf, pmf = discrete("geom", "logpmf pmf", "p", logpmf=_logpmf, pmf=_pmf)


guard_all(globals())
