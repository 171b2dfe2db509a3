"""Memory in the integer program: the bytes that a device holds at each time, as rows over the variables.

In:   values with the times between which they live, and the variables that say in which layout each value or form exists.
Out:  the bytes over time of a solution, and for a time the row whose value is the bytes held then.
How:  rows are added where a solution holds too much, until none does. Times are positions of equations.
Laws: values inside elementwise groups are not stored. What kernels fuse otherwise is counted, so the peak is an estimate; the
      buffers of the partitioned program decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft._engine.ir.jaxpr import Var
from weft._engine.partition.reshard import Placement, local_shape
from weft._engine.util.record import record

FloatArray = npt.NDArray[np.float64]


@record
class Held:
    """Bytes that are held from `start` to `end` where a variable of the program is 1."""

    column: int
    nbytes: float
    start: int
    end: int
    var: Var


class MemoryRows:
    """All that may be held, as arrays."""

    def __init__(self, held: Sequence[Held], end: int, columns: int):
        self.held, self.columns = held, columns
        self._column = np.array([h.column for h in held], np.int64)
        self._bytes = np.array([h.nbytes for h in held], np.float64)
        self._start = np.array([h.start for h in held], np.int64)
        self._end = np.array([h.end for h in held], np.int64)
        self._last = end

    def profile(self, x: FloatArray) -> FloatArray:
        """Return the bytes held at each time by a solution."""
        held = np.round(x[self._column]) * self._bytes
        change = np.zeros(self._last + 3)
        np.add.at(change, self._start, held)
        np.add.at(change, self._end + 1, -held)
        return np.cumsum(change)

    def largest(self, x: FloatArray, count: int) -> list[tuple[Var, float]]:
        """Return the largest values that a solution holds when it holds most, with their bytes."""
        at = int(np.argmax(self.profile(x)))
        now = [h for h in self.held if h.start <= at <= h.end and x[h.column] > 0.5]
        now.sort(key=lambda h: -h.nbytes)
        return [(h.var, h.nbytes) for h in now[:count]]

    def total(self) -> float:
        """Return the bytes of everything."""
        return float(np.sum(self._bytes))

    def row(self, at: int) -> list[tuple[int, float]]:
        """Return the columns and bytes of what may be held at a time."""
        now = (self._start <= at) & (at <= self._end)
        total = np.bincount(self._column[now], self._bytes[now], self.columns)
        return [(int(c), float(total[c])) for c in np.nonzero(total)[0]]


def bytes_of(var: Var, place: Placement, sizes: Mapping[Any, int]) -> float:
    """Return the bytes of a device's block of a variable."""
    shape = local_shape(tuple(var.aval.shape), place.dims, sizes)
    return float(np.prod(shape, dtype=float)) * var.aval.dtype.itemsize
