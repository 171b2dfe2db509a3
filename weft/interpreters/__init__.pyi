"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft.interpreters import ad, batching, mlir, partial_eval, pxla, xla

__all__ = [
    "ad", "batching", "mlir", "partial_eval", "pxla", "xla",
]
