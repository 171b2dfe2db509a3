"""Memory layouts of arrays: `Layout`, `Format`, and a constraint inside programs."""

from weft._engine.backends.formats import Format, Layout
from weft._engine.lax.composed import with_layout_constraint
from weft._engine.util.source import guard_all

__all__ = ["Format", "Layout", "with_layout_constraint"]

guard_all(globals())
