"""The von Mises distribution on the circle."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.control.custom_rules import custom_jvp
from weft.scipy import special
from weft.scipy.stats.family import public
from weft.util.source import guard_all


@custom_jvp
def _power(x, kappa):
    """kappa (cos(x) - 1)."""
    half = wnp.sin(x / 2)
    return -(kappa * half) * (2 * half)


_power.defjvps(lambda t, out, x, kappa: -t * (kappa * wnp.sin(x)), lambda t, out, x, kappa: -2 * t * wnp.square(wnp.sin(x / 2)))


def _logpdf(x, kappa):
    return wnp.where(kappa >= 0, _power(x, kappa) - math.log(2 * math.pi) - wnp.log(special.i0e(kappa)), wnp.nan)


def _pdf(x, kappa):
    return wnp.where(kappa >= 0, wnp.exp(_power(x, kappa)) / (2 * math.pi * special.i0e(kappa)), wnp.nan)


logpdf = public("vonmises", "logpdf", "x kappa", _logpdf)
pdf = public("vonmises", "pdf", "x kappa", _pdf)


guard_all(globals())
