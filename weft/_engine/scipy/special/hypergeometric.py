"""Kummer's and Gauss's hypergeometric functions, `hyp1f1` and `hyp2f1`, with derivatives by all arguments.

In:   real arrays; 16-bit arrays compute in float32.
Out:  arrays of the common floating dtype.
Laws: a power series and its derivatives by the parameters are summed term by term until all elements have converged;
      elements without convergence after `_MAX_TERMS` terms are NaN. Arguments with slow or cancelling series are transformed first.
Source: J. W. Pearson, S. Olver and M. A. Porter, "Numerical methods for the computation of the confluent and Gauss hypergeometric
functions", Numerical Algorithms 74 (2017).
"""

from __future__ import annotations

import math

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.jit import jit
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import all_inexact, broadcast, concrete
from weft._engine.ops import elementwise as ew
from weft._engine.scipy.special.basic import gammasgn, in_single
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = ["hyp1f1", "hyp2f1"]

_MAX_TERMS = 8000  # terms of a series


def _sum_series(upper, lower, x):
    """Return the sum of prod (u)_k / prod (l)_k x^k, its derivatives by the parameters, and a mask of convergence.

    (u)_k is u (u + 1) ... (u + k - 1). The derivatives of a term t_k follow the recurrence of the terms:
    t_{k+1} = t_k r_k, t'_{k+1} = t'_k r_k + t_k r'_k, so that a parameter that makes terms zero is no special case.
    """
    eps = float(np.finfo(x.dtype).eps) / 4
    count = len(upper) + len(lower)
    # bounds the remainder by a geometric series
    margin = 1 - wnp.abs(x) if len(upper) == len(lower) else 0.25

    def going(state):
        return (state[0] < _MAX_TERMS) & ~wnp.all(state[3])

    def step(state):
        i, terms, sums, done = state
        k = i.astype(x.dtype)
        ratio, slopes = x, []
        for u in upper:
            ratio = ratio * (u + k)
        for low in lower:
            ratio = ratio / (low + k)
        for j in range(len(upper)):
            others = x
            for m, v in enumerate(upper):
                others = others * ((v + k) if m != j else 1)
            for low in lower:
                others = others / (low + k)
            slopes.append(others)
        slopes += [-ratio / (low + k) for low in lower]
        new = [terms[0] * ratio, *(d * ratio + terms[0] * s for d, s in zip(terms[1:], slopes))]
        summed = [wnp.where(done, s, s + t) for s, t in zip(sums, new)]
        small = wnp.abs(ratio) < 1
        for s, t in zip(summed, new):
            small = small & (
                wnp.abs(t) <= eps * wnp.abs(s) * wnp.where(wnp.abs(ratio) < 0.5, 1, margin)
            )
        ended = (new[0] == 0) & (terms[0] == 0)
        for t in new:
            ended = ended & (t == 0)
        return i + 1, new, summed, done | small | ended | ~wnp.isfinite(summed[0])

    one, zero = wnp.ones_like(x), wnp.zeros_like(x)
    first = (np.int32(0), [one] + [zero] * count, [one] + [zero] * count, wnp.isnan(x))
    _, _, sums, done = lax.while_loop(going, step, first)
    return [wnp.where(done & ~wnp.isnan(x), s, math.nan) for s in sums]


def _gamma_ratio(a, b):
    """Return gamma(a) / gamma(b) for all real numbers; 0 at a pole of gamma(b), else infinity at a pole of gamma(a)."""
    pole_a, pole_b = [(v <= 0) & (v == wnp.floor(v)) for v in (a, b)]
    value = (
        gammasgn(a)
        * gammasgn(b)
        * wnp.exp(ew.lgamma(wnp.where(pole_a, 1, a)) - ew.lgamma(wnp.where(pole_b, 1, b)))
    )
    return wnp.where(pole_b, 0, wnp.where(pole_a, math.inf, value))


# ---- Kummer's function

_LARGE = {4: 40.0, 8: 80.0}  # x from which the asymptotic series is used
_TERMS = {4: 14, 8: 36}  # terms of the asymptotic series


