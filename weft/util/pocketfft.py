"""SciPy's engine for Fourier transforms, without the package around it: that takes 0.2 s to import, the engine less than 1 ms.

In:   dense NumPy arrays, and a dense array for the result.
Out:  `forward`, `backward` and their kin for real values, which write their results there by several threads. Backward
      transforms are scaled by 1 / (number of points).
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from weft.util import threads

#: elements from which a transform is worth several threads
_SHARED = 1 << 14
_PLAIN, _MEAN = 0, 2        # how results are scaled


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
    return threads.wanted() if x.size >= _SHARED else 1


@functools.cache
def _engine() -> ModuleType:
    package = importlib.util.find_spec("scipy")
    folders = [os.path.join(folder, "fft", "_pocketfft") for folder in (package and package.submodule_search_locations) or ()]
    found = importlib.machinery.PathFinder.find_spec("pypocketfft", folders)
    if found is None or found.loader is None:
        return importlib.import_module("scipy.fft._pocketfft.pypocketfft")
    engine = importlib.util.module_from_spec(found)
    found.loader.exec_module(engine)
    return engine
