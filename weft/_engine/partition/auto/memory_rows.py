"""Layouts within memory: the integer program with rows of memory.

In:   costs, rows, what is held by each variable, the variables that are whole, and the bytes of memory.
Out:  the values of the variables, their cost, and a lower bound of the cost of any others within the memory.
How:  rows are added at the times at which a solution holds too much, first to the relaxed program. Memory above the limit is
      allowed at a price above all others, so any limit has a solution: where nothing fits, the solution with the smallest peak.
Laws: the search ends after a number of nodes, not seconds, unless little time is left: equal programs have equal solutions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from weft._engine.partition.auto.memory import MemoryRows
from weft._engine.partition.auto.solver import Effort, Optimum, SparseRows, minimize_integer
from weft._engine.util.record import record

#: price of excess memory as large as the peak of the cheapest layouts, as a multiple of the highest price of a choice
EXCESS_PRICE = 100.0
#: nodes of a search, the relative gap at which it ends, and how often it is repeated with more rows
NODES, GAP, ROUNDS = 20, 0.02, 2
#: seconds that a solver has after the deadline
LEAST_SECONDS = 1.0
#: maximal number of memory rows that are added at once
MOST_NEW_TIMES = 4
#: relative excess over the memory limit that is tolerated
TOLERANCE = 1e-6


@record
class MemoryProblem:
    """An integer program: costs and rows of variables between 0 and 1, their memory, and the integer variables (`whole`)."""

    costs: Sequence[float]
    rows: SparseRows
    memory: MemoryRows
    whole: Sequence[int]


@record
class MemoryGoal:
    """The limits of a solution: memory of at most `nbytes`, and a cost below `price`."""

    nbytes: float
    price: float = math.inf


def solve_within(problem: MemoryProblem, goal: MemoryGoal, seconds: float) -> Optimum | None:
    """Return the cheapest assignment within the memory, else the assignment with the smallest peak; None if none reaches the goal."""
    return _LimitedProgram(problem, goal, seconds).run()


class _LimitedProgram:
    """The integer program with memory limits at some times. Its last variable is the memory above the limit, in multiples of `unit`."""

    def __init__(self, problem: MemoryProblem, goal: MemoryGoal, seconds: float):
        self.problem, self.memory, self.price = problem, goal.nbytes, goal.price
        self.deadline = time.monotonic() + seconds
        self.count = len(problem.costs)
        self.costs = [*problem.costs, EXCESS_PRICE * max(*problem.costs, 1.0)]
        self.rows = problem.rows.copy()
        self.times: set[int] = set()
        self.unit = goal.nbytes

    def run(self) -> Optimum | None:
        relaxed = self._solved(())
        if relaxed is None:
            return None
        self.unit = max(float(np.max(self._profile(relaxed))), 1.0)
        while relaxed is not None and relaxed.value < self.price and self._add_rows(relaxed):
            relaxed = self._solved(())
        if relaxed is None or relaxed.value >= self.price:
            return None
        best: Optimum | None = None
        for _ in range(ROUNDS):
            values = self._solved(self.problem.whole)
            if values is None:
                break
            if best is None or self._rank(values) < self._rank(best):
                best = values
            if not self._add_rows(values) or time.monotonic() > self.deadline:
                break
        if best is None:
            return None
        x = best.x[: self.count]
        return Optimum(x, float(np.dot(self.problem.costs, x)), best.bound)

    def _solved(self, whole: Sequence[int]) -> Optimum | None:
        seconds = max(self.deadline - time.monotonic(), LEAST_SECONDS)
        return minimize_integer(self.costs, self.rows, whole, Effort(seconds, GAP, NODES))

    def _rank(self, optimum: Optimum) -> tuple[float, float]:
        excess = float(np.max(self._profile(optimum))) - self.memory * (1 + TOLERANCE)
        return max(0.0, excess), float(np.dot(self.problem.costs, optimum.x[: self.count]))

    def _profile(self, optimum: Optimum) -> npt.NDArray[np.float64]:
        return self.problem.memory.profile(optimum.x[: self.count])

    def _add_rows(self, optimum: Optimum) -> bool:
        """Add rows for the times at which a solution exceeds the memory; return whether there are such times."""
        limit = self.memory + optimum.x[-1] * self.unit
        new = [t for t in _peaks(self._profile(optimum), limit) if t not in self.times]
        for t in new[:MOST_NEW_TIMES]:
            self.times.add(t)
            terms = [(c, nbytes / self.unit) for c, nbytes in self.problem.memory.row(t)]
            self.rows.append([*terms, (self.count, -1.0)], -np.inf, self.memory / self.unit)
        return bool(new)


def _peaks(profile: npt.NDArray[np.float64], limit: float) -> list[int]:
    """Return the times of the local maxima of a profile that exceed a limit, the highest first."""
    around = np.pad(profile, 1)
    is_peak = (profile >= around[:-2]) & (profile >= around[2:])
    times = np.nonzero(is_peak & (profile > limit * (1 + TOLERANCE)))[0]
    return [int(t) for t in times[np.argsort(-profile[times], kind="stable")]]
