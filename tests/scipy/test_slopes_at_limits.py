"""Derivatives of special functions where a formula divides by zero, cancels or underflows: ends of domains and tiny arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import jvp

import weft
import weft.numpy as wnp
from weft.scipy import special


def derivatives(function, points, count=2):
    """Return the values and the first `count` derivatives of a function of one number, at each of the points."""
    functions = [function]
    for _ in range(count):
        functions.append(weft.jacfwd(functions[-1]))
    return [np.asarray(weft.jit(weft.vmap(f))(points)) for f in functions]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bessel_functions_of_small_numbers(dtype):
    with weft.enable_x64(True):
        info = np.finfo(dtype)
        x = np.array(
            [0, info.smallest_subnormal * 8, info.tiny, -(info.tiny**0.5), info.eps, 1e-4], dtype
        )
        value, slope, bend = derivatives(lambda x: special.bessel_jn(x, v=2), x)
    tolerance = {"rtol": 8 * info.eps, "atol": 2 * float(info.smallest_subnormal)}
    square = x.astype(np.float64) ** 2
    np.testing.assert_allclose(
        value.T,
        [1 - square / 4, x / 2 * (1 - square / 8), square / 8 * (1 - square / 12)],
        **tolerance,
    )
    np.testing.assert_allclose(
        slope.T,
        [-x / 2 * (1 - square / 8), 0.5 - 3 * square / 16, x / 4 * (1 - square / 6)],
        **tolerance,
    )
    np.testing.assert_allclose(
        bend.T,
        [-0.5 + 3 * square / 16, -3 * x / 8 * (1 - 5 * square / 36), 0.25 - square / 8],
        **tolerance,
    )


def test_the_highest_bessel_function_has_a_slope():
    slope = weft.jacfwd(lambda x: special.bessel_jn(x, v=4, n_iter=5))(np.float32(0.5))
    np.testing.assert_allclose(slope, [jvp(k, 0.5) for k in range(5)], rtol=1e-3)


#: degree, order, and the polynomial that (1 - z^2)^(order / 2) is multiplied with, by rising powers
POLYNOMIALS = {
    (2, 0): [-0.5, 0, 1.5],
    (3, 0): [0, -1.5, 0, 2.5],
    (2, 2): [3.0],
    (3, 2): [0, 15.0],
    (3, 3): [-15.0],
    (4, 4): [105.0],
}


@pytest.mark.parametrize("degree, order", POLYNOMIALS)
def test_legendre_functions_near_their_ends(degree, order):
    eps = np.finfo(np.float32).eps
    z = np.array([1, -1, 1 - eps / 2, eps - 1, 1 - 30 * eps, 0.97], np.float32)
    exact = z.astype(np.float64)
    room, (p, q) = (
        1 - exact**2,
        (np.polynomial.Polynomial(POLYNOMIALS[degree, order]).deriv(k) for k in (0, 1)),
    )
    expected = q(exact) * room ** (order / 2) - (
        order * exact * room ** (order / 2 - 1) * p(exact) if order else 0
    )
    by_rule = special.lpmn(degree, degree, z)[1][order, degree]
    by_transform = derivatives(
        lambda z: special.lpmn_values(degree, degree, z[None], False)[order, degree, 0], z, 1
    )[1]
    for slope in (by_rule, by_transform):
        np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_legendre_functions_of_order_one_have_infinite_slopes():
    slope = derivatives(
        lambda z: special.lpmn_values(3, 3, z[None], False)[1, :, 0],
        np.array([1.0, -1.0], np.float32),
        1,
    )[1]
    np.testing.assert_array_equal(
        slope, [[0, np.inf, np.inf, np.inf], [0, -np.inf, np.inf, -np.inf]]
    )


def test_slopes_of_owens_function_at_small_arguments():
    h, a = (
        np.array([0.4, -1e-4, 1e-20, 0.0], np.float32),
        np.array([-1e-7, 0.4, 3.0, 2.0], np.float32),
    )
    slope = weft.vmap(weft.grad(special.owens_t))(h, a)
    np.testing.assert_allclose(
        slope, -np.exp(-(h.astype(np.float64) ** 2) / 2) * a * h / (2 * np.pi), rtol=1e-5
    )


def test_second_derivatives_of_betainc_underflow_to_zero():
    x = np.array([1e-44, 1e-38, 1e-30], np.float32)
    bend = derivatives(lambda x: special.betainc(np.float32(19.5), np.float32(0.4), x), x)[2]
    np.testing.assert_array_equal(bend, wnp.zeros(3))


@pytest.mark.parametrize(
    "z", [1e5 + 0.11j, 1e5 + 1e5j, 40 - 1e-3j, 1e9 + 1.5j, 12 + 3j, -300 + 0j, 1e30 + 1j]
)
def test_derivatives_of_wofz_far_away(z):
    """The first terms of the asymptotic series of w: i / sqrt(pi) times 1/z + 1/(2 z^3) + 3/(4 z^5) + 15/(8 z^7)."""

    def along(function):
        return lambda z: weft.jvp(function, (z,), (wnp.ones_like(z),))[1]

    series = [(1, 1.0), (3, 0.5), (5, 0.75), (7, 1.875), (9, 6.5625)]
    for dtype, tolerance in (("complex64", 2e-5), ("complex128", 3e-6 if abs(z) < 100 else 1e-13)):
        with weft.enable_x64(True):
            point = wnp.asarray(z, dtype)
            slope, bend = along(special.wofz)(point), along(along(special.wofz))(point)
            exact = complex(point)
        first = sum(-k * c * exact ** (-k - 1) for k, c in series) * 1j / np.sqrt(np.pi)
        second = sum(k * (k + 1) * c * exact ** (-k - 2) for k, c in series) * 1j / np.sqrt(np.pi)
        assert abs(complex(slope) - first) <= tolerance * abs(first) + 1e-44
        assert abs(complex(bend) - second) <= tolerance * abs(second) + 1e-44


@pytest.mark.parametrize("z", [6 - 6.1j, -0.5 - 9j, 7.6 - 7.5j])
def test_derivatives_of_wofz_in_the_lower_half_plane(z):
    """Here w is 2 exp(-z^2) and little else, whose slope is -2 z times that."""
    with weft.enable_x64(True):
        value, slope = weft.jvp(
            special.wofz, (wnp.asarray(z, "complex128"),), (wnp.asarray(1.0 + 0j, "complex128"),)
        )
    exact = 2j / np.sqrt(np.pi) - 2 * z * complex(value)
    assert abs(complex(slope) - exact) <= 1e-12 * abs(exact)
