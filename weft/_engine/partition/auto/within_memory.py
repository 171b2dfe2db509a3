"""The search within a limit of memory: well-known layouts, then the integer program with rows of memory.

In:   an optimizer, the solutions that it found without a limit, the limit.
Out:  the cheapest realized solution that needs at most the limit per device; `ShardingError` with the smallest peak found.
How:  all candidates are realized and measured. Well-known layouts hold less and less of the state (`known_layouts`). The optimizer
      estimates memory; where its program holds more than the limit, it solves again within smaller estimates, by bisection.
      The search ends after a number of integer programs, so that its result does not depend on the load of the machine unless
      `seconds` end first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from weft._engine.ir.jaxpr import Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.graph import GivenSpecs
from weft._engine.partition.auto.known_layouts import KnownLayout, known_layouts
from weft._engine.partition.auto.memory import HeldBytes, MemoryRows, bytes_of
from weft._engine.partition.auto.memory_rows import GAP, MemoryGoal
from weft._engine.partition.auto.optimizer import IMPROVEMENT, LayoutOptimizer, Solution
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

#: maximal number of solves, and the ratio of two estimates at which the bisection ends
ROUNDS, STEP = 6, 0.99
#: on several axes, where estimates can be high: the first target, relative to the limit
LOOSER = 1.3
#: maximal number of integer programs
MOST_STEPS = 40
#: number of largest values that an error names
MOST_NAMED = 4


@record
class _Candidate:
    """A realized solution and the bytes that a device holds."""

    peak_bytes: int
    realized: Realized


class MemorySearch:
    """A search for the cheapest program within a limit."""

    def __init__(
        self,
        limit: MemoryLimit,
        optimizer: LayoutOptimizer,
        mesh: Mesh,
        given_specs: GivenSpecs,
        gap: float,
    ):
        self.limit, self.optimizer, self.mesh, self.given_specs = (
            limit,
            optimizer,
            mesh,
            given_specs,
        )
        self.gap = gap
        self.storage = limit.storage(optimizer.jaxpr)
        self.candidates: list[_Candidate] = []

    def run(self, free: Sequence[Realized], ordinary: PartitionResult, seconds: float) -> Realized:
        """Return the cheapest program that fits; the first program of `free` (found without the limit) if only the ordinary one fits."""
        deadline = time.monotonic() + seconds
        for realized in free:
            self._add(realized)
        bound = (1 - free[0].solution.gap) * free[0].price
        for layout in known_layouts(
            self.optimizer.graph, self.given_specs, self.mesh, self.optimizer.prices.model
        ):
            self._add(self._known(layout, bound))
        if self._cheapest() > bound * (1 + max(self.gap, IMPROVEMENT)):
            self._search(deadline)
        fitting = [c.realized for c in self._fitting()]
        if fitting:
            best = min(fitting, key=price_of_realized)
            is_complete = time.monotonic() <= deadline
            return replace(best, solution=replace(best.solution, is_complete=is_complete))
        ordinary_peak = self.limit.measure(ordinary, self.given_specs.ties)
        if ordinary_peak <= self.limit.nbytes:
            return free[0]
        raise self._error(ordinary, ordinary_peak)

    def _search(self, deadline: float) -> None:
        """Add programs of the optimizer, whose estimates are bisected where a program holds more than the limit.

        Programs differ in how much they exceed their estimates, so a low target may miss a cheaper program that fits.
        """
        self.optimizer.steps_left = MOST_STEPS
        low, limit, bound = self._bytes_at_rest(), self.limit.nbytes, 0.0
        high = target = max(low, limit)
        if len(self.optimizer.axes) > 1 and limit > low:
            self._solve(LOOSER * limit, deadline)
        for _ in range(ROUNDS):
            tried = self._solve(target, deadline)
            best = min(
                tried, key=lambda c: (max(c.peak_bytes, limit), c.realized.price), default=None
            )
            guess = low
            if best is None or best.realized.solution.excess or best.peak_bytes <= limit:
                low = target
            else:
                estimate = best.realized.solution.peak
                high, guess = min(high, estimate), limit - (best.peak_bytes - estimate)
                bound = max(bound, best.realized.price)
            is_narrow = low >= STEP * high
            is_over = time.monotonic() > deadline or self.optimizer.steps_left <= 0
            if is_narrow or is_over or self._cheapest() <= bound * (1 + GAP):
                break
            target = min(guess, STEP * high) if guess > low else (low + high) / 2
        self.optimizer.limit_memory(MemoryGoal(limit), self.storage)  # alternatives may cost more

    def _solve(self, target: float, deadline: float) -> list[_Candidate]:
        """Add programs that are estimated to hold at most `target` and cost less than all that fit."""
        self.optimizer.limit_memory(MemoryGoal(target, self._cheapest()), self.storage)
        seconds_left = max(deadline - time.monotonic(), 0.0)
        solutions = self.optimizer.solutions_by_axis(seconds_left, self.gap)
        return [self._add(self._realized(s)) for s in solutions]

    def _realized(self, solution: Solution) -> Realized:
        return realize(self.optimizer.jaxpr, self.mesh, solution, self.optimizer.prices)

    def _known(self, layout: KnownLayout, bound: float) -> Realized:
        """Return the program of a well-known layout. Its price is at least `bound`."""
        ins, outs, values = layout.in_specs, layout.out_specs, layout.layouts
        solution = Solution(ins, outs, values.specs, {}, 0.0, 0.0, True, values.dropped)
        realized = self._realized(solution)
        price = realized.price
        gap = max(0.0, 1 - bound / price) if price else 0.0
        return replace(realized, solution=replace(solution, price=price, gap=gap))

    def _add(self, realized: Realized) -> _Candidate:
        candidate = _Candidate(self.limit.measure(realized.result, self.given_specs.ties), realized)
        self.candidates.append(candidate)
        return candidate

    def _fitting(self) -> list[_Candidate]:
        return [c for c in self.candidates if c.peak_bytes <= self.limit.nbytes]

    def _cheapest(self) -> float:
        """Return the price of the cheapest program that fits."""
        return min((c.realized.price for c in self._fitting()), default=math.inf)

    # --- limits that nothing fits

    def _bytes_at_rest(self) -> float:
        """Return the least bytes of arguments and results: split over all devices, except for given layouts."""
        program, sizes = self.optimizer.jaxpr, self.optimizer.prices.sizes
        devices = math.prod(sizes.values())
        nbytes = 0.0
        values: list[tuple[Var, Spec | None]] = [*zip(program.invars, self.given_specs.in_specs)]
        values += [
            (atom, spec)
            for i, (atom, spec) in enumerate(zip(program.outvars, self.given_specs.out_specs))
            if isinstance(atom, Var) and i not in self.given_specs.ties
        ]
        for var, spec in values:
            if spec is None:
                nbytes += var.aval.nbytes / devices
            else:
                nbytes += bytes_of(var, Placement(spec), sizes)
        return nbytes

    def _error(self, ordinary: PartitionResult, ordinary_held: int) -> ShardingError:
        peaks = [(c.peak_bytes, c.realized.result) for c in self.candidates]
        peak_bytes, result = min([*peaks, (ordinary_held, ordinary)], key=lambda peak: peak[0])
        blocks = "; ".join(
            f"{v.aval.str_short()} {nbytes:,.0f} B" for v, nbytes in self._largest(result)
        )
        return ShardingError(
            f"automatic sharding: no layout holds at most {self.limit.nbytes:,.0f} B on a device. The smallest peak found is "
            f"{peak_bytes:,} B; the largest blocks then are {blocks}.\n"
            "  Use more devices or a smaller batch, donate the state, or compute layers again in the backward pass with weft.checkpoint."
        )

    def _largest(self, result: PartitionResult) -> Sequence[tuple[Var, float]]:
        """Return the largest values at the peak of a partitioned program, apart from moved ones, with their bytes."""
        assert result.program is not None  # partitioned programs have it
        program, sizes = result.program, dict(result.axes)
        storage = self.limit.storage(program)
        placed = {
            var: place
            for one in result.placed_eqns
            for var, place in zip(one.eqn.outvars, one.placements)
        }
        values = [(v, placed[v], life) for v, life in storage.lifetimes.items() if v in placed]
        whole = 0, storage.end
        values += [(v, Placement(s), whole) for v, s in zip(program.invars, result.in_specs)]
        held_values = [
            HeldBytes(0, bytes_of(v, place, sizes), *life, v) for v, place, life in values
        ]
        return MemoryRows(held_values, storage.end, 1).largest(MOST_NAMED)
