"""SciPy's engine for Fourier transforms without the package around it, which takes 0.2 s to import; the engine takes 1 ms.

In:   dense NumPy arrays, and a dense array for the result.
Out:  `forward`, `backward` and their variants for real values, which write their results there with several threads. Backward
      transforms are scaled by 1 / (number of points).
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

#: elements from which a transform is worth several threads
_SHARED = 1 << 14
_PLAIN, _MEAN = 0, 2  # how results are scaled
#: folder and name of the engine in SciPy, by its releases: up to 1.17, and since
_ENGINES = (("_pocketfft", "pypocketfft"), ("_duccfft", "pyduccfft"))


def forward(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """The transform of complex values.

    >>> out = np.empty(2, np.complex64)
    >>> forward(np.array([1, 2], np.complex64), [0], out)
    >>> out.tolist()
    [(3+0j), (-1+0j)]
    """
    _engine().c2c(x, axes, True, _PLAIN, out, _workers(x))


def backward(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """The inverse of `forward`."""
    _engine().c2c(x, axes, False, _MEAN, out, _workers(x))


def forward_of_real(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """The first n // 2 + 1 frequencies, along the last of `axes`, of n real values."""
    _engine().r2c(x, axes, True, _PLAIN, out, _workers(x))


def backward_to_real(x: np.ndarray, axes: Sequence[int], out: np.ndarray) -> None:
    """The inverse of `forward_of_real`."""
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
        found = importlib.machinery.PathFinder.find_spec(name, folders)
        if found is not None and found.loader is not None:
            engine = importlib.util.module_from_spec(found)
            found.loader.exec_module(engine)
            return engine
    return _Public


class _Public:
    """The engine's interface on SciPy's public functions, for a SciPy whose engine has another name."""

    @staticmethod
    def c2c(
        x: np.ndarray,
        axes: Sequence[int],
        is_forward: bool,
        scale: int,
        out: np.ndarray,
        workers: int,
    ) -> None:
        from scipy import fft

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
        from scipy import fft

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
        from scipy import fft

        out[...] = fft.irfftn(
            x, [*[x.shape[axis] for axis in axes[:-1]], last], axes=axes, workers=workers
        )
