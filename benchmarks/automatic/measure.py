"""Prices of programs: by automatic sharding, by the ordinary partitioner, and with hand-written layouts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import weft
from benchmarks.automatic.layouts import Layout
from benchmarks.automatic.programs import Program
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.partition.auto.machine_rates import find_machine
from weft._engine.partition.auto.optimizer import GivenSpecs, LayoutOptimizer
from weft._engine.partition.auto.partitioning import GAP, Decision, LayoutSearch
from weft._engine.partition.auto.prices import prices_on
from weft._engine.partition.auto.realized import price_of
from weft._engine.partition.cost import DEFAULT
from weft._engine.partition.partition import (
    PartitionRequest,
    PartitionResult,
    constraint_reader,
    partition,
)
from weft._engine.partition.rules.dim_moves import match_moves
from weft._engine.transforms.erase_varying_axes import erase

#: how much more than the best of the others an automatic program may cost
BOUND = 1.005


@dataclass(frozen=True)
class Cost:
    """The price of a partitioned program, in bytes sent over the fastest axis, and the bytes that a device sends."""

    price: float
    bytes_sent: float


@dataclass(frozen=True)
class Comparison:
    """What a program costs: by the model of the optimizer, as realized, by the ordinary partitioner and by hand.

    seconds    processor time of the search
    scale      microseconds, or megabytes where the machine has no constants, per byte
    """

    program: str
    mesh: str
    model: float
    gap: float
    method: str
    realized: Cost
    ordinary: Cost
    hands: Mapping[str, Cost]
    seconds: float
    scale: float
    decision: Decision

    @property
    def best_hand(self) -> str:
        """The name of the cheapest hand-written layout."""
        return min(self.hands, key=lambda name: self.hands[name].price)

    @property
    def ratio(self) -> float:
        """The realized price divided by the least of the others."""
        others = [self.ordinary.price, self.hands[self.best_hand].price]
        return self.realized.price / min(others) if min(others) else 1.0

    @property
    def fewest_bytes(self) -> float:
        """The bytes that a device sends in the best hand-written layout that shards something."""
        return min(cost.bytes_sent for name, cost in self.hands.items() if name != "replicated")


def make_mesh(sizes: Sequence[int]) -> weft.sharding.Mesh:
    """Return a mesh with axes x, y, z."""
    return weft.make_mesh(tuple(sizes), tuple("xyz"[: len(sizes)]))


def trace(program: Program, mesh: weft.sharding.Mesh) -> Jaxpr:
    """Return the program that `jit` partitions."""
    return simplify(erase(weft.make_jaxpr(program.bind(mesh))(*program.args)))


def make_optimizer(program: Program, jaxpr: Jaxpr, mesh: weft.sharding.Mesh) -> LayoutOptimizer:
    """Return the optimizer of a traced program with the default prices: bytes."""
    open_specs = GivenSpecs(
        (None,) * len(jaxpr.invars),
        (None,) * len(jaxpr.outvars),
        {i: i for i in range(program.state)},
    )
    prices = prices_on(dict(mesh.shape), None, DEFAULT)
    return LayoutOptimizer(jaxpr, prices, open_specs, constraint_reader(mesh))


def joint_price(
    program: Program, sizes: Sequence[int], seconds: float = 60.0
) -> tuple[float, float]:
    """Return the model's price of the layouts found axis by axis, and of those found over all axes at once."""
    mesh = make_mesh(sizes)
    optimizer = make_optimizer(program, match_moves(trace(program, mesh)), mesh)
    by_axis = min(solution.price for solution in optimizer.solutions_by_axis(seconds, 0.0))
    joint = optimizer.solve_jointly(seconds, 0.0)
    assert joint is not None
    return by_axis, joint.price


def time_optimizer(program: Program, sizes: Sequence[int], seconds: float) -> tuple[int, float]:
    """Return the number of equations of a program and the processor time of choosing its layouts."""
    mesh = make_mesh(sizes)
    jaxpr = match_moves(trace(program, mesh))
    start = time.process_time()
    make_optimizer(program, jaxpr, mesh).solutions(seconds, GAP)
    return len(jaxpr.eqns), time.process_time() - start


def search(
    program: Program, jaxpr: Jaxpr, mesh: weft.sharding.Mesh, machine: str | None, seconds: float
) -> tuple[Decision, float]:
    """Return the automatic decision and the processor time that it took."""
    layout_search = LayoutSearch(
        mesh,
        find_machine(machine) if machine else None,
        seconds,
        ties=tuple((i, i) for i in range(program.state)),
    )
    start = time.process_time()
    open_specs = (None,) * len(jaxpr.invars), (None,) * len(jaxpr.outvars)
    decision = layout_search.decide(PartitionRequest(jaxpr, mesh, *open_specs))
    return decision, time.process_time() - start


def realize(
    program: Program, decision: Decision, mesh: weft.sharding.Mesh, layout: Layout
) -> PartitionResult:
    """Return the program of the ordinary partitioner for a hand-written layout."""
    outs = [None] * len(decision.program.outvars)
    outs[: program.state] = layout[: program.state]
    return partition(decision.program, mesh, layout, outs, decision.prices.model)


def compare(
    program: Program, sizes: Sequence[int], machine: str | None = None, seconds: float = 60.0
) -> Comparison:
    """Compare automatic sharding with all hand-written layouts of a program on a mesh of the given sizes."""
    mesh = make_mesh(sizes)
    decision, used = search(program, trace(program, mesh), mesh, machine, seconds)
    prices = decision.prices

    def cost(result: PartitionResult) -> Cost:
        return Cost(price_of(result, prices), result.bytes_sent)

    hands = {
        name: cost(realize(program, decision, mesh, layout))
        for name, layout in program.layouts(dict(mesh.shape)).items()
    }
    return Comparison(
        program.name,
        "x".join(map(str, sizes)),
        decision.solution.price,
        decision.solution.gap,
        decision.method,
        cost(decision.result),
        cost(decision.ordinary),
        hands,
        used,
        1e6 * prices.seconds_per_byte if prices.seconds_per_byte else 1e-6,
        decision,
    )
