"""Stages of compilation: what `f.trace(...)`, `.lower()` and `.compile()` of a jitted function give."""

from weft.api.jit import JitFunction as Wrapped
from weft.api.stages import ArgInfo, Compiled, Lowered, Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
