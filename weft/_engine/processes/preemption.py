"""Agreeing on a step at which all processes save their state, when one of them is to be stopped.

In:   SIGTERM in any process, and the steps that processes say they begin.
Out:  `reached(step)`: True in all of them at the same step.
How:  who gets the signal puts a key, for which a thread of every process waits. The threads then hold steps back for a moment, tell each
      other the step that their process began last, and take the one after the greatest. No process waits for another's step.
Laws: a single process agrees with itself. A signal that a group got before it lost processes counts for the survivors too.
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
    """The agreement of this process with the others of `shared`, or with itself if it is alone (None)."""

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
        self._signals: queue.SimpleQueue[bool] = (
            queue.SimpleQueue()
        )  # unlike an Event, a signal handler may use it at any time
        signal.signal(signal.SIGTERM, self._receive)
        if shared is not None:
            if is_signaled:
                self._signals.put(True)
            DaemonThread(self._tell)
            DaemonThread(self._wait)

    def reached(self, step: int) -> bool:
        """Return whether `step` is the one at which all save: True once, at the first step that is not before the agreed one.

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

    def _tell(self) -> None:
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
                        f"{_KEY}/steps", self.shared.collective_timeout, brings=self._last
                    )
                    self._safe = max(steps) + 1
                except ProcessFailureError as error:
                    self._error = error


_made: list[Preemption] = []


def of(shared: Any) -> Preemption:
    """Return the agreement of the processes of `shared`, which the first call begins."""
    if not _made or _made[0].shared is not shared:
        made = Preemption(shared, bool(_made) and _made[0].is_signaled)
        for before in _made:
            before.close()
        _made[:] = [made]
    return _made[0]
