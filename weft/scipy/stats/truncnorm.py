"""The normal distribution truncated to [`a`, `b`], in units of the scale from the location."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.scipy.special.deviance import log_quotient
from weft._engine.scipy.stats.family import (
    continuous,
    log_bell,
    log_one_less_exp,
    one_less_exp,
    valid,
)
from weft._engine.util.source import guard_all
from weft.scipy.special import log_ndtr

_LOG_ROOT = 0.5 * math.log(2 * math.pi)
#: half the positive nodes of Gauss's rule of eight points, and their weights
_RULE = (
    (0.09171732124782489, 0.36268378337836166),
    (0.2627662049581645, 0.3137066458778869),
    (0.39833323870681336, 0.22238103445337443),
    (0.4801449282487681, 0.10122853629037706),
)


def _mass(low, high):
    """Return the probability of [low, high] as (m, l), equal to m exp(l), where m has no cancellation. A narrow interval uses
    its width times the mean density by a quadrature rule; others the difference of tails on the side of both ends."""
    width, middle = high - low, low / 2 + high / 2
    narrow = width * wnp.maximum(wnp.abs(middle), 1) < 1
    width, middle = wnp.where(narrow, width, 1), wnp.where(narrow, middle, 0)
    mean = 0.0
    for node, weight in _RULE:
        step = width * node
        mean = mean + weight * (wnp.exp(log_bell(step)) * wnp.cosh(step * middle))
    right = low > 0
    top, rest = log_ndtr(wnp.where(right, -low, high)), log_ndtr(wnp.where(right, -high, low))
    difference = wnp.where(~narrow & (top > -wnp.inf), top - wnp.where(top > -wnp.inf, rest, 0), 1)
    return wnp.where(narrow, width * mean, one_less_exp(difference)), wnp.where(
        narrow, log_bell(middle) - _LOG_ROOT, top
    )


def _log_mass(low, high):
    part, log = _mass(low, high)
    return log + wnp.log(part)


def _density(x, low, high):
    """Return the density at x divided by the probability of [low, high]."""
    part, log = _mass(low, high)
    return wnp.exp(log_bell(x) - _LOG_ROOT - log) / part


def _share(low, high, a, b):
    """Return the fraction of the probability of [a, b] in [low, high], and its logarithm."""
    (part, log), (whole, log_whole) = _mass(low, high), _mass(a, b)
    return part / whole * wnp.exp(log - log_whole), log_quotient(part, whole) + (log - log_whole)


@custom_jvp
def _below(z, a, b):
    """Return the fraction of the probability of [a, b] in [a, z]."""
    return _share(a, z, a, b)[0]


@custom_jvp
def _log_below(z, a, b):
    return _share(a, z, a, b)[1]


_below.defjvps(
    lambda t, out, z, a, b: t * _density(z, a, b),
    lambda t, out, z, a, b: -t * (_density(a, a, b) * _share(z, b, a, b)[0]),
    lambda t, out, z, a, b: -t * (_density(b, a, b) * out),
)
_log_below.defjvps(
    lambda t, out, z, a, b: t * _density(z, a, z),
    lambda t, out, z, a, b: -t * (_density(a, a, z) * _share(z, b, a, b)[0]),
    lambda t, out, z, a, b: -t * _density(b, a, b),
)


#: for larger distances from zero, the density falls exponentially over the relevant widths
_FAR = 1e9


def _falls(low, high):
    """Return log(density(low) / density(high)), clipped below the overflow of exp()."""
    return wnp.minimum((high - low) * (high / 2 + low / 2), 1e4)


def _from_zero(z, a, b, where, safe):
    """Return (z, a, b), mirrored if they are negative, so that the density decreases; `safe` elsewhere."""
    is_left = b < 0
    return [
        wnp.where(where, wnp.where(is_left, -x, y), s)
        for x, y, s in zip((z, b, a), (z, a, b), safe)
    ]


def _is_far(a, b):
    return (a > _FAR) | (b < -_FAR)


def _logpdf(z, a, b):
    inside, far = (z >= a) & (z <= b), _is_far(a, b)
    y, low, high = _from_zero(z, a, b, inside & far, (2.0, 1.0, 3.0))
    steep = wnp.log(low) - (y - low) * (y / 2 + low / 2) - log_one_less_exp(_falls(low, high))
    z, a, b = (wnp.where(inside & ~far, x, safe) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0)))
    near = log_bell(z) - _LOG_ROOT - _log_mass(a, b)
    return wnp.where(inside, wnp.where(far, steep, near), -wnp.inf)


def _cdf(z, a, b, of_log=False):
    """Return the distribution function between `a` and `b`, or its logarithm, from the smaller of the probabilities below and above z."""
    inside, outside = (z > a) & (z < b), wnp.where(z <= a, 0.0, wnp.where(z >= b, 1.0, math.nan))
    z, a, b = (wnp.where(inside, x, safe) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0)))
    far, is_left = _is_far(a, b), b < 0
    y, low, high = _from_zero(z, a, b, far, (2.0, 1.0, 3.0))
    total = log_one_less_exp(_falls(low, high))
    first = log_one_less_exp(_falls(low, y)) - total
    last = log_one_less_exp(_falls(y, high)) - (y - low) * (y / 2 + low / 2) - total
    z, a, b = (wnp.where(far, safe, x) for x, safe in zip((z, a, b), (0.0, -1.0, 1.0)))
    below = wnp.where(far, wnp.exp(wnp.where(is_left, last, first)), _below(z, a, b))
    above = wnp.where(far, wnp.exp(wnp.where(is_left, first, last)), _below(-z, -b, -a))
    small = below < 0.5
    above = wnp.where(small, 0.25, above)
    if not of_log:
        return wnp.where(inside, wnp.where(small, below, 1 - above), outside)
    log = wnp.where(far, wnp.where(is_left, last, first), _log_below(z, a, b))
    return wnp.where(inside, wnp.where(small, log, wnp.log1p(-above)), wnp.log(outside))


def _logcdf(z, a, b):
    return _cdf(z, a, b, of_log=True)


logpdf, pdf, cdf, logcdf, sf, logsf = continuous(
    "truncnorm",
    "logpdf pdf cdf logcdf sf logsf",
    "a b",
    "q",
    **valid(
        lambda a, b: a < b,
        {
            "logpdf": _logpdf,
            "cdf": _cdf,
            "logcdf": _logcdf,
            "sf": lambda z, a, b: _cdf(-z, -b, -a),
            "logsf": lambda z, a, b: _logcdf(-z, -b, -a),
        },
    ),
)


guard_all(globals())
