"""Memory in the integer program: the bytes that a device holds at each time, as rows over the variables.

In:   values with the times between which they live, and the variables that select the layout of each value or form.
Out:  the bytes over time of a solution, and for a time the row whose value is the bytes held then.
How:  rows are added where a solution holds too much, until none does. Times are those at which the compiler runs the operations
      of the program (`Storage`), which also says what kernels store at all.
Laws: arguments are held always, and so are results that take no argument's memory. A sum over devices ends when it is made.
      Reductions that are combined and alignment are not counted, so the peak is an estimate; the buffers of the partitioned
      program decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.partition.auto.graph import DecisionGraph, DecisionNode, Kind
from weft._engine.partition.reshard import Placement, local_shape
from weft._engine.util.record import record

FloatArray = npt.NDArray[np.float64]


@record
class Storage:
    """Lifetimes of a program's values in memory, after the compiler's fusion.

    lifetimes    the first and the last time of each value that is stored between operations; not of arguments and results
    times        when an equation is computed
    end          the time after all equations
    """

    lifetimes: Mapping[Var, tuple[int, int]]
    times: Mapping[Eqn, int]
    end: int


class FormSpan(Enum):
    """The lifetime of a form of a value, by the readers that use it."""

    ALL = auto()
    EARLY = auto()
    LATE = auto()
    BETWEEN = auto()  # kept from the early readers to the late ones


@record
class Form:
    """A form of a value that exists where a variable of the program is 1, and the layout that it is made from."""

    column: int
    source: Placement
    place: Placement
    span: FormSpan


@record
class ValueForms:
    """The forms of values that share variables.

    source_columns   the columns of the choices that make the values, with the layouts
    forms        the forms that readers use; none if all layouts are the same
    is_early     whether all readers need one layout: it is made as soon as the value is
    """

    values: Sequence[Var]
    source_columns: Mapping[Placement, Sequence[int]]
    forms: Sequence[Form]
    is_early: bool


@record
class HeldBytes:
    """Bytes that are held from `start` to `end` where a variable of the program is 1."""

    column: int
    nbytes: float
    start: int
    end: int
    var: Var


class MemoryModel:
    """The memory in use on a device, by the variables of an integer program."""

    def __init__(self, graph: DecisionGraph, storage: Storage, sizes: Mapping[Any, int]):
        self.graph, self.storage, self.sizes = graph, storage, sizes

    @property
    def end(self) -> int:
        """The time after all equations."""
        return self.storage.end

    def held_by_forms(self, forms: ValueForms) -> Iterator[HeldBytes]:
        """Yield the memory of values in the layouts of their makers and in their other forms."""
        for var in forms.values:
            yield from self._held_as_made(var, forms)
            for form in forms.forms:
                yield from self._held_as(var, form, forms.is_early)

    def held_by_boundary(
        self, node: DecisionNode, columns: Mapping[Placement, int]
    ) -> Iterator[HeldBytes]:
        """Yield the memory of an argument, or of a result that reuses no argument's memory, for each layout."""
        var = node.makes[0] if node.kind is Kind.INPUT else node.reads[0].var
        for place, column in columns.items():
            yield HeldBytes(column, bytes_of(var, place, self.sizes), 0, self.end, var)

    def _held_as_made(self, var: Var, forms: ValueForms) -> Iterator[HeldBytes]:
        life = self.storage.lifetimes.get(var)
        if life is not None:
            birth, last = life
            for place, columns in forms.source_columns.items():
                nbytes = bytes_of(var, place, self.sizes)
                for column in columns:
                    yield HeldBytes(column, nbytes, birth, birth if forms.forms else last, var)

    def _held_as(self, var: Var, form: Form, is_early: bool) -> Iterator[HeldBytes]:
        """Yield the memory of a form of a value that readers use."""
        is_argument = self.graph.maker[var].kind is Kind.INPUT
        is_kept = form.source == form.place and form.span is not FormSpan.BETWEEN
        span = self._span(var, form.span)
        life = self.storage.lifetimes.get(var)
        if span is None or (is_kept and (is_argument or life is None)):
            return
        start, end = span
        if life is not None:
            if is_kept or is_early or form.source.partial:
                start = self._start_as_made(var, form, start, is_kept)
            if form.span is FormSpan.ALL:
                end = life[1]
        if start <= end:
            yield HeldBytes(form.column, bytes_of(var, form.place, self.sizes), start, end, var)

    def _start_as_made(self, var: Var, form: Form, start: int, is_kept: bool) -> int:
        """Return the first time of a form that exists from the creation of its value, or is kept until `start`."""
        if form.span is FormSpan.ALL or form.span is FormSpan.EARLY:
            return self.storage.lifetimes[var][0] + 1
        between = self._span(var, FormSpan.BETWEEN) if is_kept else None
        return start if between is None else between[0] + 1

    def _span(self, var: Var, span: FormSpan) -> tuple[int, int] | None:
        """Return the first and the last time of the equations that use a form of a value; None if none does."""
        late = self.graph.late_readers(var)
        times: dict[bool, list[int]] = {False: [], True: []}
        for node, r in self.graph.readers[var]:
            eqn = self.graph.equations.get(node.reads[r].time)
            if eqn is not None:
                times[(node, r) in late].append(self.storage.times.get(eqn, 0))
        all_times = times[False] + times[True]
        if not all_times:
            return None
        if not times[False] or not times[True]:
            span = FormSpan.ALL
        match span:
            case FormSpan.EARLY:
                return min(times[False]), max(times[False])
            case FormSpan.LATE:
                return min(times[True]), max(times[True])
            case FormSpan.BETWEEN:
                return max(times[False]), max(times[True])
            case FormSpan.ALL:
                return min(all_times), max(all_times)


