"""A profile as events of Chrome's trace format, for Perfetto.

In:   a `ProfileData`.
Out:  dicts: complete events ("X"), counters ("C") and names ("M").
How:  the threads of the process are one group of tracks: calls, and inside them the steps, and the tasks of each thread of the pool.
      Each device is a group of its own with the steps that it takes part in. All devices of a process run each step together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from weft._engine.util.record import values_of
from weft.profiler.profile_data import CallRecord, ProfileData
from weft.profiler.program_facts import ProgramFacts, StepFacts

#: the first process number of devices, which have no processes of their own
_FIRST_DEVICE = 1 << 24


def trace_events(profile: ProfileData) -> list[dict[str, Any]]:
    """Return the events, names first."""
    events = [*_names(profile)]
    for event in profile.host:
        events.append(_event(profile, event.kind, event.name, event.begin, event.end, event.facts))
        events[-1]["tid"] = event.thread
    for call in profile.calls:
        events += _call_events(profile, call)
    return events


def worker_name(worker: int) -> str:
    """Return the name of a thread of the pool."""
    return f"worker {worker}"


def _names(profile: ProfileData) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    name = lambda what, pid, tid, text: {
        "name": what,
        "ph": "M",
        "pid": pid,
        "tid": tid,
        "args": {"name": text},
    }
    yield name("process_name", pid, 0, "weft")
    for number, text in profile.threads.items():
        yield name("thread_name", pid, number, text)
    workers = {worker for call in profile.calls for worker in call.records.rows[:, 1].tolist()}
    for worker in sorted(workers - {0}):
        yield name("thread_name", pid, worker, worker_name(worker))
    for device in sorted({d for program in profile.programs for d in program.devices}):
        yield name("process_name", _FIRST_DEVICE + device, 0, f"device {device}")
        yield name("thread_name", _FIRST_DEVICE + device, 0, "steps")


def _event(
    profile: ProfileData, kind: str, name: str, begin: int, end: int, facts: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": (begin - profile.origin) / 1e3, "dur": (end - begin) / 1e3}
    return {"name": name, "cat": kind, "ph": "X", **times, "pid": os.getpid(), "args": facts}


def _call_events(profile: ProfileData, call: CallRecord) -> Iterator[dict[str, Any]]:
    program, records = profile.programs[call.program], call.records
    facts = {"devices": list(program.devices), "events dropped": records.dropped}
    whole = _event(profile, "call", program.name, records.begin, records.end, facts)
    yield whole | {"tid": call.thread}
    yield _counter(profile, program, records.begin, -1)
    for step, worker, tasks, begin, end in records.rows.tolist():
        facts = program.steps[step]
        if tasks:
            share = _event(profile, "tasks", facts.name, begin, end, {"tasks": tasks})
            yield share | {"tid": worker or call.thread}
            continue
        one = _event(
            profile, facts.kind, facts.name, begin, end, _args(profile, facts, end - begin)
        )
        yield one | {"tid": call.thread}
        for device in program.devices:
            yield one | {"pid": _FIRST_DEVICE + device, "tid": 0}
        yield _counter(profile, program, begin, step)
    yield _counter(profile, program, records.end, -1) | {"args": {"bytes": 0}}


def _counter(profile: ProfileData, program: ProgramFacts, at: int, step: int) -> dict[str, Any]:
    """Return the bytes of a program's arguments, results and temporaries from a time on."""
    return {
        "name": "live memory of programs",
        "ph": "C",
        "ts": (at - profile.origin) / 1e3,
        "pid": os.getpid(),
        "args": {"bytes": program.memory_at(step)},
    }


def _args(profile: ProfileData, facts: StepFacts, ns: int) -> dict[str, Any]:
    """Return the facts that are shown with an event."""
    args = {
        name: value
        for name, value in values_of(facts).items()
        if value and name not in ("kind", "name", "parent")
    }
    least = profile.machine.least_seconds(facts.flops, facts.bytes)
    if least and ns:
        args["roofline"] = f"{1e11 * least / ns:.0f} %"
    return args
