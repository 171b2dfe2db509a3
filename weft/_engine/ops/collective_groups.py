"""Groups of positions: validation of `axis_index_groups`, and exchanges in groups over several
axes.

A collective over one axis handles groups itself. Groups over several axes need not align with any
axis, so a collective over them consists of permutations (`bind_over`): in round r every position
sends to the member r positions after it in its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from weft._engine.core.primitive import BatchAxis, Primitive
from weft._engine.core.trace import typeof
from weft._engine.ir.collective_spec import collective_axes, spec_of
from weft._engine.ops import collective_rules as rules
from weft._engine.ops.collective_blocks import Groups, axes_size, take_rows
from weft._engine.ops.comparison import eq, select
from weft._engine.ops.dynamic_slicing import dynamic_slice_in_dim
from weft._engine.ops.elementwise import add, mul, rem, sub
from weft._engine.ops.families import move_dim, zeros
from weft._engine.ops.layout import broadcast_in_dim, iota, reshape, squeeze
from weft._engine.ops.reduce import reduce_sum
from weft._engine.ops.slicing import concatenate

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Value


def canonical_groups(
    api: str, axes: rules.Axes, groups: Any, uneven: bool = False
) -> Groups | None:
    """Return `groups` as tuples.

    Raise ValueError unless every position along `axes` is in exactly one group, and all groups have
    one size or may be `uneven`.
    """
    if groups is None:
        return None
    checked = tuple(tuple(int(i) for i in members) for members in groups)
    size = axes_size(axes)
    if sorted(i for members in checked for i in members) != list(range(size)):
        raise ValueError(
            f"{api}: axis_index_groups must hold each of the {size} positions along {axes} exactly once, got {checked}."
        )
    if not uneven and len({len(members) for members in checked}) > 1:
        raise ValueError(
            f"{api}: axis_index_groups must be of one size, got groups of {[len(m) for m in checked]} positions: {checked}. "
            "Results would differ in shape or meaning between groups; pad the groups, or mask what does not count."
        )
    return checked


def is_uneven(groups: Groups | None) -> TypeGuard[Groups]:
    """Return whether groups differ in size."""
    return groups is not None and len({len(members) for members in groups}) > 1


def sum_in_uneven(x: Any, axes: rules.Axes, groups: Groups) -> Any:
    """Return the sum over the position's own group.

    One psum adds a row per group; each position contributes to the row of its group and zeros to
    the others.
    """
    number_of = np.empty(sum(map(len, groups)), np.int32)
    for k, members in enumerate(groups):
        number_of[list(members)] = k
    own_group = reshape(dynamic_slice_in_dim(number_of, rules.position(axes), 1), ())
    aval = typeof(x)
    alone = [
        select(broadcast_in_dim(eq(own_group, np.int32(k)), aval.shape, ()), x, zeros(aval))
        for k in range(len(groups))
    ]
    rows = concatenate([reshape(y, (1, *aval.shape)) for y in alone], 0)
    return squeeze(
        dynamic_slice_in_dim(
            rules.psum_p.bind(rows, axes=axes, axis_index_groups=None), own_group, 1
        ),
        (0,),
    )


def bind_over(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Bind a collective.

    Over several axes, a collective with groups or with a rule `several` is made of other
    collectives.
    """
    if len(collective_axes(params)) == 1:
        return primitive.bind(*args, **params)
    several = primitive.several
    if several is not None:
        return several(*args, **params)
    return (
        primitive.bind(*args, **params)
        if params.get("axis_index_groups") is None
        else _reduce_in_groups(primitive, *args, **params)
    )


def _reduce_in_groups(
    primitive: Primitive, x: Any, *, axes: rules.Axes, axis_index_groups: Groups
) -> Any:
    """Return the result of `primitive` on the values of the own group.

    It is equal for all members of the group.
    """
    rows = _rows_of_group(x, axes, axis_index_groups)
    axis = BatchAxis(len(axis_index_groups[0]), axes[0])
    return spec_of(primitive).stacked(axis, rows, 0, axes=(axis.name,), axis_index_groups=None)[0]


def _register_grouped(primitive: Primitive) -> Callable[..., Any]:
    """Return a decorator that registers the form of `primitive` with groups over several axes."""

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        def several(x: Value, **params: Any):
            return (
                fn(x, **params)
                if params["axis_index_groups"] is not None
                else primitive.bind(x, **params)
            )

        primitive.several = several
        return fn

    return define


@_register_grouped(rules.all_gather_p)
def _all_gather(
    x: Value,
    *,
    all_gather_dimension: int,
    axis_name: rules.Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups,
):
    return _place_dim(_rows_of_group(x, axis_name, axis_index_groups), all_gather_dimension, tiled)


@_register_grouped(rules.reduce_scatter_p)
def _reduce_scatter(
    x: Value,
    *,
    scatter_dimension: int,
    axis_name: rules.Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups,
):
    total = reduce_sum(
        _exchange_blocks_in_group(x, axis_name, axis_index_groups, scatter_dimension), (0,)
    )
    return total if tiled else squeeze(total, (scatter_dimension,))


@_register_grouped(rules.all_to_all_p)
def _all_to_all(
    x: Value,
    *,
    split_axis: int,
    concat_axis: int,
    axis_name: rules.Axes,
    axis_size: int,
    tiled: bool,
    axis_index_groups: Groups,
):
    return _place_dim(
        _exchange_blocks_in_group(x, axis_name, axis_index_groups, split_axis), concat_axis, True
    )


def _place_dim(rows: Any, dim: int, tiled: bool) -> Any:
    """Move dim 0 of `rows` to dim `dim`; if `tiled`, merge it there as the major part."""
    y = move_dim(rows, 0, dim)
    if not tiled:
        return y
    shape = typeof(y).shape
    return reshape(y, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def _rows_of_group(x: Any, axes: rules.Axes, groups: Groups) -> Any:
    """Return the values of all members of the own group, in group order, along a new dim 0."""
    size = len(groups[0])
    rounds = [_receive_from_member(x, axes, groups, r) for r in range(size)]
    return _order_by_sender(rounds, _index_in_group(axes, groups), size)


def _exchange_blocks_in_group(x: Any, axes: rules.Axes, groups: Groups, dim: int) -> Any:
    """Return the blocks of dim `dim` that the members of the own group send here.

    They are stacked along a new dim 0.
    """
    size = len(groups[0])
    own = _index_in_group(axes, groups)
    block = typeof(x).shape[dim] // size

    def part(r: int):
        member = rem(add(own, np.int32(r)), np.int32(size))
        return dynamic_slice_in_dim(x, mul(member, np.int32(block)), block, dim)

    return _order_by_sender(
        [_receive_from_member(part(r), axes, groups, r) for r in range(size)], own, size
    )


def _index_in_group(axes: rules.Axes, groups: Groups) -> Any:
    """Return this position's index in its group."""
    place = {i: k for members in groups for k, i in enumerate(members)}
    table = np.array([place[i] for i in range(len(place))], np.int32)
    return reshape(dynamic_slice_in_dim(table, rules.position(axes), 1), ())


def _receive_from_member(x: Any, axes: rules.Axes, groups: Groups, r: int) -> Any:
    """Return the value of the member `r` positions before this one in the group."""
    if r == 0:
        return x
    perm = tuple(
        (i, members[(k + r) % len(members)]) for members in groups for k, i in enumerate(members)
    )
    return rules.ppermute_p.bind(x, axis_name=axes, perm=perm)


def _order_by_sender(rounds: list[Any], own: Any, size: int) -> Any:
    """Return values received in rounds 0, 1, ..., reordered by the sender's index in the group."""
    rows = concatenate([reshape(y, (1, *typeof(y).shape)) for y in rounds], 0)
    sender = iota(np.int32, size)
    return take_rows(rows, rem(sub(add(own, np.int32(size)), sender), np.int32(size)))
