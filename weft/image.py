"""Image resizing: each spatial dim is multiplied by a matrix of kernel weights.

In:  an array, the new shape, a kernel. Out: the resampled array; floating dtypes are kept.
Pixels are centers of unit intervals. A kernel is widened when the image shrinks (antialias), so that every input pixel
counts; the weights of each output pixel add up to one, also at the border.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.ir.symbolic import SymbolicDim, as_size
from weft._engine.numpy.promote import canonical_axis, inexact
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all
from weft.lax import Precision

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """The kernels of `resize`."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(name: str) -> ResizeMethod:
        """Return the method with a name such as "linear" or "bicubic"."""
        method = _NAMES.get(name.lower())
        if method is None:
            raise ValueError(
                f"image.resize: unknown method {name!r}; use one of {', '.join(sorted(_NAMES))}."
            )
        return method


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(
        ("cubic-pytorch", "bicubic-pytorch", "tricubic-pytorch"), ResizeMethod.CUBIC_PYTORCH
    ),
    "area": ResizeMethod.AREA,
}


def _triangle(x):
    return wnp.maximum(0, 1 - x)


def _cubic(a: float) -> Callable:
    """Keys' kernel, "Cubic convolution interpolation for digital image processing" (1981), with parameter `a`."""

    def kernel(x):
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return wnp.where(x < 1, near, wnp.where(x < 2, far, 0))

    return kernel


def _lanczos(radius: int) -> Callable:
    return lambda x: wnp.where(x < radius, wnp.sinc(x) * wnp.sinc(x / radius), 0)


_KERNELS: dict[ResizeMethod, Callable] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.5),
    ResizeMethod.LANCZOS3: _lanczos(3),
    ResizeMethod.LANCZOS5: _lanczos(5),
}


def _weights(size: int, out: int, scale, translation, kernel: Callable, antialias: bool, dtype):
    """Return the matrix [size, out] that resamples one dim."""
    inverse = 1 / scale
    width = wnp.maximum(inverse, 1) if antialias else 1
    place = (wnp.arange(out, dtype=dtype) + 0.5) * inverse - translation * inverse - 0.5
    distance = wnp.abs(place[None, :] - wnp.arange(size, dtype=dtype)[:, None]) / width
    weights = kernel(distance)
    total = wnp.sum(weights, 0, keepdims=True)
    usable = wnp.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    weights = wnp.where(usable, weights / wnp.where(usable, total, 1), 0)
    return wnp.where((place >= -0.5) & (place <= size - 0.5), weights, 0)


def _resample(
    image,
    dims: Sequence[int],
    sizes: Sequence[int],
    scales,
    translations,
    kernel: Callable,
    antialias: bool,
    precision,
):
    work = image.dtype if dtypes.finfo(image.dtype).bits >= 32 else np.dtype(np.float32)
    out = image.astype(work)
    for dim, size, scale, translation in zip(dims, sizes, scales, translations):
        matrix = _weights(image.shape[dim], size, scale, translation, kernel, antialias, work)
        out = wnp.moveaxis(wnp.tensordot(out, matrix, (dim, 0), precision=precision), -1, dim)
    return out.astype(image.dtype)


def _apply_matrices(image, shape: Sequence[int], matrix: Callable, precision):
    """Multiply each dim whose size changes by `matrix(size, new size)`."""
    for dim, (size, out) in enumerate(zip(image.shape, shape)):
        if size != out:
            weights = matrix(size, out).astype(image.dtype)
            image = wnp.moveaxis(
                wnp.tensordot(image, weights, (dim, 0), precision=precision), -1, dim
            )
    return image


def _array_namespace(*sizes: int) -> Any:
    """Return NumPy for fixed sizes, and weft.numpy for symbolic sizes."""
    return wnp if any(isinstance(n, SymbolicDim) for n in sizes) else np


def _area_matrix(size: int, out: int) -> Any:
    """Return the matrix whose result pixels are means of the image over their areas."""
    library = _array_namespace(size, out)
    edges, pixel = library.arange(out + 1) * size / out, library.arange(size)[:, None]
    overlap = library.minimum(edges[1:], pixel + 1) - library.maximum(edges[:-1], pixel)
    return library.clip(overlap, 0, None) * out / size


