"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.scipy.cluster import vq

__all__ = [
    "vq",
]
