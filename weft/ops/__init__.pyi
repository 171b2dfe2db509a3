"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.segment_ops import segment_max, segment_min, segment_prod, segment_sum

__all__ = [
    "segment_max", "segment_min", "segment_prod", "segment_sum",
]
