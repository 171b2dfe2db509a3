"""Memory layouts of arrays: `Layout`, `Format`, and a constraint inside programs."""

from typing import Any

from weft.backends.formats import Format, Layout, check_row_major, is_layout
from weft.core.trace import typeof
from weft.util import tree

__all__ = ["Format", "Layout", "with_layout_constraint"]


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """`x` (a tree of arrays) unchanged, once `layouts` (a prefix tree of `Layout`s) is found to be how arrays are stored.

    Raises ValueError for a layout that does not fit, NotImplementedError for one that is not row-major.

    >>> with_layout_constraint(wnp.ones((2, 3)), Layout((0, 1))).shape
    (2, 3)
    """
    leaves, structure = tree.tree_flatten(x)
    for leaf, layout in zip(leaves, tree.broadcast_prefix(layouts, x, is_leaf=is_layout)):
        check_row_major(Format(layout, "any"), typeof(leaf).ndim, "with_layout_constraint")
    return tree.tree_unflatten(structure, leaves)
