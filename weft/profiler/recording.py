"""Recording of a profile: the calls of compiled programs with their steps, compilations, and named regions.

In:   what the process runs while a `Recorder` is active.
Out:  a `Profile`.
How:  while a recorder is active, calls take the Python path and do not return before the program has finished. At its first call,
      each program gets a second entry that records its steps; kernels and results are the same.
Laws: programs that are not recorded do not change. A backend without records of steps has calls only.
Next: `profiler.profile` is the result, `profiler.trace_events` and `tools.profile.page` show it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft._engine.codegen.program.profiled_entry import StepRecords
from weft._engine.util import events
from weft._engine.util.dispatch_state import guard
from weft.profiler.profile import Profile
from weft.profiler.profile_data import CallRecord, HostEvent
from weft.profiler.program_facts import program_facts, schedule_of


class _RecordedProgram:
    """A program with the entry that records its steps, and the schedule of these; None if its backend records no steps."""

    def __init__(self, executable: Any, recorder: Recorder):
        self.executable, self.number = executable, len(recorder.programs)
        receive = functools.partial(recorder.receive, self.number)
        self.scheduled = schedule_of(executable)
        self.loaded = executable.loaded
        if self.scheduled is not None:
            backend = executable.request.backend
            self.loaded = backend.with_records(executable.loaded, self.scheduled, receive)


class Recorder:
    """The recorder of a profile; with `has_steps` False it records calls as a whole only."""

    def __init__(self, has_steps: bool = True):
        self.has_steps = has_steps
        self.profile = Profile()
        self.programs: list[_RecordedProgram] = []
        self._by_executable: dict[int, _RecordedProgram] = {}
        self._lock = threading.RLock()

    def start(self) -> None:
        """Begin to record."""
        events.listeners.append(self.watch)
        if self.has_steps:
            events.step_recorders.append(self.program_of)
        guard[0] += 1

    def stop(self) -> None:
        """Record no more, and complete the profile."""
        guard[0] -= 1
        events.listeners.remove(self.watch)
        if self.has_steps:
            events.step_recorders.remove(self.program_of)
        facts = [program_facts(one.executable, one.scheduled) for one in self.programs]
        self.profile.programs = facts
        self.profile.executables = [one.executable for one in self.programs]

    def watch(self, kind: str, name: str, start: int, end: int, facts: dict) -> None:
        """Record an event of this thread."""
        if end >= self.profile.origin:
            self.profile.host.append(HostEvent(kind, name, self._thread(), start, end, facts))

    def program_of(self, executable: Any) -> Any:
        """Return the program to run for `executable`, with records."""
        recorded = self._by_executable.get(id(executable))
        if recorded is None:
            with self._lock:
                recorded = self._by_executable.get(id(executable))
                if recorded is None:
                    start = time.perf_counter_ns()
                    recorded = _RecordedProgram(executable, self)
                    name = f"prepare records of {executable.name}"
                    self.watch("profiler", name, start, time.perf_counter_ns(), {})
                    self.programs.append(recorded)
                    self._by_executable[id(executable)] = recorded
        return recorded.loaded

    def receive(self, program: int, records: StepRecords) -> None:
        """Record a call in this thread."""
        self.profile.calls.append(CallRecord(program, self._thread(), records))

    def _thread(self) -> int:
        number = threading.get_native_id()
        if number not in self.profile.threads:
            self.profile.threads[number] = threading.current_thread().name
        return number


@contextmanager
def record() -> Iterator[Profile]:
    """Record a profile of the block, with the steps of each compiled program; it is complete when the block ends.

    >>> import weft, weft.numpy as wnp
    >>> with weft.profiler.record() as profile:
    ...     _ = weft.jit(lambda x: wnp.sin(x) @ x)(wnp.ones((64, 64)))
    >>> [step.kind for step in profile.programs[-1].steps]
    ['kernel', 'matmul']
    """
    recorder = Recorder()
    recorder.start()
    try:
        yield recorder.profile
    finally:
        recorder.stop()
