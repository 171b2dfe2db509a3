"""Local equations for the steps of a plan, and helpers with which ops state how they run on split dims.

An op that can do better on a split dim than to have it gathered fills three slots:

  can_split(f, rule, eqn) -> bool          whether it knows how to run with factor `f` split
  split(ctx, args, **params) -> out(s)     the local computation, written with ordinary ops and collectives
  split_sums(f, rule, axes) -> bool        whether the results are then partial sums over the axes of `f`
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.trace import typeof
from weft.ir.types import ShapedArray
from weft.ops import collectives, comparison, layout
from weft.ops.arithmetic import mul
from weft.ops.casting import convert_element_type
from weft.partition.cost import collective_bytes
from weft.partition.reshard import Step

Axes = tuple[Any, ...]

#: the collectives that a user may ask for, and as which of the planner's moves each is counted
BYTES_AS = {"psum": "psum", "pmax": "psum", "pmin": "psum", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
            "all_to_all": "all_to_all", "ppermute": "ppermute"}


def aval_of(x: Any) -> ShapedArray:
    """The type of a local value."""
    return typeof(x)


def psum(x: Any, axes: Axes) -> Any:
    """The sum over all devices along `axes`."""
    return collectives.psum(x, axes)


def pmax(x: Any, axes: Axes) -> Any:
    """The maximum over all devices along `axes`."""
    return collectives.pmax(x, axes)


def pmin(x: Any, axes: Axes) -> Any:
    """The minimum over all devices along `axes`."""
    return collectives.pmin(x, axes)


def pending(x: Any, axes: Axes) -> Any:
    """A whole value as a pending sum over `axes`: itself on the first device along them, zeros elsewhere."""
    first = comparison.eq(collectives.axis_index(axes), np.int32(0))
    aval = typeof(x)
    return comparison.select_n(first, layout.full(aval.shape, 0, aval.dtype), x)


def step(move: Step, x: Any) -> Any:
    """The local result of one step of a resharding plan on local `x`."""
    kind, axes = move.kind, move.axes
    if kind == "own_slice":
        return collectives.own_slice(x, axes, move.dim)
    if kind == "psum":
        return psum(x, axes)
    if kind == "all_gather":
        return collectives.all_gather(x, axes, axis=move.dim, tiled=True)
    if kind == "reduce_scatter":
        return collectives.psum_scatter(x, axes, scatter_dimension=move.dim, tiled=True)
    if kind == "all_to_all":
        return collectives.all_to_all(x, axes, split_axis=move.target, concat_axis=move.dim, tiled=True)
    if kind == "ppermute":
        return collectives.ppermute(x, axes, list(move.perm))
    raise ValueError(f"unknown step {kind!r}")


class SplitContext:
    """What a `split` rule may ask: which dims of operands are split, this device's place along them, collectives."""
    __slots__ = ("_partitioner", "axes", "eqn", "rule")

    def __init__(self, partitioner: Any, eqn: Any, rule: Any, axes: dict[int, Axes]):
        self._partitioner = partitioner
        self.eqn, self.rule, self.axes = eqn, rule, axes

    def of_dim(self, operand: int, dim: int) -> Axes:
        """The axes that split dim `dim` of operand `operand` and that the rule must deal with; () if none."""
        return tuple(a for f in self.rule.ins[operand][dim] for a in self.axes.get(f, ()))

    def of_result(self, result: int, dim: int) -> Axes:
        """The axes that split dim `dim` of result `result` and that the rule must deal with; () if none."""
        return tuple(a for f in self.rule.outs[result][dim] for a in self.axes.get(f, ()))

    def size(self, axes: Axes) -> int:
        """Number of devices along `axes`."""
        return math.prod(self._partitioner.sizes[a] for a in axes)

    def start(self, axes: Axes, local: int, dtype: Any = np.int32) -> Any:
        """Global position of the first element of this device's block of `local` elements."""
        index = convert_element_type(collectives.axis_index(axes), dtype)
        return mul(index, np.asarray(local, dtype)[()])

    def _record(self, kind: str, x: Any, axes: Axes, bytes_kind: str | None = None) -> None:
        aval = typeof(x)
        nbytes = collective_bytes(bytes_kind or kind, aval.nbytes, self.size(axes))
        reason = f"{self.eqn.primitive} works along a dim that is split over {', '.join(map(str, axes))}"
        self._partitioner.record(Step(kind, axes, nbytes=nbytes), x, reason)

    def all_gather(self, x: Any, axes: Axes, dim: int) -> Any:
        """The blocks of all devices, concatenated along `dim`."""
        self._record("all_gather", x, axes)
        return collectives.all_gather(x, axes, axis=dim, tiled=True)

    def ppermute(self, x: Any, axes: Axes, perm: list[tuple[int, int]]) -> Any:
        """What the device that names this one as its target sends; zeros if none does."""
        self._record("ppermute", x, axes)
        return collectives.ppermute(x, axes, perm)

    def pmax(self, x: Any, axes: Axes) -> Any:
        self._record("pmax", x, axes, "psum")
        return pmax(x, axes)

    def pmin(self, x: Any, axes: Axes) -> Any:
        self._record("pmin", x, axes, "psum")
        return pmin(x, axes)

    def psum(self, x: Any, axes: Axes) -> Any:
        self._record("psum", x, axes)
        return psum(x, axes)


