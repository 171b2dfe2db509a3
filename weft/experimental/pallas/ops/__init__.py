"""Operations that other systems ship as kernels for accelerators, by the names and signatures that libraries import.

Here they are programs of weft's own operations, which its compiler fuses: attention never stores its scores as a whole, and products of
groups are ragged products. Sizes of blocks and choices of pipelines have no meaning on a CPU; they are accepted and change no result.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(__name__, {"weft.experimental.pallas.ops": "gpu tpu"})
