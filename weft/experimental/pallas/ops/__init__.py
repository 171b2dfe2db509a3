"""Operations that JAX ships as kernels for accelerators, with JAX's names and signatures.

They are programs of weft operations, which the compiler fuses: attention never stores its whole score matrix, and products
of groups are ragged products. Block sizes and pipeline options are accepted for compatibility and have no effect.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {"weft.experimental.pallas.ops": "gpu tpu"})
