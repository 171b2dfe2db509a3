"""`ragged_all_to_all`: every position sends slices of chosen sizes to every other one, at chosen
offsets.

In:   rows to send; rows to overwrite; per target k (or for several slices per target, k major) the
      start of the slice, its length and its offset at the target; per source the number of rows
      that arrive.
Out:  the rows to overwrite, with the received rows in place.
Laws: slices sent to one position do not overlap. Over its own axis the exchange is one lookup: each
      row of the result finds the slice that covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.annotations import cast
from weft._engine.core.trace import find_tracked_axes, is_undef, typeof
from weft._engine.ir.collective_spec import CollectiveSpec
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import collective_rules as rules
from weft._engine.ops.collective_blocks import axes_size, take_rows
from weft._engine.ops.collective_groups import bind_over
from weft._engine.ops.collectives import axes_of
from weft._engine.ops.dynamic_slicing import dynamic_slice_in_dim
from weft._engine.ops.elementwise import (
    add,
    bitwise_and,
    convert_element_type,
    ge,
    lt,
    mul,
    select_n,
    sub,
)
from weft._engine.ops.families import full, joined_vma, shape_error, zeros
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape, transpose
from weft._engine.ops.reduce import reduce_max, reduce_or, reduce_sum
from weft._engine.ops.rule_helpers import batch_dim_to_front, jointly_linear

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.collective_blocks import Groups
    from weft._engine.ops.collective_rules import Axes
    from weft._engine.ops.rule_types import Avals, BatchDims, Value, Values


def ragged_all_to_all(
    operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any, recv_sizes: Any, *,
    axis_name: Any, axis_index_groups: Any = None
) -> Any:  # fmt: skip
    """Return `output` with rows overwritten by the rows sent to this position.

    The positions along the axis send them.

    Rows `input_offsets[k] : input_offsets[k] + send_sizes[k]` of `operand` are sent to position k,
    where they begin at row `output_offsets[k]`; `recv_sizes[k]` rows come from position k. Offsets
    and sizes may have several consecutive entries per position.
    """
    axes = axes_of(axis_name)
    if axis_index_groups is not None:
        raise NotImplementedError(
            "ragged_all_to_all: axis_index_groups is not supported. Split the axis of the mesh."
        )
    tracked = find_tracked_axes().intersection(axes)
    operands = (operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)
    _check([typeof(x) for x in operands], axes_size(axes))
    args = [cast(x, tracked) if tracked else x for x in operands]
    return bind_over(ragged_all_to_all_p, *args, axis_name=axes, axis_index_groups=None)


def _factors(in_avals: Avals, out_avals: Avals, **params: Any):
    b = RuleBuilder()
    operand, output, *numbers = in_avals
    inner = b.add_factors(operand.shape[1:])
    rows, to = b.new(operand.shape[0]), b.new(output.shape[0])
    lists = [[b.new(x.shape[0])] for x in numbers]
    special = dict.fromkeys([rows, to, *(f for (f,) in lists)], "replicate")
    return b.rule([[rows, *inner], [to, *inner], *lists], [[to, *inner]], special=special)


def _check(avals: list[ShapedArray], size: int) -> None:
    """Raise ShapeError or TypeError unless the operands of an exchange fit each other.

    The exchange is between `size` positions.
    """
    operand, output, *numbers = avals
    if not operand.ndim or operand.shape[1:] != output.shape[1:] or operand.dtype != output.dtype:
        facts = [("operand", operand.str_short()), ("output", output.str_short())]
        raise shape_error(
            "ragged_all_to_all", "operand and output must be rows of one type.", facts
        )
    lists = [
        *zip(
            ("input_offsets", "send_sizes", "output_offsets", "recv_sizes"),
            [x.str_short() for x in numbers],
        )
    ]
    shape = numbers[0].shape
    if any(x.shape != shape for x in numbers) or len(shape) != 1 or not shape[0] or shape[0] % size:
        raise shape_error("ragged_all_to_all", "offsets and sizes must be four lists of one length, a multiple of the axis size.",
                          [*lists, ("axis size", size)])  # fmt: skip
    if not all(np.issubdtype(x.dtype, np.integer) for x in numbers):
        raise TypeError(
            f"ragged_all_to_all: offsets and sizes must be integers, got {', '.join(text for _, text in lists)}."
        )


def _type(*avals: ShapedArray, axis_name: Axes, axis_index_groups: Groups | None):
    return avals[1].update(sharding=None, weak_type=False, vma=joined_vma(avals))


def _batch(
    axis: BatchAxis,
    args: Values,
    dims: BatchDims,
    *,
    axis_name: Axes,
    axis_index_groups: Groups | None,
):
    if axis.name is not None and axis.name in axis_name:
        return _stack(axis, *args, *dims)
    args = [batch_dim_to_front(x, d, axis.size) for x, d in zip(args, dims)]
    return _combine_exchanges(axis.size, *args, axis_name=axis_name), 0


def _stack(axis: BatchAxis, *operands: Value, **params: Any):
    """Return the results of all positions;

    `operands` has the operands, followed by their batch dims.
    """
    operand, output, *lists = [
        batch_dim_to_front(x, d, axis.size) for x, d in zip(operands[:5], operands[6:])
    ]
    return _overwrite_rows(output, operand, *(_by_target(x, axis.size) for x in lists)), 0


def _exchange(operand: Value, **params: Any):
    """Exchange in NumPy: every position writes the slices from the others over its `output`."""
    results = [output.copy() for _, output, *_ in operand]
    for rows, _, starts, sizes, targets, _ in operand:
        per_target = len(starts) // len(operand)
        for i, (start, size, to) in enumerate(zip(starts, sizes, targets)):
            results[i // per_target][to : to + size] = rows[start : start + size]
    return results


def _by_target(x: Any, n: int) -> Any:
    """Transpose lists per sender, by target, to lists per target, by sender."""
    k = typeof(x).shape[1] // n
    return reshape(transpose(reshape(x, (n, n, k)), (1, 0, 2)), (n, n * k))


def _overwrite_rows(outputs: Any, operands: Any, starts: Any, sizes: Any, targets: Any) -> Any:
    """Return `outputs`, one per target, overwritten by slices of `operands`, one per sender.

    The lists are per target and list all senders in order.
    """
    n, rows, *inner = typeof(operands).shape
    count, to = typeof(outputs).shape[:2]
    slices = typeof(starts).shape[1]
    base = np.repeat(np.arange(n, dtype=np.int32) * np.int32(rows), slices // n)
    shape = (count, to, slices)
    spread: Callable[[Value], Value] = lambda x: broadcast_in_dim(
        convert_element_type(x, np.int32), shape, (0, 2)
    )
    into = sub(broadcasted_iota(np.int32, shape, 1), spread(targets))
    covers = bitwise_and(ge(into, np.int32(0)), lt(into, spread(sizes)))
    place = add(add(spread(starts), into), broadcast_in_dim(base, shape, (2,)))
    source = reduce_max(select_n(covers, full(shape, -1, np.int32), place), (2,))
    came = take_rows(reshape(operands, (n * rows, *inner)), reshape(source, (count * to,)))
    written = broadcast_in_dim(ge(source, np.int32(0)), (count, to, *inner), (0, 1))
    return select_n(written, outputs, reshape(came, (count, to, *inner)))


def _several(
    operand: Any, output: Any, *numbers: Any, axis_name: Any, axis_index_groups: Any
) -> Any:
    """Exchange over several axes.

    Every position gathers the rows of all, and keeps the rows sent to it.
    """
    n, own, aval = axes_size(axis_name), rules.position(axis_name), typeof(output)
    k = typeof(numbers[0]).shape[0] // n
    gathered: Callable[[Value], Value] = lambda x: rules.all_gather_p.bind(
        x,
        all_gather_dimension=0,
        axis_name=axis_name,
        axis_size=n,
        tiled=False,
        axis_index_groups=None,
    )
    for_me: Callable[[Value], Value] = lambda x: reshape(
        dynamic_slice_in_dim(gathered(x), mul(own, np.int32(k)), k, 1), (1, n * k)
    )
    filled = _overwrite_rows(
        reshape(output, (1, *aval.shape)), gathered(operand), *map(for_me, numbers[:3])
    )
    return reshape(filled, aval.shape)


def _combine_exchanges(count: int, operand: Any, output: Any, *numbers: Any, axis_name: Any) -> Any:
    """Combine `count` exchanges (dim 0 of all operands) into one, with their rows concatenated."""
    n = axes_size(axis_name)
    starts, sizes, targets, received = numbers
    rows, to = typeof(operand).shape[1], typeof(output).shape[1]

    def side_by_side(x: Value, rows: Value):
        base = np.arange(count)[:, None].astype(typeof(x).dtype) * rows
        x = add(x, broadcast_in_dim(base, typeof(x).shape, (0, 1)))
        k = typeof(x).shape[1] // n
        return reshape(transpose(reshape(x, (count, n, k)), (1, 0, 2)), (n * count * k,))

    flat: Callable[[Value], Value] = lambda x: reshape(
        x, (typeof(x).shape[0] * typeof(x).shape[1], *typeof(x).shape[2:])
    )
    out = ragged_all_to_all_p.bind(
        flat(operand), flat(output), side_by_side(starts, rows), side_by_side(sizes, 0), side_by_side(targets, to),
        side_by_side(received, 0), axis_name=axis_name, axis_index_groups=None,
    )  # fmt: skip
    return reshape(out, typeof(output).shape)


def _transpose(
    ct: Value,
    operand: Value,
    output: Value,
    starts: Value,
    sizes: Sequence[int],
    targets: Value,
    received: Value,
    *,
    axis_name: Axes,
    axis_index_groups: Groups | None,
):
    # sent rows are sent back
    exchanged: Callable[[Value], Value] = lambda x: rules.all_to_all_p.bind(
        x, split_axis=0, concat_axis=0, axis_name=axis_name, axis_size=axes_size(axis_name), tiled=True,
        axis_index_groups=None,
    )  # fmt: skip
    came_to = exchanged(targets)
    back = of_output = None
    if is_undef(operand):
        # rows sent to several positions have several cotangents: each slice has its own rows, which
        # are added afterwards
        (count,), (rows, *inner) = typeof(starts).shape, operand.aval.shape
        blank = zeros(operand.aval.update(shape=(count * rows, *inner)))
        own_rows = add(starts, np.arange(count, dtype=typeof(starts).dtype) * rows)
        back = bind_over(
            ragged_all_to_all_p, ct, blank, came_to, received, exchanged(own_rows), sizes, axis_name=axis_name,
            axis_index_groups=None,
        )  # fmt: skip
        back = reduce_sum(reshape(back, (count, rows, *inner)), (0,))
    if is_undef(output):
        of_output = select_n(_written_mask(output.aval, came_to, received), ct, zeros(output.aval))
    return [back, of_output, None, None, None, None]


def _written_mask(aval: ShapedArray, starts: Any, sizes: Any) -> Any:
    """Return a mask of the output elements in some slices.

    The slices begin at rows `starts` and have `sizes` rows.
    """
    shape = (aval.shape[0], typeof(starts).shape[0])
    spread: Callable[[Value], Value] = lambda x: broadcast_in_dim(
        convert_element_type(x, np.int32), shape, (1,)
    )
    into = sub(broadcasted_iota(np.int32, shape, 0), spread(starts))
    covered = reduce_or(bitwise_and(ge(into, np.int32(0)), lt(into, spread(sizes))), (1,))
    return broadcast_in_dim(covered, aval.shape, (0,))


ragged_all_to_all_p = rules.collective(
    CollectiveSpec("ragged_all_to_all", _type, _stack, _exchange, rules.all_but_own_block, factors=_factors, transpose=_transpose,
                   hlo="ragged-all-to-all"),
    batch=_batch, several=_several)  # fmt: skip
jointly_linear(ragged_all_to_all_p, (0, 1))
