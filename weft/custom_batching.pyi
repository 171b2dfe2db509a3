"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.control.custom_batching import custom_vmap, sequential_vmap

__all__ = [
    "custom_vmap", "sequential_vmap",
]
