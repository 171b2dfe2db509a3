"""The multinomial distribution: the counts of each outcome in `n` trials."""

from __future__ import annotations

from weft import numpy as wnp
from weft._engine.numpy.promote import all_inexact, inexact
from weft._engine.util.source import guard_all
from weft.scipy.special import gammaln, xlogy


def logpmf(x, n, p):
    """The logarithm of the probability of the counts `x` along the last dim."""
    p = wnp.asarray(inexact("multinomial.logpmf", p))
    # counts need no promotion
    x, n, p = all_inexact(
        "multinomial.logpmf",
        *(
            value.astype(p.dtype) if wnp.issubdtype(value.dtype, wnp.integer) else value
            for value in map(wnp.asarray, (x, n))
        ),
        p,
    )
    if not x.ndim or not p.ndim:
        raise ValueError(
            "multinomial.logpmf: `x` and `p` must hold the outcomes along their last dims, got a scalar."
        )
    value = gammaln(n + 1) + wnp.sum(xlogy(x, p) - gammaln(x + 1), -1)
    return wnp.where(wnp.sum(x, -1) == n, value, -wnp.inf)


def pmf(x, n, p):
    """The probability of the counts `x` along the last dim."""
    return wnp.exp(logpmf(x, n, p))


guard_all(globals())
