"""Alternatives: other layouts of the values that a partitioned program moves, tried one by one.

In:   a partitioned program, what propagation found for it, a function that partitions it with the layouts of some variables chosen.
Out:  the best of the programs that were tried; the first if none sends less.
Law:  a program is better only if devices send less and the time saved is not lost to work that more of them do.
How:  propagation and the choice of strategies decide by what is near a value, so where operands disagree the price shows only
      when the program is made. Each move says what would spare it: the value is made as it is needed, or moved there at once
      because several equations need it so; its reader works as the value is; the result stays as it was made. These are
      tried, the largest moves first; what helps is kept, and the moves that are left then make new suggestions.
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

#: how many choices are tried at most, and how many equations are partitioned at most for that
TRIES, EQUATIONS = 12, 600


@record
class Choices:
    """Layouts of variables: those that propagation starts from, and those to which they are moved as soon as they are made."""

    layouts: dict[Var, Spec] = field(default_factory=dict)
    early: dict[Var, Spec] = field(default_factory=dict)

    def with_choice(self, kind: str, var: Var, spec: Spec) -> Choices:
        return replace(self, **{kind: {**getattr(self, kind), var: spec}})


def improved(found: Any, target_specs: Propagation, partitioned: Callable[[Choices], Any]) -> Any:
    """`found`, or a partitioned program that is better; `partitioned` makes one by some choices, or None."""
    left = min(TRIES, EQUATIONS // max(len(found.placed_eqns), 1))
    choices = Choices()
    tried: set[tuple[str, Var, Spec]] = set()
    improving = True
    while improving:
        improving = False
        for choice in _suggestions(found, target_specs):
            if choice in tried:
                continue
            if not left:
                return found
            tried.add(choice)
            left -= 1
            other = partitioned(choices.with_choice(*choice))
            if (
                other is not None
                and other.bytes_sent < found.bytes_sent
                and _time(other) < _time(found)
            ):
                found, choices, improving = other, choices.with_choice(*choice), True
                break
    return found


def _time(result: Any) -> float:
    """Time of communication and computation, in bytes sent."""
    return result.bytes_sent + result.work


def _suggestions(found: Any, target_specs: Propagation) -> Iterator[tuple[str, Var, Spec]]:
    """Choices that would spare moves of `found`."""
    moves = [
        r for r in found.records if r.value is not None and r.cause in ("operand", "loop", "output")
    ]
    for r in sorted(moves, key=lambda r: -r.bytes_per_device * r.count):
        for kind, var, spec in _ways_out(r, target_specs, found.program.invars):
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


def _ways_out(
    r: CollectiveRecord, target_specs: Propagation, arguments: Sequence[Var]
) -> Iterator[tuple[str, Var, Spec]]:
    """Choices that would spare the move `r`. Results laid out like an argument of their type, as a new state is, stay so."""
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