def _replicated_cubic_matrix(size: int, out: int) -> Any:
    """Return the matrix of the cubic kernel with a = -3/4 and replicated edges, as in PyTorch without antialiasing."""
    library = _array_namespace(size, out)
    place = (library.arange(out) + 0.5) * size / out - 0.5
    pixels = library.arange(-2, size + 2)
    weights = _cubic(-0.75)(library.abs(place[None, :] - pixels[:, None]))
    if library is wnp:
        return wnp.zeros((size, out)).at[wnp.clip(pixels, 0, size - 1)].add(weights)
    matrix = np.zeros((size, out))
    np.add.at(matrix, np.clip(pixels, 0, size - 1), np.asarray(weights))
    return matrix


def _method(method: str | ResizeMethod) -> ResizeMethod:
    if not isinstance(method, (str, ResizeMethod)):
        raise TypeError(f"image: `method` must be a ResizeMethod or its name, got {method!r:.60}.")
    return ResizeMethod.from_string(method) if isinstance(method, str) else method


def _nearest(image, shape: Sequence[int]):
    for dim, (size, out) in enumerate(zip(image.shape, shape)):
        if size != out:
            place = ((2 * _array_namespace(size, out).arange(out) + 1) * size) // (2 * out)
            image = wnp.take(image, place, dim, mode="clip")
    return image


def resize(
    image,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision=Precision.HIGHEST,
):
    """Return `image` resampled to `shape`, which has the same number of dims.

    >>> resize(wnp.array([0.0, 2.0]), (4,), "linear").tolist()
    [0.0, 0.5, 1.5, 2.0]
    """
    image, method = inexact("image.resize", wnp.asarray(image)), _method(method)
    shape = tuple(as_size(n) for n in shape)
    if len(shape) != image.ndim:
        raise ValueError(
            f"image.resize: shape must have as many dims as the image, {image.ndim}, got {shape}."
        )
    if not image.size or 0 in shape:
        return wnp.zeros(shape, image.dtype)
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape)
    if method is ResizeMethod.AREA:
        return _apply_matrices(image, shape, _area_matrix, precision)
    if method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        return _apply_matrices(image, shape, _replicated_cubic_matrix, precision)
    dims = [d for d in range(image.ndim) if image.shape[d] != shape[d]]
    scales = [shape[d] / image.shape[d] if image.shape[d] else 1.0 for d in dims]
    return _resample(
        image,
        dims,
        [shape[d] for d in dims],
        scales,
        [0.0] * len(dims),
        _KERNELS[method],
        antialias,
        precision,
    )


def scale_and_translate(
    image,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale,
    translation,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision=Precision.HIGHEST,
):
    """Return `image` resampled with a `scale` and a `translation` for every dim of `spatial_dims`; 0 outside of the image.

    A pixel at `x` moves to `x * scale + translation`. Both may be traced and have derivatives.
    """
    image, method = inexact("image.scale_and_translate", wnp.asarray(image)), _method(method)
    shape = tuple(as_size(n) for n in shape)
    if len(shape) != image.ndim:
        raise ValueError(
            f"image.scale_and_translate: shape must have as many dims as the image, {image.ndim}, got {shape}."
        )
    if method not in _KERNELS:
        raise ValueError(
            f"image.scale_and_translate: {method.name.lower()!r} has no kernel to place; use another method."
        )
    dims = [canonical_axis(d, image.ndim, "image.scale_and_translate") for d in spatial_dims]
    if any(shape[d] != image.shape[d] for d in range(image.ndim) if d not in dims):
        raise ValueError(
            f"image.scale_and_translate: only the dims {tuple(dims)} may change, got {image.shape} and {shape}."
        )
    scale, translation = wnp.asarray(scale), wnp.asarray(translation)
    pairs = [(scale[i], translation[i]) for i in range(len(dims))]
    return _resample(
        image,
        dims,
        [shape[d] for d in dims],
        [s for s, _ in pairs],
        [t for _, t in pairs],
        _KERNELS[method],
        antialias,
        precision,
    )


guard_all(globals())
