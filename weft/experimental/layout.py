"""Memory layouts of arrays: `Layout`, `Format`, and a constraint inside programs."""

from weft._engine.backends.formats import Format, Layout
from weft._engine.util.source import guard_all
from weft.lax.composed import with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]

guard_all(globals())
