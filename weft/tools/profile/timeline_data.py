"""The timeline of a profile as data for the script of its page.

In:   a `Profile`.
Out:  a dict for JSON: items (what events are instances of), tracks of threads and devices with their events, and memory over time.
How:  an event is [begin, duration, item, tasks] with times in nanoseconds since the first event. A track of a device has the numbers
      of the programs whose steps it shows; the script takes these from the tracks of threads.
"""

from __future__ import annotations

from typing import Any

from weft.profiler.profile import Profile
from weft.profiler.profile_data import CallRecord
from weft.profiler.program_facts import StepFacts
from weft.profiler.trace_events import worker_name

#: events of steps on the page; later ones are counted
MOST_EVENTS = 20_000
#: tracks of devices
MOST_DEVICES = 16


def timeline_data(profile: Profile) -> dict[str, Any]:
    """Return the timeline."""
    return _Timeline(profile).data()


class _Timeline:
    """The items and tracks under construction."""

    def __init__(self, profile: Profile):
        self.profile = profile
        begins = [call.records.begin for call in profile.calls]
        self.start = min([*begins, *[event.begin for event in profile.host]], default=0)
        self.items: list[dict[str, Any]] = []
        self.item_of: dict[tuple[Any, ...], int] = {}
        self.threads: dict[int, list[list[int]]] = {number: [] for number in profile.threads}
        self.workers: dict[int, list[list[int]]] = {}
        self.memory: list[list[int]] = []
        self.shown = self.hidden = 0

    def data(self) -> dict[str, Any]:
        """Return the whole timeline."""
        for event in self.profile.host:
            facts = {"kind": event.kind, "name": event.name, "facts": _plain(event.facts)}
            item = self._item(("host", event.kind, event.name, str(facts)), facts)
            self._add(self.threads[event.thread], event.begin, event.end, item, 0)
        for call in sorted(self.profile.calls, key=lambda call: call.records.begin):
            self._call(call)
        names = self.profile.threads
        tracks = [
            {"name": names[number], "events": events}
            for number, events in self.threads.items()
            if events
        ]
        tracks += [
            {"name": worker_name(number), "events": events}
            for number, events in sorted(self.workers.items())
        ]
        devices = sorted({d for program in self.profile.programs for d in program.devices})
        tracks += [
            {"name": f"device {device}", "programs": self._programs_on(device)}
            for device in devices[:MOST_DEVICES]
        ]
        return {
            "items": self.items,
            "tracks": tracks,
            "memory": self.memory,
            "hidden": self.hidden,
            "hiddenDevices": max(0, len(devices) - MOST_DEVICES),
        }

    def _programs_on(self, device: int) -> list[int]:
        return [i for i, program in enumerate(self.profile.programs) if device in program.devices]

    def _call(self, call: CallRecord) -> None:
        """Add the events of a call."""
        profile, records = self.profile, call.records
        program = profile.programs[call.program]
        events = self.threads[call.thread]
        facts = {"kind": "call", "name": program.name}
        item = self._item(("call", call.program), facts)
        self._add(events, records.begin, records.end, item, 0)
        self.memory.append([records.begin - self.start, program.memory_at(-1)])
        for step, worker, tasks, begin, end in records.rows.tolist():
            if self.shown >= MOST_EVENTS:
                self.hidden += 1
                continue
            self.shown += 1
            item = self._step_item(call.program, program.steps[step])
            track = self.workers.setdefault(worker, []) if worker else events
            self._add(track, begin, end, item, tasks)
            if not tasks:
                self.memory.append([begin - self.start, program.memory_at(step)])
        self.memory.append([records.end - self.start, 0])

    def _step_item(self, program: int, facts: StepFacts) -> int:
        key = "step", program, facts.number
        if key in self.item_of:
            return self.item_of[key]
        return self._item(
            key,
            {
                "kind": facts.kind,
                "name": facts.name,
                "program": program,
                "in": self.profile.programs[program].name,
                "line": facts.line,
                "text": facts.text,
                "equations": ", ".join(facts.equations),
                "collective": facts.collective,
                "reason": facts.reason,
                "bytes": facts.bytes,
                "flops": facts.flops,
                "least": 1e9 * self.profile.machine.least_seconds(facts.flops, facts.bytes),
            },
        )

    def _item(self, key: tuple[Any, ...], facts: dict[str, Any]) -> int:
        if key not in self.item_of:
            self.item_of[key] = len(self.items)
            self.items.append(facts)
        return self.item_of[key]

    def _add(self, events: list[list[int]], begin: int, end: int, item: int, tasks: int) -> None:
        events.append([begin - self.start, end - begin, item, tasks])


def _plain(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
