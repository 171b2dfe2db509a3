"""Profiles: the steps that programs ran, with times, as data, as a table, and as files.

In:   the facts about programs, and the records of calls.
Out:  a `Profile`: totals by step and by source line, events, and a file that Perfetto opens and `Profile.load` reads.
Laws: totals by step are complete even if some events did not fit into the memory for records; the number of the missing ones is
      in `dropped`.
Next: `profiler.trace_events` has the format of the file.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine import hooks
from weft._engine.codegen.program.profiled_entry import StepRecords
from weft._engine.util.errors import align
from weft._engine.util.record import record, values_of
from weft.profiler.machine_facts import MachineFacts
from weft.profiler.profile_data import CallRecord, HostEvent, ProfileData
from weft.profiler.program_facts import BufferFacts, ProgramFacts, StepFacts
from weft.profiler.trace_events import trace_events

#: rows of the table of a printed profile
MOST_ROWS = 20


@record(frozen=False)
class StepEvent:
    """One run of a step. `worker` is the number of a thread of the pool, 0 for the calling thread; `tasks` is the number of its tasks, 0
    if the event is the step as a whole. Times are nanoseconds since the start of the profile."""

    program: ProgramFacts
    facts: StepFacts
    thread: int
    worker: int
    tasks: int
    begin: int
    end: int


@record(frozen=False)
class StepTotal:
    """All runs of a step: their number, their seconds without the steps inside it, and the share of the roofline.

    `roofline` is the least time by the machine's peak rates divided by the time, 0 if the step has no FLOPs and no bytes. It can be
    above 1 if the data are in the caches.
    """

    program: ProgramFacts
    facts: StepFacts
    runs: int
    seconds: float
    roofline: float


@record(frozen=False)
class LineTotal:
    """All steps of a source line: their seconds, FLOPs and bytes, and the share of the time of all steps."""

    line: str
    text: str
    seconds: float
    share: float
    flops: int
    bytes: int


class Profile(ProfileData):
    """What programs did while the profile was recorded by `weft.profiler.record`.

    It prints as a table of the steps that took longest. `steps()` has the totals by step, `lines()` by source line, `events()` each
    run; `save("trace.json.gz")` writes a file for ui.perfetto.dev and `Profile.load`, `save("page.html")` a page.
    """

    @property
    def dropped(self) -> int:
        """The number of events that did not fit into the memory for records."""
        return sum(call.records.dropped for call in self.calls)

    def calls_of(self, program: int) -> list[CallRecord]:
        """Return the calls of a program."""
        return [call for call in self.calls if call.program == program]

    def steps(self) -> list[StepTotal]:
        """Return the totals of all steps, by program and in the order of the schedule."""
        totals: list[StepTotal] = []
        for number, program in enumerate(self.programs):
            records = [call.records for call in self.calls_of(number)]
            if not records or not program.steps:
                continue
            runs = np.sum([r.runs for r in records], axis=0)
            own = np.sum([r.nanoseconds for r in records], axis=0)
            for step, whole in zip(program.steps, own.copy()):
                if step.parent >= 0:
                    own[step.parent] -= whole
            for step, count, ns in zip(program.steps, runs.tolist(), own.tolist()):
                least = self.machine.least_seconds(step.flops * count, step.bytes * count)
                seconds = ns * 1e-9
                share = least / seconds if seconds > 0 else 0.0
                totals.append(StepTotal(program, step, count, seconds, share))
        return totals

    def lines(self) -> list[LineTotal]:
        """Return the totals of all source lines, the longest first."""
        steps = self.steps()
        whole = sum(step.seconds for step in steps) or 1.0
        totals: dict[str, LineTotal] = {}
        for step in steps:
            facts = step.facts
            total = totals.setdefault(facts.line, LineTotal(facts.line, facts.text, 0.0, 0.0, 0, 0))
            total.seconds += step.seconds
            total.share += step.seconds / whole
            total.flops += facts.flops * step.runs
            total.bytes += facts.bytes * step.runs
        return sorted(totals.values(), key=lambda total: -total.seconds)

    def events(self, device: int | None = None) -> Iterator[StepEvent]:
        """Yield the recorded runs of steps, by call; with `device`, only those on this device, without the tasks of threads."""
        for call in self.calls:
            program = self.programs[call.program]
            if device is not None and device not in program.devices:
                continue
            for step, worker, tasks, begin, end in call.records.rows.tolist():
                if device is None or not tasks:
                    times = begin - self.origin, end - self.origin
                    facts = program.steps[step]
                    yield StepEvent(program, facts, call.thread, worker, tasks, *times)

    def __str__(self) -> str:
        steps = self.steps()
        whole = sum(step.seconds for step in steps)
        count = len(self.calls)
        lines = [
            f"{count} call{'s'[: count != 1]} of {len(self.programs)} compiled program{'s'[: len(self.programs) != 1]}, "
            f"{1e3 * whole:.3f} ms in their steps"
        ]
        rows: list[Sequence[Any]] = [
            ("time", "share", "runs", "FLOP/s", "bytes/s", "roofline", "kind", "step", "line")
        ]
        steps.sort(key=lambda step: -step.seconds)
        rows += [_row(step, whole) for step in steps[:MOST_ROWS]]
        if steps:
            lines += align(rows, indent="  ")
        if len(steps) > MOST_ROWS:
            lines.append(f"  and {len(steps) - MOST_ROWS} more")
        if self.dropped:
            lines.append(
                f"{self.dropped} events did not fit and are missing in the timeline; the totals are complete"
            )
        return "\n".join(lines)

    # --- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile: a page if the name ends with .html, otherwise JSON that Perfetto and `Profile.load` read, compressed if
        the name ends with .gz."""
        path = os.fspath(path)
        if path.endswith(".html"):
            data = self.to_html().encode()
        else:
            data = json.dumps(self.to_json(), default=str).encode()
        with gzip.open(path, "wb") if path.endswith(".gz") else open(path, "wb") as file:
            file.write(data)

    def to_html(self) -> str:
        """Return the page of the profile, which needs no network."""
        return hooks.profile_page(self)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as Chrome's trace format, with the profile itself under the key "weft"."""
        own = {
            "version": VERSION,
            "programs": [
                values_of(p)
                | {
                    "steps": [values_of(step) for step in p.steps],
                    "peak_buffers": [values_of(b) for b in p.peak_buffers],
                }
                for p in self.programs
            ],
            "calls": [
                [call.program, call.thread, _plain_records(call.records)] for call in self.calls
            ],
            "host": [values_of(event) for event in self.host],
            "threads": list(self.threads.items()),
            "machine": values_of(self.machine),
            "origin": self.origin,
            "time": self.time,
        }
        return {"displayTimeUnit": "ms", "traceEvents": trace_events(self), "weft": own}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile:
        """Return the profile that `save` wrote; raise ValueError for a file without one."""
        path = os.fspath(path)
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            data = file.read()
        try:
            own = json.loads(data)["weft"]
            is_readable = own["version"] == VERSION
        except (ValueError, KeyError, TypeError):
            own, is_readable = {}, False
        if not is_readable:
            raise ValueError(
                f"Profile.load: {path} has no profile of version {VERSION}. Write one with `weft profile --save` or Profile.save."
            )
        profile = Profile()
        profile.programs = [_program_of(p) for p in own["programs"]]
        profile.calls = [CallRecord(p, t, _records_of(r)) for p, t, r in own["calls"]]
        profile.host = [HostEvent(**event) for event in own["host"]]
        profile.threads = dict(own["threads"])
        profile.machine = MachineFacts(**own["machine"])
        profile.origin, profile.time = own["origin"], own["time"]
        return profile


