"""Stages of compilation: what `f.trace(...)`, `.lower()` and `.compile()` of a jitted function give."""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.api.jit": "Wrapped=JitFunction",
        "weft.api.stages": "ArgInfo Compiled CompilerOptions Lowered Traced",
    },
)
