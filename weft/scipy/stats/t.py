"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.ops import elementwise as ew
from weft._engine.scipy.special.deviance import deviance
from weft._engine.scipy.stats.family import continuous, log1p_square
from weft._engine.util.source import guard_all

#: coefficients of the odd powers of 1 / h in log(gamma(h + 1/2) / gamma(h)) - log(h) / 2
_SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)


def _scale(df):
    """log(gamma(h + 1/2) / gamma(h)) - log(h) / 2 for h = df / 2: by a series for large h, to which smaller h are shifted by a
    product; for tiny h by gamma functions."""
    h, steps, is_small_df = df / 2, 3 if df.dtype.itemsize == 4 else 10, df < 1
    safe_h, part, series = wnp.where(is_small_df, 1, h), 0.0, 0.0
    for k in range(steps):
        step = 0.25 / ((safe_h + k) * (safe_h + (k + 1)))
        part = part + step + part * step
    inverse = 1 / wnp.where(safe_h < steps, safe_h + steps, safe_h)
    square = inverse * inverse
    for c in reversed(_SERIES):
        series = series * square + c
    low = wnp.where(is_small_df, h, 1)
    near = 0.5 * (wnp.log(wnp.where(is_small_df, df, 1)) - math.log(2)) + (
        ew.lgamma(low + 0.5) - ew.lgamma(low + 1)
    )
    return wnp.where(
        is_small_df, near, series * inverse - wnp.where(safe_h < steps, 0.5 * wnp.log1p(part), 0)
    )


def _scale_slope(h):
    """The derivative of `_scale` by log(h)."""
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
    """The derivative of the logarithm."""
    root = wnp.sqrt(df)
    is_wide = wnp.abs(z) > root
    near, large = wnp.where(is_wide, 0, z), wnp.where(is_wide, z, 1)
    return -wnp.where(
        is_wide,
        (df + 1) / large / (1 + wnp.square(root / large)),
        (near + near / df) / (1 + wnp.square(near / root)),
    )


def _slope_by_df(z, df):
    """Return (first, second): the derivative of the log density by `df` is first / df - second."""
    root = wnp.sqrt(df)
    is_wide = wnp.abs(z) > root
    ratio = wnp.square(wnp.where(is_wide, root / wnp.where(is_wide, z, 1), z / root))
    part = wnp.where(is_wide, 1, ratio) / (1 + ratio)  # z^2 / (df + z^2)
    return _scale_slope(df / 2) + part / 2, deviance(
        wnp.full_like(z, 0.5), -0.5 * part, -log1p_square(z, root)
    )


def _logpdf_slope(t, out, z, df):
    first, second = _slope_by_df(z, df)
    return t * (first / df - second)


_logpdf.defjvps(lambda t, out, z, df: t * _slope_by_z(z, df), _logpdf_slope)


def _pdf_parts(z, df):
    """The density is the product of the first, of the root of `df` by itself and by the second, and of a power."""
    h, root = df / 2, wnp.sqrt(df)
    is_small_df = df < 1
    first = wnp.where(
        is_small_df,
        wnp.exp(ew.lgamma(h + 0.5) - ew.lgamma(h + 1)) / math.sqrt(4 * math.pi),
        wnp.exp(_scale(wnp.where(is_small_df, 1, df)))
        / math.sqrt(2 * math.pi)
        / wnp.where(is_small_df, 1, root),
    )
    size, power = wnp.abs(z), wnp.exp(-h * log1p_square(z, root))
    is_wide = size > root
    most, ratio = (
        wnp.where(is_wide, size, root),
        wnp.where(is_wide, root / wnp.where(is_wide, size, 1), size / root),
    )
    return first, 1 / most / wnp.sqrt(1 + ratio * ratio), root, power


@custom_jvp
def _pdf(z, df):
    first, second, root, power = _pdf_parts(z, df)
    return first * root * (root * second) * power


def _pdf_slope(t, out, z, df):
    first, second, root, power = _pdf_parts(z, df)
    rise, fall = _slope_by_df(z, df)
    return t * (first * power * (second * rise - root * (root * second) * fall))


_pdf.defjvps(lambda t, out, z, df: t * wnp.where(out == 0, 0, out * _slope_by_z(z, df)), _pdf_slope)
logpdf, pdf = continuous("t", "logpdf pdf", "df", logpdf=_logpdf, pdf=_pdf)


guard_all(globals())
