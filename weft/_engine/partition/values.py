"""Values of the global program inside the program of one device, and the trace that records its equations.

In:   a global value and its first local form.
Out:  `Value`s, which know all local forms they have so far, by placement.
Next: `partition.partitioner`, which computes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.core.stage import StageTrace
from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ir.specs import Spec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.placement import optimization_barrier
from weft._engine.partition.cost import Why
from weft._engine.partition.reshard import Placement
from weft._engine.util.record import field, record


class LocalTrace(StageTrace):
    """Stages local equations; each is attributed to the line of the global equation it comes from."""

    __slots__ = ("source",)

    def __init__(self, parent: Any, name: str = ""):
        super().__init__(parent, name)
        self.source: Any = None

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        out = super().process(primitive, args, params)
        self.eqns[-1].source = self.source
        return out


class NotPartial(Exception):
    """A value that was expected to be a partial sum is not one."""


@record
class Origin:
    """Where a partial sum comes from: the reason, and the user's line. `selects`: all of its terms but one are negative zeros."""

    why: Why
    source: Any
    selects: bool = False


@record
class PlacedEqn:
    """How the results of an equation of the global program are placed. It is in a program that runs `count` times, at
    `depth` in programs within programs, which handles the axes `manual` itself (its types are then those of one device)."""

    eqn: Eqn
    placements: tuple[Placement, ...]
    count: int
    depth: int
    manual: frozenset[Any]


@record
class FormSchedule:
    """When forms of values are made and dropped.

    early      the layout to which a variable is moved as soon as it is computed
    dropped    after an equation, forms that are made again where they are needed later, instead of kept
    """

    early: Mapping[Var, Spec] = field(default_factory=dict)
    dropped: Mapping[Eqn, Sequence[tuple[Var, Spec]]] = field(default_factory=dict)


class Value:
    """A global value inside the local program: its type and the local forms it has so far, by placement."""

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
        self.runs = runs  # how often it is computed if that is less than the program runs: constants of loops; else 0
        self.argument = argument  # its number among the inputs of the program, if it is one
        self.origin = origin
        self.var: Any = None  # the variable of the global program that it is the value of, the first if of several
        self.forms: dict[Placement, Any] = {placement: local}

    @property
    def placement(self) -> Placement:
        """How it was made."""
        return next(iter(self.forms))

    def drop(self, place: Placement) -> None:
        """Drop a form. It is made again from the first one, which stands behind a barrier: equal moves are not merged."""
        first = self.placement
        if place != first and self.forms.pop(place, None) is not None:
            (self.forms[first],) = optimization_barrier([self.forms[first]])

    @property
    def partial_axes(self) -> frozenset[Any]:
        """The axes over which it must be summed before it can be read; none if a summed form exists."""
        return frozenset() if any(not p.partial for p in self.forms) else self.placement.partial
