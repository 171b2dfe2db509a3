"""Residuals of `vjp`: arguments as passed, computed values, and arguments restored before the call;
and the shardings of cotangents of values that move while they are differentiated."""

from __future__ import annotations

import functools
import gc
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.core.interpret import evaluate
from weft.ad import NotNeeded, NotSaveable

X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 4), np.float32)


def layer(x, w):
    return 2.0 * (x @ w)


def grads(ct):
    return 2 * ct @ W.T, 2 * X.T @ ct


def test_arguments_kept_as_they_were_given():
    x, w = wnp.asarray(X), wnp.asarray(W)
    y, pull = weft.vjp(layer, x, w)
    assert pull.args_res[0] is x and pull.args_res[1] is w and not pull.opaque_residuals
    ct = np.ones_like(y)
    for got, want in zip(pull(ct), grads(ct)):
        np.testing.assert_allclose(got, want)


def test_pullback_residuals_are_opaque_and_unneeded_ones_absent():
    _, pull = weft.vjp(wnp.sin, wnp.arange(3.0))
    assert pull.args_res == [NotNeeded()]
    np.testing.assert_allclose(pull.opaque_residuals[0], np.cos(np.arange(3)), rtol=1e-6)
    assert len(weft.tree.leaves(pull)) == 1


@pytest.mark.parametrize(
    "restore",
    [
        lambda pull, w: pull.args_res.__setitem__(1, w) or pull,
        lambda pull, w: pull.replace(args_res=[pull.args_res[0], w]),
    ],
)
def test_arguments_that_are_not_saveable_are_restored(restore):
    _, pull = weft.vjp(layer, wnp.asarray(X), wnp.asarray(W), saveable_args=(True, False))
    assert isinstance(pull.args_res[1], NotSaveable) and len(weft.tree.leaves(pull)) == 1
    ct = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"not-saveable.*args\[1\]"):
        pull(ct)
    for got, want in zip(restore(pull, W)(ct), grads(ct)):
        np.testing.assert_allclose(got, want)


def test_pullbacks_cross_jit_without_their_arguments():
    forward = weft.jit(lambda x, w: weft.vjp(layer, x, w, saveable_args=(True, False)))

    @weft.jit
    def backward(pull, w, ct):
        pull.args_res[1] = w
        return pull(ct)

    y, pull = forward(X, W)
    ct = np.ones_like(y)
    for got, want in zip(backward(pull, W, ct), grads(ct)):
        np.testing.assert_allclose(got, want)
    with pytest.raises(ValueError, match="not-saveable"):
        weft.jit(lambda pull, ct: pull(ct))(pull, ct)


def test_trees_of_arguments():
    tree = {"hi": wnp.ones((4, 5)), "bye": wnp.ones((3, 4))}
    _, pull = weft.vjp(lambda d: d["bye"] @ d["hi"], tree, saveable_args=((True, False),))
    bye, hi = pull.args_res[0]
    assert bye is tree["bye"] and isinstance(hi, NotSaveable)
    with pytest.raises(ValueError, match=r"args\[0\]\['hi'\]"):
        pull(wnp.ones((3, 5)))
    pull.args_res = [tree]
    np.testing.assert_allclose(pull(wnp.ones((3, 5)))[0]["hi"], np.full((4, 5), 3))


@pytest.mark.parametrize(
    "saveable, reason",
    [
        ((True,), "number of children"),
        ((True, (True, True)), "leaf"),
        ((1, True), "tuple-tree of bools"),
        ([True, True], "tuple-tree of bools"),
    ],
)
def test_saveable_args_fit_the_arguments(saveable, reason):
    with pytest.raises(ValueError, match=reason):
        weft.vjp(layer, X, W, saveable_args=saveable)


def test_linear_functions_keep_their_program():
    _, f_lin = weft.linearize(lambda x: wnp.sin(x) * 2, 1.0)
    assert "mul" in str(f_lin.func.args[0]) and "sin" not in str(f_lin.func.args[0])
    np.testing.assert_allclose(f_lin(1.0), 2 * np.cos(1.0), rtol=1e-6)


def test_checkpointed_functions_are_traced_once():
    traced = []

    @functools.partial(weft.checkpoint, static_argnums=1, static_argnames="cfg")
    def f(x, n, *, cfg):
        traced.append(n)
        return wnp.sin(x) * n * cfg

    for _ in range(3):
        np.testing.assert_allclose(f(1.0, 2, cfg=3.0), 6 * np.sin(1.0), rtol=1e-6)
    assert traced == [2]
    np.testing.assert_allclose(f(1.0, 4, cfg=3.0), 12 * np.sin(1.0), rtol=1e-6)
    np.testing.assert_allclose(
        weft.grad(lambda x: f(x, 2, cfg=5.0))(1.0), 10 * np.cos(1.0), rtol=1e-6
    )
    assert traced == [2, 4, 2]


def test_checkpointed_closures_over_tracers_are_retraced():
    def outer(x, y):
        inner = weft.checkpoint(lambda z: z * x)
        return inner(y) + inner(2 * y)

    np.testing.assert_allclose(weft.grad(outer)(3.0, 5.0), 15)
    np.testing.assert_allclose(weft.grad(outer, 1)(3.0, 5.0), 9)


