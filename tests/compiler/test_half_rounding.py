"""A 16-bit value has one rounding, however many kernels read or recompute it."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
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
