"""Collectives as records: all that one collective is, stated once.

In:   a `CollectiveSpec` per collective, from `ops.collective_rules` and `ops.ragged_exchange`.
Out:  the rules of its primitive; and what others read here: the partitioner (bytes, which reduction it completes), the
      HLO and StableHLO texts, `explain`, and the backends that carry collectives out (`carry_out`).
Laws: several axes count as one, the first being the major one; `axis_index_groups` are lists of such positions, and only
      positions of one group exchange values. No other file keeps a table of collectives.
Next: `ops.collective_rules`; `docs/adding-a-collective.md` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.util.record import record
from weft._engine.util.trees.narrowing import is_tuple_or_list


@record
class CollectiveSpec:
    """One collective. Functions get the equation's params by name.

    `type(*avals, **params)` gives the type of the result. `stacked(axis, x, dim, **params) -> (result, its dim)` is the
    meaning over one of the axes, which is dim `dim` of `x` (None: all positions have the same `x`): ordinary operations, and
    the collective again over the other axes. `exchange(operands, **params)` is the meaning in NumPy: from the operand of
    every position of a group (a tuple of operands if there are several), in order, the result of every position.
    """

    name: str
    type: Callable[..., Any]
    stacked: Callable[..., Any]
    exchange: Callable[..., Sequence[np.ndarray]]
    bytes: Callable[[int, int], int] | None = (
        None  # sent by each of n devices, by the bytes they hold; None: nothing is sent
    )
    dims: tuple[
        str, ...
    ] = ()  # params that number a dim of the operand; these dims are never split by other axes
    factors: Callable[..., Any] | None = (
        None  # sharding rule over other axes; None: elementwise but for `dims`
    )
    jvp: Callable[..., Any] | None = None  # None: linear
    transpose: Callable[..., Any] | None = None  # None: not linear, so there is none
    completes: tuple[
        str, ...
    ] = ()  # the reductions along a split dim that this completes; it takes several values at once
    hlo: str = ""  # its HLO instruction, and in StableHLO with underscores
    to_apply: str = ""  # the HLO computation by which it combines values
    kind: str = ""  # what `explain` counts it as; its own name if empty
    aliases: tuple[str, ...] = ()  # other names that `explain` understands

    @property
    def counted_as(self) -> str:
        """The kind under which records and `explain` list it."""
        return self.kind or self.name

    @property
    def is_local(self) -> bool:
        """Whether a position needs nothing of the others."""
        return self.bytes is None

    @property
    def reduces(self) -> bool:
        """Whether it combines the values of several positions."""
        return bool(self.to_apply)


#: every collective by its name, in the order of their definition
COLLECTIVES: dict[str, CollectiveSpec] = {}
#: the collective that completes a reduction along a split dim, by the operation that reduces
COMPLETED_BY: dict[str, CollectiveSpec] = {}


def register(spec: CollectiveSpec) -> None:
    """Add a collective to the tables."""
    COLLECTIVES[spec.name] = spec
    COMPLETED_BY.update(dict.fromkeys(spec.completes, spec))


def spec_of(primitive: Any) -> CollectiveSpec:
    """The record of a collective primitive, which it holds in its slot `collective`."""
    return primitive.collective


def collective_axes(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Names of the axes that a collective equation with `params` works over."""
    axes = params["axes"] if "axes" in params else params["axis_name"]
    return tuple(axes) if is_tuple_or_list(axes) else (axes,)


def collective_bytes(kind: str, nbytes: int, n: int) -> int:
    """Bytes that a device sends when `n` devices, holding `nbytes` each, perform the collective `kind`.

    >>> [collective_bytes(kind, 1024, 4) for kind in ("psum", "all_gather", "own_slice")]
    [1536, 3072, 0]
    """
    spec = COLLECTIVES.get(kind)
    if spec is None:
        raise ValueError(f"unknown collective {kind!r}")
    return 0 if spec.bytes is None or n <= 1 else spec.bytes(nbytes, n)


def carry_out(
    primitive: Any, operands: Sequence[Sequence[np.ndarray]], params: Mapping[str, Any]
) -> list[list[np.ndarray]]:
    """The results of a collective at all positions along its axes, from the operands that each position has, in NumPy.

    Several axes count as one. One that reduces several values at once gives a result for each.

    >>> x = [[np.float32(i)] for i in range(4)]
    >>> [float(y) for (y,) in carry_out(lax.psum_p, x, dict(axes=("i",), axis_index_groups=((0, 3), (1, 2))))]
    [3.0, 3.0, 3.0, 3.0]
    """
    spec = spec_of(primitive)
    if primitive.multiple_results:
        columns = [_in_groups(spec, [(x,) for x in column], params) for column in zip(*operands)]
        return [list(results) for results in zip(*columns)]
    return [[y] for y in _in_groups(spec, operands, params)]


def _in_groups(
    spec: CollectiveSpec, operands: Sequence[Sequence[np.ndarray]], params: Mapping[str, Any]
) -> list[np.ndarray]:
    given = [x[0] if len(x) == 1 else tuple(x) for x in operands]
    results: list[Any] = [None] * len(given)
    with np.errstate(all="ignore"):
        for group in params.get("axis_index_groups") or (range(len(given)),):
            for position, y in zip(group, spec.exchange([given[i] for i in group], **params)):
                results[position] = np.asarray(y)
    return results
