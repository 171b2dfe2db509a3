"""The von Mises distribution on the circle."""

from __future__ import annotations

import math

import numpy as np

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.special.fits import make_piecewise_series
from weft._engine.scipy.stats.family import public
from weft._engine.util.source import guard_all
from weft.scipy import special


def _gap(t):
    """2 x (1 - I1(x) / I0(x)) for x = 1 / t, on the host: by the trapezoid rule for the integrals of exp(x cos) and of its
    product with 1 - cos; for large x by their asymptotic series."""
    x = 1 / t
    near, far = np.minimum(x, 60), np.maximum(x, 60)
    squares = np.sin(np.pi * (np.arange(200) + 0.5) / 400)[:, None] ** 2
    bell = np.exp(-2 * near * squares)
    first, second, term, other = (
        np.ones_like(x),
        np.zeros_like(x),
        np.ones_like(x),
        np.ones_like(x),
    )
    for k in range(1, 24):
        # I0 and I1 times sqrt(2 pi x) exp(-x); terms differ by a factor of 1 / x
        term, other = (
            term * (2 * k - 1) ** 2 / (8 * k * far),
            other * ((2 * k - 1) ** 2 - 4) / (8 * k * far),
        )
        first, second = first + term, second + (term - other) * 2 * far
    return np.where(x > 60, second / first, 4 * near * (bell * squares).sum(0) / bell.sum(0))


_GAP = make_piecewise_series("vonmises_gap", _gap, 0.0, 0.125, 0.5)


def _less_than_one(kappa):
    """1 - I1(kappa) / I0(kappa)."""
    large = kappa > 2
    t, near = 1 / wnp.where(large, kappa, 2), wnp.where(large, 0, kappa)
    return wnp.where(large, _GAP(t) * t / 2, 1 - special.i1e(near) / special.i0e(near))


@custom_jvp
def _logs(x, kappa):
    """kappa (cos(x) - 1) and log(I0(kappa) exp(-kappa))."""
    half = wnp.sin(x / 2)
    return -(kappa * half) * (2 * half) - wnp.log(special.i0e(kappa))


def _by_kappa(x, kappa):
    return _less_than_one(kappa) - 2 * wnp.square(wnp.sin(x / 2))


_logs.defjvps(
    lambda t, out, x, kappa: -t * (kappa * wnp.sin(x)),
    lambda t, out, x, kappa: t * _by_kappa(x, kappa),
)


@custom_jvp
def _density(x, kappa):
    half = wnp.sin(x / 2)
    return wnp.exp(-(kappa * half) * (2 * half)) / (2 * math.pi * special.i0e(kappa))


_density.defjvps(
    lambda t, out, x, kappa: -t * (out * (kappa * wnp.sin(x))),
    lambda t, out, x, kappa: t * (out * _by_kappa(x, kappa)),
)
logpdf = public(
    "vonmises",
    "logpdf",
    "x kappa",
    lambda x, kappa: wnp.where(kappa >= 0, _logs(x, kappa) - math.log(2 * math.pi), wnp.nan),
)
pdf = public(
    "vonmises",
    "pdf",
    "x kappa",
    lambda x, kappa: wnp.where(kappa >= 0, _density(x, kappa), wnp.nan),
)


guard_all(globals())
