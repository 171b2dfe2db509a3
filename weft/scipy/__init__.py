"""A part of SciPy's API on global arrays; each submodule is loaded on first use."""

import importlib

_SUBMODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special", "stats",
)


def __getattr__(name: str):
    """Load a submodule on first use."""
    if name in _SUBMODULES:
        return importlib.import_module(f"weft.scipy.{name}")
    raise AttributeError(f"module 'weft.scipy' has no attribute {name!r}")
