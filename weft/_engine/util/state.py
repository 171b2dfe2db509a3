"""What dispatch without Python reads of the Python side: two machine words, and one of each function.

`guard[0]` counts the active contexts, in any thread, under which a call must take the Python path: tracing, overridden
settings, a mesh in context. `guard[1]` is the epoch: it changes when a setting does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[[], object])
#: what forgets something that can be computed again
clearers: list[Callable[[], object]] = []


def clearing(clear: F) -> F:
    """Have `clear` called when all caches are cleared."""
    clearers.append(clear)
    return clear


guard = (ctypes.c_int64 * 2)(0, 0)


def new_epoch() -> None:
    """Invalidate all dispatch entries."""
    guard[1] += 1


def new_entries() -> tuple:
    """The word of a function, and no calls; functions may share both."""
    return (ctypes.c_void_p * 1)(None), {}


def forget_entries(head, entries: dict) -> None:
    """Forget all calls; calls in progress hold what they run."""
    head[0] = None
    entries.clear()


class Dispatching:
    """Base of functions whose calls a backend may take over from Python: `_slow` is the Python path, a function of this object and the
    arguments, `_cell` the address of a word in which the backend notes the calls that it knows; 0 stands for none."""

    __slots__ = ("_cell", "_slow", "_head", "_entries", "__dict__", "__weakref__")

    def __init__(self, slow, known: tuple | None = None):
        self._slow = slow
        self._head, self._entries = known or new_entries()
        self._cell = ctypes.addressof(self._head)
