"""Trees of arrays under short names: `weft.tree.map`, `weft.tree.leaves`, and so on."""

from __future__ import annotations

from weft.util.tree import static as static
from weft.util.tree import tree_all as all
from weft.util.tree import tree_broadcast as broadcast
from weft.util.tree import tree_flatten as flatten
from weft.util.tree import tree_flatten_with_path as flatten_with_path
from weft.util.tree import tree_leaves as leaves
from weft.util.tree import tree_leaves_with_path as leaves_with_path
from weft.util.tree import tree_map as map
from weft.util.tree import tree_map_with_path as map_with_path
from weft.util.tree import tree_reduce as reduce
from weft.util.tree import tree_reduce_associative as reduce_associative
from weft.util.tree import tree_structure as structure
from weft.util.tree import tree_transpose as transpose
from weft.util.tree import tree_unflatten as unflatten

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path", "reduce",
    "reduce_associative", "static", "structure", "transpose", "unflatten",
]  # fmt: skip
