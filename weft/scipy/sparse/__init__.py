"""Solvers for large linear systems with SciPy's names; the submodule `linalg` is loaded on first use."""

import importlib


def __getattr__(name: str):
    """Load a submodule on first use."""
    if name == "linalg":
        return importlib.import_module("weft.scipy.sparse.linalg")
    raise AttributeError(f"module 'weft.scipy.sparse' has no attribute {name!r}")
