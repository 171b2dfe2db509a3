"""Transposes of products: a matmul or convolution writes its result in the order of the transposes
that follow it."""

import itertools
from math import prod

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

RNG = np.random.default_rng(0)
LAYOUTS = [("NCH", "OIH"), ("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NCHW", "HWIO")]


def rand(*shape, dtype="f4"):
    return RNG.normal(size=shape).astype(dtype)


def convolve(layout, kernel):
    n, dims = len(layout), (layout, kernel, layout)
    return lambda x, k: lax.conv_general_dilated(
        x, k, (1,) * (n - 2), "SAME", dimension_numbers=dims
    )


def operands(layout, kernel, dtype="f4"):
    sizes = dict(zip("NCHWOI", (2, 4, 6, 5, 3, 4)))
    taps = {**sizes, "H": 3, "W": 3}
    return rand(*(sizes[d] for d in layout), dtype=dtype), rand(
        *(taps[d] for d in kernel), dtype=dtype
    )


def assert_compiled_equals_eager(f, *args):
    want = f(*map(wnp.asarray, args))
    np.testing.assert_allclose(weft.jit(f)(*args), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("layout", "kernel"), LAYOUTS)
def test_transposed_convolution_is_padded(layout, kernel):
    conv = convolve(layout, kernel)
    for order in itertools.permutations(range(len(layout))):

        def padded(x, k, order=order):
            return wnp.pad(wnp.transpose(conv(x, k), order), 1)

        assert_compiled_equals_eager(padded, *operands(layout, kernel))


CONSUMERS = {
    "concatenate": lambda y: wnp.concatenate([y, y + 1], 1),
    "stack": lambda y: wnp.stack([y, y]),
    "set": lambda y: wnp.zeros((*y.shape[:-1], y.shape[-1] + 2), y.dtype).at[..., 1:-1].set(y),
    "sort": lambda y: wnp.sort(y, 1),
    "cumsum": lambda y: wnp.cumsum(y, 2),
    "scatter": lambda y: wnp.zeros_like(y).at[:, wnp.array([1, 0])].add(y[:, :2]),
    "map": lambda y: lax.map(lambda row: row * 2, y),
    "transpose": lambda y: wnp.transpose(y, (3, 1, 0, 2)) + 1,
    "matmul": lambda y: y @ wnp.ones((y.shape[-1], 2), y.dtype),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 0, 1, 2), (2, 3, 0, 1)])
def test_transposed_convolution_is_consumed(consumer, order):
    conv = convolve("NCHW", "OIHW")
    assert_compiled_equals_eager(
        lambda x, k: CONSUMERS[consumer](wnp.transpose(conv(x, k), order)),
        *operands("NCHW", "OIHW"),
    )


@pytest.mark.parametrize("dtype", ["f4", "f2", "c8", "i4"])
def test_two_transposes_of_a_product_compose(dtype):
    x, y = rand(3, 4, 5, dtype="f4"), rand(3, 5, 6, dtype="f4")
    for first, second in itertools.product(itertools.permutations(range(3)), repeat=2):

        def f(x, y, first=first, second=second):
            product = wnp.einsum("bij,bjk->bik", (x * 8).astype(dtype), (y * 8).astype(dtype))
            return wnp.transpose(wnp.transpose(product, first), second)[..., ::-1]

        assert_compiled_equals_eager(f, x, y)


def test_patches_of_images_have_gradients():
    """Patches are embedded as in vision transformers, under vmap and jit."""
    x, k = operands("NCHW", "OIHW")
    conv = convolve("NCHW", "OIHW")

    def loss(k, image):
        y = conv(image[None], k)[0]
        tokens = wnp.transpose(y, (1, 2, 0)).reshape(prod(y.shape[1:]), y.shape[0])
        return (wnp.concatenate([tokens, tokens[:1]]) ** 2).sum()

    gradient = weft.vmap(weft.grad(loss), (None, 0))
    assert_compiled_equals_eager(gradient, k, x)
