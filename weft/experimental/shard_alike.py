"""A constraint that two values have equal shardings."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft._engine.core.trace import typeof
from weft._engine.ops.placement import optimization_barrier
from weft._engine.util import tree
from weft._engine.util.source import guard_all

__all__ = ["shard_alike"]


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the trees `x` and `y`, each array sharded like the corresponding array of the other tree.

    Propagation finds the sharding; `weft.lax.with_sharding_constraint` sets one. ValueError for different structures or shapes.

    >>> x, y = shard_alike(wnp.ones((4, 2)), wnp.arange(8.0).reshape(4, 2))
    >>> x.sharding == y.sharding
    True
    """
    (xs, structure), (ys, other) = tree.tree_flatten(x), tree.tree_flatten(y)
    if structure != other:
        raise ValueError(
            f"shard_alike: `x` and `y` must be trees of one structure, got {structure} and {other}."
            f"{tree.describe_difference(structure, other, 'x', 'y')}"
        )
    shapes = [[typeof(leaf).shape for leaf in leaves] for leaves in (xs, ys)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"shard_alike: The leaves shapes of `x` and `y` should match, got {shapes[0]} and {shapes[1]}."
        )
    pairs = [
        optimization_barrier([wnp.asarray(a), wnp.asarray(b)], alike=True) for a, b in zip(xs, ys)
    ]
    return structure.unflatten([a for a, _ in pairs]), structure.unflatten([b for _, b in pairs])


guard_all(globals())
