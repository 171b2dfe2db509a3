"""Reductions by the user's function, windows, prefix scans."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.lax.window_reductions import monoid

RNG = np.random.RandomState(0)
X = RNG.randn(6, 7).astype(np.float32)
LINE = RNG.randn(23).astype(np.float32)
MONOIDS = {
    "add": (lax.add, np.add, 0.0),
    "mul": (lax.mul, np.multiply, 1.0),
    "max": (lax.max, np.maximum, -np.inf),
    "min": (lax.min, np.minimum, np.inf),
}


def windows(x, init, ufunc, window, strides, pads, spread):
    """The definition, one window at a time."""
    x = np.pad(x, pads, constant_values=init)
    spans = [(k - 1) * d + 1 for k, d in zip(window, spread)]
    counts = [(n - k) // s + 1 if n >= k else 0 for n, k, s in zip(x.shape, spans, strides)]
    out = np.zeros(counts, x.dtype)
    for at in itertools.product(*map(range, counts)):
        box = x[tuple(slice(i * s, i * s + k, d) for i, s, k, d in zip(at, strides, spans, spread))]
        out[at] = ufunc.reduce(box.ravel(), initial=init)
    return out


@pytest.mark.parametrize("name", MONOIDS)
@pytest.mark.parametrize(
    "window, strides, pads, spread",
    [
        ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
        ((3, 2), (2, 1), ((1, 2), (0, 1)), (1, 1)),
        ((2, 3), (1, 2), ((0, 0), (1, 0)), (2, 2)),
        ((6, 7), (1, 1), ((0, 0), (0, 0)), (1, 1)),
        ((7, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ],
)
def test_reduce_window(name, window, strides, pads, spread):
    combine, ufunc, init = MONOIDS[name]
    result = lax.reduce_window(X, init, combine, window, strides, pads, window_dilation=spread)
    np.testing.assert_allclose(
        result, windows(X, init, ufunc, window, strides, pads, spread), rtol=1e-4, atol=1e-5
    )
    assert (
        lax.reduce_window_shape_tuple(X.shape, window, strides, pads, None, spread) == result.shape
    )


@pytest.mark.parametrize("name", ["add", "max"])
@pytest.mark.parametrize(
    "width, stride, spread", [(9, 1, 1), (12, 2, 1), (9, 1, 2), (16, 3, 1), (23, 1, 1), (8, 1, 3)]
)
def test_wide_windows(name, width, stride, spread):
    combine, ufunc, init = MONOIDS[name]
    result = lax.reduce_window(
        LINE, init, combine, (width,), (stride,), "VALID", window_dilation=(spread,)
    )
    np.testing.assert_allclose(
        result,
        windows(LINE, init, ufunc, (width,), (stride,), ((0, 0),), (spread,)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_windows_count_the_same_under_padding_names():
    assert lax.reduce_window(X, 0.0, lax.add, (3, 3), (2, 2), "SAME").shape == (3, 4)
    spread = lax.reduce_window(
        X, 0.0, lax.add, (3, 1), (2, 1), "SAME", base_dilation=(2, 1)
    )  # padded as if it were not spread
    assert (
        spread.shape[0]
        == (2 * X.shape[0] - 1 + (-(-X.shape[0] // 2) - 1) * 2 + 3 - X.shape[0] - 3) // 2 + 1
    )
    sums = lax.reduce_window(np.ones((4, 4), np.float32), 0.0, lax.add, (3, 3), (1, 1), "SAME")
    assert sums[0, 0] == 4 and sums[1, 1] == 9


def test_pooling_gradient_goes_to_the_winner():
    x = wnp.array([[1.0, 5.0, 2.0, 4.0]])
    pool = lambda v: lax.reduce_window(v, -np.inf, lax.max, (1, 2), (1, 2), "VALID").sum()
    assert weft.grad(pool)(x).tolist() == [[0.0, 1.0, 0.0, 1.0]]


def test_monoids_are_recognised():
    f32 = np.dtype(np.float32)
    assert monoid(lambda x, y: x + y, f32) == "add"
    assert monoid(wnp.maximum, f32) == "max"
    assert monoid(lambda x, y: x * x, f32) is None
    assert monoid(lambda x, y: x + 2 * y, f32) is None
    assert monoid(lambda x, y: x, f32) is None


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8])
def test_reduce_by_any_function(size):
    x = RNG.randn(size, 3).astype(np.float32)
    place = np.broadcast_to(np.arange(size, dtype=np.int32)[:, None], x.shape)
    larger = lambda a, b: (wnp.maximum(a[0], b[0]), wnp.where(a[0] >= b[0], a[1], b[1]))
    value, at = lax.reduce((x, place), (np.float32(-np.inf), np.int32(-1)), larger, (0,))
    np.testing.assert_array_equal(value, x.max(0, initial=-np.inf))
    np.testing.assert_array_equal(at, x.argmax(0) if size else [-1] * 3)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(size, reverse):
    a, b = RNG.rand(2, size, 2).astype(np.float32)
    combine = lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1])  # affine maps, which do not commute
    scale, shift = lax.associative_scan(combine, (a, b), reverse=reverse)
    want, order = [], range(size)
    state = None
    for i in reversed(order) if reverse else order:
        state = (a[i], b[i]) if state is None else (state[0] * a[i], a[i] * state[1] + b[i])
        want.append(state)
    want = want[::-1] if reverse else want
    np.testing.assert_allclose(scale, [w[0] for w in want], rtol=1e-5)
    np.testing.assert_allclose(shift, [w[1] for w in want], rtol=1e-5)
    along = lax.associative_scan(lax.add, wnp.asarray(a), axis=1)
    np.testing.assert_allclose(along, np.cumsum(a, 1), rtol=1e-5)


def test_stop_gradient_takes_trees():
    out = weft.grad(lambda p: (p["a"] * lax.stop_gradient(p)["a"]).sum())(
        {"a": wnp.array([2.0, 3.0])}
    )
    assert out["a"].tolist() == [2.0, 3.0]


def test_stop_gradient_leaves_keys_as_they_are():
    key = weft.random.key(3)
    f = lambda x, tree: (lax.stop_gradient(tree)["x"] * x, lax.stop_gradient(tree)["key"])
    slope, same = weft.jit(weft.grad(f, has_aux=True))(3.0, {"x": 2.0, "key": key})
    assert slope == 2 and weft.random.key_data(same).tolist() == weft.random.key_data(key).tolist()


def test_errors():
    with pytest.raises(ValueError, match="must have the same first dimension"):
        lax.associative_scan(lax.add, (np.zeros(3), np.zeros(4)))
    with pytest.raises(ValueError, match="one entry per dim"):
        lax.reduce_window(X, 0.0, lax.add, (2,), (1,), "VALID")


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "window, strides",
    [((2, 2), (2, 2)), ((3, 2), (1, 1)), ((6, 8), (1, 1)), ((1, 12), (1, 2)), ((6, 1), (1, 3))],
)
def test_the_derivative_of_extremes_goes_to_the_first_of_equals(window, strides, sign):
    x = sign * np.random.RandomState(1).randint(0, 3, (6, 24)).astype(np.float32)
    pool = lambda v: lax.reduce_window(
        v, -sign * np.inf, lax.max if sign > 0 else lax.min, window, strides, "VALID"
    )
    want = np.zeros_like(x)
    counts = pool(x).shape
    weights = np.arange(1, 1 + counts[0] * counts[1], dtype=np.float32).reshape(counts)
    for i, j in itertools.product(*map(range, counts)):
        top, left = i * strides[0], j * strides[1]
        box = sign * x[top : top + window[0], left : left + window[1]]
        a, b = np.unravel_index(box.argmax(), box.shape)
        want[top + a, left + b] += weights[i, j]
    got = weft.jit(weft.grad(lambda v: (pool(v) * weights).sum()))(x)
    np.testing.assert_array_equal(got, want)
    tangent = weft.jvp(pool, (x,), (x + 1,))[1]
    np.testing.assert_allclose((tangent * weights).sum(), ((x + 1) * want).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "computation, name",
    [
        (lambda x, y: y * x, "mul"),
        (weft.jit(lambda x, y: weft.jit(wnp.maximum)(y, x)), "max"),
        (lambda x, y: x * 2.0, None),
        (lambda x, y: (x * y, x)[1], None),
        (lambda x, y: x + x, None),
        (lambda x, y: weft.jit(lambda a: a * 2.0)(x), None),
    ],
)
def test_operations_are_known_by_what_they_do_to_both_operands(computation, name):
    assert monoid(computation, np.dtype(np.float32)) == name


def test_a_rule_of_the_computation_is_its_derivative():
    f = weft.custom_jvp(lambda x, y: x * y)
    f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * (tangents[0] + tangents[1])))
    grad = weft.grad(lambda x: lax.reduce(x, np.float32(1), f, (0,)))
    np.testing.assert_array_equal(grad(wnp.array([2.0, 3.0])), [100.0, 100.0])


@pytest.mark.parametrize("wrap", [lambda x: {"a": x}, lambda x: (x,), lambda x: [{"b": [x]}]])
def test_reductions_of_trees_of_one_array(wrap):
    x = RNG.randn(4, 3).astype(np.float32)
    for op, want in (
        (wnp.add, x.sum(0)),
        (lambda a, b: a + b * 1, x.sum(0)),
        (wnp.maximum, np.maximum(x.max(0), 0)),
    ):
        trees = lambda p, q, op=op: wrap(op(weft.tree.leaves(p)[0], weft.tree.leaves(q)[0]))
        (got,) = weft.tree.leaves(lax.reduce(wrap(x), wrap(np.float32(0)), trees, (0,)))
        np.testing.assert_allclose(got, want, rtol=1e-5)
        (got,) = weft.tree.leaves(
            lax.reduce_window(wrap(x), wrap(np.float32(0)), trees, (4, 1), (1, 1), "VALID")
        )
        np.testing.assert_allclose(got[0], want, rtol=1e-5)


def test_a_neutral_initial_value_of_another_dtype():
    """Pooling layers of libraries start a maximum of integers at minus infinity."""
    got = lax.reduce_window(np.arange(6), -np.inf, lax.max, (2,), (2,), "VALID")
    assert got.tolist() == [1, 3, 5] and got.dtype == np.int32


def test_the_initial_value_of_windows_is_a_scalar():
    with pytest.raises(
        TypeError,
        match=r"init_value must be one scalar for each of 1 operand, got shapes \[\(1,\)\]",
    ):
        lax.reduce_window(np.ones((4, 5), np.int32), np.ones((1,), np.int32), lax.max, (2, 2))
