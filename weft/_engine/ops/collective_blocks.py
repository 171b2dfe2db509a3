"""Splitting of dims into one block per position along mesh axes, for the rules of collectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import axis_env_size, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import shape_error, zeros
from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft._engine.ops.layout import iota, reshape, squeeze, transpose
from weft._engine.ops.slicing import concatenate, slice_in_dim

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import Value

Axes = tuple[Any, ...]
#: pairs of a source and a target position
Perm = Sequence[tuple[int, int]]
#: the positions along an axis, partitioned into groups
Groups = tuple[tuple[int, ...], ...]


def axes_size(axes: Axes) -> int:
    """Return the number of positions along `axes`."""
    return math.prod(axis_env_size(a) for a in axes)


def other_axes(axes: Axes, name: Any) -> tuple[Axes, int, int]:
    """Return the axes without `name`, and the numbers of positions before and after it."""
    at = axes.index(name)
    sizes = [1 if a == name else axis_env_size(a) for a in axes]
    return axes[:at] + axes[at + 1 :], math.prod(sizes[:at]), math.prod(sizes[at:])


def regroup(
    x: Any, labels: Sequence[Any], sizes: Sequence[int], groups: Sequence[Sequence[Any]]
) -> Any:
    """Reshape `x` to labeled dims, transpose, and merge the labels of each group into one dim.

    The dims are `labels` of `sizes`.
    """
    x = reshape(x, tuple(sizes))
    order = tuple(labels.index(label) for group in groups for label in group)
    if order != tuple(range(len(order))):
        x = transpose(x, order)
    size_of = dict(zip(labels, sizes))
    return reshape(x, tuple(math.prod(size_of[label] for label in group) for group in groups))


def block_dims(
    shape: Sequence[int], dim: int, major: int, own: int, minor: int, tiled: bool
) -> tuple[list[Any], list[int]]:
    """Return labels and sizes of the dims of `shape` with dim `dim` split into blocks.

    The split dim becomes major, own and minor positions and, if tiled, the inside of a block.
    """
    labels: list[Any] = []
    sizes: list[int] = []
    for d, n in enumerate(shape):
        if d != dim:
            labels.append(d)
            sizes.append(n)
            continue
        labels += ["major", "own", "minor"]
        sizes += [major, own, minor]
        if tiled:
            labels.append(d)
            sizes.append(n // (major * own * minor))
    return labels, sizes


def position_block(
    x: Any, axis: BatchAxis, axes: Axes, dim: int, tiled: bool, on_rest: Callable[..., Any]
) -> Any:
    """Return the blocks of dim `dim` of an unbatched `x`.

    There is one block per position along a leading batch dim.

    `on_rest(y, axes, size)` selects this position along the other axes in dim 1 of `y`, and removes
    that dim.
    """
    others, major, minor = other_axes(axes, axis.name)
    labels, sizes = block_dims(typeof(x).shape, dim, major, axis.size, minor, tiled)
    unsplit = [label for label in labels if isinstance(label, int)]
    y = regroup(x, labels, sizes, [["own"], ["major", "minor"], *[[k] for k in unsplit]])
    return on_rest(y, others, major * minor) if others else squeeze(y, (1,))


def diagonal(x: Any, size: int) -> Any:
    """Return `x[i, i]` for all i, along dim 0."""
    shape = typeof(x).shape
    after = tuple(range(1, len(shape) - 1))
    numbers = GatherDimensionNumbers(after, (1,), (1,), (0,), (0,))
    return gather_p.bind(
        x,
        reshape(iota(np.int32, size), (size, 1)),
        dimension_numbers=numbers,
        slice_sizes=(1, 1, *shape[2:]),
        indices_are_sorted=True,
        unique_indices=True,
        mode=GatherScatterMode.UNCHECKED,
        fill_value=None,
    )


def check_blocks(api: str, aval: ShapedArray, dim: int, size: int, tiled: bool) -> None:
    """Raise ShapeError unless dim `dim` has a block for each of `size` positions.

    If not `tiled`, a block is one entry.
    """
    extent = aval.shape[dim]
    facts = [("operand", aval.str_short()), ("axis size", size)]
    if tiled and extent % size:
        raise shape_error(api, f"dim {dim} of size {extent} cannot be cut into {size} equal blocks.", facts, "",
                          f"Pad the dim to a multiple of {size}.")  # fmt: skip
    if not tiled and extent != size:
        raise shape_error(api, f"dim {dim} must have one entry per position along the axis.", facts, "",
                          "Use tiled=True to send blocks of several entries.")  # fmt: skip


#: the number of runs of rows above which a permutation becomes a gather
_MOST_RUNS = 8


def permute_rows(x: Any, perm: Perm) -> Any:
    """Permute the rows of `x` (along dim 0) by `perm`; rows without a source are zeros."""
    n = typeof(x).shape[0]
    source: dict[int, int | None] = dict.fromkeys(range(n)) | {d: s for s, d in perm}
    if all(s == d for d, s in source.items()):
        return x
    runs: list[tuple[int | None, int]] = []  # the first source row (None: zeros) and the length
    for d in range(n):
        s = source[d]
        if runs:
            first, length = runs[-1]
            if (s is None and first is None) or (
                s is not None and first is not None and s == first + length
            ):
                runs[-1] = (first, length + 1)
                continue
        runs.append((s, 1))
    if len(runs) > _MOST_RUNS:
        return take_rows(x, np.asarray([n if s is None else s for s in source.values()], np.int32))
    shape = typeof(x).shape
    blank: Callable[[int], Value] = lambda length: zeros(
        typeof(x).update(shape=(length, *shape[1:]), weak_type=False)
    )
    return concatenate([blank(k) if s is None else slice_in_dim(x, s, s + k) for s, k in runs], 0)


def take_rows(x: Any, rows: Any) -> Any:
    """Return the rows of `x` at indices `rows`, and zeros at indices out of bounds."""
    shape = typeof(x).shape
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    return gather_p.bind(
        x,
        reshape(rows, (*typeof(rows).shape, 1)),
        dimension_numbers=numbers,
        slice_sizes=(1, *shape[1:]),
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )
