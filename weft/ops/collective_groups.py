"""Groups of positions: what is checked of `axis_index_groups`, and exchanges within groups over several axes.

A collective over one axis knows groups itself. Groups of positions along several axes need not follow any of them, so
there a collective is made of permutations: in round r everyone sends to the member r places further in the group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.trace import typeof
from weft.ops.collective_rules import Axes, axes_size, position, ppermute_p, take_rows
from weft.ops.elementwise import add, mul, rem, sub
from weft.ops.layout import iota, reshape
from weft.ops.slicing import concatenate, dynamic_slice_in_dim

Groups = tuple[tuple[int, ...], ...]


def checked_groups(api: str, axes: Axes, groups: Any) -> Groups | None:
    """`groups` as tuples; ValueError unless they are of one size and hold every position along `axes` once."""
    if groups is None:
        return None
    found = tuple(tuple(int(i) for i in members) for members in groups)
    size = axes_size(axes)
    if sorted(i for members in found for i in members) != list(range(size)):
        raise ValueError(
            f"{api}: axis_index_groups must hold each of the {size} positions along {axes} exactly once, got {found}."
        )
    if len({len(members) for members in found}) > 1:
        raise ValueError(
            f"{api}: axis_index_groups must be of one size, got groups of {[len(m) for m in found]} positions: {found}. "
            "Results would differ in shape or meaning between groups; pad the groups, or mask what does not count."
        )
    return found


def rows_of_group(x: Any, axes: Axes, groups: Groups) -> Any:
    """The values of all members of the own group, in its order, along a new dim 0."""
    size = len(groups[0])
    rounds = [_sent(x, axes, groups, r) for r in range(size)]
    return _in_order(rounds, _own_place(axes, groups), size)


def received(x: Any, axes: Axes, groups: Groups, dim: int) -> Any:
    """Of every member of the own group, in its order along a new dim 0, the block of dim `dim` that is for this one."""
    size = len(groups[0])
    own = _own_place(axes, groups)
    block = typeof(x).shape[dim] // size

    def part(r):
        member = rem(add(own, np.int32(r)), np.int32(size))
        return dynamic_slice_in_dim(x, mul(member, np.int32(block)), block, dim)

    return _in_order([_sent(part(r), axes, groups, r) for r in range(size)], own, size)


def _own_place(axes: Axes, groups: Groups) -> Any:
    """This position's place in its group."""
    place = {i: k for members in groups for k, i in enumerate(members)}
    table = np.array([place[i] for i in range(len(place))], np.int32)
    return reshape(dynamic_slice_in_dim(table, position(axes), 1), ())


def _sent(x: Any, axes: Axes, groups: Groups, r: int) -> Any:
    """What comes from the member r places before in the group."""
    if r == 0:
        return x
    perm = tuple((i, members[(k + r) % len(members)]) for members in groups for k, i in enumerate(members))
    return ppermute_p.bind(x, axis_name=axes, perm=perm)


def _in_order(rounds: list, own: Any, size: int) -> Any:
    """Values received in rounds 0, 1, ..., by the sender's place in the group."""
    rows = concatenate([reshape(y, (1, *typeof(y).shape)) for y in rounds], 0)
    sender = iota(np.int32, size)
    return take_rows(rows, rem(sub(add(own, np.int32(size)), sender), np.int32(size)))
