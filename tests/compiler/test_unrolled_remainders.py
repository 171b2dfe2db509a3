"""Remainders of unrolled dims keep their own conditions on the other dims."""

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "c8"])
@pytest.mark.parametrize("shape", [(1, 4, 5), (2, 4, 5), (4, 1, 5), (4, 4, 1)])
def test_padding_between_elements_equals_the_reference(shape, dtype):
    x = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    around = [(2, 0, 1), (1, 0, 0), (1, 1, 0), (-1, 1, 0), (3, 0, 2)]
    for config in itertools.product(around, repeat=3):

        def padded(x, config=config):
            return lax.pad(x, x.dtype.type(0), config)

        np.testing.assert_array_equal(
            weft.jit(padded)(x), weft.jit(padded, backend="reference")(x), str(config)
        )


@pytest.mark.parametrize("strides", [(2, 1, 1), (1, 2, 3), (3, 2, 1)])
def test_gradient_of_a_strided_slice(strides):
    x = np.ones((4, 4, 7), np.float32)
    loss = lambda x: (
        x[2 :: strides[0]][:, :: -strides[1], 1 : -1 : strides[2]] * wnp.float32(3)
    ).sum()
    np.testing.assert_array_equal(
        weft.jit(weft.grad(loss))(x), weft.jit(weft.grad(loss), backend="reference")(x)
    )
