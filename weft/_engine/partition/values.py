"""Values of the global program inside the local program, and the trace that records local equations.

In:   a global value and its first local form.
Out:  `LocalValue`s, which have all local forms so far, by placement.
Next: `partition.partitioner`, which computes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.core.stage import StageTrace
from weft._engine.ir.jaxpr import Eqn, Literal, Var
from weft._engine.ir.specs import Spec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import optimization_barrier
from weft._engine.partition.cost import Why
from weft._engine.partition.reshard import Placement
from weft._engine.util.record import field, record


class LocalTrace(StageTrace):
    """A trace that stages local equations with the source line of their global equation."""

    __slots__ = ("source",)

    def __init__(self, parent: Any, name: str = ""):
        super().__init__(parent, name)
        self.source: Any = None

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        out = super().process(primitive, args, params)
        self.eqns[-1].source = self.source
        return out


class NotSplittable(Exception):
    """The operation cannot run on the local shapes."""


class NotPartial(Exception):
    """A value that was expected to be a partial sum is not one."""


@record
class Origin:
    """The origin of a partial sum: the reason, and the user's line. `selects`: all terms except one are negative zeros."""

    why: Why
    source: Any
    selects: bool = False


@record
class PlacedEqn:
    """The placements of the results of an equation of the global program.

    The equation is in a program that runs `count` times, at nesting depth `depth`, with the manual axes `manual` (over which its
    types are local)."""

    eqn: Eqn
    placements: tuple[Placement, ...]
    count: int
    depth: int
    manual: frozenset[Any]


@record
class FormSchedule:
    """The times at which forms of values are created and dropped.

    early      the layout to which a variable is moved as soon as it is computed
    dropped    by equation, the forms that are dropped after it and created again if they are needed later
    """

    early: Mapping[Var, Spec] = field(default_factory=dict)
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = field(default_factory=dict)


class LocalValue:
    """A global value inside the local program: its type and its local forms so far, by placement."""

    __slots__ = ("argument", "aval", "forms", "origin", "runs", "var")

    def __init__(
        self,
        aval: ShapedArray,
        placement: Placement,
        local: Any,
        origin: Origin | None = None,
        argument: int | None = None,
        runs: int = 0,
    ):
        self.aval = aval
        self.runs = runs  # number of computations if fewer than the program's runs (constants of loops); else 0
        # its number among the inputs of the program; None if it is not an input
        self.argument = argument
        self.origin = origin
        self.var: Any = None  # the variable of the global program with this value, the first if there are several
        self.forms: dict[Placement, Any] = {placement: local}

    @property
    def placement(self) -> Placement:
        """The first computed placement of the value."""
        return next(iter(self.forms))

    def drop(self, place: Placement) -> None:
        """Drop a form. It can be created again from the first form, behind a barrier, so that equal moves are not merged."""
        first = self.placement
        if place != first and self.forms.pop(place, None) is not None:
            (self.forms[first],) = optimization_barrier([self.forms[first]])

    @property
    def partial_axes(self) -> frozenset[Any]:
        """The axes over which the value must be summed before it is read; none if a summed form exists."""
        return frozenset() if any(not p.partial for p in self.forms) else self.placement.partial


def run_count(eqn: Eqn, values: Sequence[LocalValue]) -> int:
    """Return the number of runs of an equation on constants of loops; 0 if an operand varies with the loop."""
    runs = [v.runs for a, v in zip(eqn.invars, values) if type(a) is not Literal]
    return max(runs) if all(runs) and runs and not eqn.effects else 0


def read_reason(eqn: Eqn, i: int, place: Placement) -> str:
    operand = "its operand" if len(eqn.invars) == 1 else f"operand {i}"
    return f"{eqn.primitive} takes {operand} as {place}"
