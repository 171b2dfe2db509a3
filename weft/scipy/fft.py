"""Discrete cosine transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import numpy as weft_numpy
from weft._engine.ir.symbolic import SymbolicDim, max_dim
from weft._engine.numpy import creation, ufuncs as uf
from weft._engine.numpy.fft import _fit_lengths
from weft._engine.numpy.manipulation import flip
from weft._engine.numpy.promote import array_of
from weft._engine.ops.elementwise import complex as complex_of
from weft._engine.ops.families import canonical_dims
from weft._engine.ops.slicing import concatenate, slice_in_dim
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all
from weft.numpy import fft

__all__ = ["dct", "dctn", "idct", "idctn"]


def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """Return the discrete cosine transform of type 2 along `axis`, truncated or zero-padded to length `n`; `norm` is None,
    also called "backward", or "ortho".

    Computed by one FFT of the same length, of the even elements followed by the reversed odd ones (J. Makhoul, 1980).
    Complex input is transformed as real and imaginary parts. Raises NotImplementedError for other types, ValueError for
    another norm.

    >>> weft.scipy.fft.dct(wnp.array([1.0, 1.0, 1.0])).round(3)
    Array([6., 0., 0.], dtype=float32)
    """
    x, (axis,) = _prepare("dct", x, type, norm, [n], [axis])
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return complex_of(*[dct(part, axis=axis, norm=norm) for part in (uf.real(x), uf.imag(x))])
    size = x.shape[axis]
    numpy = _numpy_for(size)
    place = numpy.arange(size)
    evens_first = numpy.where(2 * place < size, 2 * place, 2 * (size - place) - 1)
    spectrum = fft.fft(creation.asarray(x).take(evens_first, axis=axis), axis=axis)
    turned = uf.multiply(spectrum, _along(_quarter_turns(size, -1), axis, x.ndim, spectrum.dtype))
    y = uf.multiply(creation.asarray(2, x.dtype), uf.real(turned))
    return y if norm != "ortho" else uf.multiply(y, _along(_ortho(size), axis, x.ndim, x.dtype))


def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """Return the inverse of `dct`, with the same arguments.

    >>> weft.scipy.fft.idct(weft.scipy.fft.dct(wnp.array([1.0, 2.0, 4.0]))).round(3)
    Array([1., 2., 4.], dtype=float32)
    """
    x, (axis,) = _prepare("idct", x, type, norm, [n], [axis])
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return complex_of(*[idct(part, axis=axis, norm=norm) for part in (uf.real(x), uf.imag(x))])
    size = x.shape[axis]
    if norm == "ortho":
        x = uf.multiply(x, _along(1 / _ortho(size), axis, x.ndim, x.dtype))
    first, rest = slice_in_dim(x, 0, 1, 1, axis), slice_in_dim(x, 1, size, 1, axis)
    mirrored = concatenate(
        [uf.multiply(first, creation.asarray(0, x.dtype)), flip(rest, axis)], axis
    )
    half = _quarter_turns(size, 1) / 2
    complex_dtype = dtypes.to_complex_dtype(x.dtype)
    spectrum = uf.multiply(
        uf.subtract(
            x.astype(complex_dtype),
            uf.multiply(mirrored.astype(complex_dtype), creation.asarray(1j, complex_dtype)),
        ),
        _along(half, axis, x.ndim, complex_dtype),
    )
    v = uf.real(fft.ifft(spectrum, axis=axis))
    even, odd = (
        slice_in_dim(v, 0, (size + 1) // 2, 1, axis),
        flip(slice_in_dim(v, (size + 1) // 2, size, 1, axis), axis),
    )
    place = _numpy_for(size).arange(size)
    return (
        creation.asarray(concatenate([even, odd], axis))
        .take(place // 2 + place % 2 * ((size + 1) // 2), axis=axis)
        .astype(x.dtype)
    )


def dctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """Apply `dct` along several axes, by default all; `s` gives their lengths.

    >>> float(weft.scipy.fft.dctn(wnp.ones((2, 3)))[0, 0])
    24.0
    """
    return _several("dctn", dct, x, type, s, axes, norm)


def idctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """Apply `idct` along several axes, by default all; `s` gives their lengths."""
    return _several("idctn", idct, x, type, s, axes, norm)


def _several(
    name: str,
    transform: Any,
    x: Any,
    type: int,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Any:
    x = array_of(name, x)
    if s is not None and len(s) > x.ndim:
        raise ValueError(
            f"{name}: s has at most a length for each of the {quantity(x.ndim, 'dim')} of x, got {quantity(len(s), 'length')}."
        )
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    lengths = [None] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes):
        raise ValueError(
            f"{name}: s has a length for each axis, got {quantity(len(lengths), 'length')} and {quantity(len(axes), 'axis')}."
        )
    x, dims = _prepare(name, x, type, norm, lengths, list(axes))
    for d in dims:
        x = transform(x, axis=d, norm=norm)
    return x


def _prepare(
    name: str,
    x: Any,
    type: int,
    norm: str | None,
    lengths: Sequence[int | None],
    axes: Sequence[int],
) -> tuple[Any, list[int]]:
    """Return `x` as a floating or complex array with the requested lengths, and the dims."""
    if type != 2:
        raise NotImplementedError(
            f"{name}: type {type!r}; only the transform of type 2 is implemented."
        )
    if norm not in (None, "backward", "ortho"):
        raise ValueError(
            f"{name}: norm={norm!r} is not implemented; it is None, 'backward' or 'ortho'."
        )
    x = array_of(name, x)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        x = x.astype(dtypes.canonicalize_dtype(np.float64))
    dims = list(canonical_dims(name, axes, x.ndim))
    return _fit_lengths(
        x, [x.shape[d] if n is None else n for n, d in zip(lengths, dims)], dims
    ), dims


def _along(values: Any, axis: int, ndim: int, dtype: Any) -> Any:
    return creation.asarray(
        values.reshape([-1 if d == axis else 1 for d in range(ndim)]).astype(dtype)
    )


def _numpy_for(n: Any) -> Any:
    """Return NumPy, which computes constants in float64, or `weft.numpy` for a symbolic size."""
    return weft_numpy if isinstance(n, SymbolicDim) else np


def _quarter_turns(n: Any, sign: int) -> Any:
    """Return the factors exp(sign * i pi/2 * k/n) for k from 0 to n - 1."""
    numpy = _numpy_for(n)
    return numpy.exp(sign * 0.5j * np.pi * numpy.arange(n) / n)


def _ortho(n: Any) -> Any:
    """Return the factors that make the transform orthogonal."""
    numpy = _numpy_for(n)
    return numpy.where(numpy.arange(n) == 0, 1.0, math.sqrt(2)) / numpy.sqrt(4.0 * max_dim(n, 1))


guard_all(globals())
