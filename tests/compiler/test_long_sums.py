"""Sums over several dims: the error of long sums grows with the longest dim, not with the number of
terms."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp


@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize("rows", [1, 3])
def test_nested_loops_accumulate_apart(rows, dtype):
    """All terms are equal, so rounding errors in a single accumulator would add up."""
    x = np.full((6, 66, 31), 0.013, np.float32)

    def f(scale, x):
        tiled = wnp.tile(x, (1, 1, 2))
        term = wnp.cos(scale[:, None, None, None] * (1 / (1 + wnp.abs(tiled))))
        return wnp.broadcast_to(term[:, :, None], (*term.shape[:2], rows, *term.shape[2:])).sum(
            (1, 3, 4)
        )

    scale = np.linspace(0.1, 0.4, 18).astype(dtype)
    want = np.cos(scale.astype("c16") / np.float32(1.013).astype("f8")) * 6 * 66 * 62
    want = np.broadcast_to(want[:, None], (18, rows))
    np.testing.assert_allclose(
        weft.jit(f)(scale, x), want if dtype == "c8" else want.real, rtol=40 * 2.0**-23
    )


def test_gradient_of_a_tiled_product():
    """Regression test of chain 22648479134: the gradient of a broadcast is a sum over all elements."""
    x, scale = (
        np.full((6, 1, 66, 31), 0.013, np.float32),
        np.linspace(0.05, 0.3, 18, dtype=np.float32).reshape(18, 1, 1, 1),
    )
    gradient = weft.grad(
        lambda s, x: wnp.sin(s * (1 / (1 + wnp.abs(wnp.tile(x, (3, 3, 1, 2)))))).sum()
    )
    with weft.enable_x64():
        want = np.asarray(
            weft.jit(gradient, backend="reference")(scale.astype("f8"), x.astype("f8"))
        )
    np.testing.assert_allclose(weft.jit(gradient)(scale, x), want, rtol=40 * 2.0**-23)


def test_sum_of_a_dilated_convolution():
    """Regression test of chain 5063897167: nested loops around a short vector."""
    rng = np.random.default_rng(0)
    x, k = (
        rng.normal(size=(7, 31, 4, 7)).astype("f4"),
        (0.2 * rng.normal(size=(2, 2, 7, 8))).astype("f4"),
    )

    def f(x, k):
        return wnp.sum(
            0.1
            + weft.lax.conv_transpose(
                x, k, (3, 3), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )

    with weft.enable_x64():
        want = np.asarray(weft.jit(f, backend="reference")(x.astype("f8"), k.astype("f8")))
    np.testing.assert_allclose(weft.jit(f)(x, k), want, rtol=80 * 2.0**-23)


@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize("shape", [(1000, 13), (3000, 5), (9, 7, 16, 13, 1), (1200, 3, 5)])
@pytest.mark.parametrize("axis", [None, 0])
def test_long_loop_around_a_short_vector(shape, axis, dtype):
    """Regression test of chain 21825968370: a sum with a short vector and a long outer loop is
    computed in blocks of that loop."""
    place = np.arange(shape[-1 if shape[-1] > 1 else -2]) % 3 == 1
    place = place.reshape(-1, 1) if shape[-1] == 1 else place

    def f(x):
        mask = (
            weft.lax.broadcasted_iota("int32", shape, len(shape) - (2 if shape[-1] == 1 else 1)) % 3
            == 1
        )
        return wnp.sum(wnp.where(mask, wnp.sin(wnp.cos(x)), 0), axis)

    x = np.full(shape, 0.3, dtype)
    want = np.where(place, np.sin(np.cos(x.astype("c16" if dtype == "c8" else "f8"))), 0).sum(axis)
    np.testing.assert_allclose(weft.jit(f)(x), want, rtol=16 * 2.0**-23)
