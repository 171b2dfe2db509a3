"""Memory layouts of arrays: `Layout`, `Format`, and a constraint inside programs."""

from weft.backends.formats import Format, Layout
from weft.lax.composed import with_layout_constraint
from weft.util.source import guard_all

__all__ = ["Format", "Layout", "with_layout_constraint"]

guard_all(globals())
