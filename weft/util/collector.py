"""Pauses of Python's cyclic garbage collector.

A compilation makes hundreds of thousands of long-lived objects with hardly a cycle among them; the collector would walk all
objects of the process again and again, a quarter of the compile time of a long program.

Laws: pauses nest and overlap among threads; handlers of signals may begin one at any statement. A collector that was disabled before
      stays disabled.
"""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType

_lock = threading.RLock()
_pauses = 0
_was_enabled = False


class _Paused:
    """The collector does not start by itself inside of the `with` block."""
    __slots__ = ()

    def __enter__(self) -> None:
        global _pauses, _was_enabled
        with _lock:
            _pauses += 1
            if _pauses == 1:
                _was_enabled = gc.isenabled()
                gc.disable()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _pauses
        with _lock:
            if _pauses == 1 and _was_enabled:
                gc.enable()
            _pauses = max(_pauses - 1, 0)      # a fork inside leaves none


def _after_fork() -> None:
    """A child does not have the threads that paused."""
    global _lock, _pauses
    _lock = threading.RLock()
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: use as `with paused:` around internal work that makes many objects and calls no user code
paused = _Paused()
