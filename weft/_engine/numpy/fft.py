"""Discrete Fourier transforms with NumPy's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim, as_size, is_at_most, max_dim
from weft._engine.numpy import creation, selection, ufuncs as uf
from weft._engine.numpy.promote import array_of, cast
from weft._engine.ops import layout, slicing
from weft._engine.ops.families import canonical_dims
from weft._engine.ops.fft import FftType, fft as fft_op
from weft._engine.ops.rule_helpers import inverse
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import named


def _full_name(api: str) -> str:
    return "weft.numpy.fft." + api


def _fit_lengths(a, lengths: Sequence[int], axes: Sequence[int]):
    """Return `a` cut or padded with zeros to `lengths` along `axes`."""
    for n, d in zip(lengths, axes):
        have = a.shape[d]
        if not is_at_most(have, n) and not is_at_most(n, have):
            # the sizes determine which one is larger
            a = slicing.pad(
                a,
                np.zeros((), a.dtype)[()],
                [(0, max_dim(n - have, 0) if i == d else 0, 0) for i in range(a.ndim)],
            )
            a = slicing.slice_in_dim(a, 0, n, axis=d)
        elif not is_at_most(have, n):
            a = slicing.slice_in_dim(a, 0, n, axis=d)
        elif not is_at_most(n, have):
            a = slicing.pad(
                a,
                np.zeros((), a.dtype)[()],
                [(0, n - have if i == d else 0, 0) for i in range(a.ndim)],
            )
    return a


def _scale(norm: str | None, size: int, inverse: bool) -> Any:
    """Return the factor for `norm`, without the 1/size that inverse transforms apply."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'norm={norm!r} is not supported; use "backward", "ortho" or "forward".')
    if norm in (None, "backward"):
        return 1.0
    if norm == "ortho":
        root = uf.sqrt(size) if isinstance(size, SymbolicDim) else math.sqrt(size)
        return root if inverse else 1 / root
    return size * 1.0 if inverse else 1 / size


def _transform(api: str, kind: FftType, a, s, axes, norm):
    a = array_of(api, a)
    axes = _checked_axes(api, a.ndim, s, axes)
    is_complex = dtypes.issubdtype(a.dtype, np.complexfloating)
    keeps_shape = kind in (FftType.FFT, FftType.IFFT)
    if not axes and a.ndim == 0 and keeps_shape:
        return cast(a, dtypes.to_complex_dtype(dtypes.to_inexact_dtype(a.dtype)))
    if not axes:
        raise ValueError(f"{api} needs one or more axes.")
    if kind == FftType.RFFT and is_complex:
        raise ValueError(f"{api} takes real values, got {a.dtype.name}.")
    lengths = _lengths(api, kind, [a.shape[d] for d in axes], s)
    if lengths is None:
        return creation.zeros(a.shape, dtypes.to_complex_dtype(dtypes.to_inexact_dtype(a.dtype)))
    as_real = kind == FftType.RFFT or (kind == FftType.FFT and not is_complex)
    return _transform_dims(_widen(a, as_real), kind, axes, lengths, norm)


def _checked_axes(api: str, ndim: int, s, axes) -> list[int]:
    """Return the transformed dims as non-negative integers.

    The default is the last dims, one for each length.
    """
    if s is not None and len(s) > ndim:
        raise ValueError(
            f"{api}: s has at most a length for each of the {quantity(ndim, 'dim')}, got {quantity(len(s), 'length')}."
        )
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    axes = [operator.index(d) for d in axes]
    for d in axes:
        if not -ndim <= d < ndim:
            raise np.exceptions.AxisError(
                f"{api}: axis {d} is out of bounds for array of dimension {ndim}"
            )
    axes = [d % ndim for d in axes]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{_full_name(api)} does not support repeated axes. Got axes {axes}.")
    return axes


def _lengths(api: str, kind: FftType, sizes: list, s) -> list | None:
    """Return the lengths of the transform for dims of these sizes;

    None for empty dims that stay empty.
    """
    if s is not None:
        if len(s) != len(sizes):
            raise ValueError(
                f"{api}: s and axes have lengths {len(s)} and {len(sizes)}; they must be equal."
            )
        sizes = [as_size(n) for n in s]
    elif kind == FftType.IRFFT:
        sizes = [*sizes[:-1], 2 * (sizes[-1] - 1)]
    elif 0 in sizes and kind in (FftType.FFT, FftType.IFFT):
        return None
    if any(n < 1 for n in sizes):
        raise ValueError(f"{api}: invalid number of data points in {sizes}.")
    return sizes


def _widen(a, as_real: bool):
    """Return `a` in the dtype of the transform, with at least 32 bits."""
    work = dtypes.to_inexact_dtype(a.dtype)
    work = np.dtype(np.float32) if work.itemsize < 4 else work
    return cast(a, work if as_real else dtypes.to_complex_dtype(work))


def _transform_dims(a, kind: FftType, axes: list[int], lengths: list, norm):
    """Return the transform of dims that are cut or padded to `lengths`, scaled by `norm`."""
    have = list(lengths)
    if kind == FftType.IRFFT:
        have[-1] = lengths[-1] // 2 + 1
    order = [*(d for d in range(a.ndim) if d not in axes), *axes]
    out = _permute_dims(
        fft_op(_permute_dims(_fit_lengths(a, have, axes), order), kind, lengths), inverse(order)
    )
    scale = _scale(norm, math.prod(lengths), kind in (FftType.IFFT, FftType.IRFFT))
    return out if isinstance(scale, float) and scale == 1 else uf.multiply(out, scale)


