"""Spectra of signals against SciPy's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.signal

import weft
from weft._engine.scipy import spectral
from weft.scipy import signal

RNG = np.random.RandomState(0)
X = RNG.randn(3, 100).astype(np.float32)
Y = RNG.randn(3, 100).astype(np.float32)
Z = (RNG.randn(64) + 1j * RNG.randn(64)).astype(np.complex64)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def _same(result, want):
    for a, b in zip(result, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 64},
        {"nperseg": 16},
        {"nperseg": 17, "noverlap": 5, "nfft": 32, "window": "boxcar"},
        {"nperseg": 16, "boundary": "even", "padded": False},
        {"nperseg": 16, "boundary": "odd", "detrend": "linear"},
        {"nperseg": 16, "boundary": None, "detrend": "constant", "fs": 50.0},
        {"nperseg": 16, "boundary": "constant", "return_onesided": False, "window": ("tukey", 0.5)},
        {"nperseg": 8, "window": np.ones(8)},
    ],
    ids=str,
)
def test_stft(options):
    _same(signal.stft(X, **options), scipy.signal.stft(X, **options))
    _same(signal.stft(X.T, axis=0, **options), scipy.signal.stft(X.T, axis=0, **options))
    _same(
        signal.stft(Z, **(options | {"return_onesided": False})),
        scipy.signal.stft(Z, **(options | {"return_onesided": False})),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 32},
        {"nperseg": 17, "noverlap": 5, "nfft": 32, "window": "boxcar", "scaling": "spectrum"},
        {"nperseg": 16, "average": "median", "detrend": False, "fs": 50.0},
        {"nperseg": 16, "detrend": "linear", "return_onesided": False},
    ],
    ids=str,
)
def test_power_spectra(options):
    _same(signal.welch(X, **options), scipy.signal.welch(X, **options))
    _same(signal.csd(X, Y, **options), scipy.signal.csd(X, Y, **options))
    _same(
        signal.csd(X.T, Y[:, :80].T, axis=0, **options),
        scipy.signal.csd(X.T, Y[:, :80].T, axis=0, **options),
    )
    assert signal.csd(X, None, **options)[1].dtype == np.float32


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 16},
        {"nperseg": 16, "noverlap": 12, "window": "hamming"},
        {"nperseg": 16, "boundary": False, "window": "hamming"},
    ],
)
def test_inverse(options):
    forward = {k: v for k, v in options.items() if k != "boundary"}
    z = scipy.signal.stft(X, **forward)[2].astype(np.complex64)
    _same(signal.istft(z, **options), scipy.signal.istft(z, **options))
    _same(
        signal.istft(np.moveaxis(z, (0, 1, 2), (1, 2, 0)), time_axis=0, freq_axis=2, **options),
        scipy.signal.istft(
            np.moveaxis(z, (0, 1, 2), (1, 2, 0)), time_axis=0, freq_axis=2, **options
        ),
    )
    both = scipy.signal.stft(Z, return_onesided=False, **forward)[2].astype(np.complex64)
    _same(
        signal.istft(both, input_onesided=False, **options),
        scipy.signal.istft(both, input_onesided=False, **options),
    )


@pytest.mark.parametrize("noverlap", [-1, -4, -16, -90])
@pytest.mark.parametrize("options", [
    {}, {"boundary": None, "padded": False}, {"boundary": "even", "nfft": 32}, {"boundary": None, "padded": True},
], ids=str)  # fmt: skip
def test_gaps_between_segments(noverlap, options):
    options = {"nperseg": 16, "noverlap": noverlap, **options}
    _same(signal.stft(X, **options), scipy.signal.stft(X, **options))
    _same(
        signal.stft(Z, return_onesided=False, **options),
        scipy.signal.stft(Z, return_onesided=False, **options),
    )


@pytest.mark.parametrize("noverlap", [-1, -4, -16])
def test_power_spectra_of_segments_with_gaps(noverlap):
    options = {"nperseg": 16, "noverlap": noverlap}
    _same(signal.welch(X, **options), scipy.signal.welch(X, **options))
    _same(signal.csd(X, Y, **options), scipy.signal.csd(X, Y, **options))


@pytest.mark.filterwarnings("ignore:NOLA condition failed")
@pytest.mark.parametrize("noverlap", [-1, -4])
def test_inverse_of_segments_with_gaps(noverlap):
    options = {"nperseg": 16, "noverlap": noverlap}
    z = scipy.signal.stft(X, **options)[2].astype(np.complex64)
    _same(signal.istft(z, **options), scipy.signal.istft(z, **options))


def test_derivatives_and_shards():
    power = lambda x: signal.welch(x, nperseg=16)[1].sum()
    direction = Y[0]
    step = 1e-2
    moved = (float(power(X[0] + step * direction)) - float(power(X[0] - step * direction))) / (
        2 * step
    )
    np.testing.assert_allclose(weft.jvp(power, (X[0],), (direction,))[1], moved, rtol=2e-3)
    mesh = weft.make_mesh((4,), ("i",))
    x = RNG.randn(4, 64).astype(np.float32)
    placed = weft.device_put(x, weft.NamedSharding(mesh, weft.P("i")))
    np.testing.assert_allclose(
        weft.jit(lambda x: signal.stft(x, nperseg=16)[2])(placed),
        scipy.signal.stft(x, nperseg=16)[2],
        **CLOSE,
    )


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: signal.stft(X, nperseg=16, noverlap=16), "noverlap=16"),
        (lambda: signal.stft(X, nperseg=16, nfft=8), "nfft=8"),
        (lambda: signal.stft(X, nperseg=16, boundary="wrap"), "boundary"),
        (lambda: signal.welch(X, scaling="loud"), "scaling"),
        (lambda: signal.welch(X, average="mode"), "average"),
        (lambda: signal.welch(X, window=np.ones(200)), "longer"),
        (lambda: signal.istft(X[0]), "two dims"),
        (lambda: signal.istft(X, time_axis=0, freq_axis=0), "must differ"),
    ],
)
def test_errors(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize(
    "window", [*spectral._OF_NUMPY, ("kaiser", 4.0), "cosine", ("tukey", 0.25), 3.0]
)
def test_windows_are_those_of_scipy(window, size):
    np.testing.assert_allclose(
        spectral._named_window(window, size),
        scipy.signal.get_window(window, size),
        rtol=1e-15,
        atol=1e-16,
    )


def test_common_windows_do_without_scipy():
    text = "import sys, numpy as np; from weft.scipy import signal; signal.stft(np.ones(300)); print('scipy.signal' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
