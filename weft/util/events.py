"""What happens while somebody watches: compilations and runs of programs, as (kind, name, start, end, facts).

Nobody watches by default, and then nothing is measured. Times are nanoseconds of `time.perf_counter_ns`.
"""

from __future__ import annotations

from collections.abc import Callable

#: who is told; watchers are called in the thread in which the thing happened
watchers: list[Callable[[str, str, int, int, dict], None]] = []


def tell(kind: str, name: str, start: int, end: int, **facts: object) -> None:
    """Tell every watcher of something that took from `start` to `end`."""
    for watcher in tuple(watchers):
        watcher(kind, name, start, end, facts)
