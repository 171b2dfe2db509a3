"""Spatial algorithms with SciPy's names; the submodule `transform` is loaded on first use."""

import importlib


def __getattr__(name: str):
    """Load a submodule on first use."""
    if name == "transform":
        return importlib.import_module("weft.scipy.spatial.transform")
    raise AttributeError(f"module 'weft.scipy.spatial' has no attribute {name!r}")
