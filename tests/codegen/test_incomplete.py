"""The incomplete gamma functions: the table has Temme's coefficients, errors grow with the exponent
only, and lanes are independent."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.codegen.accuracy import EXACT, WIDE, WIDE_ENOUGH, native
from tests.codegen.incomplete import uniform_coefficients
from weft._engine.ir.loops_eval import DTYPES
from weft._engine.ops.functions.incomplete import igamma, igammac
from weft._engine.ops.functions.incomplete_coefficients import UNIFORM

NAMES = ("igamma", "igammac", "igamma_grad_a", "igamma_grad_x", "random_gamma_grad")
RANGES = ((0, 1), (0, 3), (0, 30), (15, 30), (10, 120), (150, 250), (1e4, 1.1e4), (1e8, 1.001e8))


def arguments(low: float, high: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.uniform(low, high, count), rng.uniform(low, high, count)


def test_the_table_is_of_the_uniform_expansion():
    exact = uniform_coefficients(len(UNIFORM), max(map(len, UNIFORM)))
    assert [
        row[: len(mine)] for row, mine in zip([[float(c) for c in row] for row in exact], UNIFORM)
    ] == [list(row) for row in UNIFORM]
    largest = [
        abs(float(c)) * 0.36**m / 20.0**k
        for k, row in enumerate(exact)
        for m, c in enumerate(row)
        if m >= len(UNIFORM[k])
    ]
    assert max(largest) < 5e-17


@pytest.mark.skipif(not WIDE_ENOUGH, reason="long double has no more bits than f64 here")
@pytest.mark.parametrize("name", NAMES)
def test_errors_grow_with_the_exponent_alone(name):
    for low, high in RANGES:
        a, x = arguments(low, high)
        with np.errstate(all="ignore"):
            exact = EXACT[name](a.astype(WIDE), x.astype(WIDE))
            exponent = (
                np.zeros_like(exact)
                if name == "random_gamma_grad"
                else np.abs(np.log(np.abs(exact)))
            )
            error = np.abs(native(name, "f64", a, x) - exact) / np.abs(exact) / (10 + exponent)
        assert np.all((error < 2e-15) | (np.abs(exact) < 1e-300)), (
            low,
            high,
            float(np.nanmax(error)),
        )


@pytest.mark.skipif(not WIDE_ENOUGH, reason="long double has no more bits than f64 here")
@pytest.mark.parametrize("name", NAMES[1:4])
def test_small_orders_where_an_exponential_underflows(name):
    x = np.linspace(600, 760, 300)
    for order in (0.5, 1.0, 3.3, 9.9):
        a = np.full_like(x, order)
        with np.errstate(all="ignore"):
            exact = EXACT[name](a.astype(WIDE), x.astype(WIDE))
        error = np.abs(native(name, "f64", a, x) - exact) / np.abs(exact)
        assert np.all((error < 2e-12) | (np.abs(exact) < 1e-307)), (order, float(error.max()))


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_result_does_not_depend_on_its_neighbours(name, type_):
    parts = [arguments(low, high, 12) for low, high in RANGES[:6]]
    a, x = (
        np.random.default_rng(3).permuted(np.concatenate(side)).astype(DTYPES[type_])
        for side in zip(*parts)
    )
    whole = native(name, type_, a, x)
    for k in (0, 17, 38, 55, 71):
        np.testing.assert_array_equal(
            native(name, type_, a[k : k + 1].copy(), x[k : k + 1].copy()), whole[k : k + 1]
        )
    for size in (3, 8, 29, 47):
        np.testing.assert_array_equal(
            native(name, type_, a[:size].copy(), x[:size].copy()), whole[:size]
        )


def test_argument_derivatives_stay_accurate_at_large_orders():
    """A difference of logarithms would lose four of seven digits at 1000; at the start of the
    range, the density is a limit."""
    a, x = (part.astype(np.float32) for part in arguments(900, 1100, 100))
    with np.errstate(all="ignore"):
        exact = EXACT["igamma_grad_x"](a.astype(WIDE), x.astype(WIDE))
    for function, sign in ((igamma, 1), (igammac, -1)):
        slope = weft.vmap(weft.grad(function, 1))
        np.testing.assert_allclose(slope(a, x), sign * exact.astype(np.float64), rtol=1e-7)
        a_few = np.array([0.5, 1, 2, 2, 0], np.float32)
        np.testing.assert_array_equal(
            slope(a_few, np.array([0, 0, 0, np.inf, 1], np.float32)),
            sign * np.array([np.inf, 1, 0, 0, 0]),
        )
