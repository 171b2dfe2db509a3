"""Blocks of dims, one for each position along mesh axes, for the rules of collectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import axis_env_size, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import shape_error
from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft._engine.ops.layout import iota, reshape, squeeze, transpose

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis

Axes = tuple[Any, ...]
#: the positions along an axis, in groups
Groups = tuple[tuple[int, ...], ...]


def other_axes(axes: Axes, name: Any) -> tuple[Axes, int, int]:
    """The axes but `name`, with the number of positions along those before and after it."""
    at = axes.index(name)
    sizes = [1 if a == name else axis_env_size(a) for a in axes]
    return axes[:at] + axes[at + 1 :], math.prod(sizes[:at]), math.prod(sizes[at:])


def regroup(
    x: Any, labels: Sequence[Any], sizes: Sequence[int], groups: Sequence[Sequence[Any]]
) -> Any:
    """`x`, whose dims are `labels` of `sizes` once it is reshaped, transposed and reshaped to one dim per group of labels."""
    x = reshape(x, tuple(sizes))
    order = tuple(labels.index(label) for group in groups for label in group)
    if order != tuple(range(len(order))):
        x = transpose(x, order)
    size_of = dict(zip(labels, sizes))
    return reshape(x, tuple(math.prod(size_of[label] for label in group) for group in groups))


def block_dims(
    shape: Sequence[int], dim: int, major: int, own: int, minor: int, tiled: bool
) -> tuple[list[Any], list[int]]:
    """Labels and sizes of the dims of `shape`, dim `dim` split into major, own and minor blocks and, if tiled,
    the inside of a block."""
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


def own_part(
    x: Any, axis: BatchAxis, axes: Axes, dim: int, tiled: bool, on_rest: Callable[..., Any]
) -> Any:
    """The blocks of dim `dim` of unbatched `x`, one for each position: the batch dim comes first.

    `on_rest(y, axes, size)` takes the part along the other axes from dim 1 of `y`, and removes that dim."""
    rest, major, minor = other_axes(axes, axis.name)
    labels, sizes = block_dims(typeof(x).shape, dim, major, axis.size, minor, tiled)
    kept = [label for label in labels if isinstance(label, int)]
    y = regroup(x, labels, sizes, [["own"], ["major", "minor"], *[[k] for k in kept]])
    return on_rest(y, rest, major * minor) if rest else squeeze(y, (1,))


def diagonal(x: Any, size: int) -> Any:
    """`x[i, i]` for all i, along dim 0."""
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
    """ShapeError unless dim `dim` has a block (one entry if not `tiled`) for each of `size` positions."""
    extent = aval.shape[dim]
    facts = [("operand", aval.str_short()), ("axis size", size)]
    if tiled and extent % size:
        raise shape_error(api, f"dim {dim} of size {extent} cannot be cut into {size} equal blocks.", facts, "",
                          f"Pad the dim to a multiple of {size}.")  # fmt: skip
    if not tiled and extent != size:
        raise shape_error(api, f"dim {dim} must have one entry per position along the axis.", facts, "",
                          "Use tiled=True to send blocks of several entries.")  # fmt: skip