#: of the data under the key "weft"
VERSION = 1


def _row(step: StepTotal, whole: float) -> tuple[str, ...]:
    """Return the cells of the table for a step."""
    facts, seconds = step.facts, step.seconds or 1e-9
    return (
        f"{1e3 * step.seconds:.3f} ms",
        f"{100 * step.seconds / (whole or 1):.1f} %",
        str(step.runs),
        f"{facts.flops * step.runs / seconds / 1e9:.1f} G" if facts.flops else "",
        f"{facts.bytes * step.runs / seconds / 1e9:.1f} G" if facts.bytes else "",
        f"{100 * step.roofline:.0f} %" if step.roofline else "",
        facts.kind,
        f"{facts.name} ({facts.collective})" if facts.collective else facts.name,
        facts.line,
    )


def _plain_records(records: StepRecords) -> list[Any]:
    rows, runs, ns = (x.tolist() for x in (records.rows, records.runs, records.nanoseconds))
    return [rows, runs, ns, records.dropped, records.begin, records.end]


def _records_of(plain: list[Any]) -> StepRecords:
    rows, runs, ns, *others = plain
    arrays = (
        np.array(rows, np.int64).reshape(-1, 5),
        np.array(runs, np.int64),
        np.array(ns, np.int64),
    )
    return StepRecords(*arrays, *others)


def _program_of(plain: dict[str, Any]) -> ProgramFacts:
    steps = [StepFacts(**s | {"equations": tuple(s["equations"])}) for s in plain["steps"]]
    buffers = [BufferFacts(**b) for b in plain["peak_buffers"]]
    return ProgramFacts(
        **plain
        | {
            "devices": tuple(plain["devices"]),
            "steps": tuple(steps),
            "peak_buffers": tuple(buffers),
        }
    )
