"""The recorded data of a profile: calls of programs, compilations, and named regions."""

from __future__ import annotations

import time
from typing import Any

from weft._engine.codegen.program.profiled_entry import StepRecords
from weft._engine.util.record import record
from weft.profiler.machine_facts import machine_facts
from weft.profiler.program_facts import ProgramFacts


@record(frozen=False)
class CallRecord:
    """One call of a program: the number of the program, the thread of the call, and its records."""

    program: int
    thread: int
    records: StepRecords


@record(frozen=False)
class HostEvent:
    """A compilation, a call as a whole, or a named region, in nanoseconds of `time.perf_counter_ns`."""

    kind: str
    name: str
    thread: int
    begin: int
    end: int
    facts: dict[str, Any]


class ProfileData:
    """What a `recording.Recorder` has recorded; it is complete when the recorder has stopped."""

    def __init__(self) -> None:
        self.programs: list[ProgramFacts] = []
        self.calls: list[CallRecord] = []
        self.host: list[HostEvent] = []
        self.threads: dict[int, str] = {}  # name by number
        self.machine = machine_facts()
        #: the start, in nanoseconds of `time.perf_counter_ns` and since the epoch
        self.origin, self.time = time.perf_counter_ns(), time.time_ns()
        #: the executables of the programs; empty in a profile from a file
        self.executables: list[Any] = []
