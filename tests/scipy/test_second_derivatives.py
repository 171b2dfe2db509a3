"""Derivatives that subtract nearly equal terms if written plainly: sinc, Bessel functions, logistic, normal tail, powers near 1, entropies.

The closed forms are power series or mpmath; JAX is not consulted.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import weft
import weft.numpy as wnp
from weft.scipy import special

#: name -> function, exact function, points at which derivatives are taken, orders
FUNCTIONS = {
    "sinc": (wnp.sinc, lambda x: mp.sinc(mp.pi * x), [0.0, 1e-30, 1e-6, 1e-3, 0.03, 0.49, 0.51, 2.3], 4),
    "i0": (special.i0, lambda x: mp.besseli(0, x), [0.0, 1e-30, 1e-4, 0.3, 1.9, 2.1, 9.0], 3),
    "i1": (special.i1, lambda x: mp.besseli(1, x), [0.0, 1e-30, 1e-4, 0.3, 1.9, 2.1, 9.0], 3),
    "numpy-i0": (wnp.i0, lambda x: mp.besseli(0, x), [0.0, 1e-30, 1e-4, 0.3, 1.9, 2.1, 9.0], 3),
    "i1e": (special.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), [1e-30, 1e-4, -0.3, 0.6, 1.9, 2.1], 2),
    "expit": (special.expit, lambda x: 1 / (1 + mp.exp(-x)), [1e-30, 1e-6, -0.2, 3.0, 30.0, -30.0], 3),
    "log_ndtr": (special.log_ndtr, lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), [-1e3, -40.0, -9.0, -3.4, -3.2, -1.0, 2.0], 2),
    "boxcox": (lambda x: special.boxcox(x, x.dtype.type(0.5)), lambda x: 2 * mp.expm1(mp.log(x) / 2), [1.0, 1.0001, 0.3, 7.0], 3),
    "boxcox-log": (lambda x: special.boxcox(x, 0.0), mp.log, [1.0, 0.3, 7.0], 3),
    "spence": (special.spence, lambda x: mp.re(mp.polylog(2, 1 - x)), [1.0000001, 1.001, 0.6, 1.6, 4.0], 3),
    "kl_div": (lambda p: special.kl_div(p, 3.0), lambda p: p * mp.log(p / 3) - p + 3, [1e-9, 2.999, 3.0001, 100.0], 3),
    "poch": (lambda z: special.poch(z, 2.5), lambda z: mp.gamma(z + 2.5) / mp.gamma(z), [1e-20, 1e-3, 0.4, 0.6], 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_do_not_cancel(name, dtype):
    function, exact, points, orders = FUNCTIONS[name]
    x = np.array(points).astype(dtype)
    eps = float(np.finfo(dtype).eps)
    with weft.enable_x64(True):
        for order in range(orders + 1):
            got = np.asarray(weft.vmap(function)(x), np.float64)
            with mp.workdps(150):
                step = mpf(10) ** -30
                want = [
                    mpmath.diff(
                        exact,
                        mpf(float(v)),
                        order,
                        h=step * max(abs(mpf(float(v))), mpf(10) ** -20),
                    )
                    for v in x
                ]
                bend = [
                    mpmath.diff(
                        exact,
                        mpf(float(v)),
                        order + 1,
                        h=step * max(abs(mpf(float(v))), mpf(10) ** -20),
                    )
                    for v in x
                ]
            allowed = [
                128 * eps * (abs(w) + abs(mpf(float(v)) * b)) for v, w, b in zip(x, want, bend)
            ]
            for v, g, w, limit in zip(x, got, want, allowed):
                assert abs(g - w) <= limit + 1e-44, (
                    f"derivative {order} at {v}: {g}, exact {mpmath.nstr(w, 17)}"
                )
            function = weft.grad(function)


def test_the_quantile_is_straight_in_its_middle():
    with weft.enable_x64(True):
        bends = [float(weft.grad(weft.grad(special.ndtri))(0.5 + d)) for d in (-1e-3, 0.0, 1e-3)]
    assert abs(bends[1]) < 1e-14
    np.testing.assert_allclose(bends[2], 2 * math.pi * math.sqrt(2 * math.pi) * 1e-3, 1e-4)
    np.testing.assert_allclose(bends[0], -bends[2], 1e-9)


def test_entropies_of_nearly_equal_and_of_distant_numbers():
    """(p - q)^2 / 2 q to first order; the quotient of the arguments overflows or is subnormal."""
    p = np.float32(3.2) + np.float32(2.0) ** np.arange(-22, -10).astype(np.float32)
    q = np.full_like(p, 3.2)
    gap = (p.astype(np.float64) - q) / q
    np.testing.assert_allclose(
        special.kl_div(p, q), q.astype(np.float64) * ((1 + gap) * np.log1p(gap) - gap), 1e-4
    )
    np.testing.assert_allclose(
        weft.vmap(weft.grad(special.rel_entr))(np.float32([1e-40, 1e38]), np.float32([3.0, 1e-3])),
        [math.log(np.float32(1e-40) / 3.0) + 1, math.log(1e41) + 1],
        1e-6,
    )
    np.testing.assert_allclose(
        weft.vmap(weft.grad(special.kl_div, 1))(np.float32([0.0, 1.0]), np.float32([2.0, 2.0])),
        [1.0, 0.5],
    )


def test_rules_of_constant_arguments_are_not_called():
    """0 times an infinite slope by a constant is no part of the derivative by the other argument."""
    x = np.float32(1e-45)
    assert weft.grad(special.xlogy)(np.float32(2.0), x) == np.log(np.float64(x)).astype(np.float32)
    assert weft.jit(weft.grad(special.xlogy))(np.float32(2.0), x) == np.log(np.float64(x)).astype(
        np.float32
    )
    np.testing.assert_allclose(
        weft.grad(special.beta, 1)(x, np.float32(3.2)), -float(mp.psi(1, 3.2)), 1e-6
    )
