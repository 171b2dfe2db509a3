"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.experimental.pallas.ops.tpu import flash_attention, megablox, splash_attention

__all__ = [
    "flash_attention", "megablox", "splash_attention",
]
