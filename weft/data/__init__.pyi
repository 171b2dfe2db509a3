"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.data.loader import Loader
from weft.data.order import permute_positions as permuted

__all__ = [
    "Loader", "permuted",
]
