"""Chebyshev series for functions of one variable, fitted to values of SciPy.

In:   a name, and a function of a float64 NumPy array, smooth on an interval.
Out:  a function of an array or a tracer. For float32 the series is truncated where the terms fall below float32's rounding.
Laws: the coefficients are in `series.txt`, written by `python -m weft.tools.series`, so that a first call needs no SciPy; a
      missing series is fitted on demand. `make_piecewise_series` selects among intervals; each is evaluated at arguments clipped to it, so
      that no unused lane is infinite or NaN.
Source: C. W. Clenshaw, "A note on the summation of Chebyshev series", Mathematics of Computation 9 (1955).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from weft import numpy as wnp

STORED = Path(__file__).with_name("series.txt")
_POINTS = 96  # points of the fit, enough for all functions here
_GROWTH = 1.5  # the allowed growth of the rounding error by powers, which need half the operations of Chebyshev polynomials

#: all series in use, by name and interval
known: dict[str, Chebyshev] = {}


@functools.cache
def _read_terms() -> dict[str, list[float]]:
    """Return the stored coefficients by name: a line has a name without spaces, a colon and numbers."""
    lines = [line.partition(": ") for line in STORED.read_text().splitlines()]
    return {name: [float(term) for term in terms.split()] for name, _, terms in lines}


class Chebyshev:
    """A function of float64 NumPy arrays, represented by its Chebyshev series between `low` and `high`."""

    def __init__(self, name: str, fun: Callable, low: float, high: float):
        self.name, self.fun, self.low, self.high = f"{name}[{low:.6g},{high:.6g}]", fun, low, high
        known[self.name] = self

    def fit(self) -> list[float]:
        """Return the coefficients that are nonzero in float64, from values of the function."""
        nodes = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
        values = self.fun((nodes + 1) * ((self.high - self.low) / 2) + self.low)
        # large angles would round
        turns = np.outer(np.arange(_POINTS), 2 * np.arange(_POINTS) + 1) % (4 * _POINTS)
        # where there is more than float64
        wide = np.cos(turns * (np.arccos(np.longdouble(-1)) / (2 * _POINTS)))
        terms = (wide * values).sum(1) * (2 / np.longdouble(_POINTS))
        terms[0] /= 2
        # the last coefficients are rounding errors
        return _truncate_series(
            terms.astype(np.float64), np.dtype(np.float64), 2 * float(np.abs(terms[-16:]).max())
        )

    @functools.cached_property
    def terms(self) -> list[float]:
        """The coefficients in float64."""
        return _read_terms().get(self.name) or self.fit()

    def __call__(self, x):
        terms = _truncate_series(self.terms, x.dtype)
        t = (x - self.low) * (2 / (self.high - self.low)) - 1
        powers = _powers(terms)
        if np.abs(powers).sum() < _GROWTH * np.abs(terms).sum():
            total = wnp.full_like(t, powers[-1])
            for c in powers[-2::-1]:
                total = total * t + c
            return total
        after, last = wnp.zeros_like(t), wnp.zeros_like(t)
        for c in terms[:0:-1]:
            after, last = 2 * t * after - last + c, after
        return t * after - last + terms[0]


def _powers(terms: list[float]) -> list[float]:
    """Return the coefficients of the same polynomial in powers of its variable.

    They are computed in extended precision if available, because their rounding errors enter every value.
    """
    total, exact = np.zeros(len(terms), np.longdouble), np.eye(2, len(terms), dtype=np.longdouble)
    last, this = exact  # two consecutive Chebyshev polynomials
    for c in terms:
        total += c * last
        last, this = this, 2 * np.roll(this, 1) - last
    return total.astype(float).tolist()


def _truncate_series(terms, dtype: np.dtype, min_share: float = 0.0) -> list[float]:
    """Drop the last terms that are smaller than `min_share` or than the resolution of `dtype`."""
    sizes = np.abs(terms)
    large = np.flatnonzero(sizes > max(float(np.finfo(dtype).eps) / 8 * sizes.max(), min_share))
    return list(map(float, terms[: large[-1] + 1]))


def make_piecewise_series(name: str, fun: Callable, *breaks: float) -> Callable:
    """Return `fun` as one series between each two consecutive `breaks`; arguments outside are clipped."""
    parts = [Chebyshev(name, fun, low, high) for low, high in itertools.pairwise(breaks)]

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
