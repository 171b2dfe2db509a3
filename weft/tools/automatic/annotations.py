"""The fewest annotations that reproduce a plan: constraints on intermediate values, as code to paste.

In:   a `Decision` of automatic sharding.
Out:  `Annotation`s. With them, and with the shardings of arguments and results, the ordinary partitioner makes a program that
      costs at most `within` times the plan's.
How:  greedy: of the values near the most expensive moves of the present program, the one whose layout saves most. If these do not
      reach the price, the largest of all values are added until they do, and the needless annotations are removed.
      All values of one source line with one layout are one annotation, as the layers of a model are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec, Spec, join_axis_parts
from weft._engine.ops.placement import sharding_constraint_p
from weft._engine.partition.auto.partitioning import Decision, made_variables
from weft._engine.partition.auto.realized import price_of
from weft._engine.partition.partition import PartitionResult, partition
from weft._engine.util.record import record
from weft._engine.util.source import SourceLine

#: how much more than the plan a program with annotations may cost, relatively
WITHIN = 1.02
#: most annotations near collectives, and most candidates that are tried for each
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


@record
class AnnotatedProgram:
    """Annotations, the program that the ordinary partitioner makes with them, and its price relative to the plan's."""

    annotations: tuple[Annotation, ...]
    result: PartitionResult
    ratio: float


def fewest_annotations(decision: Decision, mesh: Mesh, within: float) -> AnnotatedProgram:
    """Return the annotations with which the program costs at most `within` times the plan's price.

    Without such annotations, return the annotations of the cheapest program.
    """
    return AnnotationSearch(decision, mesh, within).run()


class AnnotationSearch:
    """A search for annotations. Each step partitions the program again."""

    def __init__(self, decision: Decision, mesh: Mesh, within: float):
        self.decision, self.mesh, self.within = decision, mesh, within
        self.groups = _groups(decision)

    def run(self) -> AnnotatedProgram:
        near = self._add_near_collectives(self.annotate(()))
        if near.ratio <= self.within:
            return near
        known = set(near.annotations)
        candidates = [annotation for annotation in self._by_size() if annotation not in known]
        return min(near, self._add_many(near, candidates), key=lambda program: program.ratio)

    def annotate(self, annotations: Sequence[Annotation]) -> AnnotatedProgram:
        """Return the program of the ordinary partitioner with annotations of the plan."""
        layouts = {v: spec for a in annotations for v, spec in self.groups[a].items()}
        result = _with_constraints(self.decision, self.mesh, layouts)
        price, planned = price_of(result, self.decision.prices), self.decision.price
        ratio = price / planned if planned else float(price > 0) + 1.0
        return AnnotatedProgram(tuple(annotations), result, ratio)

    def _add_near_collectives(self, program: AnnotatedProgram) -> AnnotatedProgram:
        """Add the annotation that saves most of those near collectives, until the price is reached or none saves."""
        while program.ratio > self.within and len(program.annotations) < MOST:
            known = program.annotations
            candidates = _candidates(program.result, self.groups, self.decision, set(known))
            tried = [self.annotate([*known, annotation]) for annotation in candidates]
            best = min(tried, key=lambda one: one.ratio, default=program)
            if best.ratio >= program.ratio:
                break
            program = best
        return program

    def _add_many(self, program: AnnotatedProgram, rest: list[Annotation]) -> AnnotatedProgram:
        """Add the fewest first ones of `rest` that reach the price, and remove unneeded ones.

        If all of them do not reach the price, return the program with all of them.
        """
        known, low, high = program.annotations, 0, len(rest)
        program = self.annotate([*known, *rest])
        if program.ratio > self.within:
            return program
        while high - low > 1:
            middle = (low + high) // 2
            tried = self.annotate([*known, *rest[:middle]])
            if tried.ratio <= self.within:
                high, program = middle, tried
            else:
                low = middle
        return self._without_needless(program, len(known))

    def _without_needless(self, program: AnnotatedProgram, first: int) -> AnnotatedProgram:
        """Remove annotations after the `first` ones, as long as the price stays within the bound: halves, then smaller parts."""
        size = (len(program.annotations) - first + 1) // 2
        while size:
            start = first
            while start < len(program.annotations):
                rest = program.annotations[:start] + program.annotations[start + size :]
                tried = self.annotate(rest)
                if tried.ratio <= self.within:
                    program = tried
                else:
                    start += size
            size //= 2
        return self._without_needless(program, 0) if first else program

    def _by_size(self) -> list[Annotation]:
        """Return the annotations, sorted by bytes, the largest first."""
        nbytes = {a: sum(v.aval.nbytes for v in members) for a, members in self.groups.items()}
        return sorted(nbytes, key=lambda annotation: -nbytes[annotation])


def _with_constraints(
    decision: Decision, mesh: Mesh, layouts: Mapping[Var, Spec]
) -> PartitionResult:
    solution = decision.solution
    program = _constrain(decision.program, mesh, layouts)
    return partition(program, mesh, solution.in_specs, solution.out_specs, decision.prices.model)


def _constrain(program: Jaxpr, mesh: Mesh, layouts: Mapping[Var, Spec]) -> Jaxpr:
    """Return a program, and the programs in it, with a sharding constraint after each variable of `layouts`."""
    eqns: list[Eqn] = []

    def constrain(var: Var, source: SourceLine | None) -> Var:
        if var not in layouts:
            return var
        spec = PartitionSpec(*(join_axis_parts(axes) or None for axes in layouts[var]))
        params = {"sharding": NamedSharding(mesh, spec)}
        free = Var(var.aval)
        eqns.append(Eqn(sharding_constraint_p, [free], [var], params, source))
        return free

    invars = [constrain(var, None) for var in program.invars]
    for eqn in program.eqns:
        params = map_jaxprs(eqn.params, lambda inner: _constrain(inner, mesh, layouts))
        position = len(eqns)
        outvars = [constrain(var, eqn.source) for var in eqn.outvars]
        eqns.insert(position, eqn.replace(outvars=outvars, params=params))
    return program.replace(invars=invars, eqns=eqns)


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
