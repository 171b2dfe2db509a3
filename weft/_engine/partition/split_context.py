"""The interface of split rules while they compute the results of one device: `SplitContext`.

In:   an equation, the axes that split its special factors, and the partitioner.
Out:  sizes and positions of this device's blocks, the rows needed from other devices, and collectives, which are recorded.
Next: `partition.rules.split_rule` for the rules, `partition.rules.halo` for rows of other devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.collective_spec import collective_bytes
from weft._engine.ir.factors import axes_of_factors
from weft._engine.ops import collectives
from weft._engine.ops.arithmetic import mul
from weft._engine.ops.casting import convert_element_type
from weft._engine.partition.cost import Why
from weft._engine.partition.local_equations import Axes, mask_padding
from weft._engine.partition.reshard import Placement, ReshardStep
from weft._engine.partition.rules.split_rule import split_rule_of

if TYPE_CHECKING:
    from weft._engine.partition.rules.halo import Halo, Window


def _reduction(kind: str) -> Callable[[SplitContext, Any, Axes], Any]:
    """Return a method for a recorded reduction over devices."""

    def reduce(context: SplitContext, x: Any, axes: Axes) -> Any:
        context.record(kind, x, axes)
        return getattr(collectives, kind)(x, axes)

    return reduce


class SplitContext:
    """The interface of split rules: the split dims of operands, this device's position along them, collectives."""

    __slots__ = ("_halos", "_partitioner", "axes", "eqn", "rule")

    def __init__(self, partitioner: Any, eqn: Any, rule: Any, axes: dict[int, Axes]):
        self._partitioner = partitioner
        self._halos: Any = self
        self.eqn, self.rule, self.axes = eqn, rule, axes

    def of_dim(self, operand: int, dim: int) -> Axes:
        """Return the axes that split dim `dim` of operand `operand` and that the rule must handle; () if there are none."""
        return tuple(a for f in self.rule.ins[operand][dim] for a in self.axes.get(f, ()))

    def of_result(self, result: int, dim: int) -> Axes:
        """Return the axes that split dim `dim` of result `result` and that the rule must handle; () if there are none."""
        return tuple(a for f in self.rule.outs[result][dim] for a in self.axes.get(f, ()))

    def extent(self, operand: int, dim: int) -> int:
        """Return the size of dim `dim` of the whole operand `operand`."""
        return self.eqn.invars[operand].aval.shape[dim]

    def result_extent(self, result: int, dim: int) -> int:
        """Return the size of dim `dim` of the whole result `result`."""
        return self.eqn.outvars[result].aval.shape[dim]

    def block(self, size: int, axes: Axes) -> int:
        """Return the size of the blocks into which `axes` split a dim of `size`."""
        return -(-size // self.size(axes))

    def halo(self, operand: int, dim: int, axes: Axes, window: Window) -> Halo:
        """Return the halo of the rows of `window` along dim `dim` of an operand, which every device needs."""
        from weft._engine.partition.rules.halo import (
            Halo,  # rarely needed
        )

        return Halo(operand, dim, axes, self.extent(operand, dim), window)

    def halos(self) -> list[Halo] | None:
        """Return the halos that devices need of other blocks; None if they have no pattern."""
        if self._halos is self:
            split = split_rule_of(self.eqn.primitive)
            self._halos = (
                [] if split is None or split.halos is None else split.halos(self, **self.eqn.params)
            )
        return self._halos

    def bytes_sent(self, ins: Sequence[Placement]) -> float:
        """Return the bytes of the rows that a device sends to others if operands are placed as `ins`."""
        cost, partitioner = 0.0, self._partitioner
        for halo in (self.halos() or ()) if self.axes else ():
            if self.of_dim(halo.operand, halo.dim):
                from weft._engine.partition.rules.halo import rows_sent

                whole = partitioner.local_bytes(
                    self.eqn.invars[halo.operand].aval, ins[halo.operand]
                )
                row = whole / self.block(halo.size, halo.axes)
                cost += sum(
                    partitioner.cost.latency + count * row
                    for count in rows_sent(halo.window, self.size(halo.axes), halo.size)
                )
        return cost

    def common_window(self, halo: Halo) -> Window:
        """Return the window of rows of the halo's operand that cover the needs of all equations whose results should have the same blocks."""
        from weft._engine.partition.rules.halo import Window

        partitioner, var = self._partitioner, self.eqn.invars[halo.operand]
        specs, windows = partitioner.target_specs, [halo.window]
        for eqn in partitioner.partial_sums.readers.get(var, ()):
            rule = specs.rule(eqn) if split_rule_of(eqn.primitive) is not None else None
            if rule is None:
                continue
            for group in rule.groups:
                target = axes_of_factors(
                    rule.outs[0], specs.spec(eqn.outvars[0]), rule, specs.sizes
                )[0]
                if target.get(group[0]) == halo.axes:
                    halos = (
                        partitioner.context(eqn, rule, dict.fromkeys(group, halo.axes)).halos()
                        or ()
                    )
                    windows += [
                        other.window
                        for other in halos
                        if eqn.invars[other.operand] is var
                        and other.dim == halo.dim
                        and other.window.advance == halo.window.advance
                    ]
        first = min(w.first for w in windows)
        return Window(first, halo.window.advance, max(w.first + w.span for w in windows) - first)

    def fetched_rows(self, x: Any, halo: Halo) -> tuple[Window, Any] | None:
        """Return the window and the values of the widest rows fetched so far along the halo's dim of a local operand, or None."""
        return self._partitioner.fetched_rows.get((id(x), halo.dim, halo.axes), (None, None))[1]

    def keep_rows(self, x: Any, halo: Halo, window: Window, wide: Any) -> tuple[Window, Any]:
        """Cache fetched rows for other equations."""
        bounds = (window, wide)
        # the entry keeps `x` alive, so that its id is not reused
        self._partitioner.fetched_rows[id(x), halo.dim, halo.axes] = (
            x,
            bounds,
        )
        return bounds

    def fill_padding(self, x: Any, dim: int, axes: Axes, size: int, fill: Any) -> Any:
        """Return this device's block `x` of a dim of `size` elements, with `fill` in its padding."""
        return mask_padding(x, dim, axes, size, fill) if axes and size % self.size(axes) else x

    def size(self, axes: Axes) -> int:
        """Return the number of devices along `axes`."""
        return math.prod(self._partitioner.sizes[a] for a in axes)

    def start(self, axes: Axes, local: int, dtype: Any = np.int32) -> Any:
        """Return the global position of the first element of this device's block of `local` elements."""
        index = convert_element_type(collectives.axis_index(axes), dtype)
        return mul(index, np.asarray(local, dtype)[()])

    def record(self, kind: str, x: Any, axes: Axes) -> None:
        aval = typeof(x)
        nbytes = collective_bytes(kind, aval.nbytes, self.size(axes))
        reason = (
            f"{self.eqn.primitive} works along a dim that is split over {', '.join(map(str, axes))}"
        )
        why = Why("edges" if kind == "ppermute" else "along", reason, self.eqn)
        self._partitioner.record_collective(ReshardStep(kind, axes, nbytes=nbytes), x, why)

    def all_gather(self, x: Any, axes: Axes, dim: int) -> Any:
        """Return the blocks of all devices, concatenated along `dim`."""
        self.record("all_gather", x, axes)
        return collectives.all_gather(x, axes, axis=dim, tiled=True)

    def ppermute(self, x: Any, axes: Axes, perm: tuple[tuple[int, int], ...]) -> Any:
        """Return `x` of the device whose target is this one by `perm`; zeros if there is none."""
        self.record("ppermute", x, axes)
        return collectives.bind_ppermute(x, axes, perm)

    pmax, pmin, psum = map(_reduction, ("pmax", "pmin", "psum"))