class MemoryRows:
    """The memory of all forms as arrays: bytes, first and last time, and the variable (column) that decides it."""

    def __init__(self, intervals: Sequence[HeldBytes], end: int, columns: int):
        self.intervals, self.columns = intervals, columns
        self._column = np.array([h.column for h in intervals], np.int64)
        self._bytes = np.array([h.nbytes for h in intervals], np.float64)
        self._start = np.array([h.start for h in intervals], np.int64)
        self._end = np.array([h.end for h in intervals], np.int64)
        self._last = end

    def profile(self, x: FloatArray) -> FloatArray:
        """Return the bytes held at each time by a solution."""
        held_bytes = x[self._column] * self._bytes
        change = np.zeros(self._last + 3)
        np.add.at(change, self._start, held_bytes)
        np.add.at(change, self._end + 1, -held_bytes)
        return np.cumsum(change)

    def largest(self, count: int) -> list[tuple[Var, float]]:
        """Return the largest values at the time of the peak, with their bytes, if every form exists."""
        at = int(np.argmax(self.profile(np.ones(self.columns))))
        alive = [h for h in self.intervals if h.start <= at <= h.end]
        alive.sort(key=lambda h: -h.nbytes)
        return [(h.var, h.nbytes) for h in alive[:count]]

    def total(self) -> float:
        """Return the sum of the bytes of all forms."""
        return float(np.sum(self._bytes))

    def row(self, at: int) -> list[tuple[int, float]]:
        """Return the columns and bytes of the forms that may exist at a time."""
        is_alive = (self._start <= at) & (at <= self._end)
        total = np.bincount(self._column[is_alive], self._bytes[is_alive], self.columns)
        return [(int(c), float(total[c])) for c in np.nonzero(total)[0]]


def bytes_of(var: Var, place: Placement, sizes: Mapping[Any, int]) -> float:
    """Return the bytes of a device's block of a variable."""
    shape = local_shape(tuple(var.aval.shape), place.dims, sizes)
    return float(np.prod(shape, dtype=float)) * var.aval.dtype.itemsize
