"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.debug.debugger import breakpoint
from weft._engine.debug.inspect_sharding import inspect_array_sharding
from weft._engine.debug.printing import callback, log, print
from weft._engine.debug.visualize import visualize_array_sharding, visualize_sharding

__all__ = [
    "breakpoint", "callback", "inspect_array_sharding", "log", "print", "visualize_array_sharding",
    "visualize_sharding",
]
