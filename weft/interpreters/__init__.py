"""The rules of primitives, one module for each transformation, under the names of `jax.interpreters`.

`ad` differentiates and transposes, `batching` maps, `mlir` lowers, `partial_eval` traces and splits programs; `xla` and
`pxla` have a few names that libraries use. The tables show the rules of weft's own primitives and accept rules of custom
primitives (`weft.extend.core.Primitive`). Next to read: `rule_table`.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {__name__: "ad batching mlir partial_eval pxla xla"})
