"""SciPy's FFT engine, loaded without the package `scipy.fft`: importing the package takes 0.2 s, the engine alone 1 ms.

In:   dense NumPy arrays, and a dense array for the result.
Out:  `forward`, `backward` and their variants for real values, which write their results into the given array with several
      threads. Backward transforms are scaled by 1 / (number of points).
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from weft._engine.util import threads
from weft._engine.util.lazy import scipy_module

#: minimal number of elements of a transform with several threads
_SHARED = 1 << 14
_PLAIN, _MEAN = 0, 2  # scaling of results: none, by 1 / (number of points)
#: folder and name of the engine in SciPy: up to release 1.17, and later
_ENGINES = (("_pocketfft", "pypocketfft"), ("_duccfft", "pyduccfft"))


def forward(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """Write the transform of complex values into `out`.

    >>> out = np.empty(2, np.complex64)
    >>> forward(np.array([1, 2], np.complex64), [0], out)
    >>> out.tolist()
    [(3+0j), (-1+0j)]
    """
    _engine().c2c(x, axes, True, _PLAIN, out, _workers(x))


def backward(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """Write the inverse of `forward` into `out`."""
    _engine().c2c(x, axes, False, _MEAN, out, _workers(x))


def forward_of_real(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """Write the first n // 2 + 1 frequencies, along the last of `axes`, of n real values into `out`."""
    _engine().r2c(x, axes, True, _PLAIN, out, _workers(x))


def backward_to_real(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """Write the inverse of `forward_of_real` into `out`."""
    _engine().c2r(x, axes, out.shape[axes[-1]], False, _MEAN, out, _workers(out))


def _workers(x: np.ndarray) -> int:
    return threads.allowed_threads() if x.size >= _SHARED else 1


@functools.cache
def _engine() -> ModuleType | type[_Public]:
    package = importlib.util.find_spec("scipy")
    for folder, name in _ENGINES:
        folders = [
            os.path.join(root, "fft", folder)
            for root in (package and package.submodule_search_locations) or ()
        ]
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
        if spec is not None and spec.loader is not None:
            engine = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(engine)
            return engine
    return _Public


class _Public:
    """The interface of the engine, implemented by SciPy's public functions, for releases of SciPy with another engine."""

    @staticmethod
    def c2c(
        x: np.ndarray,
        axes: Sequence[int],
        is_forward: bool,
        scale: int,
        out: np.ndarray,
        workers: int,
    ) -> None:
        fft = scipy_module("fft")
        out[...] = (fft.fftn if is_forward else fft.ifftn)(x, axes=axes, workers=workers)

    @staticmethod
    def r2c(
        x: np.ndarray,
        axes: Sequence[int],
        is_forward: bool,
        scale: int,
        out: np.ndarray,
        workers: int,
    ) -> None:
        fft = scipy_module("fft")
        out[...] = fft.rfftn(x, axes=axes, workers=workers)

    @staticmethod
    def c2r(
        x: np.ndarray,
        axes: Sequence[int],
        last: int,
        is_forward: bool,
        scale: int,
        out: np.ndarray,
        workers: int,
    ) -> None:
        fft = scipy_module("fft")
        out[...] = fft.irfftn(
            x, [*[x.shape[axis] for axis in axes[:-1]], last], axes=axes, workers=workers
        )
