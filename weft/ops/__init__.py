"""JAX's `jax.ops`: the reductions of `weft.segment_ops`."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__, {"weft.segment_ops": "segment_max segment_min segment_prod segment_sum"}
)
