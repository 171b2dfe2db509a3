"""Events for the profiler: compilations and runs of programs, as (kind, name, start, end, facts).

Without listeners nothing is measured. Times are nanoseconds of `time.perf_counter_ns`.
"""

from __future__ import annotations

from collections.abc import Callable

#: called with every event, in the thread in which it happened
listeners: list[Callable[[str, str, int, int, dict], None]] = []


def emit(kind: str, name: str, start: int, end: int, **facts: object) -> None:
    """Report what took from `start` to `end` to all listeners."""
    for listener in tuple(listeners):
        listener(kind, name, start, end, facts)
