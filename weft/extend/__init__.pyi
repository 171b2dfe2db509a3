"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.extend import backend, core, linear_util, mlir, random, source_info_util

__all__ = [
    "backend", "core", "linear_util", "mlir", "random", "source_info_util",
]
