"""Optimizers against their formulas in NumPy, layers against lax and shapes that they announce."""

import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.example_libraries import optimizers, stax

START = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def grads_at(step):
    return np.float32(0.3) * np.sin(np.arange(4, dtype=np.float32).reshape(2, 2) + step)


def by_hand(name, steps):
    """Return the parameters after `steps` steps of size 0.1, by the formula of the rule, in float64."""
    x, first, second = START.astype(float), np.zeros((2, 2)), np.zeros((2, 2))
    rows, columns = np.zeros(2), np.zeros(2)
    for i in range(steps):
        g = grads_at(i).astype(float)
        match name:
            case "sgd":
                x = x - 0.1 * g
            case "momentum":
                first = 0.9 * first + g
                x = x - 0.1 * first
            case "nesterov":
                first = 0.9 * first + g
                x = x - 0.1 * (0.9 * first + g)
            case "adagrad":
                second = second + g * g
                first = 0.9 * first + 0.1 * np.where(
                    second > 0, g / np.sqrt(np.where(second > 0, second, 1)), 0
                )
                x = x - 0.1 * first
            case "rmsprop":
                second = 0.9 * second + 0.1 * g * g
                x = x - 0.1 * g / np.sqrt(second + 1e-8)
            case "rmsprop_momentum":
                second = 0.9 * second + 0.1 * g * g
                first = 0.9 * first + 0.1 * g / np.sqrt(second + 1e-8)
                x = x - first
            case "adam":
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
                x = x - 0.1 * first / (1 - 0.9 ** (i + 1)) / (
                    np.sqrt(second / (1 - 0.999 ** (i + 1))) + 1e-8
                )
            case "adamax":
                first, second = 0.9 * first + 0.1 * g, np.maximum(0.999 * second, abs(g))
                x = x - 0.1 / (1 - 0.9 ** (i + 1)) * first / (second + 1e-8)
            case "sm3":
                squares = np.minimum(rows[:, None], columns[None, :]) + g * g
                first = 0.9 * first + 0.1 * np.where(
                    squares > 0, g / np.sqrt(np.where(squares > 0, squares, 1)), 0
                )
                x, rows, columns = x - 0.1 * first, squares.max(1), squares.max(0)
    return x


RULES = {"momentum": (0.9,), "nesterov": (0.9,)}


@pytest.mark.parametrize(
    "name", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "rmsprop_momentum", "adam", "adamax", "sm3"]
)  # fmt: skip
def test_an_optimizer_follows_its_formula(name):
    init, update, params = getattr(optimizers, name)(0.1, *RULES.get(name, ()))
    state = init({"w": START})
    stepped = weft.lax.fori_loop(
        0,
        3,
        lambda i, s: update(i, {"w": 0.3 * wnp.sin(wnp.arange(4.0).reshape(2, 2) + i)}, s),
        state,
    )
    np.testing.assert_allclose(params(stepped)["w"], by_hand(name, 3), rtol=2e-4, atol=1e-5)


def test_an_optimizer_of_scalars_and_its_stored_form():
    init, update, params = optimizers.sm3(0.1, momentum=0.0)
    state = update(0, [2.0, (np.float32(0.0),)], init([1.0, (np.float32(5.0),)]))
    np.testing.assert_allclose(weft.tree.leaves(params(state)), [0.9, 5.0], rtol=1e-6)
    marked = optimizers.unpack_optimizer_state(state)
    assert all(isinstance(leaf, optimizers.JoinPoint) for leaf in weft.tree.leaves(marked))
    assert optimizers.pack_optimizer_state(marked) == state
    with pytest.raises(TypeError, match="structure"):
        update(0, [2.0], state)
    with pytest.raises(TypeError, match="JoinPoint"):
        optimizers.pack_optimizer_state([1.0])


def test_schedules_and_clipping():
    assert float(optimizers.exponential_decay(0.5, 2, 0.25)(4)) == 0.5 * 0.25**2
    np.testing.assert_allclose(optimizers.inverse_time_decay(1.0, 2, 0.5)(1), 0.8)
    np.testing.assert_allclose(
        [optimizers.polynomial_decay(1.0, 4, 0.2, 2)(i) for i in (0, 2, 9)],
        [1.0, 0.4, 0.2],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="one more than"):
        optimizers.piecewise_constant([1, 2], [1.0, 2.0])
    with pytest.raises(TypeError, match="step size"):
        optimizers.sgd(np.ones(2))
    clipped = optimizers.clip_grads([np.float32([3.0]), np.float32([4.0])], 2.5)
    np.testing.assert_allclose(np.concatenate(clipped), [1.5, 2.0], rtol=1e-6)


