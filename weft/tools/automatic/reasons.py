"""Why values of a plan have their layouts: the next best layout, and how much more it costs.

In:   a `Decision` of automatic sharding, and a value of its program.
Out:  the end of a sentence, after "X is P('x'): ".
"""

from __future__ import annotations

from typing import Any

from weft._engine.ir.jaxpr import Var
from weft._engine.ir.specs import join_axis_parts
from weft._engine.partition.auto.partitioning import BOUNDARY, ORDINARY, Decision
from weft._engine.partition.reshard import Placement
from weft.tools.automatic.planned_value import partition_spec
from weft.tools.automatic.pricing import spell_price

#: prices that differ less, relatively, count as equal
TOLERANCE = 1e-3


def spell_layout(place: Placement) -> str:
    """Write a layout as a PartitionSpec, with the axes over which it is a partial sum.

    >>> spell_layout(Placement((("x",), ())))
    "P('x',)"
    """
    spec = partition_spec([tuple(join_axis_parts(axes)) for axes in place.dims])
    sums = ", ".join(map(str, join_axis_parts(sorted(map(str, place.partial)))))
    return f"{spec} with partial sums over {sums}" if sums else str(spec)


def reason_of_argument(decision: Decision, number: int) -> str:
    """Return why argument `number` of the program has its layout."""
    if decision.given_specs.in_specs[number] is not None:
        return "it was given."
    return _runner_up(decision, decision.program.invars[number])


def reason_of_intermediate(decision: Decision, var: Var) -> str:
    """Return why a value inside the program has its layout."""
    if decision.method == ORDINARY:
        return "the ordinary partitioner chose it; the search found nothing cheaper."
    if decision.method == BOUNDARY:
        return "it follows from the shardings of the arguments and results."
    if var not in decision.optimizer.graph.maker:
        return "it follows from the operands; nothing was to choose."
    return _runner_up(decision, var)


def _runner_up(decision: Decision, var: Var) -> str:
    solution = decision.solution
    if not solution.chosen:
        return "a well-known layout has it, the cheapest that fits in the memory."
    node = decision.optimizer.graph.maker[var]
    other = decision.optimizer.alternative(solution, node)
    if other is None:
        return "no other layout is possible."
    number = node.makes.index(var)
    own, runner_up = (s.chosen[node].makes[number] for s in (solution, other))
    least, more = solution.price, max(other.price - solution.price, 0.0)
    is_way = own == runner_up  # another way to compute the value in the same layout
    name = "another way to compute it" if is_way else spell_layout(runner_up)
    if more <= least * max(solution.gap, TOLERANCE):
        return f"{name} costs the same."
    title = (
        "the next best way to compute it in this layout"
        if is_way
        else f"the next best layout, {name},"
    )
    share = f" ({more / least:+.1%})" if least else ""
    return f"{title} costs {_spell_extra(decision, more)} more{share}."


def _spell_extra(decision: Decision, price: float) -> str:
    seconds: Any = decision.prices.seconds_per_byte
    return spell_price(price, "B") if seconds is None else spell_price(price * seconds, "s")
