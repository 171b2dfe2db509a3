"""Signals, interpolation, integration and quantization against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.ndimage
import scipy.signal

import weft
import weft.numpy as wnp
from weft.scipy import cluster, integrate, ndimage, signal

RNG = np.random.default_rng(0)
LONG, SHORT = RNG.normal(size=12).astype("f"), RNG.normal(size=5).astype("f")
EVEN = RNG.normal(size=4).astype("f")
PLANE, PATCH = RNG.normal(size=(7, 8)).astype("f"), RNG.normal(size=(3, 4)).astype("f")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    "x, y",
    [(LONG, SHORT), (LONG, EVEN), (SHORT, LONG), (EVEN, LONG), (PLANE, PATCH), (PATCH, PLANE)],
    ids=["odd", "even", "short first", "even first", "plane", "plane second"],
)
def test_convolutions(x, y, mode):
    for name in ("convolve", "correlate"):
        for method in ("direct", "fft"):
            want = getattr(scipy.signal, name)(x.astype(float), y.astype(float), mode, method)
            np.testing.assert_allclose(getattr(signal, name)(x, y, mode, method), want, **CLOSE)
    np.testing.assert_allclose(
        signal.fftconvolve(x, y, mode), scipy.signal.fftconvolve(x, y, mode), **CLOSE
    )
    if x.ndim == 2:
        for name in ("convolve2d", "correlate2d"):
            np.testing.assert_allclose(
                getattr(signal, name)(x, y, mode), getattr(scipy.signal, name)(x, y, mode), **CLOSE
            )


def test_complex_axes_gradients_and_errors():
    z = LONG + 1j * LONG[::-1]
    np.testing.assert_allclose(
        signal.correlate(z, SHORT + 1j * SHORT),
        scipy.signal.correlate(z, SHORT + 1j * SHORT),
        **CLOSE,
    )
    wide = (PLANE, PLANE[:, :3])
    np.testing.assert_allclose(
        signal.fftconvolve(*wide, axes=1), scipy.signal.fftconvolve(*wide, axes=1), **CLOSE
    )
    slope = weft.grad(lambda y: wnp.sum(signal.convolve(LONG, y) ** 2))(SHORT)
    want = 2 * scipy.signal.correlate(scipy.signal.convolve(LONG, SHORT), LONG, "valid")
    np.testing.assert_allclose(slope, want, **CLOSE)
    with pytest.raises(ValueError, match="same number of dims"):
        signal.convolve(LONG, PLANE)
    with pytest.raises(NotImplementedError, match="boundary"):
        signal.convolve2d(PLANE, PATCH, boundary="wrap")


def test_detrend():
    for kind, bp in (("constant", 0), ("linear", 0), ("linear", [3])):
        np.testing.assert_allclose(
            signal.detrend(PLANE, 1, kind, bp), scipy.signal.detrend(PLANE, 1, kind, bp), **CLOSE
        )


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode, order):
    at = [RNG.uniform(-9, 15, 40).astype("f"), RNG.uniform(-9, 15, 40).astype("f")]
    # SciPy's "wrap" blends across the border by a period less one; "grid-wrap" is the periodic one
    theirs = {"wrap": "grid-wrap", "constant": "grid-constant"}.get(mode, mode)
    want = scipy.ndimage.map_coordinates(PLANE, at, order=order, mode=theirs, cval=2.0)
    np.testing.assert_allclose(
        ndimage.map_coordinates(PLANE, at, order, mode, cval=2.0), want, rtol=1e-4, atol=1e-4
    )


def test_map_coordinates_has_gradients():
    slope = weft.grad(lambda p: ndimage.map_coordinates(LONG, [p], 1))(2.25)
    np.testing.assert_allclose(slope, LONG[3] - LONG[2], rtol=1e-5)


def test_integrate_and_quantize():
    np.testing.assert_allclose(
        integrate.trapezoid(PLANE, dx=0.5), np.trapezoid(PLANE, dx=0.5), rtol=1e-5
    )
    codes, distances = cluster.vq.vq(PLANE, PLANE[::3] + 0.1)
    want = scipy.cluster.vq.vq(PLANE, PLANE[::3] + 0.1)
    np.testing.assert_array_equal(codes, want[0])
    np.testing.assert_allclose(distances, want[1], rtol=1e-4)
