"""Realized solutions: the partitioned program, its price, and the bytes that a device holds.

In:   a `Solution`, a program, a mesh.
Out:  a `Realized`; a `MemoryLimit` says whether its program fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import Mesh
from weft._engine.partition.auto.memory import Storage
from weft._engine.partition.auto.optimizer import Solution
from weft._engine.partition.auto.overlap import hideable_values
from weft._engine.partition.auto.prices import MeshPrices
from weft._engine.partition.partition import (
    PartitionResult,
    ValueLayouts,
    partition_with_layouts,
)
from weft._engine.util.record import record


def price_of(result: PartitionResult, prices: MeshPrices) -> float:
    """Return the price of a partitioned program: collectives and computation, less their overlap.

    Work hides at most a share of the collectives that can run behind it, and no more than takes its own time.
    """
    own = prices.on_parts(dict(result.mesh.shape))
    price = own.of_records(result.records) + result.work
    if not own.overlap:
        return price
    assert result.program is not None  # partitioned programs have it
    hideable = own.of_moves(result.records, hideable_values(result.program))
    return price - min(own.overlap * hideable, result.work)


@record
class MemoryLimit:
    """The maximum of the bytes that a device may hold.

    measure    returns what a device holds in a program, given the results that replace arguments
    storage    returns when the values of a program are in memory
    """

    nbytes: float
    measure: Callable[[PartitionResult, Mapping[int, int]], int]
    storage: Callable[[Jaxpr], Storage]

    def fits(self, result: PartitionResult, ties: Mapping[int, int]) -> bool:
        """Whether a program stays within the limit."""
        return self.measure(result, ties) <= self.nbytes


@record
class Realized:
    """A solution, its partitioned program, and the price of the program."""

    solution: Solution
    result: PartitionResult
    price: float


def price_of_realized(realized: Realized) -> float:
    """Return the price of the program."""
    return realized.price


def realize(program: Jaxpr, mesh: Mesh, solution: Solution, prices: MeshPrices) -> Realized:
    """Return the program with the layouts of a solution."""
    ins, outs = solution.in_specs, solution.out_specs
    layouts = ValueLayouts(solution.layouts, solution.dropped)
    result = partition_with_layouts(program, mesh, ins, outs, layouts, prices.model)
    return Realized(solution, result, price_of(result, prices))
