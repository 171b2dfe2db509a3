"""Local search: other layouts of the values that a partitioned program moves are tried one by one.

In:   a partitioned program, its target specs, and a function that partitions it with chosen layouts of some variables.
Out:  the best of the tried programs; the first if no other sends less.
Law:  a program is better only if devices send less, and the saved time is not lost to repeated computation.
How:  propagation and the choice of strategies are local decisions, so the cost of conflicting operands is known only when the
      program is partitioned. Each move suggests choices that would avoid it: the value is computed in the layout of its
      reader, or moved there immediately because several equations need it; the reader computes in the layout of the value;
      the result keeps its layout. These are tried, the largest moves first; improvements are kept, and the remaining
      moves make new suggestions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft._engine.ir.factors import axes_of_factors, dims_of_factors
from weft._engine.ir.jaxpr import Literal, Var
from weft._engine.ir.specs import Spec
from weft._engine.partition.cost import CollectiveRecord
from weft._engine.partition.padding import evenly_split
from weft._engine.partition.propagation.propagate import Propagation
from weft._engine.util.record import field, record, replace

#: maximal number of tried choices, and of equations that are partitioned for them
TRIES, EQUATIONS = 12, 600


@record
class Choices:
    """Chosen layouts of variables: initial specs for propagation, and layouts to which variables are moved when they are computed."""

    layouts: dict[Var, Spec] = field(default_factory=dict)
    early: dict[Var, Spec] = field(default_factory=dict)

    def with_choice(self, kind: str, var: Var, spec: Spec) -> Choices:
        return replace(self, **{kind: {**getattr(self, kind), var: spec}})


def search_alternatives(
    partitioned_program: Any, target_specs: Propagation, partitioned: Callable[[Choices], Any]
) -> Any:
    """Return `partitioned_program` or a better partitioned program; `partitioned` returns the program for some choices, or None."""
    tries_left = min(TRIES, EQUATIONS // max(len(partitioned_program.placed_eqns), 1))
    choices = Choices()
    tried: set[tuple[str, Var, Spec]] = set()
    improving = True
    while improving:
        improving = False
        for choice in _suggestions(partitioned_program, target_specs):
            if choice in tried:
                continue
            if not tries_left:
                return partitioned_program
            tried.add(choice)
            tries_left -= 1
            other = partitioned(choices.with_choice(*choice))
            if (
                other is not None
                and other.bytes_sent < partitioned_program.bytes_sent
                and _time(other) < _time(partitioned_program)
            ):
                partitioned_program, choices, improving = other, choices.with_choice(*choice), True
                break
    return partitioned_program


def _time(result: Any) -> float:
    """Return the time of communication and computation, in the unit of bytes sent."""
    return result.bytes_sent + result.work


def _suggestions(
    partitioned_program: Any, target_specs: Propagation
) -> Iterator[tuple[str, Var, Spec]]:
    """Yield choices that would avoid moves of `partitioned_program`."""
    moves = [
        r
        for r in partitioned_program.records
        if r.value is not None and r.cause in ("operand", "loop", "output")
    ]
    for r in sorted(moves, key=lambda r: -r.bytes_per_device * r.count):
        for kind, var, spec in _choices_avoiding(
            r, target_specs, partitioned_program.program.invars
        ):
            if kind == "early":
                yield kind, var, spec
            elif not target_specs.is_fixed(var):
                yield (
                    kind,
                    var,
                    evenly_split(var.aval.shape, spec, target_specs.sizes)
                    if var in target_specs.boundary
                    else spec,
                )


def _choices_avoiding(
    r: CollectiveRecord, target_specs: Propagation, arguments: Sequence[Var]
) -> Iterator[tuple[str, Var, Spec]]:
    """Yield choices that would avoid the move `r`, except for results with the layout of an argument of equal type, such as a new state."""
    if r.cause == "output":
        if not any(
            a.aval == r.value.aval and target_specs.spec(a) == r.after.dims for a in arguments
        ):
            yield "layouts", r.value, r.before.dims
        return
    yield "layouts", r.value, r.after.dims
    yield "early", r.value, r.after.dims
    if r.cause != "operand" or r.eqn is None:
        return
    eqn, rule = r.eqn, target_specs.rule(r.eqn)
    if rule is None:
        return
    for var, factors in zip(eqn.invars, rule.ins):
        if type(var) is not Literal and var.aval.shape == r.value.aval.shape:
            axes = axes_of_factors(factors, r.before.dims, rule, target_specs.sizes)[0]
            yield from (
                ("layouts", out, dims_of_factors(fs, axes, rule, target_specs.sizes))
                for out, fs in zip(eqn.outvars, rule.outs)
            )
