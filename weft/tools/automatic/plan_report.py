"""The contents of the report of a sharding plan, computed once for text and page.

In:   a `ShardingPlan`; one that was loaded has no program, and so no reasons, intermediate values and comparisons.
Out:  groups of values of one type and layout with reasons, collectives, comparisons, the price of memory, annotations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.partitioning import Decision
from weft._engine.partition.reshard import Placement
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft.tools.automatic.annotations import (
    WITHIN,
    AnnotatedProgram,
    Annotation,
    fewest_annotations,
)
from weft.tools.automatic.planned_value import PlannedValue
from weft.tools.automatic.pricing import spell_bytes, spell_price
from weft.tools.automatic.reasons import (
    reason_of_argument,
    reason_of_intermediate,
    spell_layout,
)
from weft.tools.page import spell_axes
from weft.tools.report import Collective, collective_of


@record
class ValueGroup:
    """Values of one type and layout: arguments or results, or values that one source line makes.

    name        parameter and key path of the first one, or source line
    count       number of values; of one in a loop, times its runs
    elements    number of elements of all of them
    variable    number of the first one among the arguments, or its variable; None for results
    operations  operations that make the values, if they are intermediate
    """

    name: str
    type: str
    shape: tuple[int, ...]
    placement: Placement
    count: int
    elements: int
    variable: int | Var | None = None
    operations: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        """The layout as a PartitionSpec."""
        return spell_layout(self.placement)

    @property
    def others(self) -> str:
        """The number of other values, in words."""
        return f" and {self.count - 1} more" if self.count > 1 else ""


class PlanReport:
    """The parts of the report of a plan. Each is computed when it is first read."""

    def __init__(self, plan: Any):
        self.plan = plan
        self._reasons: dict[int | Var, str] = {}

    @property
    def decision(self) -> Decision | None:
        """The search that made the plan; None if the plan was loaded."""
        return self.plan.decision

    @property
    def name(self) -> str:
        """The name of the planned function."""
        return getattr(self.plan.function, "__name__", "a saved plan")

    def facts(self) -> list[str]:
        """Return the mesh, the price, its gap, memory and the difference to the ordinary partitioner, in lines."""
        plan, cost, ordinary = self.plan, self.plan.cost, self.plan.ordinary
        saved = 1 - cost.price / ordinary.price if ordinary.price else 0.0
        collectives = ", ".join(f"{n} {kind}" for kind, n in sorted(cost.collectives.items()))
        return [
            f"Mesh: {spell_axes(plan.layout_plan.mesh.shape_tuple)}.",
            f"Price of a call: {spell_price(cost.price, cost.unit)}, {saved:.0%} less than the ordinary partitioner's "
            f"{spell_price(ordinary.price, ordinary.unit)}.",
            f"Search: {plan.status}; the best layouts of the cost model are at most {plan.gap:.1%} cheaper.",
            f"Each device sends {spell_bytes(cost.bytes_sent)} (ordinary partitioner: {spell_bytes(ordinary.bytes_sent)}): "
            f"{collectives or 'no collectives'}.",
            f"Each device holds at most {spell_bytes(cost.peak)} (ordinary partitioner: {spell_bytes(ordinary.peak)}).",
        ]

    @functools.cached_property
    def arguments(self) -> list[ValueGroup]:
        """The arguments, in order."""
        return _group_equal_values(self.plan.inputs, are_arguments=True)

    @functools.cached_property
    def results(self) -> list[ValueGroup]:
        """The results, in order."""
        return _group_equal_values(self.plan.outputs, are_arguments=False)

    @functools.cached_property
    def intermediates(self) -> list[ValueGroup]:
        """The values inside the program that devices can share, by source line, type and layout; largest first."""
        if self.decision is None:
            return []
        groups: dict[tuple[Any, ...], list[tuple[Eqn, Var, int]]] = {}
        for eqn, var, place, count in _placed_values(self.decision):
            key = str(eqn.source or ""), var.aval.str_short(), place
            groups.setdefault(key, []).append((eqn, var, count))
        summaries = [_intermediate_group(key, members) for key, members in groups.items()]
        return sorted(summaries, key=lambda group: -group.elements)

    def reason(self, group: ValueGroup) -> str:
        """Return why a group of arguments or intermediate values has its layout; each takes a search."""
        decision, variable = self.decision, group.variable
        if decision is None or variable is None:
            return ""
        if variable not in self._reasons:
            if isinstance(variable, int):
                extra = len(decision.program.invars) - len(self.plan.inputs)
                self._reasons[variable] = reason_of_argument(decision, variable + extra)
            else:
                self._reasons[variable] = reason_of_intermediate(decision, variable)
        return self._reasons[variable]

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        """The collectives of the program; most bytes first."""
        if self.decision is None:
            return []
        names = [v.name for v in self.plan.inputs]
        names = ["a constant"] * (len(self.decision.program.invars) - len(names)) + names
        records = [collective_of(r, names) for r in self.decision.result.records]
        return sorted(records, key=lambda r: -r.bytes)

    @functools.cached_property
    def comparison(self) -> Any:
        """The costs of the plan and of well-known layouts; None for a plan that was loaded."""
        return None if self.decision is None else self.plan.compare()

    @functools.cached_property
    def annotated(self) -> AnnotatedProgram | None:
        """The constraints that reproduce the plan, and the price with them; None for a plan that was loaded."""
        if self.decision is None:
            return None
        return fewest_annotations(self.decision, self.plan.layout_plan.mesh, WITHIN)

    @property
    def annotations(self) -> Sequence[Annotation]:
        """The constraints that reproduce the plan."""
        return () if self.annotated is None else self.annotated.annotations

    def heading_of_annotations(self) -> str:
        """Return which price the annotations reach, as a sentence; empty for a plan that was loaded."""
        if self.annotated is None:
            return ""
        count, ratio = len(self.annotations), self.annotated.ratio
        percent = f"{100 * (WITHIN - 1):.0f} %"
        if not count and ratio <= WITHIN:
            return (
                f"The shardings of arguments and results alone reproduce the plan within {percent}."
            )
        constraints = quantity(count, "constraint")
        condition = f"With the shardings of arguments and results and {constraints}"
        if ratio <= WITHIN:
            return f"{condition}, the ordinary partitioner reproduces the plan within {percent}:"
        return f"{condition}, the ordinary partitioner's program costs {100 * (ratio - 1):.1f} % more than the plan:"

    @functools.cached_property
    def price_of_memory(self) -> list[tuple[float, float]]:
        """Most bytes of a device and the price within them; empty for a plan that was loaded."""
        if self.decision is None:
            return []
        return [(float(peak), float(price)) for peak, price in self.plan.price_of_memory()]


def _group_equal_values(values: Sequence[PlannedValue], are_arguments: bool) -> list[ValueGroup]:
    """Return arguments or results of one type and layout together, in order of their first ones."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, v in enumerate(values):
        groups.setdefault((v.shape, v.dtype, v.spec), []).append(i)
    return [_value_group(values, members, are_arguments) for members in groups.values()]