def _kummer_positive(a, b, x):
    """Return the function for x >= 0 and its derivatives by a and b."""
    large = x > _LARGE[x.dtype.itemsize] + 1.2 * (wnp.abs(a) + wnp.abs(b)) ** 1.5
    near = _sum_series([a], [b, wnp.ones_like(x)], wnp.where(large, 0, x))
    far_x = wnp.where(large, x, 1e3)
    # gamma(b) / gamma(a) exp(x) x^(a - b) times the sum of (b - a)_k (1 - a)_k / (k! x^k)
    term, da, db = wnp.ones_like(x), wnp.zeros_like(x), wnp.zeros_like(x)
    total, total_a, total_b = term, da, db
    for k in range(_TERMS[x.dtype.itemsize]):
        p, q = b - a + k, 1 - a + k
        scale = 1 / ((k + 1) * far_x)
        term, da, db = (
            term * p * q * scale,
            (da * p * q - term * (p + q)) * scale,
            (db * p * q + term * q) * scale,
        )
        total, total_a, total_b = total + term, total_a + da, total_b + db
    pole = (a <= 0) & (a == wnp.floor(a))
    lead = _gamma_ratio(b, a)
    log = wnp.log(far_x)
    half = wnp.exp(0.5 * (far_x + (a - b) * log))
    size = lead * half * half
    safe = wnp.where(pole, 1.5, a)
    by_a = size * (total_a + total * (log - ew.digamma(safe)))
    by_b = size * (total_b + total * (ew.digamma(b) - log))
    value = size * total
    return [wnp.where(large & ~pole, f, n) for f, n in zip((value, by_a, by_b), near)]


def _kummer(a, b, x):
    """Return the function and its derivatives by a and b: for x < 0, exp(x) times the function of (b - a, b, -x)."""
    below = x < 0
    value, by_a, by_b = _kummer_positive(wnp.where(below, b - a, a), b, wnp.abs(x))
    decay = wnp.exp(wnp.where(below, x, 0))
    value, by_a, by_b = value * decay, by_a * decay, by_b * decay
    return value, wnp.where(below, -by_a, by_a), wnp.where(below, by_a + by_b, by_b)


def _no_value(b):
    return (b <= 0) & (b == wnp.floor(b))


@custom_jvp
def _hyp1f1(a, b, x):
    value = _kummer(a, b, x)[0]
    value = wnp.where((x == 0) | (a == 0), 1, wnp.where(a == b, wnp.exp(x), value))
    return wnp.where(_no_value(b), math.inf, wnp.where(wnp.isnan(a + b + x), math.nan, value))


_hyp1f1.defjvps(
    lambda t, out, a, b, x: t * _kummer(a, b, x)[1],
    lambda t, out, a, b, x: t * _kummer(a, b, x)[2],
    lambda t, out, a, b, x: t * (a / b) * _hyp1f1(a + 1, b + 1, x),
)
_hyp1f1_compiled = jit(in_single(_hyp1f1))


def hyp1f1(a, b, x):
    """Return Kummer's confluent hypergeometric function 1F1(a; b; x); infinite where `b` is 0 or a negative integer.

    >>> hyp1f1(1.0, 1.0, 0.0).item()
    1.0
    """
    return _hyp1f1_compiled(*_real("hyp1f1", a, b, x))


# ---- Gauss's function


def _gauss_series(a, b, c, x):
    """Return the function and its derivatives by a, b and c for -1 < x < 1."""
    value, by_a, by_b, by_c, _ = _sum_series([a, b], [c, wnp.ones_like(x)], x)
    return value, by_a, by_b, by_c


def _gauss(a, b, c, x):
    """Return the function and its derivatives by a, b and c: Pfaff's transformation for x < 0, Euler's near 1 if it converges sooner."""
    below = x < 0
    y = wnp.where(below, x / (x - 1), x)
    inner_b = wnp.where(below, c - b, b)
    excess = c - a - inner_b
    # the terms grow: (1 - y)^excess times a faster series
    slow = (excess < 0) & ~_ends(a) & ~_ends(inner_b)
    first, second = wnp.where(slow, c - a, a), wnp.where(slow, c - inner_b, inner_b)
    value, by_1, by_2, by_c = _gauss_series(first, second, c, y)
    log = wnp.log1p(-wnp.where(y < 1, y, 0))
    power = wnp.where(slow, wnp.exp(excess * log), 1)
    plain_a, plain_b, plain_c = by_1, by_2, by_c
    turned_a, turned_b = -by_1 - log * value, -by_2 - log * value
    turned_c = by_1 + by_2 + by_c + log * value
    value, by_a, by_b, by_c = (
        power * v
        for v in (
            value,
            *(
                wnp.where(slow, t, p)
                for t, p in ((turned_a, plain_a), (turned_b, plain_b), (turned_c, plain_c))
            ),
        )
    )
    # Pfaff: (1 - x)^-a F(a, c - b; c; x / (x - 1))
    outer = wnp.log1p(wnp.where(below, -x, 0))
    factor = wnp.exp(-a * outer)
    return (
        value * factor,
        (by_a - outer * value) * factor,
        wnp.where(below, -by_b, by_b) * factor,
        (by_c + wnp.where(below, by_b, 0)) * factor,
    )


