"""State shared with native dispatch: two machine words, and one word per function.

`guard[0]` is the number of active contexts, in all threads, in which calls must take the Python path: tracing, overridden
settings, a mesh in context. `guard[1]` is the epoch, which changes with every change of a setting.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[[], object])
#: functions that clear caches
clearers: list[Callable[[], object]] = []


def on_clear_caches(clear: F) -> F:
    """Register `clear` to be called when all caches are cleared; return it."""
    clearers.append(clear)
    return clear


guard = (ctypes.c_int64 * 2)(0, 0)


def new_epoch() -> None:
    """Invalidate all native entries by a new epoch."""
    guard[1] += 1


def new_entries() -> tuple:
    """Return a new word of a function and an empty dict of its native entries; functions may share both."""
    return (ctypes.c_void_p * 1)(None), {}


def forget_entries(head, entries: dict) -> None:
    """Remove all native entries of a function; calls in progress keep references to the programs they run."""
    head[0] = None
    entries.clear()


class Dispatching:
    """The base class of functions with a fast path in a backend.

    `_slow` is the Python path, a function of this object and the arguments. `_cell` is the address of the word by which the backend
    finds the function's native entries; the word is 0 if there are none."""

    __slots__ = ("_cell", "_slow", "_head", "_entries", "__dict__", "__weakref__")

    def __init__(self, slow, known: tuple | None = None):
        self._slow = slow
        self._head, self._entries = known or new_entries()
        self._cell = ctypes.addressof(self._head)
