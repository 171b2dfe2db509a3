"""The search within a limit of memory: well-known layouts, then the integer program with rows of memory.

In:   an optimizer, the solutions that it found without a limit, the limit.
Out:  the cheapest realized solution in which a device holds no more than the limit; `ShardingError` with the smallest peak found.
How:  all candidates are realized and measured. Well-known layouts hold less and less of the state (`known_layouts`). The optimizer
      estimates memory; where its program holds more than estimated, it solves again within that much less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from weft._engine.ir.jaxpr import Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.graph import GivenSpecs
from weft._engine.partition.auto.known_layouts import KnownLayout, known_layouts
from weft._engine.partition.auto.memory import Held, MemoryRows, bytes_of
from weft._engine.partition.auto.memory_rows import MemoryGoal
from weft._engine.partition.auto.optimizer import IMPROVEMENT, Optimizer, Solution
from weft._engine.partition.auto.realized import (
    MemoryLimit,
    Realized,
    price_of_realized,
    realize,
)
from weft._engine.partition.partition import PartitionResult
from weft._engine.partition.reshard import Placement
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import record, replace

#: how often the optimizer solves within less memory, and most of what it seems to need
ROUNDS, STEP = 2, 0.99
#: how many of the largest values are named
MOST_NAMED = 4


@record
class _Candidate:
    """A realized solution and the bytes that a device holds."""

    held: int
    realized: Realized


class MemorySearch:
    """A search for the cheapest program within a limit."""

    def __init__(
        self, limit: MemoryLimit, optimizer: Optimizer, mesh: Mesh, given: GivenSpecs, gap: float
    ):
        self.limit, self.optimizer, self.mesh, self.given = limit, optimizer, mesh, given
        self.gap = gap
        self.storage = limit.storage(optimizer.jaxpr)
        self.candidates: list[_Candidate] = []

    def run(self, free: Sequence[Realized], ordinary: PartitionResult, seconds: float) -> Realized:
        """Return the cheapest program found; the first of `free`, found without the limit, if only the ordinary program fits."""
        deadline = time.monotonic() + seconds
        for realized in free:
            self._add(realized)
        bound = (1 - free[0].solution.gap) * free[0].price
        for layout in known_layouts(
            self.optimizer.graph, self.given, self.mesh, self.optimizer.prices.model
        ):
            self._add(self._known(layout, bound))
        cheapest = min((c.realized.price for c in self._fitting()), default=math.inf)
        can_improve = cheapest > bound * (1 + max(self.gap, IMPROVEMENT))
        if can_improve and self._bytes_at_rest() <= self.limit.nbytes:
            self._search(cheapest, deadline)
        fitting = [c.realized for c in self._fitting()]
        if fitting:
            best = min(fitting, key=price_of_realized)
            is_complete = time.monotonic() <= deadline
            return replace(best, solution=replace(best.solution, is_complete=is_complete))
        if self.limit.fits(ordinary, self.given.ties):
            return free[0]
        raise self._error()

    def _search(self, cheapest: float, deadline: float) -> None:
        """Add programs of the optimizer that are cheaper, within less estimated memory as long as the programs hold too much."""
        target = self.limit.nbytes
        for _ in range(ROUNDS):
            self.optimizer.limit_memory(MemoryGoal(target, cheapest), self.storage)
            left = max(deadline - time.monotonic(), 0.0)
            solutions = self.optimizer.solutions_by_axis(left, self.gap)
            tried = [self._add(self._realized(s)) for s in solutions]
            if not tried:
                break
            best = min(tried, key=lambda c: (max(c.held, self.limit.nbytes), c.realized.price))
            fits = best.held <= self.limit.nbytes
            estimate = best.realized.solution
            if fits or estimate.excess or time.monotonic() > deadline:
                break
            target = min(target * STEP, self.limit.nbytes - (best.held - estimate.peak))
            if target < self._bytes_at_rest():
                break

    def _realized(self, solution: Solution) -> Realized:
        return realize(self.optimizer.jaxpr, self.mesh, solution, self.optimizer.prices)

    def _known(self, layout: KnownLayout, bound: float) -> Realized:
        """Return the program of a well-known layout. Its price is at least `bound`."""
        values = layout.layouts
        solution = Solution(
            layout.in_specs,
            layout.out_specs,
            values.specs,
            {},
            0.0,
            0.0,
            0,
            True,
            values.dropped,
            largest=self._largest(layout),
        )
        realized = self._realized(solution)
        price = realized.price
        gap = max(0.0, 1 - bound / price) if price else 0.0
        return replace(realized, solution=replace(solution, price=price, gap=gap))

    def _add(self, realized: Realized) -> _Candidate:
        candidate = _Candidate(self.limit.measure(realized.result, self.given.ties), realized)
        self.candidates.append(candidate)
        return candidate

    def _fitting(self) -> list[_Candidate]:
        return [c for c in self.candidates if c.held <= self.limit.nbytes]

    # --- limits that nothing fits

    def _bytes_at_rest(self) -> float:
        """Return the least that arguments and results can hold: split over all devices, unless their layouts are given."""
        program, sizes = self.optimizer.jaxpr, self.optimizer.prices.sizes
        devices = math.prod(sizes.values())
        held = 0.0
        values: list[tuple[Var, Spec | None]] = [*zip(program.invars, self.given.in_specs)]
        values += [
            (atom, spec)
            for i, (atom, spec) in enumerate(zip(program.outvars, self.given.out_specs))
            if isinstance(atom, Var) and i not in self.given.ties
        ]
        for var, spec in values:
            if spec is None:
                held += var.aval.nbytes / devices
            else:
                held += bytes_of(var, Placement(spec), sizes)
        return held

    def _largest(self, layout: KnownLayout) -> Sequence[tuple[Var, float]]:
        """Return the largest values at the peak of a well-known layout, apart from gathered ones."""
        sizes, storage = self.optimizer.prices.sizes, self.storage
        values = [(v, layout.layouts.specs.get(v), life) for v, life in storage.lifetimes.items()]
        values += [
            (v, spec, (0, storage.end))
            for v, spec in zip(self.optimizer.jaxpr.invars, layout.in_specs)
        ]
        held = [
            Held(0, bytes_of(v, Placement(spec), sizes), *life, v)
            for v, spec, life in values
            if spec is not None
        ]
        return MemoryRows(held, storage.end, 1).largest(np.ones(1), MOST_NAMED)

    def _error(self) -> ShardingError:
        least = min(self.candidates, key=lambda c: c.held)
        solution = least.realized.solution
        largest = "; ".join(
            f"{v.aval.str_short()} {nbytes:,.0f} B" for v, nbytes in solution.largest
        )
        return ShardingError(
            f"automatic sharding: no layout holds at most {self.limit.nbytes:,.0f} B on a device. The smallest peak found is "
            f"{least.held:,} B; the largest blocks then are {largest}.\n"
            "  Use more devices or a smaller batch, donate the state, or compute layers again in the backward pass with weft.checkpoint."
        )
