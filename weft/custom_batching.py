"""Functions with custom batching rules under `vmap`."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__, {"weft._engine.control.custom_batching": "custom_vmap sequential_vmap"}, guards=True
)
