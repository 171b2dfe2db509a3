"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.scipy.spatial import transform

__all__ = [
    "transform",
]
