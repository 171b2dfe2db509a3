"""Equations that the host computes for devices that run a program by themselves.

In:   visits of devices, which have operands and wait for results.
Out:  results, and failures.
Laws: what a callback raises stops the program of one device. On a mesh, devices wait where they meet
      (`hlo.host_meetings`): calls have the order of the mesh, and whole values are put together on
      the host. After a failure, later callbacks of the execution are not called and give zeros: a
      device that stopped would have others wait in collectives forever. All devices fail at the end.
      A visiting device waits for nothing but for devices that will visit, so none waits forever.
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
from weft._engine.hlo.host_meetings import program_end_p
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.callback import reported
from weft._engine.util.config import Override, config
from weft._engine.util.errors import without_frames
from weft._engine.util.threads import DaemonThread

_FAILURE = re.compile(r"weft_failure_(\d+)")
_KEPT_FAILURES = 8

#: numbers of calls and of failures
_numbers = itertools.count(1)


class Visit(Protocol):
    """A device in a call: its position on the mesh, and its operands."""

    position: int

    @property
    def call(self) -> HostCall:
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
        """Have the device wait for `go_on`."""
        ...

    def go_on(self) -> None:
        """End `wait`; the device may run the rest of its program in this thread."""
        ...


class HostCall:
    """An equation of a program on a mesh with the axes `mesh`.

    Callbacks have another operand and another result, the position of the device on the mesh.
    """

    def __init__(self, calls: HostCalls, eqn: Eqn, mesh: Sequence[tuple[Any, int]]) -> None:
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
        #: the number of the group of each device, and how many devices meet in a group
        self.groups: list[int] = grid.ravel().tolist()
        self.group_size = grid.size // numbers.size

    def compute(self, visits: Sequence[Visit]) -> None:
        """Compute and write the results of devices, in the order of the mesh."""
        devices, eqn = Lockstep(self._axes), self._eqn
        devices.members = [visit.position for visit in visits]
        operands: list[Values] = list(zip(*[visit.operands for visit in visits]))
        # the devices of the program may wait for the callback: functions compute on the CPU
        device = base.get_host().devices()[0]
        with config.as_traced(self._settings), Override(default_device=device):
            named = eqn.params.get("callback", eqn.primitive.name)
            with reported(eqn.primitive, named, eqn.source):
                results = devices.step(eqn, operands)
        for i, visit in enumerate(visits):
            visit.write([values[i] for values in results])


class Execution:
    """An execution on a mesh: the devices that wait, by call and group; why it failed."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[int, int], list[Visit]] = {}
        self.failure: str | None = None

    def fail(self, failure: str) -> list[Visit]:
        """Note a failure; take the devices that wait for callbacks, which are not called."""
        self.failure = self.failure or failure
        stopped = [key for key, visits in self.waiting.items() if not visits[0].call.is_end]
        return [visit for key in stopped for visit in self.waiting.pop(key)]


class HostCalls:
    """The calls of the programs of one backend, of which one at a time runs on a mesh.

    A failure has a number, which is in its text. `unseen` has those not raised yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.execution = Execution()
        self._thread = threading.local()
        self._failures: dict[int, BaseException] = {}
        self.unseen: set[int] = set()

    @property
    def is_inside(self) -> bool:
        """Whether this thread computes a call."""
        return getattr(self._thread, "is_inside", False)

    def visit(self, visit: Visit) -> str | None:
        """Do the call of a device, or have it wait; return the text of a failure that stops it."""
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
            _write_zeros(visits)  # none but the position
        elif failure := self._compute(sorted(visits, key=lambda visit: visit.position)):
            with self._lock:
                visits += execution.fail(failure)
            _write_zeros(visits)
        visits.remove(visit)
        for other in visits:  # each runs on in a thread of its own, until it waits again
            DaemonThread(other.go_on)
        return execution.failure if call.is_end and call.group_size == 1 else None

    def _compute(self, visits: Sequence[Visit]) -> str | None:
        """Compute results; return the text of a failure."""
        was_inside, self._thread.is_inside = self.is_inside, True
        try:
            visits[0].call.compute(visits)
        except BaseException as error:  # a request to stop is for the thread that waits for results
            return self._keep(error)
        finally:
            self._thread.is_inside = was_inside
        return None

    # ---- failures
    def _keep(self, error: BaseException) -> str:
        number = next(_numbers)
        self._failures[number] = error
        self.unseen.add(number)
        for old in list(self._failures)[:-_KEPT_FAILURES]:
            del self._failures[old]
            self.unseen.discard(old)
        return f"weft_failure_{number}: {error}"

    def is_failure(self, text: str) -> bool:
        """Return whether a text has the number of a failure."""
        return _FAILURE.search(text) is not None

    def find_exception(self, text: str) -> BaseException | None:
        """Return the exception for a text that has the number of a failure, which is seen then."""
        number = int(found[1]) if (found := _FAILURE.search(text)) else -1
        self.unseen.discard(number)
        error = self._failures.get(number)
        if error is not None:
            self._failures[number] = without_frames(error)
        return error

    def raise_unseen(self) -> None:
        """Raise the first failure that was not raised yet; all are seen then."""
        numbers = sorted(self.unseen)
        self.unseen.clear()
        for number in numbers:
            error = self.find_exception(f"weft_failure_{number}")
            if error is not None:
                raise error


def _write_zeros(visits: Sequence[Visit]) -> None:
    for visit in visits:
        visit.write([np.zeros(aval.shape, aval.dtype) for aval in visit.call.result_types])
