"""The Hurwitz zeta function and polygamma of integer orders, on both sides of zero and where
factorials overflow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.accuracy import EXACT, LEAST, WIDE, WIDE_ENOUGH, error_in_ulp, native
from weft._engine.ir.loops_eval import DTYPES

ORDERS = (1, 2, 3, 5, 9, 13, 17, 20)
rng = np.random.default_rng(3)


def errors(name: str, type_: str, order: np.ndarray, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        order, x = (v.astype(DTYPES[type_]) for v in (order, x))
        wide = order.astype(WIDE), x.astype(WIDE)
        return error_in_ulp(native(name, type_, order, x), EXACT[name](*wide), LEAST[name](*wide))


@pytest.mark.skipif(not WIDE_ENOUGH, reason="long double has no more bits than f64 here")
@pytest.mark.parametrize("type_, bound", [("f32", 1.5), ("f64", 24), ("f16", 0.52), ("bf16", 0.52)])
@pytest.mark.parametrize("name", ["zeta", "polygamma"])
def test_whole_orders(name, type_, bound):
    order = rng.choice(ORDERS, 3000) + (name == "zeta")
    for x in (rng.uniform(0, 3, 3000), 10.0 ** rng.uniform(-3, 6, 3000)):
        worst = errors(name, type_, order, x)
        assert worst.max() <= bound, (order[worst.argmax()], x[worst.argmax()])


@pytest.mark.skipif(not WIDE_ENOUGH, reason="long double has no more bits than f64 here")
@pytest.mark.parametrize("type_, bound", [("f32", 4), ("f64", 60)])
def test_zeta_below_zero(type_, bound):
    """The error is relative to the size of the terms, which cancel where the exponent is odd."""
    s = rng.integers(2, 9, 2000)
    for q in (
        -rng.uniform(0, 30, 2000),
        -(10.0 ** rng.uniform(-9, 0, 2000)),
        -np.round(rng.uniform(0, 9, 2000)) - 0.5,
    ):
        worst = errors("zeta", type_, s, q)
        assert worst.max() <= bound, (s[worst.argmax()], q[worst.argmax()])


@pytest.mark.skipif(not WIDE_ENOUGH, reason="long double has no more bits than f64 here")
@pytest.mark.parametrize(
    "type_, orders, bound",
    [("f32", (21, 34, 40, 150, 600), 1.5), ("f64", (21, 60, 160, 200, 400), 6000)],
)
def test_large_orders_where_the_factorial_overflows(type_, orders, bound):
    order = rng.choice(orders, 2000)
    x = order / np.e * 10.0 ** rng.uniform(-0.3, 0.3, 2000)
    assert errors("polygamma", type_, order, x).max() <= bound


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("name", ["zeta", "polygamma"])
def test_a_result_does_not_depend_on_its_neighbours(name, type_):
    order = rng.choice([0.5, 1, 2, 3, 7, 25], 60).astype(DTYPES[type_])
    x = (rng.choice([1, 1, 1, -1, 0], 60) * rng.uniform(0.1, 30, 60)).astype(DTYPES[type_])
    whole = native(name, type_, order, x).astype(np.float64)
    for size in (1, 3, 8, 29, 47):
        alone = native(name, type_, order[:size].copy(), x[:size].copy()).astype(np.float64)
        np.testing.assert_array_equal(alone, whole[:size])
