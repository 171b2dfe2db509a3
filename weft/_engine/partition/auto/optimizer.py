"""The optimizer: the layouts of all values of a program, one mesh axis at a time, then of all axes together where that is small.

In:   a program, a mesh, prices, given layouts, ties between results and arguments.
Out:  a `Solution`: the layouts of arguments, results and intermediate values, its price and how far it can be from the best.
How:  for one axis, all uses of it are chosen jointly while the uses of the other axes are held; the axes take turns until
      nothing improves. Each order of the axes is a start of its own.
Next: `partition.auto.partitioning` makes the program of one device with these layouts.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft._engine.ir.jaxpr import Jaxpr, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.choices import (
    UNUSED,
    AxisUse,
    Choice,
    ChoiceLister,
    partial_sets,
)
from weft._engine.partition.auto.graph import DecisionGraph, Kind, Node
from weft._engine.partition.auto.integer_program import IntegerProgram
from weft._engine.partition.auto.prices import MeshPrices
from weft._engine.partition.propagation.propagate import Propagation
from weft._engine.util.record import record, replace

#: an improvement that is worth another round, relative to the price
IMPROVEMENT = 1e-4
#: most rounds over the axes
ROUNDS = 4
#: most seconds to price a given solution
SECONDS_TO_PRICE = 60.0
#: most choices of the problem over all axes together
MOST_JOINT = 800
#: how much a sharded parameter costs at rest, and a later dim; per byte. They decide between equal solutions.
AT_REST, LATER_DIM = 1e-3, 1e-4


@record
class Solution:
    """Layouts of a program: of its arguments, its results, and of variables inside; the price, and its relative gap."""

    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    layouts: Mapping[Var, Spec]
    chosen: Mapping[Node, Choice]
    price: float
    gap: float
    variables: int
    is_complete: bool  # whether no time limit stopped the search


@record
class GivenSpecs:
    """The given specs of arguments and results (None: open), and the results that have the layout of an argument."""

    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    ties: Mapping[int, int]


class Optimizer:
    """The search for the layouts of one program."""

    def __init__(
        self,
        jaxpr: Jaxpr,
        prices: MeshPrices,
        given: GivenSpecs,
        constraint_spec: Callable[[Any], Any],
    ):
        self.jaxpr, self.prices = jaxpr, prices
        propagation = Propagation(prices.sizes)
        self.graph = DecisionGraph(jaxpr, propagation, given.ties)
        boundary = [
            *zip(self.graph.inputs, given.in_specs),
            *((n, s) for n, s in zip(self.graph.outputs, given.out_specs) if _is_output(n)),
        ]
        specs = {n: spec for n, spec in boundary if n is not None and spec is not None}
        self.lister = ChoiceLister(propagation, prices, constraint_spec, specs)
        self.axes = [a for a, n in prices.sizes.items() if n > 1]

    def solve(self, seconds: float, gap: float) -> Solution:
        """Return the best layouts found in `seconds`; the search stops at a relative `gap`."""
        deadline = time.monotonic() + seconds
        orders = list(itertools.permutations(self.axes))
        if len(orders) > 2:
            orders = [orders[0], orders[-1]]
        best: Solution | None = None
        for order in orders:
            solution = self._axis_by_axis(order, deadline, gap, best is None)
            if solution is not None and (best is None or solution.price < best.price):
                best = solution
        assert best is not None  # the first order is finished whatever the time
        if len(self.axes) > 1 and time.monotonic() < deadline:
            joint = self._step({node: {} for node in self.graph.nodes}, deadline, gap, MOST_JOINT)
            if joint is not None and joint.price < best.price:
                return joint
        return best

    def alternative(self, solution: Solution, node: Node, seconds: float = 10.0) -> Solution | None:
        """Return the best solution with another layout of `node`, in which at most one axis is used otherwise elsewhere."""
        deadline, chosen = time.monotonic() + seconds, solution.chosen
        found: list[Solution] = []
        for axis in self.axes:
            held = {n: {a: u for a, u in c.uses if a != axis} for n, c in chosen.items()}
            other = self._step(held, deadline, IMPROVEMENT, without=(node, chosen[node]))
            if other is not None:
                found.append(other)
        return min(found, key=lambda one: one.price, default=None)

    def price_of(self, solution: Solution, prices: MeshPrices) -> float:
        """Return the price of a solution under other prices of moves."""
        choices = {n: [choice] for n, choice in solution.chosen.items()}
        outcome = IntegerProgram(self.graph, choices, prices, {}).solve(SECONDS_TO_PRICE, 0.0)
        assert outcome is not None  # moves exist, since the solution has them
        return outcome.price

    def _axis_by_axis(
        self, order: Sequence[Any], deadline: float, gap: float, must_finish: bool
    ) -> Solution | None:
        """Return the best solution from one order of the axes; with `must_finish`, whatever time the first round takes."""
        state = _Uses(self.graph.nodes, self.prices.sizes)
        for turn in range(ROUNDS):
            before = state.price
            for axis in order or [None]:
                is_late = time.monotonic() > deadline
                if is_late and not (must_finish and not turn):
                    return state.best and replace(state.best, is_complete=False)
                held = state.without(axis)
                if held is not None:
                    state.take(self._step(held, deadline, gap), must_take=not turn)
            if len(order) < 2 or state.price > before * (1 - IMPROVEMENT):
                break
        return state.best

    def _step(
        self,
        held: Mapping[Node, Mapping[Any, AxisUse]],
        deadline: float,
        gap: float,
        most: float = math.inf,
        without: tuple[Node, Choice] | None = None,
    ) -> Solution | None:
        """Return the best solution in which axes are used as `held` says; None if there is none, or more than `most` choices.

        `without` forbids the placements of a choice of a node.
        """
        choices: dict[Node, list[Choice]] = {}
        partials: dict[Var, frozenset[frozenset[Any]]] = {}
        total = 0
        for node in self.graph.nodes:
            choices[node] = self.lister.choices(node, held[node], partials)
            if without is not None and node is without[0]:
                choices[node] = [c for c in choices[node] if not _is_placed_as(c, without[1])]
                if not choices[node]:
                    return None
            partials.update(partial_sets([node], choices))
            total += len(choices[node])
            if total > most:
                return None
        preference = {n: [self._preference(n, c) for c in choices[n]] for n in self.graph.inputs}
        program = IntegerProgram(self.graph, choices, self.prices, preference)
        outcome = program.solve(max(deadline - time.monotonic(), 1.0), gap)
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
            len(program.costs),
            True,
        )
        return self._with_layouts(solution)

    def _preference(self, node: Node, choice: Choice) -> float:
        """Return what a layout of an argument costs by itself: parameters are whole at rest, leading dims are sharded first."""
        (var,) = node.makes
        split = [(d, len(axes)) for d, axes in enumerate(choice.makes[0].dims) if axes]
        later = sum(d * n for d, n in split)
        return var.aval.nbytes * (AT_REST * bool(split) + LATER_DIM * later)

    def _with_layouts(self, solution: Solution) -> Solution:
        """Return `solution` with the layouts of variables; of sums over devices, the layout that they are reduced to."""
        layouts: dict[Var, Spec] = {}
        for node, choice in solution.chosen.items():
            for var, place in zip(node.makes, choice.makes):
                spec = place.dims if not place.partial else self._reduced_spec(var, solution.chosen)
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

    def _reduced_spec(self, var: Var, chosen: Mapping[Node, Choice]) -> Spec | None:
        needs = [chosen[m].reads[r] for m, r in self.graph.readers.get(var, ())]
        if not needs or any(q.partial for q in needs):
            return None
        return max(needs, key=lambda q: len(q.axes)).dims


class _Uses:
    """How each node uses each axis, in the best solution so far."""

    def __init__(self, nodes: Iterable[Node], sizes: Mapping[Any, int]):
        self.uses: dict[Node, dict[Any, AxisUse]] = {n: dict.fromkeys(sizes, UNUSED) for n in nodes}
        self.best: Solution | None = None
        self._solved: dict[Any, Mapping[Node, Mapping[Any, AxisUse]]] = {}

    @property
    def price(self) -> float:
        return math.inf if self.best is None else self.best.price

    def without(self, axis: Any) -> Mapping[Node, Mapping[Any, AxisUse]] | None:
        """Return the uses of the other axes; None if `axis` was chosen for these before."""
        held = {n: {a: u for a, u in of.items() if a != axis} for n, of in self.uses.items()}
        if self._solved.get(axis) == held:
            return None
        self._solved[axis] = held
        return held

    def take(self, solution: Solution | None, must_take: bool) -> None:
        """Go on from `solution` if it is better; in the first round, from any."""
        if solution is not None and (must_take or solution.price <= self.price):
            self.best = solution
            self.uses = {n: dict(c.uses) for n, c in solution.chosen.items()}


def _is_placed_as(choice: Choice, other: Choice) -> bool:
    return (choice.reads, choice.makes) == (other.reads, other.makes)


def _is_output(node: Node | None) -> bool:
    """Whether a node is of a result alone."""
    return node is not None and node.kind is Kind.OUTPUT
