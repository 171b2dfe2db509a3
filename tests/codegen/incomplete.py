"""The incomplete gamma functions and their derivatives in `np.longdouble`, the references of
`accuracy`.

They use the series of the lower function and the continued fraction of the upper one, both with
their derivatives by `a`, evaluated backwards from a term on which they no longer depend; for orders
above 200 close to `x`, Temme's expansion, whose coefficients are derived here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import scipy.special as special

WIDE = np.longdouble
_TERMS = 400
_GAMMA = WIDE("0.577215664901532860606512090082402431")
_TURN = 2 * WIDE("3.14159265358979323846264338327950288")


@functools.cache
def uniform_coefficients(rows: int, columns: int) -> list[list[Fraction]]:
    """Return c[k][m], the coefficients of eta^m a^-k in Temme's expansion: c[0] = 1/mu - 1/eta, and
    c[k] = c[k-1]'/eta + (-1)^k g[k]/mu, where g[k] removes the pole (DLMF 8.12.10 to 8.12.12)."""
    most = columns + 2 * rows + 3
    mu = [Fraction(0), Fraction(1)]  # as a series in eta: mu mu' = eta (1 + mu)
    for n in range(2, most + 2):
        mu.append((mu[n - 1] - sum(j * mu[n + 1 - j] * mu[j] for j in range(2, n))) / (n + 1))
    inverse = [Fraction(1)]  # eta / mu
    for n in range(1, most + 1):
        inverse.append(-sum(mu[k + 1] * inverse[n - k] for k in range(1, n + 1)))
    coefficients = [inverse[1:]]
    for _ in range(1, rows):
        slope = [m * c for m, c in enumerate(coefficients[-1])][1:]
        coefficients.append([slope[m] - slope[0] * inverse[m] for m in range(1, len(slope))])
    return [row[:columns] for row in coefficients]


def _series(a, x):
    """Return (S, S') with P = density S."""
    term, slope, total, total_slope = WIDE(1), WIDE(0), WIDE(1), WIDE(0)
    for n in range(1, _TERMS):
        slope, term = (slope - term / (a + n)) * x / (a + n), term * x / (a + n)
        total, total_slope = total + term, total_slope + slope
        if n % 50 == 0 and np.all(term < total * 1e-22):
            break
    return total, total_slope


def _fraction(a, x):
    """Return (F, F') with Q = density a F, from the last term on."""
    t, slope = x + 2 * _TERMS + 1 - a, WIDE(-1)
    for n in range(_TERMS, 0, -1):
        top = n * (a - n)
        t, slope = x + 2 * n - 1 - a + top / t, -1 + (n * t - top * slope) / (t * t)
    return 1 / t, -slope / (t * t)


def _log_gamma_of_one_plus(a, lgamma: Callable):
    little = np.where(a < 0.01, a, 0)
    near = -_GAMMA * little + sum((-little) ** k * WIDE(special.zeta(k)) / k for k in range(2, 12))
    return np.where(a < 0.01, near, lgamma(1 + np.where(a < 0.01, 1, a)))


def _uniform(a, x, erfc: Callable):
    """Return P, Q, P' over the bell, the log of the bell, and the log of the bell's factor in the
    derivative by x."""
    mu = (x - a) / a
    small = np.abs(mu) < 0.01
    near = np.where(small, mu, 0)
    half = np.where(
        small, sum(-((-near) ** k) / k for k in range(12, 1, -1)) * -1, mu - np.log1p(mu)
    )
    eta = np.copysign(np.sqrt(2 * half), mu)
    stretch = np.where(mu == 0, 1, mu / np.where(eta == 0, 1, eta))
    total = moved = WIDE(0)
    for k, row in enumerate(uniform_coefficients(9, 24)):
        row = [WIDE(c.numerator) / WIDE(c.denominator) for c in row]
        value = sum(c * eta**m for m, c in enumerate(row))
        slope = sum(m * c * eta ** (m - 1) for m, c in enumerate(row) if m)
        total = total + value / a**k
        moved = moved - (slope * stretch + k * value) / a**k / a
    bell = np.exp(-a * half) / np.sqrt(_TURN * a)
    root = np.copysign(np.sqrt(a * half), mu)
    slope = -(stretch - eta / 2 + total * (np.log1p(mu) - 1 / (2 * a)) + moved)
    log_bell, square = -a * half - np.log(_TURN * a) / 2, np.maximum(np.abs(root), 50) ** 2
    # of the smaller function, which may be below the smallest float
    tail = (
        np.sqrt(a / square / 2) * (1 - 1 / (2 * square) + 3 / (4 * square**2)) + np.sign(mu) * total
    )
    tail = np.where(np.abs(root) > 50, tail, np.nan)
    return (
        erfc(-root) / 2 - bell * total,
        erfc(root) / 2 + bell * total,
        slope,
        bell,
        (1 + mu) * np.exp(1 / (12 * a) - 1 / (360 * a**3)),
        log_bell,
        np.where(mu < 0, tail, np.nan),
        np.where(mu > 0, tail, np.nan),
    )