def _permute_dims(a, order: Sequence[int]):
    """Return `a` with its dims in another order."""
    return a if list(order) == list(range(a.ndim)) else layout.transpose(a, tuple(order))


def _check_one_axis(name: str, axis) -> None:
    if isinstance(axis, (list, tuple)):
        several = "" if "h" in name else f" Please use {_full_name(name)}n."
        raise ValueError(
            f"{_full_name(name)} does not support multiple axes.{several} Got axis = {axis!r}."
        )


def _one(kind: FftType, name: str, text: str):
    def fun(a, n: int | None = None, axis: int = -1, norm: str | None = None):
        _check_one_axis(name, axis)
        return _transform(name, kind, a, None if n is None else (n,), (axis,), norm)

    return named(fun, name, text)


def _many(kind: FftType, name: str, text: str, default):
    def fun(
        a,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = default,
        norm: str | None = None,
    ):
        if default is not None and axes is not None and len(axes) != len(default):
            raise ValueError(
                f"{_full_name(name)} only supports {len(default)} axes. Got axes = {axes!r}."
            )
        return _transform(name, kind, a, s, axes, norm)

    return named(fun, name, text)


fft = _one(FftType.FFT, "fft", "Return the transform along one axis, cut or padded to `n` values.")
ifft = _one(FftType.IFFT, "ifft", "Return the inverse transform along one axis.")
rfft = _one(
    FftType.RFFT,
    "rfft",
    "Return the transform of real values along one axis: the n // 2 + 1 independent frequencies.",
)
irfft = _one(
    FftType.IRFFT,
    "irfft",
    "Return the inverse of `rfft`: `n` real values, by default 2 * (m - 1) for m frequencies.",
)
fft2 = _many(FftType.FFT, "fft2", "Return the transform over two axes.", (-2, -1))
ifft2 = _many(FftType.IFFT, "ifft2", "Return the inverse transform over two axes.", (-2, -1))
rfft2 = _many(FftType.RFFT, "rfft2", "Return the transform of real values over two axes.", (-2, -1))
irfft2 = _many(FftType.IRFFT, "irfft2", "Return the inverse of `rfft2`.", (-2, -1))
fftn = _many(FftType.FFT, "fftn", "Return the transform over several axes, all by default.", None)
ifftn = _many(FftType.IFFT, "ifftn", "Return the inverse transform over several axes.", None)
rfftn = _many(FftType.RFFT, "rfftn", "Return the transform of real values over several axes.", None)
irfftn = _many(FftType.IRFFT, "irfftn", "Return the inverse of `rfftn`.", None)

_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def hfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """Return the real transform of values that are Hermitian in time."""
    _check_one_axis("hfft", axis)
    _scale(norm, 1, False)
    return irfft(uf.conjugate(a), n, axis, _SWAPPED[norm])


def ihfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """Return the inverse of `hfft`."""
    _check_one_axis("ihfft", axis)
    _scale(norm, 1, False)
    return uf.conjugate(rfft(a, n, axis, _SWAPPED[norm]))


def fftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """Return the frequencies of the results of `fft` for `n` samples at distance `d`."""
    n = _check_samples("fftfreq", n, d)
    places = layout.index_range(n)
    where = selection.where if isinstance(n, SymbolicDim) else np.where
    k = where(places < (n + 1) // 2, places, places - n)
    return _frequencies(k, n, d, dtype, device)


def rfftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """Return the frequencies of the results of `rfft`."""
    n = _check_samples("rfftfreq", n, d)
    return _frequencies(layout.index_range(n // 2 + 1), n, d, dtype, device)


def _check_samples(api: str, n, d) -> int:
    """Return the number of samples as an int.

    Raise ValueError unless it is an int and the distance `d` one number.
    """
    if isinstance(n, (list, tuple)) or np.ndim(n):
        raise ValueError(f"The n argument of {_full_name(api)} only takes an int. Got n = {n}.")
    if isinstance(d, (list, tuple)) or np.ndim(d):
        raise ValueError(
            f"The d argument of {_full_name(api)} only takes a single value. Got d = {d}."
        )
    return as_size(n)


def _frequencies(k, n: int, d, dtype, device):
    out_dtype = (
        dtypes.default_float_dtype() if dtype is None else dtypes.check_dtype(dtype, "fftfreq")
    )
    return uf.divide(
        creation.asarray(k.astype(out_dtype), device=device), cast(uf.multiply(d, n), out_dtype)
    )


def fftshift(x, axes=None):
    """Return `x` with the zero frequency moved to the middle."""
    return _shift(x, axes, lambda n: n // 2)


def ifftshift(x, axes=None):
    """Return the inverse of `fftshift`."""
    return _shift(x, axes, lambda n: -(n // 2))


def _shift(x, axes, by):
    from weft._engine.numpy import (
        manipulation as mp,  # slow to import compared with this module
    )

    x = array_of("fftshift", x)
    axes = (
        tuple(range(x.ndim))
        if axes is None
        else canonical_dims("fftshift", (axes,) if isinstance(axes, int) else tuple(axes), x.ndim)
    )
    return mp.roll(x, tuple(by(x.shape[d]) for d in axes), axes)
