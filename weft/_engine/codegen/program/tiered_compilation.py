"""Tiered compilation: first calls run unoptimized drafts.

In:   a program that `compile_draft` compiles for its first call, with some kernels unoptimized.
Out:  `Draft.called()`, notified of each call that Python sees: the second one has the program optimized, and then notifies all of
      `Draft.then`.
Laws: a draft has the bits of its replacement. A thread optimizes, once, one module at a time, while no caller waits for a
      compilation but at the latest after a while, and stops after the current module when the process ends. If that fails,
      the draft stays for good.
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
from weft._engine.util.user_code import suspended

if TYPE_CHECKING:
    from weft._engine.codegen.program.native import NativeProgram
    from weft._engine.ir.program import Program


def compile_draft(program: Program) -> NativeProgram:
    """Make a program callable soon: it has a `draft` where some of its code is not optimized."""
    with suspended:
        from weft._engine.codegen.program.program import compile_program

    made = compile_program(program, draft=True)
    if made.is_draft:
        made.draft = Draft(lambda: program)
    return made


_PATIENCE_S = 0.1  # others may compile so long without a pause
#: how long a process runs a draft of an earlier one before it loads the compiler for it
FROM_DISK_S = 1.0


class Draft:
    """How a draft comes to be optimized, at the earliest `after` seconds from its second call."""

    __slots__ = ("then", "was_called", "due", "_program", "_after")

    def __init__(self, program: Callable[[], Program], after: float = 0.0):
        self.then: list[
            Callable[[NativeProgram], None]
        ] = []  # called with what came of it, by the thread that made it
        self.was_called = False
        self.due = 0.0
        self._program = program
        self._after = after

    def called(self) -> None:
        """The program is run."""
        if self.was_called and not self.due:
            _improve_soon(self, self._after)
        self.was_called = True

    def improve(self) -> None:
        """Have the program optimized, now."""
        with contextlib.suppress(BaseException):  # the draft does as well
            from weft._engine.codegen.program.program import improve

            program = self._program()
            made = improve(program, _over.is_set)
            if made is not None:
                for tell in self.then:
                    tell(made)
        self.then.clear()  # native entries keep the draft, but nobody needs what these hold


_waiting: list[Draft] = []


def _improve_soon(draft: Draft, after: float) -> None:
    with suspended, _lock:
        if draft.due:  # another thread was faster; what replaces the draft must stay, for native calls may be running it
            return
        draft.due = time.monotonic() + after
        _waiting.append(draft)
        if _idle.is_set():
            with contextlib.suppress(RuntimeError):  # the interpreter ends, and starts no thread
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
        rest = max(draft.due - now, min(pool.rest_left(), draft.due + _PATIENCE_S - now))
        if rest > 0:
            _over.wait(min(rest, pool.PAUSE_S))
            continue
        _waiting.remove(draft)
        draft.improve()


@atexit.register
def _stop() -> None:
    """The process ends: it waits for the module that LLVM has in work, at most (`llvm_c`), and not for what comes before LLVM."""
    _over.set()


def _begin() -> None:
    """No thread optimizes, nor in a forked child: what was to be optimized stays there as it is."""
    global _lock, _over, _idle
    _lock = (
        threading.RLock()
    )  # a finalizer or the handler of a signal may run programs while this thread has it
    _over, _idle = threading.Event(), threading.Event()
    _idle.set()
    _waiting.clear()


_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
