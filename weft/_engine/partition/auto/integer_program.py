"""The integer program: one choice per node, so that the computation and all moves between layouts cost least.

In:   a decision graph, the choices of its nodes, prices.
Out:  the cheapest choice of each node, and a lower bound of the price of any other solution.
How:  a binary variable per choice. For a value, a variable per pair of the layout that it is made in and one that a reader needs
      it in: a move is paid once, however many readers use its result. Nodes that are alike, with alike surroundings, share
      their variables (color refinement), so a program of many equal layers is as large as one of a few. SciPy's HiGHS solves it.
Laws: rows state what moves exist in terms of what choices exist, as marginals where a value has one reader. (Rows of the form
      move >= choice + choice - 1 leave a weak relaxation.)
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from weft._engine.ir.jaxpr import Var
from weft._engine.partition.auto.choices import Choice
from weft._engine.partition.auto.graph import DecisionGraph, Node
from weft._engine.partition.auto.prices import SLICE, MeshPrices
from weft._engine.partition.auto.solver import SparseRows, minimize_integer
from weft._engine.partition.reshard import Placement
from weft._engine.util.record import record

#: rounds of color refinement: how far nodes must have alike surroundings to share their variables
ROUNDS = 4
#: most layouts of a value between which slices of forms that exist anyway are offered
MOST_SHARED = 40


@record
class Outcome:
    """What the solver found: a choice for each node, the price, and a lower bound of the price."""

    chosen: Mapping[Node, Choice]
    price: float
    bound: float


class IntegerProgram:
    """The variables and rows for one set of choices.

    preference   a small addition to the price of choices, which decides between equally good ones
    """

    def __init__(
        self,
        graph: DecisionGraph,
        choices: Mapping[Node, Sequence[Choice]],
        prices: MeshPrices,
        preference: Mapping[Node, Sequence[float]],
    ):
        self.graph, self.choices, self.prices = graph, choices, prices
        self.costs: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self.classes = self._equal_nodes()
        self.class_of = {n: k for k, members in enumerate(self.classes) for n in members}
        self.first_column: list[int] = []
        self._add_choices(preference)
        self.binaries = len(self.costs)
        for members in self._equal_values():
            self._add_moves(members)

    # --- nodes and values that share variables ---

    def _equal_nodes(self) -> list[list[Node]]:
        """Return the sets of nodes that share variables: alike, with alike choices, readers and makers."""
        nodes = self.graph.nodes
        colors: dict[Node, int] = {
            n: hash((n.kind, n.key, n.shape if n.key else ())) for n in nodes
        }
        for _ in range(ROUNDS):
            colors = {n: self._color(n, colors) for n in nodes}
        classes: dict[Hashable, list[Node]] = defaultdict(list)
        for n in nodes:
            ways = tuple((c.reads, c.makes) for c in self.choices[n])
            classes[colors[n], ways].append(n)
        return list(classes.values())

    def _color(self, node: Node, colors: Mapping[Node, int]) -> int:
        sources: list[Hashable] = []
        for read in node.reads:
            maker = self.graph.maker.get(read.var)
            if maker is not None:
                place = -1 if maker.is_map else maker.makes.index(read.var)
                sources.append((colors[maker], place))
        if node.is_map:
            sources.sort()  # type: ignore[type-var]
        readers = sorted(
            (colors[reader], -1 if reader.is_map else r)
            for var in node.makes
            for reader, r in self.graph.readers.get(var, ())
        )
        return hash((colors[node], tuple(sources), tuple(readers)))

    def _equal_values(self) -> list[list[tuple[Node, int, Var]]]:
        """Return the sets of values, each with its maker, whose moves share variables."""
        found: dict[Hashable, list[tuple[Node, int, Var]]] = defaultdict(list)
        for node in self.graph.nodes:
            for i, var in enumerate(node.makes):
                readers = self.graph.readers.get(var)
                if readers:
                    key = (
                        self.class_of[node],
                        -1 if node.is_map else i,
                        tuple(sorted({self._reader(m, r) for m, r in readers})),
                        var.aval.shape,
                        var.aval.dtype.itemsize,
                    )
                    found[key].append((node, i, var))
        return list(found.values())

    def _reader(self, node: Node, read: int) -> tuple[int, int]:
        return self.class_of[node], -1 if node.is_map else read

    # --- variables and rows ---

    def _column(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def _row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        self._rows += [len(self._lower)] * len(terms)
        self._columns += [column for column, _ in terms]
        self._values += [value for _, value in terms]
        self._lower.append(lower)
        self._upper.append(upper)

    def _add_choices(self, preference: Mapping[Node, Sequence[float]]) -> None:
        """Add a binary variable per choice; each set of equal nodes takes one."""
        for members in self.classes:
            count = len(self.choices[members[0]])
            first = len(self.costs)
            self.first_column.append(first)
            for i in range(count):
                price = sum(self.choices[n][i].price for n in members)
                self._column(price + sum(preference[n][i] for n in members if n in preference))
            self._row([(first + i, 1.0) for i in range(count)], 1.0, 1.0)

    def _add_moves(self, members: list[tuple[Node, int, Var]]) -> None:
        """Add the moves of equal values from the layouts that they are made in to those that readers need."""
        node, i, var = members[0]
        made = self._columns_by_placement(node, [c.makes[i] for c in self.choices[node]])
        needs: dict[tuple[int, int], dict[Placement, list[int]]] = {}
        for reader, r in self.graph.readers[var]:
            key = self._reader(reader, r)
            if key not in needs:
                needs[key] = self._columns_by_placement(
                    reader, [c.reads[r] for c in self.choices[reader]]
                )
        count = sum(
            max(reader.reads[r].count for reader, r in self.graph.readers[v]) for _, _, v in members
        )
        forms = list(dict.fromkeys(q for need in needs.values() for q in need))
        shape, item = tuple(var.aval.shape), var.aval.dtype.itemsize
        share = self.prices.shares.of(v for _, _, v in members)
        costs = {
            (p, q): self.prices.move(p, q, shape, item, share) * count
            for p in made
            for q in forms
            if q.partial <= p.partial
        }
        if not any(costs.values()) and len(costs) == len(made) * len(forms):
            return  # all layouts are the same
        if len(needs) == 1:
            self._add_marginals(made, next(iter(needs.values())), costs)
        else:
            self._add_forms(made, list(needs.values()), costs, count)

    def _columns_by_placement(
        self, node: Node, places: Sequence[Placement]
    ) -> dict[Placement, list[int]]:
        first = self.first_column[self.class_of[node]]
        found: dict[Placement, list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            found[place].append(first + i)
        return found

    def _add_marginals(
        self,
        made: Mapping[Placement, list[int]],
        need: Mapping[Placement, list[int]],
        costs: Mapping[tuple[Placement, Placement], float],
    ) -> None:
        """Add the moves to one reader: for each layout on either side, the moves sum to the choices with that layout."""
        leaving: dict[Placement, list[int]] = defaultdict(list)
        arriving: dict[Placement, list[int]] = defaultdict(list)
        for (p, q), cost in costs.items():
            column = self._column(cost)
            leaving[p].append(column)
            arriving[q].append(column)
        for moves, choices in ((leaving, made), (arriving, need)):
            for place, columns in choices.items():
                terms = [(c, 1.0) for c in moves[place]] + [(c, -1.0) for c in columns]
                self._row(terms, 0.0, 0.0)

    def _add_forms(
        self,
        made: Mapping[Placement, list[int]],
        needs: Sequence[Mapping[Placement, list[int]]],
        costs: Mapping[tuple[Placement, Placement], float],
        count: int,
    ) -> None:
        """Add the moves to several readers: a variable per form that exists, which at least one reader may use."""
        forms = list(dict.fromkeys(q for need in needs for q in need))
        exists = {q: self._column(0.0) for q in forms}
        arriving: dict[Placement, list[int]] = defaultdict(list)
        for need in needs:
            for q, columns in need.items():
                self._row([(exists[q], 1.0), *((c, -1.0) for c in columns)], 0.0, np.inf)
        for (p, q), cost in costs.items():
            column = self._column(cost)
            arriving[q].append(column)
            self._row([(column, 1.0), *((c, -1.0) for c in made[p])], -np.inf, 0.0)
        self._add_slices(exists, arriving, count)
        for q in forms:
            self._row([*((c, 1.0) for c in arriving[q]), (exists[q], -1.0)], 0.0, 0.0)

    def _add_slices(
        self, exists: Mapping[Placement, int], arriving: dict[Placement, list[int]], count: int
    ) -> None:
        """Add the forms that are slices of another form, which costs next to nothing."""
        if len(exists) > MOST_SHARED:
            return
        for coarse, fine in itertools.permutations(exists, 2):
            if _is_slice(fine, coarse):
                column = self._column(SLICE * count)
                arriving[fine].append(column)
                self._row([(column, 1.0), (exists[coarse], -1.0)], -np.inf, 0.0)

    # --- solving ---

    def solve(self, seconds: float, gap: float) -> Outcome | None:
        """Return the best solution within a time and a relative gap; None if there is none."""
        rows = SparseRows(self._rows, self._columns, self._values, self._lower, self._upper)
        optimum = minimize_integer(self.costs, rows, self.binaries, seconds, gap)
        if optimum is None:
            return None
        chosen: dict[Node, Choice] = {}
        for k, members in enumerate(self.classes):
            first = self.first_column[k]
            count = len(self.choices[members[0]])
            best = int(np.argmax(optimum.x[first : first + count]))
            chosen.update({n: self.choices[n][best] for n in members})
        return Outcome(chosen, optimum.value, optimum.bound)


def _is_slice(fine: Placement, coarse: Placement) -> bool:
    """Whether a device has its block under `fine` as a part of its block under `coarse`."""
    return fine.partial == coarse.partial and all(
        mine[: len(given)] == given for mine, given in zip(fine.dims, coarse.dims)
    )
