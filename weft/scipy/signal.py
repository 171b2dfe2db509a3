"""Convolutions and correlations of signals with SciPy's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.numpy.promote import all_inexact, canonical_axis
from weft._engine.scipy.spectral import csd, istft, stft, welch
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch",
]  # fmt: skip


def _check(api: str, x, y, mode: str) -> None:
    if x.ndim != y.ndim:
        raise ValueError(
            f"{api}: the operands must have the same number of dims, got {x.ndim} and {y.ndim}."
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{api}: mode must be one of full, same, valid, got {mode!r}.")
    if (
        mode == "valid"
        and x.ndim > 1
        and not (
            all(a >= b for a, b in zip(x.shape, y.shape))
            or all(a <= b for a, b in zip(x.shape, y.shape))
        )
    ):
        raise ValueError(
            f"{api}: for mode 'valid' one operand must be at least as large as the other in every dim, "
            f"got {x.shape} and {y.shape}."
        )


def _direct(x, y, mode: str, precision):
    """Return the convolution as sums of products."""
    if not x.ndim:
        return x * y
    if mode == "valid" and any(a < b for a, b in zip(x.shape, y.shape)):
        x, y = y, x
    padding = {
        "valid": [(0, 0)] * y.ndim,
        "full": [(n - 1, n - 1) for n in y.shape],
        "same": [(n - 1 - (n - 1) // 2, (n - 1) // 2) for n in y.shape],
    }[mode]
    out = lax.conv_general_dilated(
        x[None, None], wnp.flip(y)[None, None], (1,) * x.ndim, padding, precision=precision
    )
    return out[0, 0]


def _crop(full, x_shape: Sequence[int], y_shape: Sequence[int], axes: Sequence[int], mode: str):
    """Return the part of a full convolution that `mode` selects."""
    for d in axes:
        size = {
            "full": full.shape[d],
            "same": x_shape[d],
            "valid": abs(x_shape[d] - y_shape[d]) + 1,
        }[mode]
        start = (full.shape[d] - size) // 2
        full = lax.slice_in_dim(full, start, start + size, axis=d)
    return full


def convolve(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """Return the convolution of two arrays of equal rank; `mode` is 'full', 'same' (the middle) or 'valid' (full overlap).

    >>> convolve(wnp.array([1.0, 2.0, 3.0]), wnp.array([0.0, 1.0])).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    x, y = map(wnp.asarray, all_inexact("convolve", in1, in2))
    _check("convolve", x, y, mode)
    if method == "fft":
        return fftconvolve(x, y, mode)
    if method not in ("auto", "direct"):
        raise ValueError(f"convolve: method must be one of auto, direct, fft, got {method!r}.")
    return _direct(x, y, mode, precision)


def correlate(in1, in2, mode: str = "full", method: str = "auto", precision=None):
    """Return the cross-correlation of two arrays of equal rank."""
    x, y = map(wnp.asarray, all_inexact("correlate", in1, in2))
    _check("correlate", x, y, mode)
    return convolve(x, wnp.flip(wnp.conj(y)), mode, method, precision)


def _plane(api: str, in1, in2, boundary: str, fillvalue: float):
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(
            f"{api}: the operands must have two dims, got {np.ndim(in1)} and {np.ndim(in2)}."
        )
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(
            f"{api}: only boundary='fill' with fillvalue=0 is there; pad the first operand (weft.numpy.pad)."
        )


def convolve2d(
    in1, in2, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision=None
):
    """Return the convolution of two matrices."""
    _plane("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


def correlate2d(
    in1, in2, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision=None
):
    """Return the cross-correlation of two matrices."""
    _plane("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return correlate(in1, in2, mode, "direct", precision)
    # for even sizes, the middle differs from `correlate`'s, as in SciPy
    full = correlate(in1, in2, "full", "direct", precision)
    for d, (size, n) in enumerate(zip(np.shape(in1), np.shape(in2))):
        full = lax.slice_in_dim(full, n // 2, n // 2 + size, axis=d)
    return full


def fftconvolve(in1, in2, mode: str = "full", axes: Sequence[int] | int | None = None):
    """Return the convolution of two arrays along `axes` by Fourier transforms, fast for long operands."""
    x, y = map(wnp.asarray, all_inexact("fftconvolve", in1, in2))
    _check("fftconvolve", x, y, mode)
    if not x.ndim:
        return x * y
    axes = (
        tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    )
    axes = tuple(canonical_axis(d, x.ndim, "fftconvolve") for d in axes)
    sizes = [x.shape[d] + y.shape[d] - 1 for d in axes]
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        full = wnp.fft.ifftn(
            wnp.fft.fftn(x, sizes, axes) * wnp.fft.fftn(y, sizes, axes), sizes, axes
        )
    else:
        full = wnp.fft.irfftn(
            wnp.fft.rfftn(x, sizes, axes) * wnp.fft.rfftn(y, sizes, axes), sizes, axes
        )
    return _crop(full.astype(x.dtype), x.shape, y.shape, axes, mode)


def detrend(
    data,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] = 0,
    overwrite_data: None = None,
):
    """Return `data` without its mean ("constant") or its least-squares line ("linear") along `axis`, between the breaks `bp`."""
    if overwrite_data is not None:
        raise NotImplementedError("detrend: overwrite_data is not supported; arrays never change.")
    if type not in ("constant", "linear"):
        raise ValueError(f"detrend: type must be 'constant' or 'linear', got {type!r}.")
    (x,) = all_inexact("detrend", data)
    if type == "constant":
        return x - wnp.mean(x, axis, keepdims=True)
    x = wnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    breaks = sorted({0, n, *np.atleast_1d(bp).tolist()})
    parts = []
    for start, stop in itertools.pairwise(breaks):
        part = x[..., start:stop]
        line = np.arange(stop - start, dtype=x.dtype) - (stop - start - 1) / 2
        slope = wnp.sum(part * line, -1, keepdims=True) / max(float(np.sum(np.square(line))), 1e-30)
        parts.append(part - wnp.mean(part, -1, keepdims=True) - slope * line)
    return wnp.moveaxis(wnp.concatenate(parts, -1), -1, axis)


guard_all(globals())
