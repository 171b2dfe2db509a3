"""Functions that compose from operations: prefix scans, trees of arrays, broadcasting helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.execute import to_array
from weft.core.trace import Tracer, typeof
from weft.ops import arithmetic, layout, prefix, sorting
from weft.ops.placement import optimization_barrier as barrier
from weft.util import tree


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of `elems` along `axis`, combined by the associative `fn(earlier, later)` of trees of arrays.

    A function that works element by element becomes one operation, one pass over memory. With any other, the work grows with
    the number of elements, the depth with its logarithm.

    >>> import numpy as np
    >>> associative_scan(lambda x, y: x + y, np.arange(5)).tolist()
    [0, 1, 3, 6, 10]
    """
    flat, structure = tree.tree_flatten(elems)
    flat = [x if isinstance(x, Tracer) else to_array(x) for x in flat]
    if not flat:
        return elems
    for x in flat:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"associative_scan: axis {axis} is out of bounds for an array of shape {tuple(x.shape)}.")
    axis = axis % flat[0].ndim
    sizes = {x.shape[axis] for x in flat}
    if len(sizes) > 1:
        raise ValueError(f"associative_scan: arrays must have equal sizes along axis {axis}, got {[tuple(x.shape) for x in flat]}.")

    def combine(xs, ys):
        pair = [tree.tree_unflatten(structure, v) for v in (xs, ys)]
        return [x if isinstance(x, Tracer) else to_array(x) for x in tree.tree_leaves(fn(*pair))]

    elementwise = prefix.combination(combine, [typeof(x) for x in flat])
    if elementwise is not None:
        return tree.tree_unflatten(structure, prefix.associative_scan(elementwise, flat, axis, bool(reverse)))
    if reverse:
        flat = [layout.rev(x, (axis,)) for x in flat]
    out = prefix.prefixes(flat, combine, axis)
    if reverse:
        out = [layout.rev(x, (axis,)) for x in out]
    return tree.tree_unflatten(structure, out)


def stop_gradient(x: Any) -> Any:
    """`x`, a tree of arrays, with derivatives of zero."""
    return tree.tree_map(lambda leaf: leaf if type(leaf) in (bool, int, float, complex) else arithmetic.stop_gradient(leaf), x)


def optimization_barrier(operand: Any) -> Any:
    """`operand`, a tree of arrays, hidden from simplification."""
    flat, structure = tree.tree_flatten(operand)
    return tree.tree_unflatten(structure, barrier(flat))


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """`x` with leading dims of size one up to `rank`."""
    missing = rank - typeof(x).ndim
    if missing < 0:
        raise ValueError(f"broadcast_to_rank: an array of rank {typeof(x).ndim} does not fit in rank {rank}.")
    return layout.expand_dims(x, tuple(range(missing))) if missing else x


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all of `shapes` broadcast to, by NumPy's rule.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return np.broadcast_shapes(*map(tuple, shapes))


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """`operand` repeated whole, `reps[d]` times along dim d.

    >>> tile(np.arange(2), (2,)).tolist()
    [0, 1, 0, 1]
    """
    shape = typeof(operand).shape
    if len(reps) != len(shape):
        raise ValueError(f"tile: reps {tuple(reps)} must have one entry per dim of the operand, shape {shape}.")
    wide = layout.broadcast_in_dim(operand, [n for pair in zip(reps, shape) for n in pair], range(1, 2 * len(shape), 2))
    return layout.reshape(wide, [r * n for r, n in zip(reps, shape)])


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list:
    """The `k` largest values along a dim and their positions; here they are exact."""
    return list(sorting.top_k(operand, k, axis=reduction_dimension))


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list:
    """The `k` smallest values along a dim and their positions; here they are exact."""
    values, positions = sorting.top_k(arithmetic.neg(operand), k, axis=reduction_dimension)
    return [arithmetic.neg(values), positions]


def platform_dependent(*args: Any, default: Callable | None = None, **per_platform: Callable) -> Any:
    """The function for the platform that runs the program, applied to `args`."""
    from weft.runtime.device import default_backend
    fun = per_platform.get(default_backend(), default)
    if fun is None:
        raise NotImplementedError(f"platform_dependent: no function for {default_backend()!r} among {sorted(per_platform)}, and no "
                                  "default.")
    return fun(*args)
