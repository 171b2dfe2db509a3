"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

from collections.abc import Sequence
from typing import Any
from weft._engine.ops.contraction import PrecisionLike
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike

def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = 'full', method: str = 'auto', precision: PrecisionLike | None = None) -> Array:
    r"""Return the convolution of two arrays of equal rank; `mode` is 'full', 'same' (the middle) or 'valid' (full overlap)."""
def convolve2d(in1: ArrayLike, in2: ArrayLike, mode: str = 'full', boundary: str = 'fill', fillvalue: float = 0, precision: PrecisionLike | None = None) -> Array:
    r"""Return the convolution of two matrices."""
def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = 'full', method: str = 'auto', precision: PrecisionLike | None = None) -> Array:
    r"""Return the cross-correlation of two arrays of equal rank."""
def correlate2d(in1: ArrayLike, in2: ArrayLike, mode: str = 'full', boundary: str = 'fill', fillvalue: float = 0, precision: PrecisionLike | None = None) -> Array:
    r"""Return the cross-correlation of two matrices."""
def csd(x: ArrayLike, y: ArrayLike, fs: ArrayLike = ..., window: Any = 'hann', nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, detrend: Any = 'constant', return_onesided: bool = True, scaling: str = 'density', axis: int = -1, average: str = 'mean') -> tuple[Any, ...]:
    r"""Return frequencies and the cross power spectrum of two signals, averaged over segments ('mean' or 'median')."""
def detrend(data: ArrayLike, axis: int = -1, type: str = 'linear', bp: int | Sequence[int] = 0, overwrite_data: None = None) -> Array:
    r"""Return `data` without its mean ("constant") or its least-squares line ("linear") along `axis`, between the breaks `bp`."""
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = 'full', axes: Sequence[int] | int | None = None) -> Array:
    r"""Return the convolution of two arrays along `axes` by Fourier transforms, fast for long operands."""
def istft(Zxx: ArrayLike, fs: ArrayLike = ..., window: Any = 'hann', nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1, freq_axis: int = -2) -> tuple[Any, ...]:
    r"""Return times and the signal whose `stft` is closest to `Zxx`."""
def stft(x: ArrayLike, fs: ArrayLike = ..., window: Any = 'hann', nperseg: int = 256, noverlap: int | None = None, nfft: int | None = None, detrend: ArrayLike = False, return_onesided: bool = True, boundary: str | None = 'zeros', padded: bool = True, axis: int = -1) -> tuple[Any, ...]:
    r"""Return frequencies, times and the short-time Fourier transform of a signal; times are the last dim of the transform."""
def welch(x: ArrayLike, fs: ArrayLike = ..., window: Any = 'hann', nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None, detrend: Any = 'constant', return_onesided: bool = True, scaling: str = 'density', axis: int = -1, average: str = 'mean') -> tuple[Any, ...]:
    r"""Return frequencies and the power spectrum of a signal, averaged over segments; arguments as for `csd`."""

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft",
    "stft", "welch",
]
