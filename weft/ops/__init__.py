"""Op families: each operation with all that it means, closed under transposition. Start reading at `families`.

Of JAX's public names `jax.ops` is the sums over segments: they are found here, too, and live in `weft.segment_ops`.
"""

import importlib


def __getattr__(name: str):
    if name.startswith("segment_"):
        return getattr(importlib.import_module("weft.segment_ops"), name)
    raise AttributeError(f"module 'weft.ops' has no attribute {name!r}")
