"""Extension points for libraries: custom primitives, programs as data, function transformations.

A thin interface to `weft._engine.core`, `weft._engine.ir` and `weft._engine.transforms`, under the names of `jax.extend`.
Names may change between versions.
Next to read: `core` (primitives and programs), then `weft.interpreters` (their rules).
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__, {__name__: "backend core linear_util mlir random source_info_util"}
)
