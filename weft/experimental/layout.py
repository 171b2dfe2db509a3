"""Memory layouts of arrays: `Layout`, `Format`, and a constraint inside programs."""

from weft.backends.formats import Format, Layout
from weft.lax.composed import with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]
