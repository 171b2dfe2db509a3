"""Stages of compilation: the results of `f.trace(...)`, `.lower()` and `.compile()` of a jitted function."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.jit": "Wrapped=JitFunction",
        "weft._engine.api.stages": "ArgInfo Compiled CompilerOptions Lowered Traced",
    },
)
