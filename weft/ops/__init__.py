"""Op families: each operation with all that it means, closed under transposition. Start reading at `families`.

JAX's module of this name has the reductions by segment: these names are given here, too, and live in `weft.segment_ops`.
"""

from typing import Any

import weft
import weft.ops.functions  # noqa: F401  (announces what it states, too)
from weft.ir.registry import registry
from weft.util.lazy import loader

registry.announce(loader(__name__, __path__))


def __getattr__(name: str) -> Any:
    if name.startswith("segment_"):
        return getattr(weft.segment_ops, name)
    raise AttributeError(f"module 'weft.ops' has no attribute {name!r}")
