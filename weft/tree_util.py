"""Pytrees: flattening, mapping, key paths, and registration of container types."""

from __future__ import annotations

from weft._engine.util.source import guard_all
from weft._engine.util.tree import *  # noqa: F403
from weft._engine.util.tree import __all__ as __all__

guard_all(globals())
