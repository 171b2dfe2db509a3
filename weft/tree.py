"""Trees of arrays under short names: `weft.tree.map`, `weft.tree.leaves`, and so on."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.util.tree": """
        all=tree_all broadcast=tree_broadcast flatten=tree_flatten flatten_with_path=tree_flatten_with_path leaves=tree_leaves
        leaves_with_path=tree_leaves_with_path map=tree_map map_with_path=tree_map_with_path reduce=tree_reduce
        reduce_associative=tree_reduce_associative static structure=tree_structure transpose=tree_transpose unflatten=tree_unflatten
    """,
    },
    guards=True,
)
