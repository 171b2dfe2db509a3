"""Spectra of signals with SciPy's names: short-time Fourier transforms and averaged periodograms.

In:   real or complex arrays, one of whose dims is time. Windows are computed on the host by NumPy, else by
      `scipy.signal.get_window`: importing that module takes longer than compiling a program.
Out:  frequencies and times, arrays of floats that depend on shapes only; and spectra.
Laws: one gather cuts a signal into segments; `istft` adds them with one scatter.
Source: P. Welch, "The use of fast Fourier transform for the estimation of power spectra", IEEE Transactions on Audio and
Electroacoustics 15 (1967); D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier transform" (1984).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.numpy.promote import all_inexact, canonical_axis, concrete
from weft._engine.util import dtypes
from weft._engine.util.lazy import scipy_module
from weft._engine.util.source import guard_all

__all__ = ["csd", "istft", "stft", "welch"]

#: NumPy's window functions, by SciPy's names
_OF_NUMPY = {
    **dict.fromkeys(("boxcar", "box", "ones", "rect", "rectangular"), np.ones),
    **dict.fromkeys(("hann", "han"), np.hanning),
    **dict.fromkeys(("hamming", "hamm", "ham"), np.hamming),
    **dict.fromkeys(("blackman", "black", "blk"), np.blackman),
    **dict.fromkeys(("bartlett", "bart", "brt"), np.bartlett),
}
_BOUNDARIES = {"even": "reflect", "constant": "edge", "zeros": "constant"}


def _named_window(window: Any, size: int) -> np.ndarray:
    """Return a periodic window of `size` numbers: the next number would equal the first."""
    if isinstance(window, (tuple, list)) and not window:
        raise ValueError(
            "`window` must be a name, a name and its parameters, or numbers, got nothing."
        )
    make = _OF_NUMPY.get(window) if isinstance(window, str) else None
    if make is not None and size > 1:
        return make(size + 1)[:-1]
    return np.asarray(scipy_module("signal").get_window(window, size))


def _window(name: str, window: Any, nperseg: int | None, length: int) -> tuple[Any, int]:
    """Return the window as an array, and the length of segments."""
    if isinstance(window, (str, tuple)):
        nperseg = 256 if nperseg is None else nperseg
        nperseg = min(nperseg, length)
        return _named_window(window, nperseg), nperseg
    window = concrete(all_inexact(name, window)[0])
    if window.ndim != 1:
        raise ValueError(f"{name}: window must have one dim, got shape {tuple(window.shape)}.")
    size = window.shape[0]
    if size > length:
        raise ValueError(f"{name}: a window of {size} is longer than the signal, {length}.")
    if nperseg is not None and nperseg != size:
        raise ValueError(f"{name}: nperseg={nperseg} is not the length of the window, {size}.")
    return window, size


def _sizes(name: str, nperseg: int, noverlap: int | None, nfft: int | None) -> tuple[int, int]:
    nfft = nperseg if nfft is None else int(nfft)
    noverlap = nperseg // 2 if noverlap is None else int(noverlap)
    if nfft < nperseg:
        raise ValueError(f"{name}: nfft={nfft} must be at least nperseg={nperseg}.")
    if noverlap >= nperseg:
        raise ValueError(f"{name}: noverlap={noverlap} must be less than nperseg={nperseg}.")
    return noverlap, nfft


def _extend(name: str, x: Any, boundary: str, by: int) -> Any:
    if by < 1:
        return x
    if x.shape[-1] <= by:
        raise ValueError(
            f"{name}: boundary={boundary!r} needs a signal longer than {by}, got {x.shape[-1]}."
        )
    pads = [(0, 0)] * (x.ndim - 1) + [(by, by)]
    if boundary == "odd":
        first, last = 2 * x[..., :1] - x[..., by:0:-1], 2 * x[..., -1:] - x[..., -2 : -by - 2 : -1]
        return wnp.concatenate([first, x, last], -1)
    return wnp.pad(x, pads, mode=_BOUNDARIES[boundary])


def _detrender(detrend: Any) -> Callable:
    if not detrend:
        return lambda x: x
    if callable(detrend):
        return detrend
    if detrend == "constant":
        return lambda x: x - wnp.mean(x, -1, keepdims=True)
    if detrend != "linear":
        raise ValueError(
            f"detrend must be False, 'constant', 'linear' or a function, got {detrend!r}."
        )

    def remove(x):
        n = x.shape[-1]
        line = np.arange(n, dtype=dtypes.finfo(x.dtype).dtype) - (n - 1) / 2
        slope = wnp.sum(x * line, -1, keepdims=True) / max(float(np.sum(line * line)), 1e-30)
        return x - wnp.mean(x, -1, keepdims=True) - slope * line

    return remove


def _segments(
    x: Any, window: Any, nperseg: int, step: int, nfft: int, detrend: Callable, onesided: bool
) -> Any:
    """Return the Fourier transforms of the windowed segments, [..., segment, frequency]."""
    starts = np.arange(0, x.shape[-1] - nperseg + 1, step)
    parts = detrend(x[..., starts[:, None] + np.arange(nperseg)]) * window
    return (wnp.fft.rfft if onesided else wnp.fft.fft)(parts, nfft)


def _spectra(
    name: str,
    x: Any,
    y: Any,
    fs: Any,
    window: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: Any,
    onesided: bool,
    scaling: str,
    axis: int,
    power: bool,
    boundary: str | None = None,
    padded: bool = False,
) -> tuple:
    """Return frequencies, times and spectra: products of the spectra of `x` and `y` with `power`, else the spectra of `x`."""
    _check_choices(name, scaling, boundary)
    is_autospectrum = y is None or y is x
    x, y = map(concrete, all_inexact(name, x, x if is_autospectrum else y))
    axis = canonical_axis(axis, x.ndim, name) - x.ndim
    signals = [wnp.moveaxis(x, axis, -1)]
    if not is_autospectrum:
        signals = _fit_signals(signals[0], wnp.moveaxis(y, axis, -1))
    x = signals[0]
    onesided = onesided and not dtypes.issubdtype(x.dtype, np.complexfloating)
    real = dtypes.finfo(x.dtype).dtype
    win, nperseg = _window(name, window, nperseg, x.shape[-1])
    noverlap, nfft = _sizes(name, nperseg, noverlap, nfft)
    step = nperseg - noverlap
    freqs = np.fft.rfftfreq(nfft) if onesided else np.fft.fftfreq(nfft)
    if x.size == 0:
        shape = (*x.shape[:-1], len(freqs), 0)
        dtype = x.dtype if power else dtypes.to_complex_dtype(x.dtype)
        return wnp.asarray(freqs, real) * fs, wnp.zeros(0, real), wnp.zeros(shape, dtype)
    signals = [_pad_signal(name, v, boundary, padded, nperseg, step) for v in signals]
    win = wnp.asarray(win).astype(real)
    scale = 1 / (fs * wnp.sum(win * win)) if scaling == "density" else 1 / wnp.sum(win) ** 2
    trend = _detrender(detrend)
    spectra = _segments(signals[0], win, nperseg, step, nfft, trend, onesided)
    if not power:
        spectra = spectra * wnp.sqrt(scale)
    else:
        other = spectra
        if not is_autospectrum:
            other = _segments(signals[1], win, nperseg, step, nfft, trend, onesided)
        spectra = wnp.conj(spectra) * other * scale
        if onesided:
            spectra = spectra * _folded_weights(nfft).astype(real)
    times = np.arange(spectra.shape[-2]) * step + (0 if boundary is not None else nperseg / 2)
    return (
        wnp.asarray(freqs, real) * fs,
        wnp.asarray(times, real) / fs,
        wnp.moveaxis(spectra, -1, axis - 1),
    )


def _fit_signals(*signals: Any) -> list:
    """Broadcast the leading dims of signals, and pad the last dim with zeros to the longest."""
    lead = np.broadcast_shapes(*[tuple(v.shape[:-1]) for v in signals])
    longest = max(v.shape[-1] for v in signals)
    pads = [[(0, 0)] * len(lead) + [(0, longest - v.shape[-1])] for v in signals]
    return [
        wnp.pad(wnp.broadcast_to(v, (*lead, v.shape[-1])), pad) for v, pad in zip(signals, pads)
    ]


def _check_choices(name: str, scaling: str, boundary: str | None) -> None:
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"{name}: scaling must be 'density' or 'spectrum', got {scaling!r}.")
    if boundary is not None and boundary not in (*_BOUNDARIES, "odd"):
        raise ValueError(
            f"{name}: boundary must be None or one of even, odd, constant, zeros; got {boundary!r}."
        )


def _pad_signal(
    name: str, x: Any, boundary: str | None, padded: bool, nperseg: int, step: int
) -> Any:
    """Extend a signal at its ends as `boundary` states, and with zeros to a whole number of segments if `padded`."""
    if boundary is not None:
        x = _extend(name, x, boundary, nperseg // 2)
    if not padded:
        return x
    missing = (-(x.shape[-1] - nperseg) % step) % nperseg
    return wnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def _folded_weights(nfft: int) -> np.ndarray:
    """Return the factors of one-sided power: 2 for each frequency with a negative counterpart."""
    weights = np.full(nfft // 2 + 1, 2.0)
    weights[0] = 1
    if nfft % 2 == 0:
        weights[-1] = 1
    return weights


def stft(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple:
    """Return frequencies, times and the short-time Fourier transform of a signal; times are the last dim of the transform.

    Segments of `nperseg` samples overlap by `noverlap` (by default half of them; negative values leave gaps), are multiplied
    by `window` and padded to `nfft`. `boundary` extends the signal at its ends: zeros, even, odd, constant, or None.
    Complex signals have frequencies of both signs.

    >>> freqs, times, z = stft(wnp.ones(64), nperseg=16)
    >>> freqs.shape, times.shape, z.shape
    ((9,), (9,), (9, 9))
    """
    return _spectra(
        "stft",
        x,
        None,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        "spectrum",
        axis,
        False,
        boundary,
        padded,
    )


def csd(
    x: Any,
    y: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple:
    """Return frequencies and the cross power spectrum of two signals, averaged over segments ('mean' or 'median').

    `scaling` 'density' is power per frequency, 'spectrum' is power. Without `y` it is the power spectrum of `x`, which is real.

    >>> freqs, p = csd(wnp.ones(64), wnp.ones(64), nperseg=16)
    >>> p.shape
    (9,)
    """
    if average not in ("mean", "median"):
        raise ValueError(f"csd: average must be 'mean' or 'median', got {average!r}.")
    freqs, _, p = _spectra(
        "csd",
        x,
        y,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        scaling,
        axis,
        True,
    )
    if y is None:
        p = wnp.real(p)
    count = p.shape[-1]
    if average == "mean" or count <= 1:
        return freqs, wnp.mean(p, -1) if count else wnp.zeros(p.shape[:-1], p.dtype)
    # the median of an exponential distribution is less than its mean
    even = 2.0 * np.arange(1, (count - 1) // 2 + 1)
    bias = float(1 + np.sum(1 / (even + 1) - 1 / even))
    if dtypes.issubdtype(p.dtype, np.complexfloating):
        middle = wnp.median(wnp.real(p), -1) + 1j * wnp.median(wnp.imag(p), -1)
    else:
        middle = wnp.median(p, -1)
    return freqs, middle / bias


def welch(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple:
    """Return frequencies and the power spectrum of a signal, averaged over segments; arguments as for `csd`.

    >>> freqs, p = welch(wnp.sin(np.pi / 4 * np.arange(256.0)), nperseg=64)
    >>> float(freqs[p.argmax()])
    0.125
    """
    return csd(
        x,
        None,
        fs,
        window,
        nperseg,
        noverlap,
        nfft,
        detrend,
        return_onesided,
        scaling,
        axis,
        average,
    )


def istft(
    Zxx: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,  # noqa: N803
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple:
    """Return times and the signal whose `stft` is closest to `Zxx`.

    With the arguments of `stft`, it is the original signal. As in SciPy, the number of times is the size of the result's first dim.

    >>> x = wnp.arange(64.0)
    >>> bool(wnp.allclose(istft(stft(x, nperseg=16)[2], nperseg=16)[1], x, atol=1e-4))
    True
    """
    z = concrete(all_inexact("istft", Zxx)[0])
    if z.ndim < 2:
        raise ValueError(
            f"istft: the transform must have at least two dims, got shape {tuple(z.shape)}."
        )
    time_axis, freq_axis = (canonical_axis(d, z.ndim, "istft") for d in (time_axis, freq_axis))
    if time_axis == freq_axis:
        raise ValueError("istft: time_axis and freq_axis must differ.")
    z = wnp.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    size = z.shape[-1]
    whole = 2 * (size - 1) if input_onesided else size
    segment: int = whole if nperseg is None else int(nperseg)
    if nfft is None:
        nfft = segment if input_onesided and segment == whole + 1 else whole
    if segment < 1:
        raise ValueError(f"istft: nperseg must be positive, got {segment}.")
    overlap, nfft = _sizes("istft", segment, noverlap, nfft)
    if not dtypes.issubdtype(z.dtype, np.complexfloating):
        z = z.astype(dtypes.to_complex_dtype(z.dtype))
    parts = (wnp.fft.irfft if input_onesided else wnp.fft.ifft)(z, nfft)[..., :segment]
    win, size = _window("istft", window, segment, segment)
    if size != segment:
        raise ValueError(f"istft: the window must have nperseg={segment} numbers, got {size}.")
    real = dtypes.finfo(parts.dtype).dtype
    win = wnp.real(wnp.asarray(win)).astype(real)
    x = _overlap_add(parts, win, segment - overlap, boundary)
    if z.ndim > 2:  # the position of the time dim after the frequency dim is removed
        x = wnp.moveaxis(x, -1, time_axis - 1 if freq_axis < time_axis else time_axis)
    times = wnp.arange(x.shape[0], dtype=real) / fs  # SciPy counts the first dim
    return times, x


def _overlap_add(parts: Any, win: Any, step: int, boundary: bool) -> Any:
    """Sum the windowed segments, [..., time, segment], into one signal and divide by the sum of squared windows."""
    count, segment = parts.shape[-2:]
    length = segment + (count - 1) * step
    at = (np.arange(count) * step)[:, None] + np.arange(segment)
    zeros = wnp.zeros((*parts.shape[:-2], length), parts.dtype)
    x = zeros.at[..., at].add(parts * win * wnp.sum(win))
    norm = wnp.zeros(length, win.dtype).at[at].add(wnp.broadcast_to(win * win, (count, segment)))
    if boundary:
        cut = slice(segment // 2, length - segment // 2)
        x, norm = x[..., cut], norm[cut]
    return x / wnp.where(norm > 1e-10, norm, 1)


guard_all(globals())