def _ends(a):
    """True if a series with this parameter is a polynomial."""
    return (a <= 0) & (a == wnp.floor(a))


def _at_one(a, b, c):
    """Gauss's theorem: gamma(c) gamma(c - a - b) / (gamma(c - a) gamma(c - b))."""
    return _gamma_ratio(c, c - a) * _gamma_ratio(c - a - b, c - b)


def _polynomial(a, b, c, x):
    """Return the sum of a terminating series at any x, by Horner's scheme."""
    degree = wnp.where(_ends(a), -a, wnp.where(_ends(b), -b, 0))
    degree = wnp.where(_ends(a) & _ends(b), wnp.minimum(-a, -b), degree)
    most = wnp.max(degree, initial=0)

    def step(state):
        k, total = state
        inside = k < degree
        ratio = (a + k) * (b + k) / ((wnp.where(inside, c, 1) + k) * (k + 1)) * x
        return k - 1, wnp.where(inside, 1 + ratio * total, total)

    return lax.while_loop(lambda s: s[0] >= 0, step, (most - 1, wnp.ones_like(x)))[1]


@custom_jvp
def _hyp2f1(a, b, c, x):
    ends = _ends(a) | _ends(b)
    inside = (x < 1) & ~ends
    value = _gauss(a, b, c, wnp.where(inside, x, 0))[0]
    value = wnp.where(ends, _polynomial(a, b, c, x), value)
    simple = (b == c) | (a == c)
    exponent = wnp.where(b == c, a, b)
    value = wnp.where(
        simple & (x < 1) & ~ends, wnp.exp(-exponent * wnp.log1p(-wnp.where(x < 1, x, 0))), value
    )
    value = wnp.where((x == 1) & ~ends, wnp.where(c - a - b > 0, _at_one(a, b, c), math.inf), value)
    value = wnp.where((x > 1) & ~ends, math.inf, value)
    # a pole of the terms precedes the last term
    pole = _no_value(c) & ~((_ends(a) & (a > c)) | (_ends(b) & (b > c)))
    value = wnp.where(pole, math.inf, value)
    value = wnp.where((x == 0) | (a == 0) | (b == 0), 1, value)
    return wnp.where(wnp.isnan(a + b + c + x), math.nan, value)


def _slope(k: int):
    return lambda t, out, a, b, c, x: t * _gauss(a, b, c, wnp.where(x < 1, x, math.nan))[k]


_hyp2f1.defjvps(
    _slope(1),
    _slope(2),
    _slope(3),
    lambda t, out, a, b, c, x: t * (a * b / c) * _hyp2f1(a + 1, b + 1, c + 1, x),
)
_hyp2f1_compiled = jit(in_single(_hyp2f1))


def hyp2f1(a, b, c, x):
    """Return Gauss's hypergeometric function 2F1(a, b; c; x), infinite for x > 1 unless its series terminates.

    NaN if the series needs more than 8000 terms, which occurs near 1.

    >>> hyp2f1(1.0, 1.0, 1.0, 0.5).item()
    2.0
    """
    return _hyp2f1_compiled(*_real("hyp2f1", a, b, c, x))


def _real(name: str, *args):
    args = list(map(concrete, all_inexact(name, *args)))
    if dtypes.issubdtype(args[0].dtype, np.complexfloating):
        raise ValueError(f"{name} does not support complex-valued inputs.")
    return wnp.broadcast_arrays(*broadcast(name, *args))


guard_all(globals())
