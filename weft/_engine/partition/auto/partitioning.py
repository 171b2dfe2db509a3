"""Automatic partitioning: partition a program with the layouts that the optimizer chooses, or with those of an earlier search.

In:   a global program, a mesh, the specs that are given; what the search may use.
Out:  a `PartitionResult`, as from `partition.partition`, and the `Decision` that led to it.
Laws: given specs and constraints are kept. A program that costs more than that of the ordinary partitioner is never used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from weft._engine.ir.collective_spec import COLLECTIVES
from weft._engine.ir.jaxpr import Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec
from weft._engine.ir.structure import Unserializable, structure
from weft._engine.partition.auto.machine import Machine
from weft._engine.partition.auto.optimizer import GivenSpecs, Optimizer, Solution
from weft._engine.partition.auto.prices import MeshPrices, prices_on
from weft._engine.partition.cost import DEFAULT, CostModel
from weft._engine.partition.partition import (
    PartitionResult,
    constraint_reader,
    partition,
    partition_with_layouts,
)
from weft._engine.partition.rules.moves import match_moves
from weft._engine.util import cache
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import record, replace

#: seconds of a search and the relative gap at which it ends, if nothing else is asked for
SECONDS, GAP = 60.0, 1e-3
#: how far the price of the optimizer may be from that of the program, and how often it solves again
ACCURACY, COMBINING_ROUNDS = 0.02, 3


@record
class Decision:
    """The result of a search: the partitioned program, and how it was found.

    ordinary     the program of the ordinary partitioner for the same given specs
    method       what made the program: `layouts` of all values, `boundary` (of arguments and results), or `ordinary`
    """

    program: Jaxpr
    result: PartitionResult
    ordinary: PartitionResult
    solution: Solution
    prices: MeshPrices
    method: str

    @property
    def price(self) -> float:
        """The price of the program, in bytes sent over the fastest axis."""
        return price_of(self.result, self.prices)


def price_of(result: PartitionResult, prices: MeshPrices) -> float:
    """Return the price of a partitioned program: of its collectives and of its work."""
    return prices.of_records(result.records) + result.work


def reduction_share(result: PartitionResult) -> float:
    """Return the number of reductions of a program divided by the number before they were combined."""
    reductions = [r for r in result.records if COLLECTIVES[r.kind].reduces]
    return len(reductions) / max(sum(len(r.parts) or 1 for r in reductions), 1)


@record
class LayoutSearch:
    """A search for layouts. `ties` pairs a result with the argument whose layout it has."""

    mesh: Mesh
    machine: Machine | None = None
    seconds: float = SECONDS
    gap: float = GAP
    ties: tuple[tuple[int, int], ...] = ()
    cost: CostModel = DEFAULT

    def partition(
        self,
        jaxpr: Jaxpr,
        mesh: Mesh,
        in_specs: Sequence[Spec | None],
        out_specs: Sequence[Spec | None],
        keeps_targets: bool = False,
    ) -> PartitionResult:
        """Return the cheapest program found."""
        return self.decide(jaxpr, mesh, in_specs, out_specs, keeps_targets).result

    def decide(
        self,
        jaxpr: Jaxpr,
        mesh: Mesh,
        in_specs: Sequence[Spec | None],
        out_specs: Sequence[Spec | None],
        keeps_targets: bool = False,
    ) -> Decision:
        """Search, and compare with the ordinary partitioner."""
        program = match_moves(jaxpr)
        prices = prices_on(dict(mesh.shape), self.machine, self.cost)
        ties = _consistent_ties(program, in_specs, out_specs, self.ties)
        given = GivenSpecs(tuple(in_specs), tuple(out_specs), ties)
        solution, planned = self._solved(program, mesh, given, prices)
        ins, outs = solution.in_specs, solution.out_specs
        candidates = {
            "layouts": planned,
            "boundary": partition(program, mesh, ins, outs, prices.model),
            "ordinary": partition(program, mesh, in_specs, out_specs, prices.model, keeps_targets),
        }
        method = min(candidates, key=lambda name: price_of(candidates[name], prices))
        return Decision(
            program, candidates[method], candidates["ordinary"], solution, prices, method
        )

    def _solved(
        self, program: Jaxpr, mesh: Mesh, given: GivenSpecs, prices: MeshPrices
    ) -> tuple[Solution, PartitionResult]:
        """Return the best solution and its program.

        The optimizer does not see which reductions the partitioner combines, which matters where latency does. It solves
        again with the share of reductions that was left, until that share is what it assumed.
        """
        deadline = time.monotonic() + self.seconds
        found: list[tuple[float, Solution, PartitionResult]] = []
        for _ in range(COMBINING_ROUNDS):
            optimizer = Optimizer(program, prices, given, constraint_reader(mesh))
            solution = optimizer.solve(max(deadline - time.monotonic(), 0.0), self.gap)
            result = partition_with_layouts(
                program, mesh, solution.in_specs, solution.out_specs, solution.layouts, prices.model
            )
            price = price_of(result, prices)
            found.append((price, solution, result))
            is_right = abs(solution.price - price) <= ACCURACY * price
            share = reduction_share(result)
            if is_right or share == prices.reduction_share:
                break
            prices = prices.with_reduction_share(share)
            found[-1] = (
                price,
                replace(solution, price=optimizer.price_of(solution, prices)),
                result,
            )
            if time.monotonic() > deadline:
                break
        _, solution, result = min(found, key=lambda one: (one[0], abs(one[1].price - one[0])))
        return solution, result


@record
class LayoutPlan:
    """Layouts that an earlier search chose for the program with the digest `program`.

    `layouts` has the number of a variable in the order of `variables_of`, and its spec.
    """

    mesh: Mesh
    program: str
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    layouts: tuple[tuple[int, Spec], ...]
    cost: CostModel = DEFAULT

    def partition(
        self,
        jaxpr: Jaxpr,
        mesh: Mesh,
        in_specs: Sequence[Spec | None],
        out_specs: Sequence[Spec | None],
        keeps_targets: bool = False,
    ) -> PartitionResult:
        """Return the program with the layouts of the plan; ShardingError for another program."""
        program = match_moves(jaxpr)
        if program_digest(program) != self.program:
            raise ShardingError(
                f"plan.jit: the function is not the one that was planned: its program for these arguments has the digest "
                f"{program_digest(program)}, that of the plan is {self.program}.\n"
                "  A plan is for one function and one set of shapes and dtypes. Make a plan for these with "
                "weft.auto.shardings."
            )
        variables = variables_of(program)
        layouts = {variables[number]: spec for number, spec in self.layouts}
        return partition_with_layouts(
            program, mesh, self.in_specs, self.out_specs, layouts, self.cost
        )


def program_digest(program: Jaxpr) -> str:
    """Return a digest that equal programs share in all processes."""
    try:
        return cache.digest(structure(program))[:16]
    except Unserializable as error:
        raise ShardingError(
            f"weft.auto: the program has no digest, since it holds {error}. Plans are for programs without callbacks."
        ) from None


def variables_of(jaxpr: Jaxpr) -> list[Var]:
    """Return all variables of a program and of the programs in it, in order."""
    found: list[Var] = [*jaxpr.constvars, *jaxpr.invars]
    for eqn in jaxpr.eqns:
        for _, inner in subjaxprs(eqn.params):
            found += variables_of(inner)
        found += eqn.outvars
    return found


def _consistent_ties(
    program: Jaxpr,
    in_specs: Sequence[Spec | None],
    out_specs: Sequence[Spec | None],
    ties: Iterable[tuple[int, int]],
) -> dict[int, int]:
    """Return the ties between values of one shape whose given layouts do not differ."""
    found: dict[int, int] = {}
    for out, argument in ties:
        atom, var = program.outvars[out], program.invars[argument]
        given = out_specs[out]
        if type(atom) is Literal or atom.aval.shape != var.aval.shape:
            continue
        if given is None or given == in_specs[argument]:
            found[out] = argument
    return found
