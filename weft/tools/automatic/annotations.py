"""The fewest annotations that reproduce a plan: constraints on intermediate values, as code to paste.

In:   a `Decision` of automatic sharding.
Out:  `Annotation`s. With them, and with the shardings of arguments and results, the ordinary partitioner makes a program that
      costs at most `within` times the plan's.
How:  greedy: of the values near the most expensive moves of the present program, the one whose layout saves most.
      All values of one source line with one layout are one annotation, as the layers of a model are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import Spec, join_axis_parts
from weft._engine.partition.auto.partitioning import Decision, made_variables
from weft._engine.partition.auto.realized import price_of
from weft._engine.partition.partition import (
    PartitionResult,
    ValueLayouts,
    partition,
    partition_with_layouts,
)
from weft._engine.util.record import record

#: maximal number of annotations, and of candidates that are tried for each
MOST, TRIES = 8, 6


@record
class Annotation:
    """A constraint on the values of one source line: `spec` for the result of `operation`, of the given type."""

    source: str
    operation: str
    type: str
    spec: Spec

    def code(self) -> str:
        """Return the statement that constrains a value `x`.

        >>> Annotation("model.py:3", "add", "float32[8,4]", (("x",), ())).code()
        "x = lax.with_sharding_constraint(x, P('x', None))"
        """
        return f"x = lax.with_sharding_constraint(x, P({', '.join(map(_spell_axes, self.spec))}))"

    def __str__(self) -> str:
        return f"{self.code()}\n    for {self.operation} {self.type} at {self.source}"


def _spell_axes(axes: tuple[Any, ...]) -> str:
    names = tuple(join_axis_parts(axes))
    if not names:
        return "None"
    return repr(names[0]) if len(names) == 1 else repr(names)


def fewest_annotations(
    decision: Decision, mesh: Mesh, within: float
) -> tuple[list[Annotation], PartitionResult]:
    """Return the annotations, and the program that the ordinary partitioner makes with them."""
    groups = _groups(decision)
    chosen: dict[Var, Spec] = {}
    annotations: list[Annotation] = []
    current = _with_layouts(decision, mesh, chosen)
    goal = within * decision.price
    while price_of(current, decision.prices) > goal and len(annotations) < MOST:
        best: tuple[float, PartitionResult, Annotation] | None = None
        for annotation in _candidates(current, groups, decision, set(annotations)):
            result = _with_layouts(decision, mesh, {**chosen, **groups[annotation]})
            price = price_of(result, decision.prices)
            if best is None or price < best[0]:
                best = price, result, annotation
        if best is None or best[0] >= price_of(current, decision.prices):
            break
        _, current, annotation = best
        chosen.update(groups[annotation])
        annotations.append(annotation)
    return annotations, current


def _with_layouts(decision: Decision, mesh: Mesh, layouts: Mapping[Var, Spec]) -> PartitionResult:
    solution, model = decision.solution, decision.prices.model
    ins, outs = solution.in_specs, solution.out_specs
    if not layouts:
        return partition(decision.program, mesh, ins, outs, model)
    return partition_with_layouts(decision.program, mesh, ins, outs, ValueLayouts(layouts), model)


def _groups(decision: Decision) -> dict[Annotation, dict[Var, Spec]]:
    """Return the layouts that one annotation states, by the annotation."""
    groups: dict[Annotation, dict[Var, Spec]] = {}
    arguments = set(decision.program.invars)
    for var, eqn in made_variables(decision.program):
        spec = decision.solution.layouts.get(var)
        if spec is None or var in arguments or not var.aval.ndim:
            continue
        annotation = Annotation(
            str(eqn.source or "?"), str(eqn.primitive), var.aval.str_short(), spec
        )
        groups.setdefault(annotation, {})[var] = spec
    return groups


def _candidates(
    result: PartitionResult,
    groups: Mapping[Annotation, Mapping[Var, Spec]],
    decision: Decision,
    found: set[Annotation],
) -> Iterator[Annotation]:
    """Yield the annotations of values next to the most expensive collectives, at most `TRIES`."""
    of_var = {v: annotation for annotation, members in groups.items() for v in members}
    weights: dict[Annotation, float] = {}
    for record_ in result.records:
        for part in record_.parts or (record_,):
            price = part.count * decision.prices.collective(part.axes, part.bytes_per_device)
            for var in _near(part.value, part.eqn):
                annotation = of_var.get(var)
                if annotation is not None and annotation not in found:
                    weights[annotation] = weights.get(annotation, 0.0) + price
    yield from sorted(weights, key=lambda annotation: -weights[annotation])[:TRIES]


def _near(value: Var | None, eqn: Eqn | None) -> set[Var]:
    near = {value} if value is not None else set()
    if eqn is not None:
        near |= set(eqn.outvars) | {a for a in eqn.invars if isinstance(a, Var)}
    return near
