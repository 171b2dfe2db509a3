"""A 16-bit value is rounded once, however many kernels read or recompute it."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.fusion.rounding import find_rounded_values
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft.sharding import NamedSharding, PartitionSpec as P

RNG = np.random.default_rng(0)
SHAPES = [(1, 5), (5, 1), (1, 17, 5), (5, 1, 5, 1), (2, 17, 5), (33, 64), (1, 4096)]
PRODUCERS = {
    "quotient": lambda x: x / 3,
    "product": lambda x: (x @ wnp.swapaxes(x, -1, -2)) / 5,
    "exponential": lambda x: wnp.exp(x / 100),
    "sum": lambda x: x + wnp.sin(x).sum(-1, keepdims=True),
}


def numbers(shape, dtype):
    return wnp.asarray(3 * RNG.normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_maximum_is_one_of_the_values(shape, producer, dtype):
    @weft.jit
    def f(x):
        y = PRODUCERS[producer](x)
        largest = wnp.max(y, -1, keepdims=True)
        return (y == largest).any(-1), wnp.min(largest - y)

    is_found, least = f(numbers(shape, dtype))
    assert np.asarray(is_found).all()
    assert least == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_equal_what_comparisons_saw(shape, dtype):
    """A result and a comparison of the same value agree exactly."""
    y, greater, total = weft.jit(_compared)(numbers(shape, dtype))
    y = np.asarray(y).astype("f4")
    np.testing.assert_array_equal(greater, y > y[..., :1])
    np.testing.assert_array_equal(np.asarray(total).astype("f4"), 0)


def _compared(x):
    y = x * wnp.asarray(0.3, x.dtype)
    return y, y > y[..., :1], y - y


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_maxima_are_finite(devices, dtype):
    mesh = weft.make_mesh((devices,), ("x",), devices=weft.devices()[:devices])
    x = weft.device_put(numbers((16, 8, 8), dtype), NamedSharding(mesh, P(None, "x")))
    w = weft.device_put(numbers((8, 8), dtype), NamedSharding(mesh, P("x")))
    gradient = weft.jit(weft.grad(lambda x, w: wnp.max(x @ w, -1).astype("float32").sum()))(x, w)
    assert np.isfinite(np.asarray(gradient).astype("f4")).all()


OBSERVERS = {
    "floor": (wnp.floor, lambda y, z: (z <= y).all()),
    "round": (wnp.round, lambda y, z: (np.abs(y - z) <= 0.5).all()),
    "sign": (wnp.sign, lambda y, z: ((y > 0) == (z > 0)).all()),
    "remainder": (
        lambda y: weft.lax.rem(y, wnp.ones_like(y)),
        lambda y, z: (np.fmod(y, 1) == z).all(),
    ),
    "clamp": (
        lambda y: weft.lax.clamp(y[..., :1] + 0 * y, y, y + 99),
        lambda y, z: (z >= y[..., :1]).all(),
    ),
    "argmax": (
        lambda y: wnp.argmax(y, -1),
        lambda y, z: (np.take_along_axis(y, z[..., None], -1)[..., 0] == y.max(-1)).all(),
    ),
    "sort": (lambda y: wnp.sort(y, -1), lambda y, z: (np.sort(y, -1) == z).all()),
    "cast": (lambda y: y.astype("int32"), lambda y, z: (np.trunc(y) == z).all()),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", OBSERVERS)
def test_steps_see_the_value_of_a_result(name, dtype):
    function, holds = OBSERVERS[name]
    y, z = weft.jit(lambda x: ((y := x / wnp.asarray(0.7, x.dtype)), function(y)))(
        numbers((9, 65), dtype)
    )
    assert holds(
        np.asarray(y).astype("f4"),
        np.asarray(z).astype("f4" if name not in ("argmax", "cast") else "i4"),
    )


def layer_norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / wnp.sqrt(
        (centered * centered).mean(-1, keepdims=True) + wnp.asarray(1e-5, x.dtype)
    )


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (weft.nn.softmax, 0),
        (weft.nn.gelu, 0),
        (layer_norm, 0),
        (weft.grad(lambda x: layer_norm(x).astype("float32").sum()), 0),
        (lambda x: (x / 3) * (x / 3 + 1), 0),
        (lambda x: x / 3 - wnp.max(x / 3), 1),
        (lambda x: weft.nn.softmax(x / 3), 1),
    ],
)
def test_values_are_rounded_where_a_reader_observes_it(function, count):
    x = numbers((64, 64), "bfloat16")
    jaxpr = expand(simplify(stage(lambda x: [function(x)], [typeof(x)])))
    assert len(find_rounded_values(jaxpr)) == count
