"""Spatial algorithms with SciPy's names; the submodule `transform` is loaded on first use."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {__name__: "transform"})
