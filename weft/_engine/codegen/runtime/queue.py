"""The Python side of the queue of programs that run asynchronously.

In:   the native functions of `queue.ll`, once native dispatch is linked.
Out:  `Queue`: posting programs, and waiting for them; `current()`, the queue of this process.
Laws: programs run in the order of posting. The error of a failed program is raised where its
      results, or the results of a dependent program, are read. A waiting thread handles signals. A
      fork waits for the queue. Process exit waits for programs that call Python and stops the
      others.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from weft._engine.codegen.runtime import symbols
from weft._engine.cpython.references import count_at
from weft._engine.util.errors import without_frames

# thresholds, measured on several machines
#: maximum bytes of results of pending programs; further programs wait
_QUEUE_BYTES = 1 << 29


_I64, _PTR = ctypes.c_int64, ctypes.c_void_p


class QueuedFailure:
    """The reason why results were not computed.

    Blocks refer to failures but are not tracked by the garbage collector. After the first raise
    only a copy of `error` without a traceback is retained, because the frames of a traceback may
    refer to the arrays.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException):
        self.error = error

    def throw(self) -> NoReturn:
        """Raise the error. An interrupt (not an `Exception`) is raised only once."""
        error = self.error
        self.forget_frames()
        with contextlib.suppress(ValueError):
            # raised already, or by another thread at the same time
            _unraised_failures.remove(self)
        try:
            raise error
        finally:
            del error, self  # break the reference cycle through this frame

    def forget_frames(self) -> None:
        """Drop the traceback of the error."""
        self.error = without_frames(self.error)


def failure_of(raise_error: Callable[[], NoReturn]) -> QueuedFailure:
    """Return the failure of a program, whose error `raise_error` raises."""
    if symbols.runner[1]:
        return QueuedFailure(
            RuntimeError(
                "The program that computes this array was stopped by a repeated interrupt. Call it again."
            )
        )
    try:
        raise_error()
    except BaseException as error:
        failure = QueuedFailure(error)
    _unraised_failures.append(failure)
    return failure


#: the failure of programs that were still queued when the process ended or forked
STOPPED = QueuedFailure(
    RuntimeError(
        "The program that computes this array was never run: the process ended, or it was forked while the "
        "program was queued."
    )
)
# errors not raised yet
_unraised_failures: collections.deque[QueuedFailure] = collections.deque(maxlen=16)
_opened: list[Queue] = []


class Queue:
    """The queue of programs of this process."""

    def __init__(self, addresses: dict[str, int], pending: type, failed: type):
        at = lambda name: addresses[f"weft_queue_{name}"]
        # the types of blocks that a queued program will write, or failed to write
        self.pending, self.failed = (
            pending,
            failed,
        )
        #: functions of `queue.ll`, called with the GIL held, except `_wait`
        self.post = ctypes.PYFUNCTYPE(ctypes.c_int32, *[_PTR, _I64] * 6, _I64)(at("post"))
        self.wait_for_capacity = ctypes.PYFUNCTYPE(ctypes.c_int32, _I64)(at("room"))
        self.is_queue_thread = ctypes.PYFUNCTYPE(ctypes.c_int32)(at("is_mine"))
        self.reap = ctypes.PYFUNCTYPE(None)(at("reap"))
        self._forked = ctypes.PYFUNCTYPE(None)(at("forked"))
        self._wait = ctypes.CFUNCTYPE(ctypes.c_int32, _I64)(at("wait"))  # releases the GIL
        self._posted, self._done, self._effects = (
            _I64.from_address(at(name)) for name in ("posted", "done", "effects")
        )
        self._ends = ctypes.c_int32.from_address(at("ends"))
        self.limit = _I64.from_address(at("limit"))  # bytes of results
        self.limit.value = _QUEUE_BYTES
        self._interrupted = -1  # number of the program that was running at the last interrupt
        atexit.register(self._end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def is_ready(self, block: Any) -> bool:
        """Return whether a block has its values or failed."""
        if type(block) is self.pending:
            self.reap()
        return type(block) is not self.pending

    def wait(self, block: Any) -> None:
        """Wait until a block has its values; raise the error if its program failed."""
        while type(block) is self.pending:
            self._wait_for(_I64.from_address(id(block) + 40).value)
        why = (
            ctypes.cast(_I64.from_address(id(block) + 40).value, ctypes.py_object).value
            if type(block) is self.failed
            else None
        )
        for failure in list(_unraised_failures):  # a copy, because the queue's thread appends
            if failure is not why:  # this thread may have run the failed program
                failure.forget_frames()
        if (
            why is STOPPED
            and self._ends.value
            and threading.current_thread() is not threading.main_thread()
        ):
            threading.Event().wait()  # a daemon thread at process exit: block for good
        if why is not None:
            why.throw()

    @staticmethod
    def count_references(block: int) -> int:
        """Return the number of references to the block at this address, except references from
        queued programs."""
        return count_at(block) - ctypes.c_int32.from_address(block + 48).value

    def has_effects(self) -> bool:
        """Return whether programs that call Python are queued."""
        return self._effects.value > self._done.value

    def wait_for_effects(self) -> None:
        """Wait for all queued programs that call Python."""
        if self.has_effects() and not self.is_queue_thread():
            self._wait_for(self._effects.value - 1)

    def raise_unseen(self) -> None:
        """Raise errors of programs whose results were never read."""
        for failure in list(_unraised_failures):
            failure.throw()

    def _wait_for(self, number: int) -> None:
        """Wait for program `number`. A second interrupt during one program stops that program."""
        try:
            while status := self._wait(number):
                if status == 2:
                    raise RuntimeError(
                        "A callback waits for an array of the program that called it, or of one that runs later. "
                        "Pass what the callback needs as its arguments."
                    )
        except KeyboardInterrupt:
            running = self._done.value
            symbols.runner[1] = int(running == self._interrupted)
            self._interrupted = running
            raise
        self.reap()

    def _before_fork(self) -> None:
        if not self.is_queue_thread():
            while self._posted.value > self._done.value:
                self._wait_for(self._posted.value - 1)

    def _after_fork(self) -> None:
        self._forked()
        self.reap()

    def _end(self) -> None:
        try:
            self.wait_for_effects()
            self.raise_unseen()
        finally:
            self._ends.value = 1
            while self._posted.value > self._done.value and not self.is_queue_thread():
                symbols.runner[1] = 1
                self._wait(self._posted.value - 1)
            self.reap()


def open_queue(addresses: dict[str, int], pending: type, failed: type) -> None:
    """Create the queue of this process from the addresses of its functions."""
    _opened.append(Queue(addresses, pending, failed))


def current() -> Queue | None:
    """Return the queue of this process; None before `open_queue`."""
    return _opened[0] if _opened else None
