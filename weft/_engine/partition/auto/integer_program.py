"""The integer program: the choice for each node that minimizes the cost of computation and of moves between layouts.

In:   a decision graph, the choices of its nodes, prices.
Out:  the cheapest choice of each node, and a lower bound of the price of any other solution.
How:  a binary variable per choice. For a value, a variable per pair of the layout that it is made in and one that a reader needs
      it in: a move is paid once, however many readers use its result. Nodes that are alike, with alike surroundings, share
      their variables (color refinement), so a program of many equal layers is as large as one of a few. SciPy's HiGHS solves it.
Laws: rows state what moves exist in terms of what choices exist, as marginals where a value has one reader. (Rows of the form
      move >= choice + choice - 1 leave a weak relaxation.)
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.choices import Choice
from weft._engine.partition.auto.graph import DecisionGraph, DecisionNode, Kind
from weft._engine.partition.auto.memory import (
    FloatArray,
    Form,
    FormSpan,
    MemoryModel,
    MemoryRows,
    ValueForms,
)
from weft._engine.partition.auto.memory_rows import MemoryGoal, MemoryProblem, solve_within
from weft._engine.partition.auto.prices import SLICE, MeshPrices
from weft._engine.partition.auto.solver import Effort, Optimum, SparseRows, minimize_integer
from weft._engine.partition.reshard import Placement
from weft._engine.util.record import field, record

#: rounds of color refinement: nodes share variables if their neighborhoods within this distance are alike
ROUNDS = 4
#: maximal number of layouts of a value; of a value with more layouts, existing forms are not sliced for readers
MOST_SHARED = 40


@record
class Outcome:
    """The result of the solver: a choice for each node, the price, a lower bound of it, the peak, and the forms to drop."""

    chosen: Mapping[DecisionNode, Choice]
    price: float
    bound: float
    peak: float = 0.0  # bytes; 0 if memory does not matter
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = field(default_factory=dict)


#: form -> pairs of a variable, 1 if a move makes the form, and the source layout of the move
Arrivals = dict[Placement, list[tuple[int, Placement]]]


class IntegerProgram:
    """The variables and rows for one set of choices.

    preference   a small addition to the price of choices, which decides between equally good ones
    memory       what devices hold, if that matters: then forms of values may be dropped and made again
    """

    def __init__(
        self,
        graph: DecisionGraph,
        choices: Mapping[DecisionNode, Sequence[Choice]],
        prices: MeshPrices,
        preference: Mapping[DecisionNode, Sequence[float]],
        memory: MemoryModel | None = None,
    ):
        self.graph, self.choices, self.prices = graph, choices, prices
        self.memory = memory
        self.costs: list[float] = []
        self._rows = SparseRows([], [], [], [], [])
        self.classes = self._equal_nodes()
        self.class_of = {n: k for k, members in enumerate(self.classes) for n in members}
        self.first_column: list[int] = []
        self._forms: list[ValueForms] = []
        self._hideable: list[tuple[int, float]] = []  # columns of moves, and the cost that can hide
        self._add_choices(preference)
        self.choice_count = len(self.costs)
        for members in self._equal_values():
            self._add_moves(members)
        if self._hideable:
            self._add_hidden()

    # --- nodes and values that share variables ---

    def _equal_nodes(self) -> list[list[DecisionNode]]:
        """Return the sets of equal nodes, which share variables: equal keys, choices, readers and makers."""
        nodes = self.graph.nodes
        colors: dict[DecisionNode, int] = {
            n: hash((n.kind, n.key, n.shape if n.key else ())) for n in nodes
        }
        for _ in range(ROUNDS):
            colors = {n: self._color(n, colors) for n in nodes}
        classes: dict[Hashable, list[DecisionNode]] = defaultdict(list)
        for n in nodes:
            ways = tuple((c.reads, c.makes) for c in self.choices[n])
            classes[colors[n], ways].append(n)
        return list(classes.values())

    def _color(self, node: DecisionNode, colors: Mapping[DecisionNode, int]) -> int:
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

    def _equal_values(self) -> list[list[tuple[DecisionNode, int, Var]]]:
        """Return the sets of values, each with its maker, whose moves share variables."""
        positions: dict[Hashable, list[tuple[DecisionNode, int, Var]]] = defaultdict(list)
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
                    positions[key].append((node, i, var))
        return list(positions.values())

    def _reader(self, node: DecisionNode, read: int) -> tuple[int, int]:
        return self.class_of[node], -1 if node.is_map else read

    # --- variables and rows ---

    def _column(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def _row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        self._rows.append(terms, lower, upper)

    def _add_choices(self, preference: Mapping[DecisionNode, Sequence[float]]) -> None:
        """Add a binary variable per choice; each set of equal nodes takes one."""
        for members in self.classes:
            count = len(self.choices[members[0]])
            first = len(self.costs)
            self.first_column.append(first)
            for i in range(count):
                price = sum(self.choices[n][i].price for n in members)
                self._column(price + sum(preference[n][i] for n in members if n in preference))
            self._row([(first + i, 1.0) for i in range(count)], 1.0, 1.0)

    def _add_moves(self, members: list[tuple[DecisionNode, int, Var]]) -> None:
        """Add the moves of equal values from the layouts of their makers to the layouts that readers need."""
        node, i, var = members[0]
        columns = self._columns_by_placement(node, [c.makes[i] for c in self.choices[node]])
        needs = self._needs(var)
        count = sum(
            max(reader.reads[r].count for reader, r in self.graph.readers[v]) for _, _, v in members
        )
        forms = list(dict.fromkeys(q for need in needs.values() for q in need))
        shape, item = tuple(var.aval.shape), var.aval.dtype.itemsize
        share = self.prices.shares.of(v for _, _, v in members)
        costs = {
            (p, q): self.prices.move(p, q, shape, item, share) * count
            for p in columns
            for q in forms
            if q.partial <= p.partial
        }
        first = len(self.costs)
        used: list[Form] = []  # none if all layouts are the same
        if any(costs.values()) or len(costs) < len(columns) * len(forms):
            if len(needs) == 1:
                used = self._add_marginals(columns, next(iter(needs.values())), costs)
            else:
                used = self._add_forms(columns, self._reader_groups(var, needs), costs, count)
        values = [v for _, _, v in members]
        if used and self.prices.overlap:
            self._note_hideable(range(first, len(self.costs)), values)
        self._forms.append(ValueForms(values, columns, used, len(needs) == 1))

    def _note_hideable(self, columns: Iterable[int], variables: Sequence[Var]) -> None:
        """Record the part of the cost of the moves `variables` that can overlap with computation."""
        count = sum(v in self.graph.hideable for v in variables)
        part = self.prices.overlap * count / len(variables)
        self._hideable += [(c, part * self.costs[c]) for c in columns if part * self.costs[c]]

    def _add_hidden(self) -> None:
        """Add the variable of the cost that overlaps with computation, as a share of its maximum."""
        work: list[tuple[int, float]] = []
        largest = 0.0
        for first, members in zip(self.first_column, self.classes):
            prices = [
                sum(works) for works in zip(*([c.work for c in self.choices[n]] for n in members))
            ]
            work += [(first + i, price) for i, price in enumerate(prices)]
            largest += max(prices)
        most = min(largest, sum(cost for _, cost in self._hideable))
        if most:
            hidden = self._column(-most)
            for terms in (work, self._hideable):
                self._row([(hidden, 1.0), *((c, -cost / most) for c, cost in terms)], -np.inf, 0.0)

    def _needs(self, var: Var) -> dict[tuple[int, int], dict[Placement, list[int]]]:
        """Return, per different reader, the layouts of `var` that it can need, with the choices that need them."""
        needs: dict[tuple[int, int], dict[Placement, list[int]]] = {}
        for reader, r in self.graph.readers[var]:
            key = self._reader(reader, r)
            if key not in needs:
                places = [c.reads[r] for c in self.choices[reader]]
                needs[key] = self._columns_by_placement(reader, places)
        return needs

    def _reader_groups(
        self, var: Var, needs: Mapping[tuple[int, int], Mapping[Placement, list[int]]]
    ) -> list[list[Mapping[Placement, list[int]]]]:
        """Return the layouts that the readers of a value need: one group, or an early and a late group if forms may be made again."""
        late = self.graph.late_readers(var) if self.memory else set[tuple[DecisionNode, int]]()
        keys = {self._reader(node, r) for node, r in late}
        groups = [
            [need for key, need in needs.items() if (key in keys) == is_late]
            for is_late in (False, True)
        ]
        return [group for group in groups if group]

    def _columns_by_placement(
        self, node: DecisionNode, places: Sequence[Placement]
    ) -> dict[Placement, list[int]]:
        first = self.first_column[self.class_of[node]]
        columns_by_place: dict[Placement, list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            columns_by_place[place].append(first + i)
        return columns_by_place

    def _add_marginals(
        self,
        source_columns: Mapping[Placement, list[int]],
        need: Mapping[Placement, list[int]],
        costs: Mapping[tuple[Placement, Placement], float],
    ) -> list[Form]:
        """Add the moves to one reader: for each layout on either side, the moves sum to the choices with that layout.

        Return the forms that the reader uses.
        """
        used: list[Form] = []
        leaving: dict[Placement, list[int]] = defaultdict(list)
        arriving: dict[Placement, list[int]] = defaultdict(list)
        for (p, q), cost in costs.items():
            column = self._column(cost)
            leaving[p].append(column)
            arriving[q].append(column)
            used.append(Form(column, p, q, FormSpan.ALL))
        for moves, choices in ((leaving, source_columns), (arriving, need)):
            for place, columns in choices.items():
                terms = [(c, 1.0) for c in moves[place]] + [(c, -1.0) for c in columns]
                self._row(terms, 0.0, 0.0)
        return used

    def _add_forms(
        self,
        source_columns: Mapping[Placement, list[int]],
        groups: Sequence[Sequence[Mapping[Placement, list[int]]]],
        costs: Mapping[tuple[Placement, Placement], float],
        count: int,
    ) -> list[Form]:
        """Add the moves to several readers: a variable per form that exists, which at least one reader may use.

        The late group of readers uses a form of the early one that is kept, or another move. Return the forms that readers use.
        """
        used: list[Form] = []
        earlier: dict[Placement, int] = {}
        for number, needs in enumerate(groups):
            span = FormSpan.ALL if len(groups) == 1 else FormSpan.LATE if number else FormSpan.EARLY
            exists = self._add_existence(needs)
            arriving = self._add_arrivals(source_columns, exists, costs)
            self._add_slices(exists, arriving, count)
            used += [Form(c, p, q, span) for q, arrivals in arriving.items() for c, p in arrivals]
            kept_forms = self._add_kept(earlier, exists, arriving)
            used += [Form(column, q, q, FormSpan.BETWEEN) for column, q in kept_forms]
            for q, column in exists.items():
                self._row([*((c, 1.0) for c, _ in arriving[q]), (column, -1.0)], 0.0, 0.0)
            earlier = exists
        return used

    def _add_existence(
        self, needs: Sequence[Mapping[Placement, list[int]]]
    ) -> dict[Placement, int]:
        """Add a variable per form that a reader may need: at least 1 if one does."""
        exists = {q: self._column(0.0) for need in needs for q in need}
        for need in needs:
            for q, columns in need.items():
                self._row([(exists[q], 1.0), *((c, -1.0) for c in columns)], 0.0, np.inf)
        return exists

    def _add_arrivals(
        self,
        source_columns: Mapping[Placement, list[int]],
        exists: Mapping[Placement, int],
        costs: Mapping[tuple[Placement, Placement], float],
    ) -> Arrivals:
        """Add a variable per move from a layout of the value's maker; return the variables by the form that they make."""
        arriving: Arrivals = defaultdict(list)
        for (p, q), cost in costs.items():
            if q in exists:
                column = self._column(cost)
                arriving[q].append((column, p))
                self._row([(column, 1.0), *((c, -1.0) for c in source_columns[p])], -np.inf, 0.0)
        return arriving

    def _add_kept(
        self, earlier: Mapping[Placement, int], exists: Mapping[Placement, int], arriving: Arrivals
    ) -> list[tuple[int, Placement]]:
        """Add a variable per form that is kept from earlier readers."""
        kept_forms: list[tuple[int, Placement]] = []
        for q in exists:
            if q in earlier:
                column = self._column(0.0)
                arriving[q].append((column, q))
                self._row([(column, 1.0), (earlier[q], -1.0)], -np.inf, 0.0)
                kept_forms.append((column, q))
        return kept_forms

    def _add_slices(self, exists: Mapping[Placement, int], arriving: Arrivals, count: int) -> None:
        """Add the forms that are slices of another form, which costs next to nothing."""
        if len(exists) > MOST_SHARED:
            return
        for coarse, fine in itertools.permutations(exists, 2):
            if _is_slice(fine, coarse):
                column = self._column(SLICE * count)
                arriving[fine].append((column, coarse))
                self._row([(column, 1.0), (exists[coarse], -1.0)], -np.inf, 0.0)

    # --- solving ---

    def solve(self, seconds: float, gap: float) -> Outcome | None:
        """Return the best solution within a time and a relative gap; None if there is none."""
        whole = range(self.choice_count)
        optimum = minimize_integer(self.costs, self._rows, whole, Effort(seconds, gap))
        return None if optimum is None else self._outcome(optimum)

    def solve_within(self, goal: MemoryGoal, seconds: float) -> Outcome | None:
        """Return the best solution within the memory, else the solution with the smallest peak; None if none reaches the goal."""
        again = [  # integral columns: without them, fractions of forms could be kept
            form.column
            for values in self._forms
            for form in values.forms
            if form.span is FormSpan.LATE or form.span is FormSpan.BETWEEN
        ]
        whole = [*range(self.choice_count), *again]
        problem = MemoryProblem(self.costs, self._rows, self.memory_rows, whole)
        optimum = solve_within(problem, goal, seconds)
        return None if optimum is None else self._outcome(optimum)

    def _outcome(self, optimum: Optimum) -> Outcome:
        x, price = optimum.x, optimum.value
        if self.memory is None:
            return Outcome(self._choose(x), price, optimum.bound)
        peak = float(np.max(self.memory_rows.profile(x)))
        return Outcome(self._choose(x), price, optimum.bound, peak, self._find_dropped_forms(x))

    def _choose(self, x: FloatArray) -> dict[DecisionNode, Choice]:
        chosen: dict[DecisionNode, Choice] = {}
        for k, members in enumerate(self.classes):
            first = self.first_column[k]
            count = len(self.choices[members[0]])
            best = int(np.argmax(x[first : first + count]))
            chosen.update({n: self.choices[n][best] for n in members})
        return chosen

    @functools.cached_property
    def memory_rows(self) -> MemoryRows:
        """The memory that each variable of the integer program stands for, by time."""
        assert self.memory is not None  # else nothing asks for it
        held_bytes = [held for forms in self._forms for held in self.memory.held_by_forms(forms)]
        for node in self.graph.nodes:
            is_result = node.kind is Kind.OUTPUT
            if node.kind is Kind.INPUT or is_result:
                first = self.first_column[self.class_of[node]]
                columns = {
                    (c.reads if is_result else c.makes)[0]: first + i
                    for i, c in enumerate(self.choices[node])
                }
                held_bytes += self.memory.held_by_boundary(node, columns)
        return MemoryRows(held_bytes, self.memory.end, len(self.costs))

    def _find_dropped_forms(self, x: FloatArray) -> dict[Eqn, list[tuple[Var, Spec]]]:
        """Return the forms that are made twice, by the last early equation that reads them."""
        dropped: dict[Eqn, list[tuple[Var, Spec]]] = {}
        for forms in self._forms:
            for form in forms.forms:
                is_moved = form.span is FormSpan.LATE and form.source != form.place
                if not is_moved or x[form.column] < 0.5 or form.place.partial:
                    continue
                for var in forms.values:
                    eqn = self.graph.last_early_reader(var)
                    if eqn is not None:
                        dropped.setdefault(eqn, []).append((var, form.place.dims))
        return dropped


def _is_slice(fine: Placement, coarse: Placement) -> bool:
    """Whether a device has its block under `fine` as a part of its block under `coarse`."""
    return fine.partial == coarse.partial and all(
        mine[: len(whole)] == whole for mine, whole in zip(fine.dims, coarse.dims)
    )
