"""Products hoisted out of scans: the hoisted ones, the ones that stay, and unchanged values."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.compiler.rewrite.loop_hoisting import lift_products
from weft._engine.core.interpret import run_reference
from weft._engine.ir.check import check_jaxpr

RNG = np.random.default_rng(0)
X, W, V, H = (
    RNG.standard_normal(s).astype(np.float32) * 0.15
    for s in ((9, 14, 15), (15, 18), (18, 18), (14, 18))
)
BIG = np.zeros((3, 512, 512), np.float32)


def before(x, w, v, h):
    """x @ w is computed for all iterations at once; h @ v depends on the previous iteration."""
    return lax.scan(lambda h, x: (wnp.tanh(x @ w + h @ v), h), h, x)


def after(x, w, v, h):
    return lax.scan(lambda h, x: (wnp.tanh(h @ v), wnp.sin(h) @ v), h, x)


def carried(x, w, v, h):
    def step(carry, x):
        h, total, bias = carry
        return (
            wnp.tanh(h @ v),
            total + lax.dot_general(x, h, (((0,), (0,)), ((), ()))),
            bias + h.sum(0),
        ), x.sum()

    return lax.scan(step, (h, w, v[0]), x, reverse=True)


def gradient(x, w, v, h):
    return weft.grad(lambda w, v: (before(x, w, v, h)[1] ** 2).sum(), (0, 1))(w, v)


def used_twice(x, w, v, h):
    """A sum that is read in each iteration is not hoisted; nor is a product that is both used in
    the loop and stacked."""

    def step(total, x):
        y = wnp.sin(total[:14]) @ v
        return total + x.T @ wnp.cos(total[:14]), (total, y, y.sum())

    return lax.scan(step, w, x)


def transposed(x, w, v, h):
    """An operand that the product reads transposed is still a slice of an input of the scan."""
    return lax.scan(lambda total, x: (wnp.tanh(total + x.T @ h), total[0]), w, x)


def bodies(jaxpr):
    return [e.params["jaxpr"] for e in jaxpr.eqns if e.primitive.name == "scan"]


def products(jaxpr) -> int:
    return sum(e.primitive.name == "dot_general" for e in jaxpr.eqns)


@pytest.mark.parametrize(
    "f, inside, outside",
    [
        (before, [1], 1),
        (after, [1], 1),
        (carried, [1], 1),
        (gradient, [1, 1], 3),
        (used_twice, [2], 0),
        (transposed, [0], 1),
    ],
)
def test_products_of_small_turns(f, inside, outside):
    simplified = weft.jit(f).lower(X, W, V, H).compile().stages.simplified
    lifted = lift_products(simplified)
    assert [products(b) for b in bodies(lifted)] == inside
    assert products(lifted) == outside
    for got, want in zip(run_reference(lifted, X, W, V, H), run_reference(simplified, X, W, V, H)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    for got, want in zip(
        weft.tree.leaves(weft.jit(f)(X, W, V, H)), run_reference(simplified, X, W, V, H)
    ):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_a_sum_leaves_along_with_a_product():
    simplified = weft.jit(carried).lower(X, W, V, H).compile().stages.simplified
    (body,) = bodies(lift_products(simplified))
    assert [e.primitive.name for e in body.eqns if e.primitive.name in ("reduce_sum", "add")] == [
        "reduce_sum"
    ]
    assert (
        len(bodies(lift_products(simplified))[0].outvars) == 3
    )  # the carried h, its stack, the sums of x


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: lax.scan(lambda t, x: (t, x @ w), 0.0, x),
        lambda x, w: lax.scan(lambda t, x: (t + x @ x, None), w, x),
    ],
)
def test_large_products_stay(f):
    simplified = weft.jit(f).lower(BIG, BIG[0]).compile().stages.simplified
    assert lift_products(simplified) is simplified


def test_one_turn_stays():
    simplified = weft.jit(before).lower(X[:1], W, V, H).compile().stages.simplified
    assert lift_products(simplified) is simplified


def test_scans_of_scans():
    """The inner scan is hoisted from in the body of the outer scan."""

    def f(x, w, v, h):
        return lax.scan(lambda h, x: (before(x, w, v, h)[0], None), h, wnp.stack([x, x * 2]))[0]

    simplified = weft.jit(f).lower(X, W, V, H).compile().stages.simplified
    (outer,) = bodies(expand(simplified))
    assert [products(b) for b in bodies(outer)] == [1]
    np.testing.assert_allclose(
        weft.jit(f)(X, W, V, H), run_reference(simplified, X, W, V, H)[0], rtol=2e-5, atol=2e-6
    )


def across(x, w):
    """Two products with the rows of one constant in every iteration."""
    return lax.scan(lambda h, _: (wnp.tanh(h @ w.T + (h * 2) @ w.T), h[0]), x, None, length=5)


@pytest.mark.parametrize("rows, turned", [(7, 1), (65, 0)])
def test_a_constant_is_transposed_once_for_all_turns(rows, turned):
    x, w = (RNG.standard_normal(s).astype(np.float32) * 0.05 for s in ((rows, 129), (129, 129)))
    simplified = weft.jit(across).lower(x, w).compile().stages.simplified
    lifted = check_jaxpr(lift_products(simplified))
    assert [e.primitive.name for e in lifted.eqns].count("transpose") == turned
    (body,) = bodies(lifted)
    assert {
        e.params["dimension_numbers"][0][1] for e in body.eqns if e.primitive.name == "dot_general"
    } == {(0,) if turned else (1,)}
    for got, want in zip(weft.jit(across)(x, w), run_reference(simplified, x, w)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    for got, want in zip(run_reference(lifted, x, w), run_reference(simplified, x, w)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_a_gradient_through_turned_constants():
    x, w = (RNG.standard_normal(s).astype(np.float32) * 0.1 for s in ((4, 128), (128, 128)))
    loss = lambda w: lax.scan(lambda h, _: (wnp.tanh(h @ w), None), x, None, length=4)[0].sum()
    unrolled = lambda w: wnp.tanh(wnp.tanh(wnp.tanh(wnp.tanh(x @ w) @ w) @ w) @ w).sum()
    np.testing.assert_allclose(
        weft.jit(weft.grad(loss))(w), weft.jit(weft.grad(unrolled))(w), rtol=1e-4, atol=1e-5
    )
