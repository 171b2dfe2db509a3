"""`inspect_array_sharding`: the sharding of a value, reported when the program is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.api.callbacks import known_sharding
from weft._engine.ops.callback import inspect_sharding_p
from weft._engine.util import tree
from weft._engine.util.source import api_boundary


@api_boundary
def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call `callback` with the sharding of every array in the tree `value`.

    For concrete arrays, the call happens at once; inside a compiled function, it happens at compile
    time, with the sharding that the compiler chose.

    >>> weft.debug.inspect_array_sharding(wnp.ones(3), callback=lambda s: print(type(s).__name__))
    SingleDeviceSharding
    """
    for leaf in tree.tree_leaves(value):
        sharding = known_sharding(leaf)
        if sharding is not None:
            callback(sharding)
        else:
            inspect_sharding_p.bind(leaf, callback=callback)
