"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.scipy import (
    cluster, fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse, spatial,
    special, stats,
)

__all__ = [
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
    "sparse", "spatial", "special", "stats",
]