def _value_group(
    values: Sequence[PlannedValue], members: Sequence[int], are_arguments: bool
) -> ValueGroup:
    first = values[members[0]]
    spec: Spec = first.spec
    return ValueGroup(
        first.name,
        f"{first.dtype}[{','.join(map(str, first.shape))}]",
        first.shape,
        Placement(spec),
        len(members),
        len(members) * math.prod(first.shape),
        members[0] if are_arguments else None,
    )


def _placed_values(decision: Decision) -> Iterator[tuple[Eqn, Var, Placement, int]]:
    """Yield the intermediate values that have dims, with their equations, layouts and runs."""
    results = set(decision.program.outvars)
    for placed in decision.result.placed_eqns:
        if placed.manual:  # of one device: the program lays these values out itself
            continue
        for var, place in zip(placed.eqn.outvars, placed.placements):
            if var.aval.ndim and var not in results:
                yield placed.eqn, var, place, placed.count


def _intermediate_group(
    key: tuple[str, str, Placement], members: Sequence[tuple[Eqn, Var, int]]
) -> ValueGroup:
    source, type_, place = key
    operations = tuple(dict.fromkeys(str(eqn.primitive) for eqn, _, _ in members))
    largest = members[0][1].aval
    count = sum(runs for _, _, runs in members)
    return ValueGroup(
        source or operations[0],
        type_,
        tuple(largest.shape),
        place,
        count,
        count * largest.size,
        members[0][1],
        operations,
    )