IMAGE = (2, 7, 8, 3)


@pytest.mark.parametrize("layer, shape", [
    (stax.Conv(4, (3, 2), (2, 1), "SAME"), IMAGE),
    (stax.Conv(4, (3, 2), padding=[(1, 0), (2, 1)]), IMAGE),
    (stax.ConvTranspose(4, (3, 2), (2, 3)), IMAGE),
    (stax.Conv1DTranspose(4, (3,), (2,), "SAME"), (2, 7, 3)),
    (stax.GeneralConv(("NCHW", "OIHW", "NHWC"), 5, (2, 2)), (2, 3, 6, 7)),
    (stax.BatchNorm(), IMAGE),
    (stax.MaxPool((2, 3), (2, 1), "SAME"), IMAGE),
    (stax.SumPool((2, 3), spec="NCHW"), IMAGE),
    (stax.AvgPool((2,), padding=[(1, 1)]), (2, 7, 3)),
    (stax.serial(stax.Flatten, stax.Dense(3), stax.Gelu, stax.Dropout(0.5)), IMAGE),
    (stax.serial(stax.FanOut(2), stax.parallel(stax.Identity, stax.Tanh), stax.FanInConcat(1)), IMAGE),
    (stax.shape_dependent(lambda shape: stax.Dense(shape[-1] * 2)), (2, 5)),
])  # fmt: skip
def test_a_layer_gives_the_shape_that_it_announces(layer, shape):
    init, apply = layer
    announced, params = init(weft.random.key(0), shape)
    inputs = wnp.ones(shape)
    assert apply(params, inputs, rng=weft.random.key(1)).shape == tuple(announced)


def test_layers_compute():
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    norm_init, norm = stax.BatchNorm()
    out = norm(norm_init(weft.random.key(0), x.shape)[1], x)
    np.testing.assert_allclose(
        out, (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5), atol=2e-5
    )
    mean = stax.AvgPool((2, 2), (1, 1), "SAME")[1]((), x)
    np.testing.assert_allclose(
        mean[:, -1, -1], x[:, -1, -1], rtol=1e-6
    )  # a window of one element at the corner
    np.testing.assert_allclose(mean[:, 0, 0], x[:, :2, :2].mean((1, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(stax.MaxPool((4, 5))[1]((), x)[:, 0, 0], x.max((1, 2)))
    outputs = np.asarray(stax.Dropout(0.8)[1]((), wnp.ones(2000), rng=weft.random.key(0)))
    assert (
        set(np.unique(outputs)) == {np.float32(0), np.float32(1.25)}
        and abs(outputs.mean() - 1) < 0.05
    )
    assert stax.Dropout(0.8, "test")[1]((), 3.0, rng=weft.random.key(0)) == 3.0
    with pytest.raises(ValueError, match="rng=key"):
        stax.Dropout(0.8)[1]((), x)


def test_a_network_learns():
    init, apply = stax.serial(stax.Dense(16), stax.Tanh, stax.Dense(1))
    params = init(weft.random.key(0), (-1, 1))[1]
    x = wnp.linspace(-1, 1, 32)[:, None]

    def loss(params):
        return wnp.mean((apply(params, x) - x**2) ** 2)

    start, update, read = optimizers.adam(0.02)
    state = weft.jit(
        lambda s: weft.lax.fori_loop(0, 200, lambda i, s: update(i, weft.grad(loss)(read(s)), s), s)
    )(start(params))
    assert loss(read(state)) < 0.01 < loss(params)


def test_programs_for_jax_find_them():
    script = """
from weft.compat import install_as_jax
install_as_jax()
from jax.example_libraries import optimizers, stax
from weft.example_libraries import optimizers as ours, stax as layers
assert optimizers.adam is ours.adam and stax.Dense is layers.Dense and stax.Tanh is layers.Tanh
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
