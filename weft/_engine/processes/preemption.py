"""Agreement on a step at which all processes save their state, when one of them is about to be stopped.

In:   SIGTERM in any process, and the number of each step that a process begins.
Out:  `is_save_step(step)`: True in all processes at the same step.
How:  the process that gets the signal puts a key; a thread of every process waits for it. These threads then block new steps briefly,
      exchange the last step of each process, and agree on the step after the greatest. No process waits for another's step.
Laws: a single process agrees with itself. A signal that a group received before it lost processes also counts for the survivors.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import Any

from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.threads import DaemonThread

_KEY = "weft/preemption"
_WAIT_S = 3600.0


class Preemption:
    """The preemption state of this process among the processes of `shared`; None if it runs alone."""

    def __init__(self, shared: Any, is_signaled: bool = False) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "reached_preemption_sync_point: the first call must be in the main thread, where signals are handled."
            )
        self.shared = shared
        self.is_signaled = is_signaled
        self._lock = threading.Lock()
        self._last = -1
        self._safe: int | None = None
        self._is_over = False
        self._error: ProcessFailureError | None = None
        # unlike an Event, a queue may be used in a signal handler at any time
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        signal.signal(signal.SIGTERM, self._receive)
        if shared is not None:
            if is_signaled:
                self._signals.put(True)
            DaemonThread(self._announce_signal)
            DaemonThread(self._wait)

    def is_save_step(self, step: int) -> bool:
        """Return True once: at the first step that is not before the agreed step.

        Raises ProcessFailureError if some processes did not answer the signal within `config.collective_timeout`.
        """
        with self._lock:
            self._last = step
            if self._error is not None:
                raise self._error
            if self.shared is None and self.is_signaled and self._safe is None:
                self._safe = step
            if self._safe is None or step < self._safe or self._is_over:
                return False
            self._is_over = True
            return True

    def close(self) -> None:
        """End the thread that waits for a signal."""
        self._signals.put(False)

    def _receive(self, number: int, frame: Any) -> None:
        self.is_signaled = True
        self._signals.put(True)

    def _announce_signal(self) -> None:
        if self._signals.get():
            with contextlib.suppress(ProcessFailureError, OSError):
                self.shared.client.put(_KEY, b"1")

    def _wait(self) -> None:
        client = self.shared.client
        with contextlib.suppress(ProcessFailureError, OSError):
            while client.find(_KEY) is None:
                with contextlib.suppress(ProcessFailureError):
                    client.get(_KEY, _WAIT_S)
                self.shared.check()
            with self._lock:
                try:
                    steps = client.barrier(
                        f"{_KEY}/steps", self.shared.collective_timeout, value=self._last
                    )
                    self._safe = max(steps) + 1
                except ProcessFailureError as error:
                    self._error = error


_current: list[Preemption] = []


def get_preemption(shared: Any) -> Preemption:
    """Return the preemption state for the processes of `shared`; the first call installs the signal handler."""
    if not _current or _current[0].shared is not shared:
        preemption = Preemption(shared, bool(_current) and _current[0].is_signaled)
        for before in _current:
            before.close()
        _current[:] = [preemption]
    return _current[0]
