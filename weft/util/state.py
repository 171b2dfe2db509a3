"""What compiled dispatch must know of the Python side, in two machine words.

`guard[0]` counts the contexts in force, in any thread, under which a call must take the Python path: tracing, overridden
settings, a mesh in context. `guard[1]` is the epoch: it moves when a setting changes for good.
"""

from __future__ import annotations

import ctypes

guard = (ctypes.c_int64 * 2)(0, 0)


class special:
    """Context manager: calls inside take the Python path."""
    __slots__ = ()

    def __enter__(self) -> None:
        guard[0] += 1

    def __exit__(self, *exc) -> None:
        guard[0] -= 1


def new_epoch() -> None:
    """Make every known dispatch entry stale."""
    guard[1] += 1