def test_unhashable_static_arguments_of_checkpoint():
    f = weft.checkpoint(lambda x, cfg: x * cfg["scale"], static_argnums=1)
    np.testing.assert_allclose(weft.grad(f)(1.0, {"scale": 2.0}), 2)


@pytest.mark.parametrize("what", ["in_axes", "out_axes"])
def test_axes_of_vmap_are_integers(what):
    with pytest.raises(TypeError, match=f"vmap {what} must be an int, None, or"):
        weft.vmap(lambda x: x, **{what: (wnp.ones(2),)})(X)


def test_names_that_cannot_be_passed_are_refused():
    with pytest.raises(ValueError, match="cannot be passed by name"):
        weft.jit(lambda a, /, b: a, static_argnames="a")


def test_products_state_the_default_precision():
    precision = lambda: weft.make_jaxpr(wnp.dot)(X, W).eqns[0].params["precision"]
    assert precision() is None
    with weft.default_matmul_precision("float32"):
        assert precision() == (weft.lax.Precision.HIGHEST,) * 2


def test_the_program_of_the_backward_pass():
    _, pull = weft.vjp(
        lambda x, n, d: {"a": wnp.sin(x) * n + d["y"]}, np.float32(1), 2, {"y": np.float32(3)}
    )
    assert [a.str_short() for a in pull.jaxpr.out_avals] == [
        "float32[]",
        "float32[]",
    ]  # none for the integer
    values = evaluate(pull.jaxpr, *pull.opaque_residuals, np.float32(1))
    assert np.allclose(values, [2 * np.cos(1.0), 1.0])
    pullback = weft.vjp(wnp.multiply, wnp.ones(2), wnp.zeros(2), saveable_args=False)[1]
    with pytest.raises(ValueError, match="not-saveable"):
        pullback.jaxpr  # noqa: B018


def test_the_function_itself_keeps_no_values():
    """Results of a traced function that are pullbacks hold none of its tracers, and values that are
    not saveable are freed."""

    def with_pullback(x):
        return weft.vjp(weft.checkpoint(lambda x: weft.nn.relu(2.0 * x)), x)

    with weft.checking_leaks():
        y, pull = weft.jit(with_pullback)(3.0)
    assert float(y) == 6.0 and float(pull(1.0)[0]) == 2.0
    x = wnp.asarray(X)
    alive = weakref.ref(x)
    _, pull = weft.vjp(lambda x: (x * x).sum(), x, saveable_args=False)
    del x
    gc.collect()
    assert alive() is None
    pull.args_res[0] = wnp.asarray(X)
    assert np.allclose(pull(np.float32(1))[0], 2 * X)


# ---- values that move while they are differentiated

EIGHT = weft.NamedSharding(weft.make_mesh((8,), ("x",)), weft.P("x"))


@pytest.mark.parametrize(
    "target",
    [weft.devices()[1], weft.sharding.SingleDeviceSharding(weft.devices()[3]), EIGHT],
    ids=str,
)
@pytest.mark.parametrize("source", [weft.devices()[2], None], ids=str)
def test_cotangents_return_to_where_their_primals_were(target, source):
    x = np.arange(8, dtype=np.float32)
    x = wnp.asarray(x) if source is None else weft.device_put(x, source)
    there = weft.device_put(x, target).devices()
    moved = lambda x: weft.device_put(wnp.sin(x), target)
    y, pull = weft.vjp(moved, x)
    assert y.devices() == there and y.committed
    (g,) = pull(weft.device_put(np.ones(8, np.float32), target))
    np.testing.assert_allclose(g, np.cos(np.arange(8)), rtol=1e-6)
    assert g.devices() == x.devices()
    tangent = weft.jvp(moved, (x,), (x,))[1]
    np.testing.assert_allclose(tangent, np.cos(np.arange(8)) * np.arange(8), rtol=1e-5)
    assert tangent.devices() == there
    twice = weft.grad(lambda x: weft.grad(lambda x: (moved(x) ** 2).sum())(x).sum())(x)
    np.testing.assert_allclose(twice, 2 * np.cos(2 * np.arange(8)), rtol=1e-5)
    assert twice.devices() == x.devices()
    np.testing.assert_allclose(weft.linearize(moved, x)[1](x), tangent, rtol=1e-6)


def test_moves_of_mapped_and_integer_values():
    x = weft.device_put(np.arange(4, dtype=np.float32), weft.devices()[0])
    g = weft.grad(
        lambda x: weft.vmap(lambda e: weft.device_put(e * e, weft.devices()[1]))(x).sum()
    )(x)
    assert g.tolist() == [0, 2, 4, 6] and g.devices() == x.devices()
    y, g = weft.value_and_grad(
        lambda x: weft.device_put({"a": x.sum(), "n": 3}, weft.devices()[1])["a"]
    )(x)
    assert (y.devices(), g.devices()) == ({weft.devices()[1]}, x.devices()) and g.tolist() == [
        1
    ] * 4


@pytest.mark.parametrize("derive", [weft.linearize, weft.vjp])
def test_weak_traced_tangents_are_taken_as_they_are(derive):
    _, linear = derive(wnp.sin, 4.0)
    program = weft.make_jaxpr(linear)(1.0)
    assert [eqn.primitive.name for eqn in program.eqns] == ["mul"]
    np.testing.assert_allclose(weft.jit(linear)(1.0), np.cos(4.0), rtol=1e-6)
