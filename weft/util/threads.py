"""How many threads the user lets a process have, and threads whose start nobody waits for."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import Any


def wanted() -> int:
    """WEFT_NUM_THREADS, else the CPUs that this process may use.

    >>> wanted() >= 1
    True
    """
    text = os.environ.get("WEFT_NUM_THREADS", "").strip()
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if text.isdigit() and int(text) >= 1:
        return int(text)
    raise ValueError(f"WEFT_NUM_THREADS must be a positive integer, got {text!r}; unset it to use every CPU")


class Beside:
    """A daemon thread that does some work, which must not raise.

    The library's threads are waited for until they run: 0.2 ms, and up to 4 where NumPy's threads spin, which begin with the process.
    """
    __slots__ = ("_over", "_process")

    def __init__(self, work: Callable[..., object], *args: Any):
        self._over, self._process = _thread.allocate_lock(), os.getpid()
        self._over.acquire()
        _thread.start_new_thread(self._run, (work, args))

    def _run(self, work: Callable[..., object], args: tuple) -> None:
        try:
            work(*args)
        finally:
            self._over.release()

    def is_alive(self) -> bool:
        """Whether it works; one of the process that this was forked from does not."""
        return self._over.locked() and self._process == os.getpid()

    def join(self) -> None:
        """Wait for its end, also where an interrupt ends the waiting: what it works with may then be freed, or used by others."""
        try:
            if self.is_alive():
                with self._over:
                    pass
        except BaseException:
            self.join()
            raise
