"""Split rules of gather and scatters along the dims that they index (see `partition.rules.split_rule`).

Positions are converted to positions in this device's block. A gather reads elements of the block, and the additive identity
elsewhere, and the sum over devices is the result. A scatter drops updates outside of the block and does not communicate. Split
updates of a scatter-add are added on every device, to the operand on one device and to the additive identity on the others.

For windows that may cross the border of a block, the block is padded by the size of the window on both sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops import arithmetic, bitwise, comparison, indexing, layout, slicing, windows
from weft._engine.ops.casting import convert_element_type
from weft._engine.partition.rules.halo import additive_identity, pad_along, slice_along
from weft._engine.partition.rules.slices import positions
from weft._engine.partition.rules.split_rule import split_rule


def _columns(indices: Any, numbers: windows.GatherDimensionNumbers) -> list[Any]:
    """Return the entries of all indices as int32 arrays, one per indexed dim."""
    indices = positions(indices)
    last = typeof(indices).ndim - 1
    shape = typeof(indices).shape[:-1]
    return [
        layout.reshape(slice_along(indices, c, 1, last), shape)
        for c in range(len(numbers.start_index_map))
    ]


def _stack(columns: list[Any], indices: Any) -> Any:
    """Return the inverse of `_columns`."""
    shape = typeof(indices).shape
    if not columns:
        return convert_element_type(indices, np.int32)
    return slicing.concatenate(
        [layout.reshape(c, (*shape[:-1], 1)) for c in columns], len(shape) - 1
    )


class _BlockIndices:
    """Indices of global windows, converted to indices of windows in this device's block.

    `indices` are for the (padded) block in mode FILL_OR_DROP; `inside` is a mask of the windows that are inside the global operand
    (None: all). `pads` is the padding per dim.
    """

    def __init__(
        self,
        ctx: Any,
        shape: tuple[int, ...],
        indices: Any,
        numbers: windows.GatherDimensionNumbers,
        sizes: tuple[int, ...],
        mode: Any,
    ):
        self.inside, self.pads = None, [0] * len(shape)
        columns = _columns(indices, numbers)
        for c, d in enumerate(numbers.start_index_map):
            axes, local, size = ctx.of_dim(0, d), shape[d], sizes[d]
            last = (ctx.extent(0, d) if axes else local) - size
            at = columns[c]
            if mode is windows.GatherScatterMode.FILL_OR_DROP:
                here = bitwise.bitwise_and(
                    comparison.ge(at, np.int32(0)), comparison.le(at, np.int32(last))
                )
                self.inside = (
                    here if self.inside is None else bitwise.bitwise_and(self.inside, here)
                )
            elif mode is not windows.GatherScatterMode.UNCHECKED:
                at = comparison.clamp(np.int32(0), at, np.int32(last))
            if axes:
                at = arithmetic.sub(at, ctx.start(axes, local))
                if size > 1:
                    self.pads[d] = size
                    at = comparison.clamp(np.int32(-size), at, np.int32(local))
                    at = arithmetic.add(at, np.int32(size))
            columns[c] = at
        if self.inside is not None:
            columns = [comparison.select(self.inside, c, layout.full_like(c, -1)) for c in columns]
        self.indices = _stack(columns, indices)

    def pad(self, x: Any) -> Any:
        for d, size in enumerate(self.pads):
            if size:
                x = pad_along(x, size, size, d)
        return x

    def unpad(self, x: Any) -> Any:
        for d, size in enumerate(self.pads):
            if size:
                x = slice_along(x, size, typeof(x).shape[d] - 2 * size, d)
        return x


def _is_first(ctx: Any, axes: tuple[Any, ...]) -> Any:
    """Return whether this device is the first along `axes`, as a traced bool."""
    return comparison.eq(ctx.start(axes, 1), np.int32(0))


def _is_indexed_factor(f: int, rule: Any, eqn: Any) -> bool:
    """Return whether factor `f` is an indexed dim of the operand."""
    return rule.special.get(f) == "index" and any(f in d for d in rule.ins[0])


@split_rule(
    indexing.gather_p,
    _is_indexed_factor,
    makes_partial_sums=lambda f, rule, axes: True,
    selects=True,
)
def _gather_split(
    ctx: Any,
    args: list[Any],
    *,
    dimension_numbers: windows.GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    mode: Any,
    fill_value: Any,
    indices_are_sorted: bool,
    unique_indices: bool,
) -> Any:
    x, indices = args
    dtype, shape = typeof(x).dtype, typeof(x).shape
    places = _BlockIndices(ctx, shape, indices, dimension_numbers, slice_sizes, mode)
    none = additive_identity(dtype)
    gathered = indexing.gather_p.bind(
        places.pad(x),
        places.indices,
        dimension_numbers=dimension_numbers,
        slice_sizes=slice_sizes,
        mode=windows.GatherScatterMode.FILL_OR_DROP,
        fill_value=none,
        indices_are_sorted=False,
        unique_indices=unique_indices,
    )
    if (
        places.inside is None
        or fill_value is None
        or np.asarray(fill_value, dtype).tobytes() == none.tobytes()
    ):
        return gathered
    # one device contributes the fill value of windows outside of the operand
    out = typeof(gathered).shape
    axes = tuple(dict.fromkeys(a for d in range(len(shape)) for a in ctx.of_dim(0, d)))
    fill = comparison.select(_is_first(ctx, axes), np.asarray(fill_value, dtype)[()], none)
    inside = layout.broadcast_in_dim(
        places.inside, out, windows.batch_dims(len(out), dimension_numbers)
    )
    return comparison.select(inside, gathered, layout.broadcast_in_dim(fill, out, ()))


def _is_scattered_factor(f: int, rule: Any, eqn: Any) -> bool:
    """Return whether factor `f` is an indexed dim of the operand, or a dim of updates that are added."""
    in_operand = any(f in dim for dim in rule.ins[0])
    return rule.special.get(f) == "index" and (in_operand or rule.reduced.get(f) == "add")


def _scatter(primitive: Any) -> None:
    @split_rule(
        primitive,
        _is_scattered_factor,
        makes_partial_sums=lambda f, rule, axes: rule.reduced.get(f) == "add",
        tolerates_padding=lambda f, rule: f not in rule.reduced,
    )
    def split(
        ctx: Any,
        args: list[Any],
        *,
        dimension_numbers: Any,
        mode: Any,
        indices_are_sorted: bool,
        **params: Any,
    ) -> Any:
        x, indices, updates = args
        reduced = [f for f in sorted(ctx.axes) if ctx.rule.reduced.get(f) == "add"]
        updates_axes = tuple(a for f in reduced for a in ctx.axes[f])
        if updates_axes:
            x = comparison.select(
                _is_first(ctx, updates_axes),
                x,
                layout.full_like(x, additive_identity(typeof(x).dtype)),
            )
        numbers, sizes = windows.window_of_scatter(
            dimension_numbers, typeof(x).ndim, typeof(updates).shape
        )
        places = _BlockIndices(ctx, typeof(x).shape, indices, numbers, sizes, mode)
        out = primitive.bind(
            places.pad(x),
            places.indices,
            updates,
            dimension_numbers=dimension_numbers,
            mode=windows.GatherScatterMode.FILL_OR_DROP,
            indices_are_sorted=False,
            **params,
        )
        return places.unpad(out)


for _p in (
    indexing.scatter_p,
    indexing.scatter_add_p,
    indexing.scatter_mul_p,
    indexing.scatter_min_p,
    indexing.scatter_max_p,
):
    _scatter(_p)
