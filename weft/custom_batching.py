"""Functions with batching rules of their own: what they do under `vmap`."""

from weft.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__, {"weft.control.custom_batching": "custom_vmap sequential_vmap"}, guards=True
)
