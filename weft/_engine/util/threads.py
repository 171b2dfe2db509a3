"""Threads: the number of threads of a process, daemon threads that start without waiting, parallel work, and locks that are safe
over forks.

A forked child has one thread, and work that other threads had begun would never end there. Therefore a fork waits for the locks of
`hold_during_fork` and for imports in other threads.
"""

from __future__ import annotations

import _imp
import _thread
import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

L = TypeVar("L")
_MAX_WAIT_S = 10.0  # maximal wait of a fork for imports, which may themselves wait
_module_locks: dict = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})


class _ForkLock:
    """A lock that is held during a fork. A lock registered while a fork is waiting gets only the call of `give`."""

    had_logging: bool | None = None  # True if `logging` was imported before the current fork began

    def __init__(self, lock: Any):
        self.lock, self.is_taken = lock, False

    def take(self) -> None:
        if _ForkLock.had_logging is None:
            _ForkLock.had_logging = "logging" in sys.modules
        self.lock.acquire()
        self.is_taken = True

    def give(self) -> None:
        if self.is_taken:
            self.is_taken = False
            self.lock.release()


def hold_during_fork(lock: L) -> L:
    """Return `lock`, registered so that it is free in forked children. Locks are acquired in reverse order of registration."""
    if hasattr(os, "register_at_fork"):
        fork_lock = _ForkLock(lock)
        os.register_at_fork(
            before=fork_lock.take, after_in_parent=fork_lock.give, after_in_child=fork_lock.give
        )
    return lock


class _Imports:
    """Python's import lock, acquired when no other thread is importing a module."""

    def acquire(self) -> None:
        until = time.monotonic() + _MAX_WAIT_S
        _imp.acquire_lock()
        while _others_import() and time.monotonic() < until:
            _imp.release_lock()
            time.sleep(0.001)
            _imp.acquire_lock()
        logging = sys.modules.get("logging")
        if logging is not None and not _ForkLock.had_logging:
            logging._lock.acquire()  # logging, imported during the fork, releases it without acquiring it
        _ForkLock.had_logging = None

    def release(self) -> None:
        _imp.release_lock()


def _others_import() -> bool:
    owners = {getattr(lock(), "owner", None) for lock in list(_module_locks.values())}
    return bool(owners - {None, _thread.get_ident()})


# registered first and therefore acquired last, because owners of other locks may import
hold_during_fork(_Imports())


def allowed_threads() -> int:
    """Return WEFT_NUM_THREADS if it is set, otherwise the number of CPUs that this process may use.

    >>> allowed_threads() >= 1
    True
    """
    text = os.environ.get("WEFT_NUM_THREADS", "").strip()
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if text.isdigit() and int(text) >= 1:
        return int(text)
    raise ValueError(
        f"WEFT_NUM_THREADS must be a positive integer, got {text!r}; unset it to use every CPU"
    )


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
        """Return whether the thread is running; false in a forked child."""
        return self._over.locked() and self._process == os.getpid()

    def join(self) -> None:
        """Wait for the end of the thread, even if interrupted, because its data may be freed afterwards."""
        try:
            if self.is_alive():
                with self._over:
                    pass
        except BaseException:
            self.join()
            raise


class Background:
    """Idempotent work that begins in its own thread.

    `finish` waits for it, or does it if no thread has: with one allowed thread, in a forked child, and after an error, which it
    raises.

    >>> found = {}
    >>> work = Background(lambda: found.update(x=1))
    >>> work.finish()
    >>> found
    {'x': 1}
    """

    __slots__ = ("_over", "_work")

    def __init__(self, work: Callable[[], object]):
        self._work: Callable[[], object] | None = work
        self._over = DaemonThread(self._begin) if allowed_threads() > 1 else None

    def _begin(self) -> None:
        with contextlib.suppress(BaseException):
            self._do()

    def _do(self) -> None:
        work = self._work
        if work is not None:
            work()
            self._work = None

    def finish(self) -> None:
        """Return when the work is finished."""
        if self._over is not None:
            self._over.join()
        self._do()


def share_work(work: Callable[..., object], parts: list[tuple]) -> None:
    """Call `work(*part)` for all parts in parallel, the first in this thread. When all have ended, raise the first error, if any.

    >>> found = [0, 0]
    >>> share_work(found.__setitem__, [(0, 3), (1, 4)])
    >>> found
    [3, 4]
    """
    errors: list[BaseException] = []

    def guarded(*part: Any) -> None:
        try:
            work(*part)
        except BaseException as error:
            errors.append(error)

    threads = [DaemonThread(guarded, *part) for part in parts[1:]]
    guarded(*parts[0])
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
