"""Prices: the cost of a collective over the axes of one mesh, and of a move between two layouts.

In:   the sizes of the axes, the cost model of the backend, and the links along the axes.
Out:  costs in bytes: what a device could send over the fastest axis in the same time.
Laws: the price of a move is the sum of its steps; a move to the same layout is free.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from weft._engine.ir.collective_spec import COLLECTIVES
from weft._engine.ir.jaxpr import Var
from weft._engine.partition.auto.machine_rates import Machine, collective_seconds
from weft._engine.partition.cost import DEFAULT, CollectiveRecord, CostModel
from weft._engine.partition.reshard import Placement, ReshardStep, plan
from weft._engine.util.record import record, replace

#: price of a slice of a local block: of two equal plans the one with fewer slices is cheaper
SLICE = 1.0


@record
class ReductionShares:
    """The number of collectives per all-reduce of a value: at most 1, because the partitioner combines them."""

    default: float = 1.0
    of_values: Mapping[Var, float] = MappingProxyType({})

    def of(self, values: Iterable[Var]) -> float:
        """Return the mean share of `values`."""
        shares = [self.of_values.get(v, self.default) for v in values]
        return sum(shares) / len(shares)


@record
class AxisLink:
    """The link along one mesh axis."""

    slowdown: float = 1.0  # seconds per byte, divided by the fastest axis' seconds per byte
    latency: float = 0.0  # of one collective, in bytes of the fastest axis


@record
class MeshLinks:
    """The links of a mesh: those along its axes, the seconds per byte of the fastest if they are known, and `Machine.overlap`."""

    of_axes: Mapping[Any, AxisLink] = MappingProxyType({})
    seconds_per_byte: float | None = None
    overlap: float = 0.0


class MeshPrices:
    """Prices on a mesh with axes of the given `sizes`. Axes without a link have the latency of `model`."""

    def __init__(
        self,
        sizes: Mapping[Any, int],
        model: CostModel = DEFAULT,
        mesh_links: MeshLinks | None = None,
        shares: ReductionShares | None = None,
    ):
        self.sizes, self.model = dict(sizes), model
        self.mesh_links = mesh_links or MeshLinks()
        default = AxisLink(1.0, model.latency)
        self.links = {a: self.mesh_links.of_axes.get(a, default) for a in sizes}
        self.shares = shares or ReductionShares()
        self._moves: dict[tuple[Any, ...], float] = {}

    @property
    def seconds_per_byte(self) -> float | None:
        """The seconds of a byte over the fastest axis, if they are known."""
        return self.mesh_links.seconds_per_byte

    @property
    def overlap(self) -> float:
        """The share of the price of a collective that work hides, where it can."""
        return self.mesh_links.overlap

    def collective(self, axes: Iterable[Any], nbytes: float) -> float:
        """Return the price of a collective over `axes` if each device sends `nbytes` bytes.

        Of several axes, a slower one carries blocks that faster ones have cut already.
        """
        if not nbytes:
            return 0.0
        over = tuple(axes) or tuple(self.sizes)
        links = sorted((self.links[a].slowdown, self.sizes[a]) for a in over)
        total = math.prod(n for _, n in links)
        price, inner = 0.0, 1
        for slowdown, n in links:
            price += slowdown * (1 - 1 / n) / inner
            inner *= n
        share = price / (1 - 1 / total) if total > 1 else 1.0
        return nbytes * share + max(self.links[a].latency for a in over)

    def move(
        self,
        source: Placement,
        target: Placement,
        shape: tuple[int, ...],
        itemsize: int,
        share: float = 1.0,
    ) -> float:
        """Return the price of moving a value of global `shape` from `source` to `target`.

        An all-reduce among the steps takes `share` of a collective.
        """
        if source == target:
            return 0.0
        key = (source, target, shape, itemsize, share)
        price = self._moves.get(key)
        if price is None:
            steps = plan(source, target, shape, itemsize, self.sizes, int(self.model.latency))
            price = self._moves[key] = sum(self._step(step, share) for step, _ in steps)
        return price

    def _step(self, step: ReshardStep, share: float) -> float:
        spec = COLLECTIVES[step.kind]
        if spec.is_local:
            return SLICE
        price = self.collective(step.axes, step.nbytes)
        if spec.completes:
            price -= (1 - share) * max(self.links[a].latency for a in step.axes)
        return price

    def with_shares(self, shares: ReductionShares) -> MeshPrices:
        """Return the prices where all-reduces take `shares` of collectives."""
        return MeshPrices(self.sizes, self.model, self.mesh_links, shares)

    def on_parts(self, sizes: Mapping[Any, int]) -> MeshPrices:
        """Return the prices on a mesh that has parts of the axes instead, in the same order, with their links."""
        if dict(sizes) == self.sizes:
            return self
        links: dict[Any, AxisLink] = {}
        own = iter(self.sizes.items())
        size_left, link = 1, AxisLink()
        for part, n in sizes.items():
            if size_left == 1:
                axis, size_left = next(own)
                link = self.links[axis]
            links[part] = link
            size_left //= n
        return MeshPrices(sizes, self.model, replace(self.mesh_links, of_axes=links), self.shares)

    def of_records(self, records: Iterable[CollectiveRecord]) -> float:
        """Return the price of the collectives of a partitioned program."""
        return sum(r.count * self.collective(r.axes, r.bytes_per_device) for r in records)

    def of_moves(self, records: Iterable[CollectiveRecord], values: Container[Var]) -> float:
        """Return the part of the price of collectives that moves `values`; combined collectives share a latency."""
        total = 0.0
        for r in records:
            parts = r.parts or (r,)
            latency = max(self.links[a].latency for a in r.axes) * (1 - 1 / len(parts))
            total += r.count * sum(
                self.collective(r.axes, part.bytes_per_device) - latency
                for part in parts
                if part.value in values
            )
        return total


def prices_on(
    sizes: Mapping[Any, int], machine: Machine | None, model: CostModel, dtype: str = "float32"
) -> MeshPrices:
    """Return the prices on a mesh of a machine's devices, whose numbers are row-major; without a machine, the prices of `model`.

    `dtype` is the products' dtype.
    """
    if machine is None:
        return MeshPrices(sizes, model)
    links: dict[Any, tuple[float, float]] = {}
    stride = math.prod(sizes.values())
    for axis, n in sizes.items():
        stride //= n
        links[axis] = _link(machine, n, stride)
    fastest = min((rate for rate, _ in links.values() if rate), default=0.0)
    rate = fastest or 1 / (machine.link_bandwidth * machine.link_efficiency)
    relative = {
        axis: AxisLink(seconds / rate if seconds else 1.0, latency / rate)
        for axis, (seconds, latency) in links.items()
    }
    own = CostModel(
        latency=max(1, round(min(link.latency for link in relative.values()))),
        flops_per_byte=max(1, round(machine.flops(dtype) * machine.matmul_efficiency * rate)),
        repeated_flops_per_byte=model.repeated_flops_per_byte,
        repeated_latency=model.repeated_latency,
        local_bytes_per_byte=max(
            1, round(machine.memory_bandwidth * machine.memory_efficiency * rate)
        ),
    )
    return MeshPrices(sizes, own, MeshLinks(relative, rate, machine.overlap))


def _link(machine: Machine, count: int, stride: int) -> tuple[float, float]:
    """Return the seconds per byte that a device sends along an axis, and the seconds that a collective starts."""
    if count <= 1:
        return 0.0, 0.0
    large = 1e12
    latency = collective_seconds(machine, "all_gather", 1.0, count, stride)
    seconds = collective_seconds(machine, "all_gather", large, count, stride) - latency
    return seconds / (large * (count - 1) / count), latency
