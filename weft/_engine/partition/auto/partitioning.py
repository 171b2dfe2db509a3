"""Automatic partitioning: partition a program with layouts from the optimizer or from an earlier search.

In:   a global program, a mesh, the specs that are given; what the search may use.
Out:  a `PartitionResult`, as from `partition.partition`, and the `Decision` that led to it.
Laws: given specs and constraints are kept. A program that costs more than the ordinary partitioner's program is never used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from weft._engine.ir.collective_spec import COLLECTIVES
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.program_structure import Unserializable, serialize_structure
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.graph import GivenSpecs
from weft._engine.partition.auto.machine_rates import Machine
from weft._engine.partition.auto.optimizer import LayoutOptimizer, Solution
from weft._engine.partition.auto.prices import MeshPrices, ReductionShares, prices_on
from weft._engine.partition.auto.realized import (
    MemoryLimit,
    Realized,
    price_of,
    price_of_realized,
    realize,
)
from weft._engine.partition.auto.within_memory import MemorySearch
from weft._engine.partition.cost import DEFAULT, CostModel
from weft._engine.partition.partition import (
    PartitionRequest,
    PartitionResult,
    ValueLayouts,
    constraint_reader,
    partition,
    partition_with_layouts,
)
from weft._engine.partition.rules.dim_moves import match_moves
from weft._engine.util import cache
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import field, record, replace

#: default seconds of a search, and default relative gap at which it ends
SECONDS, GAP = 60.0, 1e-3
#: what a program was made from: layouts of all values, of arguments and results, or propagation alone
LAYOUTS, BOUNDARY, ORDINARY = "layouts", "boundary", "ordinary"
#: tolerated difference between the optimizer's and the program's price, and how often it solves again
ACCURACY, COMBINING_ROUNDS = 1e-3, 3


@record
class Decision:
    """The result of a search: the partitioned program, and how it was found.

    given_specs  the specs that the search was given
    ordinary     the program of the ordinary partitioner for these
    method       what made the program: `layouts` of all values, `boundary` (of arguments and results), or `ordinary`
    """

    program: Jaxpr
    given_specs: GivenSpecs
    result: PartitionResult
    ordinary: PartitionResult
    optimizer: LayoutOptimizer
    solution: Solution
    prices: MeshPrices
    method: str

    @property
    def price(self) -> float:
        """The price of the program, in bytes sent over the fastest axis."""
        return price_of(self.result, self.prices)

    @property
    def donated(self) -> frozenset[int]:
        """The arguments whose memory results take."""
        return frozenset(self.given_specs.ties.values())


def latency_of(result: PartitionResult, prices: MeshPrices) -> float:
    """Return the part of the price of a program that is the latency of collectives."""
    links = prices.on_parts(dict(result.mesh.shape)).links
    return sum(r.count * max(links[a].latency for a in r.axes) for r in result.records)


def reduction_shares(results: Iterable[PartitionResult], default: float) -> ReductionShares:
    """Return the share of a collective that all-reduces take in programs, the last counts; of other values, `default`."""
    shares: dict[Var, float] = {}
    for r in (r for result in results for r in result.records):
        parts = r.parts or (r,)
        if COLLECTIVES[r.kind].completes:
            shares.update((part.value, 1 / len(parts)) for part in parts if part.value is not None)
    return ReductionShares(default, shares)


@record
class LayoutSearch:
    """A search for layouts.

    ties      pairs of a result and the donated argument whose layout it has
    carried   pairs of a result and the argument that it is in the next call, counted from the last argument (-1)
    """

    mesh: Mesh
    machine: Machine | None = None
    seconds: float = SECONDS
    gap: float = GAP
    ties: tuple[tuple[int, int], ...] = ()
    carried: tuple[tuple[int, int], ...] = ()
    cost: CostModel = DEFAULT
    limit: MemoryLimit | None = field(default=None, compare=False)
    #: receives the decision
    report: Callable[[Decision], None] | None = field(default=None, compare=False, repr=False)

    def with_ties(self, ties: tuple[tuple[int, int], ...]) -> LayoutSearch:
        """Return the search for a program with these ties."""
        return replace(self, ties=ties)

    def partition(self, request: PartitionRequest) -> PartitionResult:
        """Return the cheapest program found."""
        decision = self.decide(request)
        if self.report is not None:
            self.report(decision)
        return decision.result

    def decide(self, request: PartitionRequest) -> Decision:
        """Search, and compare with the ordinary partitioner."""
        program, mesh = match_moves(request.jaxpr), request.mesh
        in_specs, out_specs = request.in_specs, request.out_specs
        prices = prices_on(dict(mesh.shape), self.machine, self.cost)
        ties = _consistent_ties(program, in_specs, out_specs, self._all_ties(len(in_specs)))
        given_specs = GivenSpecs(in_specs, out_specs, ties)
        cost = prices.model
        ordinary = partition(program, mesh, in_specs, out_specs, cost, request.keeps_targets)
        optimizer, solution, planned = self._solve(mesh, given_specs, prices, ordinary, program)
        ins, outs = solution.in_specs, solution.out_specs
        candidates = {  # of equally good ones, the first
            ORDINARY: ordinary,
            BOUNDARY: partition(program, mesh, ins, outs, cost),
            LAYOUTS: planned,
        }
        allowed = [
            name
            for name, result in candidates.items()
            if self.limit is None or self.limit.fits(result, ties)
        ]
        method = min(allowed, key=lambda name: round(price_of(candidates[name], prices)))
        return Decision(
            program,
            given_specs,
            candidates[method],
            candidates[ORDINARY],
            optimizer,
            solution,
            prices,
            method,
        )

    def _all_ties(self, arguments: int) -> list[tuple[int, int]]:
        """Return (result, argument) pairs: first carried state, then donated arguments."""
        ties = [(out, arguments + number) for out, number in self.carried]
        outs, tied_arguments = {out for out, _ in ties}, {number for _, number in ties}
        return ties + [
            (out, i) for out, i in self.ties if out not in outs and i not in tied_arguments
        ]

    def _solve(
        self,
        mesh: Mesh,
        given_specs: GivenSpecs,
        prices: MeshPrices,
        ordinary: PartitionResult,
        program: Jaxpr,
    ) -> tuple[LayoutOptimizer, Solution, PartitionResult]:
        """Return the optimizer that found the best solution, this solution, and its program.

        The optimizer does not see which reductions the partitioner combines, which matters where latency does. Then it
        solves again as if all were combined, and with what the partitioner combined of that.
        """
        deadline = time.monotonic() + self.seconds
        realizations: list[Realized] = []
        optimizer = LayoutOptimizer(program, prices, given_specs, constraint_reader(mesh))
        for rounds in range(COMBINING_ROUNDS, 0, -1):
            is_first = not realizations
            seconds_left = max(deadline - time.monotonic(), 0.0) / rounds
            solutions = optimizer.solutions(seconds_left, self.gap)
            realized = [realize(program, mesh, s, prices) for s in solutions]
            realized.sort(key=price_of_realized)
            realizations.append(best := realized[0])
            matters = is_first and latency_of(best.result, prices) > ACCURACY * best.price
            is_off = not is_first and abs(best.solution.price - best.price) > ACCURACY * best.price
            if time.monotonic() > deadline or not (matters or is_off):
                break
            results = [] if is_first else [one.result for one in reversed(realized)]
            optimizer.set_shares(reduction_shares(results, 0.0))
        best = min(realizations, key=price_of_realized)
        limit = self.limit
        if limit is not None and not limit.fits(best.result, given_specs.ties):
            optimizer.set_shares(reduction_shares([best.result], 1.0))
            search = MemorySearch(limit, optimizer, mesh, given_specs, self.gap)
            best = search.run([best], ordinary, max(deadline - time.monotonic(), 0.0))
        optimizer.set_shares(reduction_shares([best.result], 1.0))
        priced = replace(best.solution, price=optimizer.price_of(best.solution))
        return optimizer, priced, best.result


@record
class LayoutPlan:
    """Layouts that an earlier search chose for the program with the digest `program`.

    Arguments and results with the spec None are open to propagation. `layouts` has the number of a variable in the order of
    `variables_of`, and its spec. `dropped` has a form that is made again later: the number of the first result of the equation
    after which it is dropped, the number of the variable, and the spec.
    """

    mesh: Mesh
    program: str
    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    layouts: tuple[tuple[int, Spec], ...]
    cost: CostModel = DEFAULT
    dropped: tuple[tuple[int, int, Spec], ...] = ()

    def with_ties(self, ties: tuple[tuple[int, int], ...]) -> LayoutPlan:
        """Return the same: the plan has the layouts of results."""
        return self

    def partition(self, request: PartitionRequest) -> PartitionResult:
        """Return the program with the layouts of the plan; ShardingError for another program."""
        program, digest = match_moves(request.jaxpr), self.program
        if program_digest(program) != digest:
            raise ShardingError(
                f"plan.jit: the function is not the one that was planned: its program for these arguments has the digest "
                f"{program_digest(program)}, and the plan has {digest}.\n"
                "  A plan is for one function and one set of shapes and dtypes. Make a plan for these with "
                "weft.auto.shardings."
            )
        variables = variables_of(program)
        layouts = {variables[number]: spec for number, spec in self.layouts}
        makers = dict(made_variables(program))
        dropped: dict[Eqn, list[tuple[Var, Spec]]] = {}
        for result, number, spec in self.dropped:
            dropped.setdefault(makers[variables[result]], []).append((variables[number], spec))
        specs = self.in_specs, self.out_specs
        if not layouts:
            return partition(program, request.mesh, *specs, self.cost, request.keeps_targets)
        values = ValueLayouts(layouts, dropped)
        return partition_with_layouts(program, request.mesh, *specs, values, self.cost)


def layout_plan(decision: Decision, mesh: Mesh) -> LayoutPlan:
    """Return the plan that makes the program of a decision again."""
    solution, given_specs = decision.solution, decision.given_specs
    layouts: tuple[tuple[int, Spec], ...] = ()
    dropped: tuple[tuple[int, int, Spec], ...] = ()
    ins, outs = solution.in_specs, solution.out_specs
    if decision.method == ORDINARY:
        ins, outs = given_specs.in_specs, given_specs.out_specs
    if decision.method == LAYOUTS:
        numbers = {v: i for i, v in enumerate(variables_of(decision.program))}
        layouts = tuple(sorted((numbers[v], spec) for v, spec in solution.layouts.items()))
        dropped = tuple(
            (numbers[eqn.outvars[0]], numbers[v], spec)
            for eqn, forms in solution.dropped.items()
            for v, spec in forms
        )
    digest = program_digest(decision.program)
    return LayoutPlan(mesh, digest, ins, outs, layouts, decision.prices.model, dropped)


def program_digest(program: Jaxpr) -> str:
    """Return a digest that equal programs share in all processes."""
    try:
        return cache.digest(serialize_structure(program))[:16]
    except Unserializable as error:
        raise ShardingError(
            f"automatic sharding: the program has no digest, since it holds {error}. Plans are for programs without callbacks."
        ) from None


def variables_of(jaxpr: Jaxpr) -> list[Var]:
    """Return all variables of a program and of the programs in it, in order."""
    return [*jaxpr.constvars, *jaxpr.invars, *(v for v, _ in made_variables(jaxpr))]


def made_variables(jaxpr: Jaxpr) -> Iterator[tuple[Var, Eqn]]:
    """Yield the variables of a program and of those in it, with their equations; of arguments inside, the equation around."""
    for eqn in jaxpr.eqns:
        for _, inner in subjaxprs(eqn.params):
            yield from ((v, eqn) for v in (*inner.constvars, *inner.invars))
            yield from made_variables(inner)
        yield from ((v, eqn) for v in eqn.outvars)


def _consistent_ties(
    program: Jaxpr,
    in_specs: Sequence[Spec | None],
    out_specs: Sequence[Spec | None],
    ties: Iterable[tuple[int, int]],
) -> dict[int, int]:
    """Return the ties between values of one shape whose given layouts do not differ."""
    consistent: dict[int, int] = {}
    for out, argument in ties:
        atom, var = program.outvars[out], program.invars[argument]
        out_spec = out_specs[out]
        if type(atom) is Literal or atom.aval.shape != var.aval.shape:
            continue
        if out_spec is None or out_spec == in_specs[argument]:
            consistent[out] = argument
    return consistent
