"""Equations that the host evaluates for devices that run a program on their own.

In:   visits of devices, which have operands and wait for results.
Out:  results, and failures.
Laws: an exception in a callback stops the program of a single device. On a mesh, devices wait at
      meeting points (`hlo.host_call_meetings`): calls are in the order of the mesh, and the host assembles
      whole values. After a failure, later callbacks of the execution are not called and return zeros:
      if a device stopped, others would wait in collectives forever. All devices fail at the end.
      A visiting device waits only for devices that will visit, so none waits forever.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from weft._engine.backends import base
from weft._engine.backends.lockstep import Lockstep, Values
from weft._engine.core.primitive import CallbackOp
from weft._engine.hlo.host_call_meetings import program_end_p
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.callback import convert_errors
from weft._engine.util.config import Override, config
from weft._engine.util.errors import without_frames
from weft._engine.util.threads import DaemonThread

_FAILURE = re.compile(r"weft_failure_(\d+)")
_KEPT_FAILURES = 8

#: numbers of host calls and of failures
_numbers = itertools.count(1)


class Visit(Protocol):
    """A device at a host call: its position on the mesh, and its operands."""

    position: int

    @property
    def call(self) -> MeshHostCall:
        """The call of the device."""
        ...

    @property
    def operands(self) -> Sequence[np.ndarray]:
        """The operands of the device."""
        ...

    def write(self, results: Sequence[np.ndarray]) -> None:
        """Write the results of the call."""
        ...

    def wait(self) -> None:
        """Make the device wait for `resume`."""
        ...

    def resume(self) -> None:
        """End `wait`; the device may run the rest of its program in this thread."""
        ...


class MeshHostCall:
    """An equation of a program on a mesh with the axes `mesh`.

    Callbacks have an additional operand and result: the position of the device on the mesh.
    """

    def __init__(self, calls: MeshHostCalls, eqn: Eqn, mesh: Sequence[tuple[Any, int]]) -> None:
        self.calls = calls
        self.number = next(_numbers)
        self.has_position = isinstance(eqn.primitive, CallbackOp)
        self.is_end = eqn.primitive is program_end_p
        self.operand_types = [] if self.is_end else [atom.aval for atom in eqn.invars]
        self.result_types = [variable.aval for variable in eqn.outvars]
        self._eqn = eqn
        self._axes = mesh if self.has_position else ()
        self._settings = config.trace_key()
        meets = eqn.params.get("meets", frozenset())
        apart = [1 if name in meets else size for name, size in self._axes]
        numbers = np.arange(math.prod(apart)).reshape(apart)
        grid = np.broadcast_to(numbers, [size for _, size in self._axes])
        #: the group number of each device, and the number of devices that meet in a group
        self.groups: list[int] = grid.ravel().tolist()
        self.group_size = grid.size // numbers.size

    def compute(self, visits: Sequence[Visit]) -> None:
        """Compute and write the results of devices, in the order of the mesh."""
        devices, eqn = Lockstep(self._axes), self._eqn
        devices.members = [visit.position for visit in visits]
        operands: list[Values] = list(zip(*[visit.operands for visit in visits]))
        # the devices of the program may be waiting for the callback, so it computes on the CPU
        device = base.get_host().devices()[0]
        with config.as_traced(self._settings), Override(default_device=device):
            named = eqn.params.get("callback", eqn.primitive.name)
            with convert_errors(eqn.primitive, named, eqn.source):
                results = devices.step(eqn, operands)
        for i, visit in enumerate(visits):
            visit.write([values[i] for values in results])


class Execution:
    """An execution on a mesh: the waiting devices, by call and group, and its failure."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[int, int], list[Visit]] = {}
        self.failure: str | None = None

    def fail(self, failure: str) -> list[Visit]:
        """Record a failure; return the devices that wait for callbacks, which are not called."""
        self.failure = self.failure or failure
        stopped = [key for key, visits in self.waiting.items() if not visits[0].call.is_end]
        return [visit for key in stopped for visit in self.waiting.pop(key)]


class MeshHostCalls:
    """The host calls of the programs of one backend; only one program at a time runs on a mesh.

    Each failure has a number, which is in its text. `unraised` has the numbers of failures not raised yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.execution = Execution()
        self._thread = threading.local()
        self._failures: dict[int, BaseException] = {}
        self.unraised: set[int] = set()

    @property
    def is_inside(self) -> bool:
        """Whether this thread is computing a call."""
        return getattr(self._thread, "is_inside", False)

    def visit(self, visit: Visit) -> str | None:
        """Evaluate the call of a device, or make it wait; return the text of a failure that stops it."""
        call = visit.call
        if len(call.groups) == 1:
            return self._compute([visit])
        execution, key = self.execution, (call.number, call.groups[visit.position])
        with self._lock:
            if execution.failure and not call.is_end:
                return _write_zeros([visit])
            visits = execution.waiting.setdefault(key, [])
            visits.append(visit)
            if len(visits) < call.group_size:
                return visit.wait()
            del execution.waiting[key]
        if call.is_end:
            _write_zeros(visits)  # these have no results but the position
        elif failure := self._compute(sorted(visits, key=lambda visit: visit.position)):
            with self._lock:
                visits += execution.fail(failure)
            _write_zeros(visits)
        visits.remove(visit)
        for other in visits:  # each continues in a thread of its own, until it waits again
            DaemonThread(other.resume)
        return execution.failure if call.is_end and call.group_size == 1 else None

    def _compute(self, visits: Sequence[Visit]) -> str | None:
        """Compute the results; return the text of a failure, or None."""
        was_inside, self._thread.is_inside = self.is_inside, True
        try:
            visits[0].call.compute(visits)
        except BaseException as error:
            # the thread that waits for results raises a KeyboardInterrupt
            return self._record_failure(error)
        finally:
            self._thread.is_inside = was_inside
        return None

    # ---- failures
    def _record_failure(self, error: BaseException) -> str:
        number = next(_numbers)
        self._failures[number] = error
        self.unraised.add(number)
        for old in list(self._failures)[:-_KEPT_FAILURES]:
            del self._failures[old]
            self.unraised.discard(old)
        return f"weft_failure_{number}: {error}"

    def is_failure(self, text: str) -> bool:
        """Return whether a text contains the number of a failure."""
        return _FAILURE.search(text) is not None

    def find_exception(self, text: str) -> BaseException | None:
        """Return the exception of the failure number in a text, and mark it as seen; None if there is none."""
        number = int(match[1]) if (match := _FAILURE.search(text)) else -1
        self.unraised.discard(number)
        error = self._failures.get(number)
        if error is not None:
            self._failures[number] = without_frames(error)
        return error

    def raise_unseen(self) -> None:
        """Raise the first failure that was not raised yet, and mark all as seen."""
        numbers = sorted(self.unraised)
        self.unraised.clear()
        for number in numbers:
            error = self.find_exception(f"weft_failure_{number}")
            if error is not None:
                raise error


def _write_zeros(visits: Sequence[Visit]) -> None:
    for visit in visits:
        visit.write([np.zeros(aval.shape, aval.dtype) for aval in visit.call.result_types])
