"""The normal distribution between `a` and `b`, counted in scales from the location."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.scipy.special import log_ndtr
from weft.scipy.stats.deviance import log_quotient
from weft.scipy.stats.family import continuous, log_bell, log_one_less_exp, valid
from weft.util.source import guard_all


def _log_mass(a, b):
    """The logarithm of the probability of [a, b], from the tail in which both are small; of a narrow one by the density in the middle."""
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)
    width, middle = b - a, (low + high) / 2
    narrow = width * wnp.maximum(wnp.abs(middle), 1) < 1e-3
    low, safe = wnp.where(narrow, low - 1, low), wnp.where(narrow, width, 1)
    middle = wnp.where(narrow, middle, 0)
    bell = log_bell(middle) - 0.5 * math.log(2 * math.pi)
    top, rest = log_ndtr(high), log_ndtr(low)
    apart = wnp.where(top > -wnp.inf, top - wnp.where(top > -wnp.inf, rest, 0), 1.0)
    return wnp.where(narrow, bell + wnp.log(safe) + safe * safe * (middle * middle - 1) / 24,
                     top + log_one_less_exp(wnp.maximum(apart, 0)))


def _log_share(low, high, a, b):
    """The logarithm of the part of the probability of [a, b] that [low, high] has; of a narrow interval by the quotient of the widths,
    whose logarithms may be large."""
    width, middle, part, here = b - a, (a + b) / 2, high - low, (low + high) / 2
    narrow = (width * wnp.maximum(wnp.abs(middle), 1) < 1e-3) & (part > 0)
    middle, here = wnp.where(narrow, middle, 0), wnp.where(narrow, here, 0)
    whole, share = wnp.where(narrow, width, 1), wnp.where(narrow, part, 1)
    bells = -(here - middle) * (here + middle) / 2
    bent = (share * share * (here * here - 1) - whole * whole * (middle * middle - 1)) / 24
    return wnp.where(narrow, log_quotient(share, whole) + bells + bent, _log_mass(low, high) - _log_mass(a, b))


#: from here on, counted from zero, the density falls exponentially over the widths that matter
_FAR = 1e9


def _falls(low, high):
    """log(density(low) / density(high)), not above what exp() takes for infinite."""
    return wnp.minimum((high - low) * (high / 2 + low / 2), 1e4)


def _from_zero(z, a, b, where, safe):
    """(z, a, b), mirrored if they are below zero, so that the density falls; `safe` elsewhere."""
    left = b < 0
    return [wnp.where(where, wnp.where(left, -x, y), s) for x, y, s in zip((z, b, a), (z, a, b), safe)]


def _is_far(a, b):
    return (a > _FAR) | (b < -_FAR)


def _logpdf(z, a, b):
    inside, far = (z >= a) & (z <= b), _is_far(a, b)
    y, low, high = _from_zero(z, a, b, inside & far, (2.0, 1.0, 3.0))
    steep = wnp.log(low) - (y - low) * (y / 2 + low / 2) - log_one_less_exp(_falls(low, high))
    z, a, b = (wnp.where(inside & ~far, x, safe) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0)))
    near = log_bell(z) - 0.5 * math.log(2 * math.pi) - _log_mass(a, b)
    return wnp.where(inside, wnp.where(far, steep, near), -wnp.inf)


def _logs(z, a, b):
    """The logarithms of cdf and sf of z between a and b."""
    far, left = _is_far(a, b), b < 0
    y, low, high = _from_zero(z, a, b, far, (2.0, 1.0, 3.0))
    total = log_one_less_exp(_falls(low, high))
    first = log_one_less_exp(_falls(low, y)) - total
    last = log_one_less_exp(_falls(y, high)) - (y - low) * (y / 2 + low / 2) - total
    z, a, b = (wnp.where(far, safe, x) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0)))
    below = wnp.where(far, wnp.where(left, last, first), _log_share(a, z, a, b))
    above = wnp.where(far, wnp.where(left, first, last), _log_share(z, b, a, b))
    return below, above


def _smaller_first(log, other):
    """`log`, of a part of one; where it is the greater part, by the `other` one."""
    small = log < -math.log(2)
    return wnp.where(small, log, wnp.log1p(-wnp.exp(wnp.where(small, -1.0, wnp.minimum(other, -0.5)))))


def _logcdf(z, a, b):
    inside = (z > a) & (z < b)
    below, above = _logs(*(wnp.where(inside, x, safe) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0))))
    return wnp.where(inside, _smaller_first(below, above), wnp.where(z <= a, -wnp.inf, 0.0))


def _logsf(z, a, b):
    return _logcdf(-z, -b, -a)


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "truncnorm", "logpdf pdf cdf logcdf sf logsf", "a b", **valid(lambda a, b: a < b, {
        "logpdf": _logpdf, "logcdf": _logcdf, "logsf": _logsf,
        "cdf": lambda z, a, b: wnp.exp(_logcdf(z, a, b)), "sf": lambda z, a, b: wnp.exp(_logsf(z, a, b))}))


guard_all(globals())
