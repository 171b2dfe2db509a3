"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.control.custom_rules import custom_jvp
from weft.ops import elementwise as ew
from weft.scipy.stats.cauchy import log1p_square
from weft.scipy.stats.deviance import STIRLING, deviance
from weft.scipy.stats.family import continuous
from weft.util.source import guard_all

#: of the odd powers of 1 / h in log(gamma(h + 1/2) / gamma(h)) - log(h) / 2
_SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)


def _scale(df):
    """log(gamma(h + 1/2) / gamma(h)) - log(h) / 2 of h = df / 2, which may be too small for a float."""
    h = df / 2
    large = h >= STIRLING
    inverse, near = 1 / wnp.where(large, h, STIRLING), wnp.where(large, 1, h)
    square, series = inverse * inverse, 0.0
    for c in reversed(_SERIES):
        series = series * square + c
    direct = 0.5 * (wnp.log(wnp.where(large, 1, df)) - math.log(2)) + (ew.lgamma(near + 0.5) - ew.lgamma(near + 1))
    return wnp.where(large, series * inverse, direct)


def _scale_slope(h):
    """The derivative of that by log(h)."""
    total, square, series = 0.25 / ((h + 1) * (h + 0.5)), wnp.square(1 / (h + 10)), 0.0
    for k in range(1, 10):
        total = total + h / (h + k) * (0.25 / ((h + k + 1) * (h + k + 0.5)))
    for k, c in reversed(list(enumerate(_SERIES))):
        series = series * square - (2 * k + 1) * c
    return total + series * square * h


@custom_jvp
def _logpdf(z, df):
    return _scale(df) - 0.5 * math.log(2 * math.pi) - (df + 1) / 2 * log1p_square(z, wnp.sqrt(df))


def _slope_by_z(z, df):
    """Of the logarithm."""
    root = wnp.sqrt(df)
    wide = wnp.abs(z) > root
    near, far = wnp.where(wide, 0, z) / root, wnp.where(wide, root / wnp.where(wide, z, 1), 0)
    return -(df + 1) * wnp.where(wide, 1 / wnp.where(wide, z, 1) / (1 + far * far), near / root / (1 + near * near))


def _slope_by_df(z, df):
    """Of the logarithm: the two parts of first / df - second."""
    root = wnp.sqrt(df)
    wide = wnp.abs(z) > root
    ratio = wnp.square(wnp.where(wide, root / wnp.where(wide, z, 1), z / root))
    part = wnp.where(wide, 1, ratio) / (1 + ratio)          # z^2 / (df + z^2)
    return _scale_slope(df / 2) + part / 2, deviance(wnp.full_like(z, 0.5), -0.5 * part, -log1p_square(z, root))


def _logpdf_slope(t, out, z, df):
    first, second = _slope_by_df(z, df)
    return t * (first / df - second)


_logpdf.defjvps(lambda t, out, z, df: t * _slope_by_z(z, df), _logpdf_slope)


def _pdf_per_root(z, df):
    """The density divided by the root of `df`: it is proportional to that where `df` is small."""
    h, root = df / 2, wnp.sqrt(df)
    few = df < 1
    first = wnp.where(few, wnp.exp(ew.lgamma(h + 0.5) - ew.lgamma(h + 1)) / math.sqrt(4 * math.pi),
                      wnp.exp(_scale(wnp.where(few, 1, df))) / math.sqrt(2 * math.pi) / wnp.where(few, 1, root))
    size, power = wnp.abs(z), wnp.exp(-h * log1p_square(z, root))
    wide = size > root
    near, far = wnp.where(wide, 0, size / root), wnp.where(wide, root / wnp.where(wide, size, 1), 0)
    return first * power, wnp.where(wide, far / wnp.sqrt(1 + far * far), 1 / wnp.sqrt(1 + near * near)), root


@custom_jvp
def _pdf(z, df):
    first, second, root = _pdf_per_root(z, df)
    return first * root * second


def _pdf_slope(t, out, z, df):
    first, second, root = _pdf_per_root(z, df)
    rise, fall = _slope_by_df(z, df)
    return t * (first * (second / root * rise - root * second * fall))


_pdf.defjvps(lambda t, out, z, df: t * wnp.where(out == 0, 0, out * _slope_by_z(z, df)), _pdf_slope)
logpdf, pdf = continuous("t", "logpdf pdf", "df", logpdf=_logpdf, pdf=_pdf)


guard_all(globals())
