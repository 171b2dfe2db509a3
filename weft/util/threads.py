"""The number of threads that a process may use, and daemon threads that start without waiting."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import Any


def allowed_threads() -> int:
    """WEFT_NUM_THREADS, else the number of CPUs that this process may use.

    >>> allowed_threads() >= 1
    True
    """
    text = os.environ.get("WEFT_NUM_THREADS", "").strip()
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if text.isdigit() and int(text) >= 1:
        return int(text)
    raise ValueError(f"WEFT_NUM_THREADS must be a positive integer, got {text!r}; unset it to use every CPU")


class DaemonThread:
    """A daemon thread that calls `work`, which must not raise.

    Starting a `threading.Thread` waits until it runs: 0.2 ms, and up to 4 ms while NumPy's threads spin.
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
        """Whether it runs; threads of a parent process, before a fork, do not."""
        return self._over.locked() and self._process == os.getpid()

    def join(self) -> None:
        """Wait for its end, even when interrupted: what it works with may be freed afterwards."""
        try:
            if self.is_alive():
                with self._over:
                    pass
        except BaseException:
            self.join()
            raise