def functions(lgamma: Callable, digamma: Callable, erfc: Callable) -> dict[str, Callable]:
    """Return the functions of argument arrays in long double."""

    @functools.lru_cache(4)  # all functions are evaluated at the same arguments
    def compute(one: bytes, other: bytes) -> dict[str, np.ndarray]:
        a, x = (np.frombuffer(data, WIDE) for data in (one, other))
        inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        a, x = np.where(inside, a, 1), np.where(inside, x, 1)
        uniform = (a > 200) & (np.abs(x - a) < 0.3 * a)
        below = ~uniform & ((x < a) | (x < 1.5))
        p, q, slope, bell, share, log_bell, tail_p, tail_q = _uniform(
            np.where(uniform, a, 1000), np.where(uniform, x, 1000), erfc
        )
        expansions = {
            "igamma": p,
            "igammac": q,
            "igamma_grad_a": slope * bell,
            "igamma_grad_x": bell / share,
            "random_gamma_grad": -slope * share,
            **_logs(p, q, log_bell, tail_p, tail_q, share),
        }
        a, x = np.where(uniform, 1, a), np.where(uniform, 1, x)
        log_gamma = _log_gamma_of_one_plus(a, lgamma)
        log_density, ratio = a * np.log(x) - x - log_gamma, np.log(x) - digamma(a + 1)
        density = np.exp(log_density)
        s, s_slope = _series(np.where(below, a, 1), np.where(below, x, 1))
        t, t_slope = _fraction(np.where(below, 1, a), np.where(below, 2, x))
        little = below & (a < 0.01)
        correction = density * np.where(
            little, sum_without_first(np.where(little, a, 1), np.where(little, x, 1)), 0
        )
        slope = np.where(below, s * ratio + s_slope, -(a * (t * ratio + t_slope) + t))
        q = np.where(
            below,
            np.where(little, -np.expm1(a * np.log(x) - log_gamma) - correction, 1 - density * s),
            density * a * t,
        )
        others = {
            "igamma": np.where(below, density * s, 1 - q),
            "igammac": q,
            "igamma_grad_a": density * slope,
            "igamma_grad_x": density * a / x,
            "random_gamma_grad": -x / a * slope,
            **_logs(
                np.where(below, density * s, 1 - q),
                q,
                log_density,
                np.where(below, s, np.nan),
                np.where(below, np.nan, a * t),
                x / a,
            ),
        }
        return {
            name: np.where(
                inside, np.where(uniform, expansions[name], others[name]), _edge(name, one, other)
            )
            for name in expansions
        }

    def of(name: str) -> Callable:
        return lambda a, x: compute(a.tobytes(), x.tobytes())[name]

    return {
        name: of(name)
        for name in (
            "igamma",
            "igammac",
            "igamma_grad_a",
            "igamma_grad_x",
            "random_gamma_grad",
            "log_igamma",
            "log_igammac",
            "igamma_hazard",
            "igammac_hazard",
        )
    }


def _logs(p, q, log_factor, share_of_p, share_of_q, per_slope) -> dict[str, np.ndarray]:
    """Return the logarithms of the functions and their slopes. A function is its share (NaN where
    undefined) times a factor, as is its derivative, 1
    `per_slope`.
    """
    log_p, log_q = (
        np.where(
            one > 0.5,
            np.log1p(-other),
            np.where(np.isnan(share), np.log(one), log_factor + np.log(share)),
        )
        for one, other, share in ((p, q, share_of_p), (q, p, share_of_q))
    )
    slopes = (
        np.where(np.isnan(share), np.exp(log_factor) / one, 1 / share) / per_slope
        for one, share in ((p, share_of_p), (q, share_of_q))
    )
    return dict(
        zip(
            ("log_igamma", "log_igammac", "igamma_hazard", "igammac_hazard"),
            (log_p, log_q, *slopes),
        )
    )


def sum_without_first(a, x):
    """Return the series of `x^a e^-x
    gamma(1 + a)` without the part that gives e^x, times e^x: the sum of a (-x)^n
    (n! (a + n)), n >= 1, times e^x.
    """
    term, total = WIDE(1), WIDE(0)
    for n in range(1, 40):
        term = -term * x / n
        total = total + a * term / (a + n)
    return total * np.exp(x)


def _edge(name: str, one: bytes, other: bytes) -> np.ndarray:
    """Return the results where an argument is zero, infinite, negative or NaN."""
    a, x = (np.frombuffer(data, WIDE) for data in (one, other))
    none = ((x == 0) & (a > 0)) | (np.isposinf(a) & (x >= 0) & (x < np.inf))
    whole = (np.isposinf(x) & (a >= 0) & (a < np.inf)) | ((a == 0) & (x > 0))
    lower = np.where(none, WIDE(0), np.where(whole, 1, np.nan))
    flat = (a > 0) & ((x == 0) | (np.isposinf(x) & (name == "igamma_grad_a")))
    steep = np.where(
        (a > 0) & (x == 0),
        np.where(a < 1, WIDE(np.inf), a == 1),
        np.where(np.isnan(lower), np.nan, 0),
    )
    start, end = (a > 0) & (x == 0), (a > 0) & (a < np.inf) & np.isposinf(x)
    hazards = (
        np.where(start | (none & ~end), WIDE(np.inf), np.where(whole, 0, np.nan)),
        np.where(start, steep, np.where(end, 1, np.where(none, 0, WIDE(np.nan)))),
    )
    return {
        "igamma": lower,
        "igammac": 1 - lower,
        "igamma_grad_x": steep,
        "log_igamma": np.log(lower),
        "log_igammac": np.log(1 - lower),
        "igamma_hazard": hazards[0],
        "igammac_hazard": hazards[1],
    }.get(name, np.where(flat, WIDE(0), np.nan))
