"""Agreeing on a step at which all processes save their state, when one of them is to be stopped.

In:   SIGTERM in any process, and the steps that processes say they begin.
Out:  `reached(step)`: True in all of them at the same step.
How:  who gets the signal puts a key, for which a thread of every process waits. The threads then hold steps back for a moment, tell each
      other the step that their process began last, and take the one after the greatest. No process waits for another's step.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

from weft.util.errors import ProcessFailureError
from weft.util.threads import DaemonThread

_KEY = "weft/preemption"
_WAIT_S = 3600.0


class Preemption:
    """The agreement of this process with the others of `shared`."""

    def __init__(self, shared: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("reached_preemption_sync_point: the first call must be in the main thread, where signals are handled.")
        self._shared = shared
        self._lock = threading.Lock()
        self._last = self._safe = -1
        self._signaled = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._signaled.set())
        DaemonThread(self._tell)
        DaemonThread(self._wait)

    def reached(self, step: int) -> bool:
        """Whether `step` is the one at which all save."""
        with self._lock:
            self._last = step
            return step == self._safe

    def _tell(self) -> None:
        self._signaled.wait()
        with contextlib.suppress(ProcessFailureError, OSError):
            self._shared.client.put(_KEY, b"1")

    def _wait(self) -> None:
        client = self._shared.client
        with contextlib.suppress(ProcessFailureError, OSError):
            while client.find(_KEY) is None:
                with contextlib.suppress(ProcessFailureError):
                    client.get(_KEY, _WAIT_S)
                self._shared.check()
            with self._lock:
                steps = client.barrier(f"{_KEY}/steps", 60.0, brings=self._last)
                self._safe = max(steps) + 1


_made: list[Preemption] = []


def of(shared: Any) -> Preemption:
    """The agreement of this process, made at the first call."""
    if not _made:
        _made.append(Preemption(shared))
    return _made[0]
