"""The optimizer: the layouts of all values of a program, one mesh axis at a time, then of all axes together where that is small.

In:   a program, a mesh, prices, given layouts, ties between results and arguments.
Out:  a `Solution`: the layouts of arguments, results and intermediate values, its price and how far it can be from the best.
How:  for one axis, all uses of it are chosen jointly while the uses of the other axes are held; the axes take turns until
      nothing improves. Each order of the axes is a start of its own, and so are all axes as one.
Next: `partition.auto.partitioning` makes the program of one device with these layouts.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.choices import (
    UNUSED,
    AxisUse,
    Choice,
    ChoiceLister,
    HeldAxes,
    partial_sets,
)
from weft._engine.partition.auto.graph import DecisionGraph, DecisionNode, GivenSpecs, Kind
from weft._engine.partition.auto.integer_program import IntegerProgram
from weft._engine.partition.auto.memory import MemoryModel, Storage
from weft._engine.partition.auto.memory_rows import MemoryGoal
from weft._engine.partition.auto.prices import MeshPrices, ReductionShares
from weft._engine.partition.propagation.propagate import Propagation
from weft._engine.partition.reshard import Placement
from weft._engine.util.record import field, record, replace

#: an improvement that is worth another round, relative to the price
IMPROVEMENT = 1e-4
#: maximal number of rounds over the axes
ROUNDS = 4
#: maximal seconds to price a given solution
SECONDS_TO_PRICE = 60.0
#: maximal number of choices of the problem over all axes together
MOST_JOINT = 800
#: tie breakers between solutions of equal price: cost per byte of an argument at rest, and of a split of a later dim
AT_REST, LATER_DIM = 1e-3, 1e-4


#: axes that split the same dim
AxisGroup = tuple[Any, ...]


@record
class Solution:
    """Layouts of a program: of its arguments, its results, and of variables inside; the price, and its relative gap."""

    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec | None, ...]
    layouts: Mapping[Var, Spec]
    chosen: Mapping[DecisionNode, Choice]  # none for a well-known layout
    price: float
    gap: float
    is_complete: bool  # whether no time limit stopped the search
    #: forms of variables that are dropped after an equation, and made again later
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = field(default_factory=dict)
    peak: float = 0.0  # bytes of a device, estimated; 0 where memory does not matter
    excess: float = 0.0  # bytes of `peak` above the limit

    @property
    def rank(self) -> tuple[float, float]:
        """The sort key of solutions: the memory above the limit, then the price."""
        return self.excess, self.price


class LayoutOptimizer:
    """The search for the layouts of one program."""

    def __init__(
        self,
        jaxpr: Jaxpr,
        prices: MeshPrices,
        given_specs: GivenSpecs,
        constraint_spec: Callable[[Any], Any],
    ):
        self.jaxpr, self.prices = jaxpr, prices
        propagation = Propagation(prices.sizes)
        self.graph = DecisionGraph(jaxpr, propagation, given_specs.ties, prices.model)
        boundary = [
            *zip(self.graph.inputs, given_specs.in_specs),
            *((n, s) for n, s in zip(self.graph.outputs, given_specs.out_specs) if _is_output(n)),
        ]
        specs = {n: spec for n, spec in boundary if n is not None and spec is not None}
        self.lister = ChoiceLister(propagation, prices, constraint_spec, specs)
        self.axes = [a for a, n in prices.sizes.items() if n > 1]
        #: limit of a device's memory in bytes, and the optimizer's model of the memory in use
        self.memory: MemoryGoal | None = None
        self.memory_model: MemoryModel | None = None
        #: how many more integer programs may be solved before the turns of the axes end; unlike seconds, the same on all machines
        self.steps_left = math.inf

    def solve(self, seconds: float, gap: float) -> Solution:
        """Return the best layouts found in `seconds`; the search stops at a relative `gap`."""
        return min(self.solutions(seconds, gap), key=lambda solution: solution.rank)

    def solutions(self, seconds: float, gap: float) -> list[Solution]:
        """Return the layouts after each round of each start, and the layouts of all axes at once if there are few choices."""
        deadline = time.monotonic() + seconds
        solutions = self.solutions_by_axis(seconds, gap)
        if len(self.axes) > 1 and time.monotonic() < deadline:
            joint = self.solve_jointly(deadline - time.monotonic(), gap, MOST_JOINT)
            if joint is not None:
                solutions.append(joint)
        return solutions

    def solutions_by_axis(self, seconds: float, gap: float) -> list[Solution]:
        """Return the layouts after each round of each start, without repetitions."""
        deadline = time.monotonic() + seconds
        solutions: list[Solution] = []
        for start in self._starts():
            for solution in self._group_by_group(start, deadline, gap, not solutions):
                forms = solution.layouts, solution.dropped
                if all(forms != (known.layouts, known.dropped) for known in solutions):
                    solutions.append(solution)
        return solutions

    def solve_jointly(self, seconds: float, gap: float, most: float = math.inf) -> Solution | None:
        """Return the best layouts over all axes at once; None if there are more than `most` choices."""
        free = dict.fromkeys(self.graph.nodes, HeldAxes({}))
        return self._step(free, time.monotonic() + seconds, gap, most)

    def alternative(
        self, solution: Solution, node: DecisionNode, seconds: float = 10.0
    ) -> Solution | None:
        """Return the best solution that changes the layout of `node`, and at other nodes the use of at most one axis."""
        deadline, chosen = time.monotonic() + seconds, solution.chosen
        solutions: list[Solution] = []
        for axis in self.axes:
            held_axes = {
                n: HeldAxes({a: u for a, u in c.uses if a != axis}) for n, c in chosen.items()
            }
            other = self._step(held_axes, deadline, IMPROVEMENT, without=(node, chosen[node]))
            if other is not None:
                solutions.append(other)
        return min(solutions, key=lambda one: one.price, default=None)

    def _starts(self) -> list[list[AxisGroup]]:
        """Return the groups of axes of the first round: all axes together, and one axis at a time."""
        orders = [[(a,) for a in order] for order in itertools.permutations(self.axes)]
        if len(self.axes) < 2:
            return [order or [()] for order in orders]
        return [[tuple(self.axes)], orders[0], orders[-1]]

    def limit_memory(self, goal: MemoryGoal, storage: Storage) -> None:
        """Search for layouts within memory. Steps that use one of several axes may cost more than the goal."""
        self.memory = goal if len(self.axes) < 2 else replace(goal, price=math.inf)
        self.memory_model = MemoryModel(self.graph, storage, self.prices.sizes)

    def set_shares(self, shares: ReductionShares) -> None:
        """Search with all-reduces that take `shares` of collectives."""
        self.prices = self.prices.with_shares(shares)

    def price_of(self, solution: Solution) -> float:
        """Return the price of a solution under the present prices."""
        if not solution.chosen:
            return solution.price
        choices = {n: [choice] for n, choice in solution.chosen.items()}
        program = IntegerProgram(self.graph, choices, self.prices, {}, self.memory_model)
        outcome = program.solve(SECONDS_TO_PRICE, 0.0)
        assert outcome is not None  # moves exist, since the solution has them
        return outcome.price

    def _group_by_group(
        self, start: Sequence[AxisGroup], deadline: float, gap: float, must_finish: bool
    ) -> Iterator[Solution]:
        """Yield the layouts after each round: first over the groups of axes in `start`, then over one axis at a time.

        With `must_finish`, the first round is completed whatever time and steps it takes.
        """
        state = _Uses(self.graph.nodes, self.prices.sizes)
        single: list[AxisGroup] = [(a,) for a in self.axes]
        for i in range(ROUNDS):
            before = state.rank
            for group in start if not i else single:
                is_over = time.monotonic() > deadline or self.steps_left <= 0
                if is_over and not (must_finish and not i):
                    if state.best is not None:
                        yield replace(state.best, is_complete=False)
                    return
                held_axes = state.without(group)
                if held_axes is not None:
                    state.take(self._step(held_axes, deadline, gap), must_take=not i)
            if state.best is not None:
                yield state.best
            if len(single) < 2 or (i and not _is_better(state.rank, before)):
                return

    def _step(
        self,
        held_axes: Mapping[DecisionNode, HeldAxes],
        deadline: float,
        gap: float,
        most: float = math.inf,
        without: tuple[DecisionNode, Choice] | None = None,
    ) -> Solution | None:
        """Return the best solution with the fixed axis uses `held_axes`; None if there is none, or more than `most` choices.

        `without` forbids the placements of a choice of a node.
        """
        self.steps_left -= 1
        choices: dict[DecisionNode, list[Choice]] = {}
        partials: dict[Var, frozenset[frozenset[Any]]] = {}
        total = 0
        for node in self.graph.nodes:
            choices[node] = self.lister.choices(node, held_axes[node], partials)
            if without is not None and node is without[0]:
                choices[node] = [c for c in choices[node] if not _is_placed_as(c, without[1])]
                if not choices[node]:
                    return None
            partials.update(partial_sets([node], choices))
            total += len(choices[node])
            if total > most:
                return None
        preference = {n: [self._preference(n, c) for c in choices[n]] for n in self.graph.inputs}
        program = IntegerProgram(self.graph, choices, self.prices, preference, self.memory_model)
        seconds_left = max(deadline - time.monotonic(), 1.0)
        if self.memory is None:
            outcome = program.solve(seconds_left, gap)
        else:
            outcome = program.solve_within(self.memory, seconds_left)
        if outcome is None:
            return None
        extra = sum(self._preference(n, outcome.chosen[n]) for n in self.graph.inputs)
        price, bound = outcome.price - extra, outcome.bound - extra
        solution = Solution(
            (),
            (),
            {},
            outcome.chosen,
            price,
            max(0.0, 1 - bound / price) if price > 0 else 0.0,
            True,
            outcome.dropped,
            outcome.peak,
            max(0.0, outcome.peak - self.memory.nbytes) if self.memory else 0.0,
        )
        return self._with_layouts(solution)

    def _preference(self, node: DecisionNode, choice: Choice) -> float:
        """Return the cost of an argument's layout alone, which breaks ties between solutions.

        A state is whole at rest; of other arguments devices hold little; leading dims are sharded first.
        """
        (var,), dims = node.makes, choice.makes[0].dims
        later = sum(d * len(axes) for d, axes in enumerate(dims))
        is_state = bool(node.reads)
        shards = math.prod(self.prices.sizes[a] for axes in dims for a in axes)
        weight = float(shards > 1) if is_state else 1 / shards
        return var.aval.nbytes * (AT_REST * weight + LATER_DIM * later)

    def _with_layouts(self, solution: Solution) -> Solution:
        """Return `solution` with layouts of variables: the layout after the move, if all readers need a value moved."""
        layouts: dict[Var, Spec] = {}
        for node, choice in solution.chosen.items():
            for var, place in zip(node.makes, choice.makes):
                spec = self._spec_after(node, var, place, solution.chosen)
                if spec is not None:
                    layouts[var] = spec
        ins = tuple(solution.chosen[n].makes[0].dims for n in self.graph.inputs)
        outs: list[Spec] = []
        for i, node in enumerate(self.graph.outputs):
            if node is None:
                outs.append(((),) * self.jaxpr.outvars[i].aval.ndim)
            else:
                outs.append(solution.chosen[node].reads[0].dims)
        return replace(solution, in_specs=ins, out_specs=tuple(outs), layouts=layouts)

    def _spec_after(
        self, node: DecisionNode, var: Var, place: Placement, chosen: Mapping[DecisionNode, Choice]
    ) -> Spec | None:
        """Return the layout of a value after its move for readers; None if the readers take a partial sum."""
        needs = [chosen[m].reads[r] for m, r in self.graph.readers.get(var, ())]
        stays = place in needs or not needs or not node.eqns or node.kind is Kind.FIXED
        if stays and not place.partial:
            return place.dims
        if not needs or any(q.partial for q in needs):
            return None if place.partial else place.dims
        forms = sorted(dict.fromkeys(needs), key=lambda q: -len(q.axes))
        return min(forms, key=lambda q: self._price_through(var, place, q, forms)).dims

    def _price_through(
        self, var: Var, place: Placement, first: Placement, forms: Sequence[Placement]
    ) -> float:
        """Return the price of moving a value from `place` to `first`, and from there to the other forms."""
        shape, itemsize = tuple(var.aval.shape), var.aval.dtype.itemsize
        share = self.prices.shares.of([var])
        price = self.prices.move(place, first, shape, itemsize, share)
        return price + sum(self.prices.move(first, q, shape, itemsize) for q in forms)


class _Uses:
    """The use of each axis by each node, in the best solution so far."""

    def __init__(self, nodes: Iterable[DecisionNode], sizes: Mapping[Any, int]):
        self.uses: dict[DecisionNode, dict[Any, AxisUse]] = {
            n: dict.fromkeys(sizes, UNUSED) for n in nodes
        }
        self.best: Solution | None = None
        self._solved: dict[AxisGroup, Mapping[DecisionNode, HeldAxes]] = {}

    @property
    def rank(self) -> tuple[float, float]:
        return (math.inf, math.inf) if self.best is None else self.best.rank

    def without(self, group: AxisGroup) -> Mapping[DecisionNode, HeldAxes] | None:
        """Return the uses of the axes outside `group`; None if the group was chosen for these before."""
        held_axes = {
            n: HeldAxes({a: u for a, u in uses.items() if a not in group}, len(group) > 1)
            for n, uses in self.uses.items()
        }
        if self._solved.get(group) == held_axes:
            return None
        self._solved[group] = held_axes
        return held_axes

    def take(self, solution: Solution | None, must_take: bool) -> None:
        """Make `solution` the best one if its rank is at most that of the best one, or if `must_take`."""
        if solution is not None and (must_take or solution.rank <= self.rank):
            self.best = solution
            self.uses = {n: dict(c.uses) for n, c in solution.chosen.items()}


def _is_better(rank: tuple[float, float], before: tuple[float, float]) -> bool:
    """Return whether the rank of a solution justifies another round."""
    return rank[0] < before[0] or rank[1] < before[1] * (1 - IMPROVEMENT)


def _is_placed_as(choice: Choice, other: Choice) -> bool:
    return (choice.reads, choice.makes) == (other.reads, other.makes)


def _is_output(node: DecisionNode | None) -> bool:
    """Return whether a node stands for a result of the program and nothing else."""
    return node is not None and node.kind is Kind.OUTPUT
