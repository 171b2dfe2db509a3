"""Clustering with SciPy's names; the submodule `vq` is loaded on first use."""

import importlib


def __getattr__(name: str):
    """Load a submodule on first use."""
    if name == "vq":
        return importlib.import_module("weft.scipy.cluster.vq")
    raise AttributeError(f"module 'weft.scipy.cluster' has no attribute {name!r}")
