"""The trace format of TensorBoard's profile plugin: an XSpace, a protocol-buffer message of planes,
lines and events.

In:   events of a trace: name, start and duration in nanoseconds, thread, facts.
Out:  the bytes of a file `HOST.xplane.pb`: one plane for the host, with a line for each thread.
Next: `profiler.pprof`, which encodes messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft.profiler.pprof import message, number

# field numbers of XSpace, XPlane, XLine, XEvent, XStat, and of the metadata records of event and
# fact names
_PLANE, _HOST = 1, 4
_NAME, _LINE, _EVENT_NAMES, _STAT_NAMES = 2, 3, 4, 5
_START, _EVENT = 3, 4
_OFFSET, _DURATION, _STAT = 2, 3, 4
_TEXT = 5


class TraceSpan(NamedTuple):
    """An activity of a thread from `start` for `duration`, in nanoseconds."""

    name: str
    start: int
    duration: int
    thread: int
    facts: Mapping[str, Any]


def encode(
    spans: Sequence[TraceSpan], origin: int, host: str, threads: Mapping[int, str] | None = None
) -> bytes:
    """Encode the trace whose events begin at or after `origin`, in nanoseconds since the epoch; `threads` has the names of threads."""
    thread_names = threads or {}
    names: dict[str, int] = {}
    facts: dict[str, int] = {}
    id_of = lambda known, name: known.setdefault(name, len(known) + 1)
    lines: dict[int, list[bytes]] = {}
    for span in spans:
        stats = [
            message(_STAT, number(1, id_of(facts, key)), message(_TEXT, str(value).encode()))
            for key, value in span.facts.items()
        ]
        times = (
            number(_OFFSET, span.start * 1000),
            number(_DURATION, span.duration * 1000),
        )  # picoseconds
        lines.setdefault(span.thread, []).append(
            message(_EVENT, number(1, id_of(names, span.name)), *times, *stats)
        )
    plane = [number(1, 1), message(_NAME, b"/host:CPU")]
    plane += [
        message(
            _LINE,
            number(1, thread),
            message(_NAME, thread_names.get(thread, f"thread {thread}").encode()),
            number(_START, origin),
            *events,
        )
        for thread, events in lines.items()
    ]
    for field, known in ((_EVENT_NAMES, names), (_STAT_NAMES, facts)):
        plane += [
            message(field, number(1, i), message(2, number(1, i), message(_NAME, name.encode())))
            for name, i in known.items()
        ]
    return message(_PLANE, *plane) + message(_HOST, host.encode())
