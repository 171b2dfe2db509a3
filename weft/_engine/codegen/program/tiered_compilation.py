"""Tiered compilation: first calls run unoptimized drafts.

In:   a program that `compile_draft` compiles for its first call, with some kernels unoptimized.
Out:  `Draft.note_call()`, called by Python before each run: the second call schedules the
      optimization, after which all callbacks in `Draft.then` receive the optimized program.
Laws: a draft computes the same bits as its replacement. One thread optimizes, one module at a time,
      while no caller waits for a compilation, or after `_MAX_DELAY_S` at the latest. It stops after
      the current module at process exit. If the optimization fails, the draft stays.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft._engine.codegen.runtime import pool
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from weft._engine.codegen.program.program_runner import NativeProgram
    from weft._engine.ir.program import ScheduledProgram


def compile_draft(program: ScheduledProgram) -> NativeProgram:
    """Compile a program for its first call; it has a `draft` if some code is not optimized."""
    with suspended:
        from weft._engine.codegen.program.program import compile_program

    native_program = compile_program(program, draft=True)
    if native_program.is_draft:
        native_program.draft = Draft(lambda: program)
    return native_program


#: seconds after its due time that an optimization waits at most for an idle thread pool
_MAX_DELAY_S = 0.1
#: delay in seconds before a process loads the compiler to optimize a draft from an earlier process
FROM_DISK_S = 1.0


class Draft:
    """The pending optimization of a draft, at least `after` seconds after the second call."""

    __slots__ = ("then", "was_called", "due", "_program", "_after")

    def __init__(self, program: Callable[[], ScheduledProgram], after: float = 0.0):
        # called with the optimized program, in the optimizing thread
        self.then: list[Callable[[NativeProgram], None]] = []
        self.was_called = False
        self.due = 0.0
        self._program = program
        self._after = after

    def note_call(self) -> None:
        """Note a run of the program; schedule its optimization at the second run."""
        if self.was_called and not self.due:
            _schedule_optimization(self, self._after)
        self.was_called = True

    def improve(self) -> None:
        """Optimize the program now, and call the callbacks in `then`."""
        with contextlib.suppress(BaseException):  # the draft remains usable
            from weft._engine.codegen.program.program import improve

            program = self._program()
            optimized = improve(program, _over.is_set)
            if optimized is not None:
                for tell in self.then:
                    tell(optimized)
        self.then.clear()  # native entries keep the draft alive, but not what the callbacks refer to


_waiting: list[Draft] = []


def _schedule_optimization(draft: Draft, after: float) -> None:
    with suspended, _lock:
        if draft.due:
            # another thread was faster; its replacement stays, since native calls may run it
            return
        draft.due = time.monotonic() + after
        _waiting.append(draft)
        if _idle.is_set():
            with contextlib.suppress(RuntimeError):  # at exit the interpreter starts no threads
                _thread.start_new_thread(_work, ())
                _idle.clear()


def _work() -> None:
    while True:
        with suspended, _lock:
            if not _waiting or _over.is_set():
                _idle.set()
                return
            draft = min(_waiting, key=lambda draft: draft.due)
        now = time.monotonic()
        delay = max(draft.due - now, min(pool.seconds_until_idle(), draft.due + _MAX_DELAY_S - now))
        if delay > 0:
            _over.wait(min(delay, pool.PAUSE_S))
            continue
        _waiting.remove(draft)
        draft.improve()


@atexit.register
def _stop() -> None:
    """Stop optimizing at process exit. The exit waits at most for the current module in LLVM
    (`llvm_c`)."""
    _over.set()


def _begin() -> None:
    """Set the state to no optimization in progress, also in a forked child, where pending drafts
    stay drafts."""
    global _lock, _over, _idle
    # reentrant: a finalizer or a signal handler may run programs while this thread holds it
    _lock = threading.RLock()
    _over, _idle = threading.Event(), threading.Event()
    _idle.set()
    _waiting.clear()


_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
