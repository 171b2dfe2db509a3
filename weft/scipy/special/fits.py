"""Chebyshev series for functions of one variable, fitted on the host to values of SciPy.

In:   a function of a float64 NumPy array, smooth on an interval.
Out:  a function of an array or a tracer. For float32 its series is cut where the terms fall below float32's rounding.
Laws: the terms are computed once per process and are constants of the programs that use them. `pieces` chooses between
      intervals; each is evaluated at arguments that are clipped to it, so that no lane is ever infinite or NaN in vain.
Source: C. W. Clenshaw, "A note on the summation of Chebyshev series", Mathematics of Computation 9 (1955).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from weft import numpy as wnp

_POINTS = 96        # of the fit: no function here needs more


class Chebyshev:
    """A function of float64 NumPy arrays as its Chebyshev series between `low` and `high`."""

    def __init__(self, fun: Callable, low: float, high: float):
        self.fun, self.low, self.high = fun, low, high
        self._terms: np.ndarray | None = None

    def terms(self, dtype: np.dtype) -> list[float]:
        """The coefficients that `dtype` can distinguish from zero."""
        if self._terms is None:
            nodes = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
            values = self.fun((nodes + 1) * ((self.high - self.low) / 2) + self.low)
            turns = np.outer(np.arange(_POINTS), 2 * np.arange(_POINTS) + 1) % (4 * _POINTS)       # large angles would round
            terms = np.cos(turns * (np.pi / (2 * _POINTS))) @ values * (2 / _POINTS)
            terms[0] /= 2
            self._terms = terms
        sizes = np.abs(self._terms)
        least = max(float(np.finfo(dtype).eps) / 8 * sizes.max(), 2 * sizes[-16:].max())    # the last ones are rounding alone
        large = np.flatnonzero(sizes > least)
        return self._terms[:large[-1] + 1].tolist()

    def __call__(self, x):
        terms = self.terms(x.dtype)
        t = (x - self.low) * (2 / (self.high - self.low)) - 1
        after, last = wnp.zeros_like(t), wnp.zeros_like(t)
        for c in terms[:0:-1]:
            after, last = 2 * t * after - last + c, after
        return t * after - last + terms[0]


def pieces(fun: Callable, *breaks: float) -> Callable:
    """`fun` by a series from each of the `breaks` to the next; arguments outside are clipped."""
    parts = [Chebyshev(fun, low, high) for low, high in itertools.pairwise(breaks)]

    def evaluate(x):
        out = parts[0](wnp.clip(x, parts[0].low, parts[0].high))
        for part in parts[1:]:
            out = wnp.where(x >= part.low, part(wnp.clip(x, part.low, part.high)), out)
        return out
    return evaluate


def asymptotic(x: np.ndarray, ratio: Callable, count: int) -> np.ndarray:
    """1 + ratio(x, 1) (1 + ratio(x, 2) (1 + ...)): `count` terms of an asymptotic series, on the host."""
    out = np.ones_like(x)
    for k in range(count, 0, -1):
        out = 1 + ratio(x, k) * out
    return out
