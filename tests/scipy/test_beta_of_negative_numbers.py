"""`beta`, `betaln` and `comb` where arguments are negative: canceled poles, zeros, reflection; values and derivatives against mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import weft
from weft.scipy import special

#: a pole of one gamma is canceled where the other argument is a positive integer
CANCELED = [
    (-3.0, 2.0),
    (-3.0, 3.0),
    (2.0, -7.0),
    (-100.0, 3.0),
    (-30.0, 30.0),
    (1.0, -1.0),
    (-1e6, 2.0),
]
POLES = [(-3.0, 4.0), (-3.0, 2.5), (-3.0, -2.0), (-1.5, -2.0), (0.0, 2.0), (0.0, 0.0), (-4.0, 0.0)]
ROOTS = [(-2.5, 1.5), (-2.5, -1.5), (-2.5, 2.5), (-2.5, 0.5), (0.25, -3.25), (-7.125, -2.875)]
ORDINARY = [
    (-2.5, 3.0),
    (-0.3, 0.2),
    (-0.3, -0.4),
    (-7.75, 2.3),
    (-20.3, 30.9),
    (-1.01, -1.01),
    (-200.5, 3.25),
]


def _product(a: float, b: float) -> mpf:
    """Return beta(a, b) = gamma(b) / (a (a + 1) ... (a + b - 1)); one of a and b is a positive integer."""
    a, b = (mpf(x) for x in ((a, b) if b > 0 else (b, a)))
    return mp.factorial(b - 1) / mp.fprod(a + k for k in range(int(b)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("a, b", CANCELED)
def test_canceled_poles_are_finite(a, b, dtype):
    with weft.enable_x64(True):
        value, log = special.beta(dtype(a), dtype(b)), special.betaln(dtype(a), dtype(b))
        moving = 0 if a < 0 else 1
        slope = weft.grad(special.beta, moving)(dtype(a), dtype(b))
    eps = np.finfo(dtype).eps
    exact = _product(a, b)
    np.testing.assert_allclose(
        float(value), float(exact), 64 * eps * (1 + abs(np.log(abs(float(exact)))))
    )
    np.testing.assert_allclose(float(log), float(mp.log(abs(exact))), 64 * eps, 64 * eps)
    x, n = (a, b) if b > 0 else (b, a)
    exact_slope = -exact * mp.fsum(1 / (mpf(x) + k) for k in range(int(n)))
    np.testing.assert_allclose(
        float(slope), float(exact_slope), 256 * eps * (1 + abs(np.log(abs(float(exact)))))
    )


@pytest.mark.parametrize("a, b", POLES)
def test_other_poles_are_infinite(a, b):
    assert np.isinf(special.beta(a, b)) and special.betaln(a, b) == np.inf


@pytest.mark.parametrize("a, b", ROOTS)
def test_zeros_have_finite_slopes(a, b):
    with weft.enable_x64(True):
        assert special.beta(a, b) == 0 and special.betaln(a, b) == -np.inf
        slopes = weft.grad(special.beta, (0, 1))(a, b)
        bend = weft.grad(weft.grad(special.beta))(a, b)
    with mp.workdps(60):
        exact = [
            mpmath.diff(lambda x, y: mp.gamma(x) * mp.gamma(y) * mp.rgamma(x + y), (a, b), n)
            for n in ((1, 0), (0, 1), (2, 0))
        ]
    np.testing.assert_allclose(
        [float(x) for x in (*slopes, bend)], [float(x) for x in exact], 1e-12
    )


@pytest.mark.parametrize("a, b", ORDINARY)
def test_negative_arguments(a, b):
    def exact(a, b):
        return mp.gamma(a) * mp.gamma(b) / mp.gamma(a + b)

    with mp.workdps(60):
        value = exact(mpf(a), mpf(b))
        slopes = [mpmath.diff(exact, (a, b), n) for n in ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))]
    with weft.enable_x64(True):
        hessian = weft.hessian(special.beta, (0, 1))(a, b)
        got = [
            special.beta(a, b),
            *weft.grad(special.beta, (0, 1))(a, b),
            hessian[0][0],
            hessian[0][1],
            hessian[1][1],
        ]
        logs = [special.betaln(a, b), *weft.grad(special.betaln, (0, 1))(a, b)]
    np.testing.assert_allclose([float(x) for x in got], [float(x) for x in (value, *slopes)], 1e-11)
    np.testing.assert_allclose(
        [float(x) for x in logs],
        [float(mp.log(abs(value))), *(float(x / value) for x in slopes[:2])],
        1e-11,
    )


def test_edges():
    with weft.enable_x64(True):
        assert special.beta(np.inf, 2.0) == 0 and special.betaln(np.inf, 2.0) == -np.inf
        assert np.isnan(special.beta(np.nan, 2.0)) and np.isnan(special.betaln(-1.0, np.nan))
        assert special.beta(-0.0, 2.0) == -np.inf


def test_vectors_keep_each_case_apart():
    """Every branch is computed for every element: one must not spoil the derivative of another."""
    points = np.array([*CANCELED[:3], *ROOTS, *ORDINARY, (2.0, 3.0), (0.4, 100.0)])
    with weft.enable_x64(True):
        whole = weft.vmap(weft.grad(special.beta))(points[:, 0], points[:, 1])
        single = [weft.grad(special.beta)(a, b) for a, b in points]
    np.testing.assert_allclose(np.asarray(whole), np.array([float(x) for x in single]), 1e-13)
