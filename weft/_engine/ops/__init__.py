"""Families of ops, each with all of its rules and closed under transposition.

Start reading at `families`.
"""

import weft._engine.ops.functions  # noqa: F401  # pyright: ignore[reportUnusedImport]  (announces what it states, too)
from weft._engine.ir.registry import registry
from weft._engine.util.lazy import loader

registry.announce(loader(__name__, __path__))
