"""Collectives as records: the complete definition of each collective, in one place.

In:   a `CollectiveSpec` per collective, from `ops.collective_rules` and `ops.ragged_all_to_all`.
Out:  the rules of the collective's primitive, and data for the partitioner (bytes, completed reductions), the HLO and StableHLO
      printers, `explain`, and backends that compute collectives on NumPy (`evaluate_collective`).
Laws: several axes are treated as one axis, with the first axis as the major one. `axis_index_groups` are lists of positions along it; only
      positions of one group exchange values. No other module has a table of collectives.
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
    """The definition of one collective. Its functions take the equation's params as keyword arguments.

    `type(*avals, **params)` returns the type of the result. `stacked(axis, x, dim, **params) -> (result, its dim)` computes the collective
    over one of its axes if the positions along the axis are the dim `dim` of `x` (None: all positions have the same `x`): it binds
    ordinary operations, and the collective over the other axes. `exchange(operands, **params)` computes the collective on
    NumPy. It takes the operands of all positions of a group, in order (a tuple if there are several operands), and returns
    the result of every position.
    """

    name: str
    type: Callable[..., Any]
    stacked: Callable[..., Any]
    exchange: Callable[..., Sequence[np.ndarray]]
    #: (bytes per device, n) -> the bytes that each of n devices sends; None: no communication
    bytes: Callable[[int, int], int] | None = None
    #: params that are a dim of the operand; these dims are never sharded over other axes
    dims: tuple[str, ...] = ()
    #: the factor rule for sharding over other axes; None: elementwise, except for `dims`
    factors: Callable[..., Any] | None = None
    #: None: the collective is linear
    jvp: Callable[..., Any] | None = None
    #: None: the collective is not linear and cannot be transposed
    transpose: Callable[..., Any] | None = None
    #: the reductions along a sharded dim that this collective completes; it takes several values at once
    completes: tuple[str, ...] = ()
    #: the HLO instruction; the StableHLO operation has underscores instead of hyphens
    hlo: str = ""
    #: the HLO computation that combines values
    to_apply: str = ""
    #: the name under which `explain` counts the collective; the collective's own name if empty
    kind: str = ""
    #: other names that `explain` accepts
    aliases: tuple[str, ...] = ()

    @property
    def counted_as(self) -> str:
        """The name under which records and `explain` list the collective."""
        return self.kind or self.name

    @property
    def is_local(self) -> bool:
        """Whether no values are exchanged between positions."""
        return self.bytes is None

    @property
    def reduces(self) -> bool:
        """Whether the collective combines the values of several positions."""
        return bool(self.to_apply)


#: name -> collective, in the order of their definition
COLLECTIVES: dict[str, CollectiveSpec] = {}
#: name of a reduction -> the collective that completes it along a sharded dim
COMPLETED_BY: dict[str, CollectiveSpec] = {}


def register(spec: CollectiveSpec) -> None:
    """Add a collective to the tables."""
    COLLECTIVES[spec.name] = spec
    COMPLETED_BY.update(dict.fromkeys(spec.completes, spec))


def spec_of(primitive: Any) -> CollectiveSpec:
    """Return the record of a collective primitive, its attribute `collective`."""
    return primitive.collective


def collective_axes(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the names of the axes of a collective equation with the given params."""
    axes = params["axes"] if "axes" in params else params["axis_name"]
    return tuple(axes) if is_tuple_or_list(axes) else (axes,)


def collective_bytes(kind: str, nbytes: int, n: int) -> int:
    """Return the bytes that each device sends when `n` devices with `nbytes` each perform the collective `kind`.

    >>> [collective_bytes(kind, 1024, 4) for kind in ("psum", "all_gather", "own_slice")]
    [1536, 3072, 0]
    """
    spec = COLLECTIVES.get(kind)
    if spec is None:
        raise ValueError(f"unknown collective {kind!r}")
    return 0 if spec.bytes is None or n <= 1 else spec.bytes(nbytes, n)


def evaluate_collective(
    primitive: Any, operands: Sequence[Sequence[np.ndarray]], params: Mapping[str, Any]
) -> list[list[np.ndarray]]:
    """Compute a collective on NumPy: return the results of all positions along its axes, given the operands of each position.

    Several axes are treated as one axis. A collective that reduces several values at once returns a result for each.

    >>> x = [[np.float32(i)] for i in range(4)]
    >>> [float(y) for (y,) in evaluate_collective(lax.psum_p, x, dict(axes=("i",), axis_index_groups=((0, 3), (1, 2))))]
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
    values = [x[0] if len(x) == 1 else tuple(x) for x in operands]
    results: list[Any] = [None] * len(values)
    with np.errstate(all="ignore"):
        for group in params.get("axis_index_groups") or (range(len(values)),):
            for position, y in zip(group, spec.exchange([values[i] for i in group], **params)):
                results[position] = np.asarray(y)
    return results
