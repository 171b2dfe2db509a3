"""Prices of ways to shard a program, side by side.

In:   a `Decision` of automatic sharding, and input shardings to compare with.
Out:  a `LayoutCost` each: the price of the program that the partitioner makes, bytes sent, peak memory, collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.known_layouts import known_specs
from weft._engine.partition.auto.partitioning import Decision
from weft._engine.partition.auto.realized import price_of
from weft._engine.partition.partition import PartitionResult, partition
from weft._engine.util.record import record
from weft.tools.automatic.device_memory import device_peak


@record
class LayoutCost:
    """The cost of a program: `price` in `unit`, bytes that a device sends, its peak memory in bytes, and collectives by kind."""

    price: float
    unit: str
    bytes_sent: int
    peak: int
    collectives: Mapping[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(self.collectives.items()))
        return (
            f"{spell_price(self.price, self.unit)}, sends {spell_bytes(self.bytes_sent)}, "
            f"holds {spell_bytes(self.peak)}; {counts or 'no collectives'}"
        )


def cost_of(decision: Decision, result: PartitionResult) -> LayoutCost:
    """Return the cost of a partitioned program."""
    price, unit = price_of(result, decision.prices), "B"
    seconds = decision.prices.seconds_per_byte
    if seconds is not None:
        price, unit = price * seconds, "s"
    peak = device_peak(result, decision.donated)
    return LayoutCost(price, unit, result.bytes_sent, peak, result.counts)


def cost_of_inputs(decision: Decision, mesh: Mesh, in_specs: Sequence[Spec | None]) -> LayoutCost:
    """Return the cost with given shardings of arguments; tied results follow them, others are found by propagation."""
    outs: list[Spec | None] = list(decision.given_specs.out_specs)
    for out, argument in decision.given_specs.ties.items():
        outs[out] = in_specs[argument]
    result = partition(decision.program, mesh, in_specs, outs, decision.prices.model)
    return cost_of(decision, result)


def known_layouts(decision: Decision, mesh: Mesh) -> dict[str, Sequence[Spec]]:
    """Return the specs of arguments of well-known ways to train in parallel, by name."""
    state = set(decision.given_specs.ties.values())
    return known_specs(decision.program, state, dict(mesh.shape))


def spell_price(price: float, unit: str) -> str:
    """Write a price with a prefix.

    >>> spell_price(0.00034, "s"), spell_price(58.9e6, "B"), spell_price(900, "B")
    ('340 us', '58.90 MB', '900 B')
    """
    if unit == "s":
        for scale, name in ((1.0, "s"), (1e-3, "ms")):
            if price >= scale:
                return f"{price / scale:.3g} {name}"
        return f"{price * 1e6:.3g} us"
    return spell_bytes(price)


def spell_bytes(n: float) -> str:
    """Write a number of bytes.

    >>> spell_bytes(1_500_000), spell_bytes(12), spell_bytes(2.5e9)
    ('1.50 MB', '12 B', '2.50 GB')
    """
    for scale, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= scale:
            return f"{n / scale:.2f} {name}"
    return f"{n:.0f} B"
