"""Local equations for the steps of a plan, and helpers with which ops state how they run on split dims.

An op that can do better on a split dim than to have it gathered fills three slots:

  can_split(f, rule, eqn) -> bool          whether it knows how to run with factor `f` split
  split(ctx, args, **params) -> out(s)     the local computation, written with ordinary ops and collectives
  split_sums(f, rule, axes) -> bool        whether the results are then partial sums over the axes of `f`

`ops.local` says more about these and names the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.trace import typeof
from weft.ir.collective_spec import collective_bytes
from weft.ir.types import ShapedArray
from weft.ops import arithmetic, collectives, comparison, layout, slicing
from weft.ops.arithmetic import mul
from weft.ops.casting import convert_element_type
from weft.partition.cost import Why
from weft.partition.reshard import Step

if TYPE_CHECKING:
    from weft.ops.halo import Need, Window

Axes = tuple[Any, ...]


def aval_of(x: Any) -> ShapedArray:
    """The type of a local value."""
    return typeof(x)


def pending(x: Any, axes: Axes) -> Any:
    """A whole value as a pending sum over `axes`: itself on the first device along them, zeros elsewhere."""
    first = comparison.eq(collectives.axis_index(axes), np.int32(0))
    aval = typeof(x)
    return comparison.select_n(first, layout.full(aval.shape, 0, aval.dtype), x)


def step(move: Step, x: Any, n: int, after: tuple[int, ...]) -> Any:
    """The local result of shape `after` of one step of a resharding plan on local `x`, along axes of `n` devices.

    What is cut into uneven blocks is padded first; what padded blocks are gathered to is cut off last.
    """
    kind, axes = move.kind, move.axes
    if kind == "own_slice":
        return collectives.own_slice(_lengthened(x, move.dim, n * after[move.dim]), axes, move.dim)
    if kind == "psum":
        return collectives.psum(x, axes)
    if kind == "all_gather":
        return _shortened(collectives.all_gather(x, axes, axis=move.dim, tiled=True), move.dim, after[move.dim])
    if kind == "reduce_scatter":
        x = _lengthened(x, move.dim, n * after[move.dim])
        return collectives.psum_scatter(x, axes, scatter_dimension=move.dim, tiled=True)
    if kind == "all_to_all":
        x = _lengthened(x, move.target, n * after[move.target])
        x = collectives.all_to_all(x, axes, split_axis=move.target, concat_axis=move.dim, tiled=True)
        return _shortened(x, move.dim, after[move.dim])
    if kind == "ppermute":
        return collectives.ppermute(x, axes, list(move.perm))
    raise ValueError(f"unknown step {kind!r}")


def _lengthened(x: Any, dim: int, size: int) -> Any:
    """`x` with zeros at the end of `dim` up to `size`."""
    aval = typeof(x)
    config = [(0, size - s, 0) if d == dim else (0, 0, 0) for d, s in enumerate(aval.shape)]
    return slicing.pad(x, np.zeros((), aval.dtype)[()], config)


def _shortened(x: Any, dim: int, size: int) -> Any:
    """The first `size` elements of `x` along `dim`."""
    return slicing.slice_in_dim(x, 0, size, 1, dim)


def masked(x: Any, dim: int, axes: Axes, size: int, fill: Any) -> Any:
    """Local `x` with `fill` in place of what lies behind the `size` elements of a dim that `axes` split unevenly."""
    aval = typeof(x)
    local = aval.shape[dim]
    index = collectives.axis_index(axes)
    left = arithmetic.sub(np.int32(size), mul(index, np.int32(local)))
    inside = comparison.lt(layout.broadcasted_iota(np.int32, aval.shape, dim), left)
    return comparison.select_n(inside, layout.full(aval.shape, fill, aval.dtype), x)


class SplitContext:
    """What a `split` rule may ask: which dims of operands are split, this device's place along them, collectives."""
    __slots__ = ("_needs", "_partitioner", "axes", "eqn", "rule")

    def __init__(self, partitioner: Any, eqn: Any, rule: Any, axes: dict[int, Axes]):
        self._partitioner = partitioner
        self._needs: Any = self
        self.eqn, self.rule, self.axes = eqn, rule, axes

    def of_dim(self, operand: int, dim: int) -> Axes:
        """The axes that split dim `dim` of operand `operand` and that the rule must deal with; () if none."""
        return tuple(a for f in self.rule.ins[operand][dim] for a in self.axes.get(f, ()))

    def of_result(self, result: int, dim: int) -> Axes:
        """The axes that split dim `dim` of result `result` and that the rule must deal with; () if none."""
        return tuple(a for f in self.rule.outs[result][dim] for a in self.axes.get(f, ()))

    def extent(self, operand: int, dim: int) -> int:
        """The size of dim `dim` of the whole operand `operand`."""
        return self.eqn.invars[operand].aval.shape[dim]

    def result_extent(self, result: int, dim: int) -> int:
        """The size of dim `dim` of the whole result `result`."""
        return self.eqn.outvars[result].aval.shape[dim]

    def block(self, size: int, axes: Axes) -> int:
        """The size of the blocks into which `axes` cut a dim of `size`."""
        return -(-size // self.size(axes))

    def need(self, operand: int, dim: int, axes: Axes, window: Window) -> Need:
        """That every device needs the rows of `window` of dim `dim` of an operand."""
        from weft.ops.halo import Need  # most programs need no rows of other devices

        return Need(operand, dim, axes, self.extent(operand, dim), window)

    def needs(self) -> list[Need] | None:
        """What the devices need of others' blocks; None if it falls into no pattern."""
        if self._needs is self:
            find = self.eqn.primitive.rules.get("windows")
            self._needs = [] if find is None else find(self, **self.eqn.params)
        return self._needs

    def reach(self, need: Need) -> Window:
        """The rows of the own block and its neighbours that this and other equations need of an operand's dim."""
        from weft.partition.borders import reach

        return reach(self._partitioner, self.eqn.invars[need.operand], need)

    def fetched(self, x: Any, need: Need) -> tuple[Window, Any] | None:
        """The widest rows fetched so far along the dim of a local operand, and where they lie."""
        return self._partitioner.edges.get((id(x), need.dim, need.axes), (None, None))[1]

    def keep(self, x: Any, need: Need, window: Window, wide: Any) -> tuple[Window, Any]:
        """Remember rows that were fetched."""
        found = (window, wide)
        self._partitioner.edges[id(x), need.dim, need.axes] = (x, found)     # `x` is kept: its id stays its own
        return found

    def masked(self, x: Any, dim: int, axes: Axes, size: int, fill: Any) -> Any:
        """This device's block `x` of a dim of `size` elements, with `fill` where the block is padded."""
        return masked(x, dim, axes, size, fill) if axes and size % self.size(axes) else x

    def size(self, axes: Axes) -> int:
        """Number of devices along `axes`."""
        return math.prod(self._partitioner.sizes[a] for a in axes)

    def start(self, axes: Axes, local: int, dtype: Any = np.int32) -> Any:
        """Global position of the first element of this device's block of `local` elements."""
        index = convert_element_type(collectives.axis_index(axes), dtype)
        return mul(index, np.asarray(local, dtype)[()])

    def _record(self, kind: str, x: Any, axes: Axes) -> None:
        aval = typeof(x)
        nbytes = collective_bytes(kind, aval.nbytes, self.size(axes))
        reason = f"{self.eqn.primitive} works along a dim that is split over {', '.join(map(str, axes))}"
        why = Why("edges" if kind == "ppermute" else "along", reason, self.eqn)
        self._partitioner.record(Step(kind, axes, nbytes=nbytes), x, why)

    def all_gather(self, x: Any, axes: Axes, dim: int) -> Any:
        """The blocks of all devices, concatenated along `dim`."""
        self._record("all_gather", x, axes)
        return collectives.all_gather(x, axes, axis=dim, tiled=True)

    def ppermute(self, x: Any, axes: Axes, perm: list[tuple[int, int]]) -> Any:
        """What the device that names this one as its target sends; zeros if none does."""
        self._record("ppermute", x, axes)
        return collectives.ppermute(x, axes, perm)

    def pmax(self, x: Any, axes: Axes) -> Any:
        self._record("pmax", x, axes)
        return collectives.pmax(x, axes)

    def pmin(self, x: Any, axes: Axes) -> Any:
        self._record("pmin", x, axes)
        return collectives.pmin(x, axes)

    def psum(self, x: Any, axes: Axes) -> Any:
        self._record("psum", x, axes)
        return collectives.psum(x, axes)


