"""Resizing of images: known values, and what every kernel must keep."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import image

LINE = np.arange(5, dtype=np.float32)
KNOWN = {  # of LINE, to 8 and to 3 pixels
    "nearest": ([0, 0, 1, 2, 2, 3, 4, 4], [0, 2, 4]),
    "linear": ([0, 0.4375, 1.0625, 1.6875, 2.3125, 2.9375, 3.5625, 4], [0.4285714, 2, 3.5714283]),
    "cubic": (
        [-0.07195572, 0.3444457, 1.0625, 1.6875, 2.3125, 2.9375, 3.6555543, 4.0719557],
        [0.35384625, 2, 3.6461542],
    ),
    "lanczos3": (
        [-0.07095918, 0.30615434, 1.0771388, 1.7359133, 2.2640867, 2.9228616, 3.6938457, 4.070959],
        [0.32159865, 2, 3.6784012],
    ),
    "lanczos5": (
        [-0.07590584, 0.27490413, 1.1015706, 1.8596853, 2.1403148, 2.8984292, 3.7250957, 4.075906],
        [0.32454348, 2, 3.6754565],
    ),
}


@pytest.mark.parametrize("method", KNOWN)
def test_known_values(method):
    for want in KNOWN[method]:
        np.testing.assert_allclose(
            image.resize(LINE, (len(want),), method), want, rtol=2e-5, atol=2e-6
        )
    plane = image.resize(
        np.ones((2, 5, 7, 3)), (2, 9, 4, 3), image.ResizeMethod.from_string(method)
    )
    np.testing.assert_allclose(
        plane, np.ones((2, 9, 4, 3)), rtol=1e-5
    )  # a constant image stays as it is


def test_dtypes_and_antialias():
    np.testing.assert_allclose(
        image.resize(LINE, (3,), "linear", antialias=False), [1 / 3, 2, 11 / 3], rtol=1e-5
    )
    assert image.resize(wnp.ones((4, 4), "bfloat16"), (2, 2), "bilinear").dtype.name == "bfloat16"
    assert image.resize(np.arange(4), (2,), "linear").dtype.name == "float32"


def test_scale_and_translate():
    result = image.scale_and_translate(
        LINE, (6,), (0,), wnp.array([1.5]), wnp.array([0.3]), "linear"
    )
    np.testing.assert_allclose(result, [0, 0.3, 0.9666667, 1.6333334, 2.3, 2.9666667], rtol=1e-5)
    moved = lambda t: image.scale_and_translate(LINE, (5,), (0,), wnp.array([1.0]), t, "linear")[2]
    np.testing.assert_allclose(weft.grad(lambda t: moved(t[None]))(0.25), -1.0, rtol=1e-5)


def test_sharded_images_resize_alike():
    rows = weft.NamedSharding(weft.make_mesh((8,), ("i",)), weft.P("i"))
    x = np.random.default_rng(0).normal(size=(8, 6, 6)).astype("f")
    resized = weft.jit(lambda x: image.resize(x, (8, 3, 9), "cubic"))
    np.testing.assert_allclose(resized(weft.device_put(x, rows)), resized(x), rtol=1e-5, atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="unknown method"):
        image.resize(LINE, (3,), "sharpest")
    with pytest.raises(ValueError, match="as many dims"):
        image.resize(LINE, (3, 3), "linear")
    with pytest.raises(ValueError, match="may change"):
        image.scale_and_translate(
            np.ones((2, 2)), (3, 3), (0,), wnp.ones(1), wnp.zeros(1), "linear"
        )


@pytest.mark.parametrize("n", [3, 11])
def test_area_is_the_mean_over_each_new_pixel(n):
    x = np.arange(7, dtype=np.float32) ** 2
    fine = np.repeat(x, n).reshape(n, 7)  # n times 7 small pixels: 7 of them make a new one
    np.testing.assert_allclose(image.resize(x, (n,), "area"), fine.mean(1), rtol=1e-5)


def test_cubic_of_pytorch():
    x = np.arange(7, dtype=np.float32) ** 2
    np.testing.assert_allclose(
        image.resize(x, (3,), "cubic-pytorch", antialias=False), [0.35185, 9, 29.46296], rtol=1e-4
    )
    np.testing.assert_allclose(
        image.resize(x, (11,), "bicubic-pytorch"), image.resize(x, (11,), "cubic"), rtol=1e-6
    )


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "area"])
def test_images_without_pixels(method):
    assert image.resize(np.ones((0, 3)), (4, 3), method).tolist() == np.zeros((4, 3)).tolist()
    assert image.resize(np.ones((2, 3)), (0, 3), method).shape == (0, 3)
