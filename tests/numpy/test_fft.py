"""Fourier transforms: all frequencies of real values from half of them, and results written where they belong."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.core.stage import stage
from weft.core.trace import typeof
from weft.util import fft_engine

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 31, 64])
@pytest.mark.parametrize("axes", [(-1,), (0,), (0, 1), (1, 2), (2, 0, 1)])
def test_real_values(n, axes):
    x = RNG.normal(size=(3, 4, n)).astype(np.float32)
    got = np.asarray(wnp.fft.fftn(x, axes=axes))
    np.testing.assert_allclose(got, np.fft.fftn(x, axes=axes), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(wnp.fft.fftn((10 * x).astype(np.int32), axes=axes), np.fft.fftn((10 * x).astype(np.int32), axes=axes),
                               rtol=1e-3, atol=1e-3)


def test_real_values_need_half_of_the_work():
    kinds = [eqn.params["fft_type"].name for eqn in stage(lambda x: [wnp.fft.fft2(x)], [typeof(np.ones((4, 8), np.float32))]).eqns
             if eqn.primitive.name == "fft"]
    assert kinds == ["RFFT"]


@pytest.fixture
def engines(request, monkeypatch):
    """SciPy's own engine, or none that is known by its name."""
    if request.param == "public":
        monkeypatch.setattr(fft_engine, "_ENGINES", ())
    fft_engine._engine.cache_clear()
    yield
    fft_engine._engine.cache_clear()


@pytest.mark.parametrize("engines", ["own", "public"], indirect=True)
@pytest.mark.parametrize("lengths", [(6,), (5,), (4, 6), (3, 4, 5)])
def test_there_and_back(lengths, engines):
    x = RNG.normal(size=(2, *lengths)).astype(np.float32)
    axes = range(1, 1 + len(lengths))
    half = np.empty((*x.shape[:-1], lengths[-1] // 2 + 1), np.complex64)
    back, full = np.empty_like(x), x.astype(np.complex64)
    fft_engine.forward_of_real(x, axes, half)
    fft_engine.backward_to_real(half, axes, back)
    np.testing.assert_allclose(back, x, atol=1e-5)
    fft_engine.forward(full, axes, out := np.empty_like(full))
    np.testing.assert_allclose(out, np.fft.fftn(x, axes=axes), atol=1e-4)
    fft_engine.backward(out, axes, again := np.empty_like(full))
    np.testing.assert_allclose(again, x, atol=1e-5)


def test_the_engine_comes_without_its_package_and_goes_with_it():
    text = ("import sys, numpy as np\nfrom weft.util import fft_engine\nx, out = np.ones(4, 'c8'), np.empty(4, 'c8')\n"
            "fft_engine.forward(x, [0], out)\nassert out[0] == 4 and 'scipy.fft' not in sys.modules\n"
            "import scipy.fft\nassert scipy.fft.fft(x)[0] == 4\nfft_engine.forward(x, [0], out)\nassert out[0] == 4\n")
    subprocess.run([sys.executable, "-c", text], check=True)


def test_derivative():
    x = RNG.normal(size=(3, 9)).astype(np.float32)
    energy = lambda x: (wnp.abs(wnp.fft.fft(x)) ** 2).sum()
    np.testing.assert_allclose(weft.grad(energy)(x), 18 * x, rtol=1e-3, atol=1e-3)
