"""The two machine words that compiled dispatch reads of the Python side.

`guard[0]` counts the active contexts, in any thread, under which a call must take the Python path: tracing, overridden
settings, a mesh in context. `guard[1]` is the epoch: it changes when a setting does.
"""

from __future__ import annotations

import ctypes

guard = (ctypes.c_int64 * 2)(0, 0)


def new_epoch() -> None:
    """Invalidate all dispatch entries."""
    guard[1] += 1
