"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.api.jit import JitFunction as Wrapped
from weft._engine.api.stages import ArgInfo, Compiled, CompilerOptions, Lowered, Traced

__all__ = [
    "ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped",
]
