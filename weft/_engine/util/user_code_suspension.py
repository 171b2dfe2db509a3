"""Suspension of user code: blocks of statements that signal handlers, finalizers and trace functions cannot interrupt.

Python runs user code between almost any two bytecodes: signal handlers, finalizers of garbage, trace and profile functions. If that
code calls a program, the call must not find a module half executed or a table half filled.

Out:  `with suspended:` around the statements. `with paused:` only stops the garbage collector: a compilation creates hundreds of
      thousands of long-lived objects with few cycles, and traversing them would take a quarter of its time. Where user code may
      run, `enclose_handlers` runs signal handlers in a context of their own instead of the interrupted one.
Laws: - In the block, this thread runs no signal handlers, finalizers of cyclic garbage, trace functions or profile functions that are
        written in Python. Handlers of the signals that arrived are called at the end of the outermost block.
      - Other threads continue; a lock excludes them: `with suspended, lock: if not table: ...`. User code runs again when the lock is
        released. If it ran in a thread that holds a lock, it could wait for another lock whose owner waits for the first one.
        Therefore only `program._lock` and the locks of whole compilations, which are acquired before all others, are held while
        user code may run.
      - Pauses of the collector nest and overlap among threads. One that was disabled before stays disabled.
      - Audit hooks still run. A block must be short: it delays Ctrl-C.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]  # `signal` itself loads enum
import _thread
import builtins
import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any

from weft._engine.hooks import handler_context

# ---- the garbage collector

# one entry per pause; a counter with a lock would hold the lock while finalizers run
_pauses: list[None] = []
_owes = False  # True if the end of the last pause must enable the collector


class _GarbageCollectionPause:
    """A context manager that stops the garbage collector from starting by itself."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _owes
        _pauses.append(None)
        if gc.isenabled():
            _owes = True
            gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _owes
        if _pauses:  # empty after a fork inside the block
            _pauses.pop()
        if not _pauses and _owes:
            _owes = False
            gc.enable()
            if _pauses:  # another thread has begun a pause in the meantime
                _owes = True
                gc.disable()


def _after_fork() -> None:
    """End all pauses in a forked child, which does not have the threads of the pauses."""
    global _owes
    _pauses.clear()
    if _owes:
        _owes = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: use as `with paused:` around internal work that creates many objects and calls no user code
paused = _GarbageCollectionPause()


# ---- all user code

_SIGNALS = range(1, _signal.NSIG)
#: thread -> the user code that it suspends
_sections: dict[int, _SuspendedUserCode] = {}


class _SuspendedUserCode:
    """The user code that one thread suspends."""

    __slots__ = ("arrived", "depth", "handlers", "importer", "profile", "trace")

    def __init__(self) -> None:
        self.depth = 0
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.arrived: list[int] = []
        self.trace, self.profile, self.importer = (
            sys.gettrace(),
            sys.getprofile(),
            builtins.__import__,
        )

    def suspend(self) -> None:
        """Suspend user code, beginning with signal handlers, which may run between any two statements."""
        paused.__enter__()
        try:
            self._take_handlers()
            if _calls_python(self.trace):
                sys.settrace(None)
            if _calls_python(self.profile):
                sys.setprofile(None)
            if type(self.importer) is not BuiltinFunctionType:
                builtins.__import__ = importlib.__import__
        except BaseException:
            self.resume()
            raise

    def resume(self) -> None:
        """Resume user code, and finally handle the signals that arrived."""
        if builtins.__import__ is importlib.__import__:
            builtins.__import__ = self.importer
        paused.__exit__(None, None, None)
        try:
            self._return_handlers()
        finally:
            if _calls_python(self.profile):
                sys.setprofile(self.profile)
            if _calls_python(self.trace):
                sys.settrace(self.trace)
            self._handle_signals()

    def _take_handlers(self) -> None:
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler):
                self.handlers[number] = handler
                try:
                    _signal.signal(number, self._note)
                except ValueError:  # not the main thread, which alone runs handlers
                    self.handlers.clear()
                    return

    def _return_handlers(self) -> None:
        """Restore the handlers, except handlers that were replaced in the meantime."""
        try:
            for number, handler in self.handlers.items():
                if _signal.getsignal(number) == self._note:
                    _signal.signal(number, handler)
        except BaseException:  # from a restored handler
            self._return_handlers()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.arrived.append(number)

    def _handle_signals(self) -> None:
        """Call the handlers of the signals that arrived, all of them even if one raises."""
        while self.arrived:
            number = self.arrived.pop(0)
            try:
                with handler_context():
                    self.handlers[number](number, sys._getframe())
            except BaseException:
                self._handle_signals()
                raise


def _calls_python(function: Any) -> bool:
    """Return whether a trace or profile function may call programs; profilers and coverage tools written in C do not."""
    return isinstance(function, (FunctionType, MethodType))


class _UserCodeSuspension:
    """A context manager that suspends user code in this thread; blocks may nest."""

    __slots__ = ()

    def __enter__(self) -> None:
        thread = _thread.get_ident()
        section = _sections.get(thread)
        if section is None:
            section = _SuspendedUserCode()
            section.suspend()
            _sections[thread] = section
        section.depth += 1

    def __exit__(self, *error: object) -> None:
        thread = _thread.get_ident()
        section = _sections[thread]
        section.depth -= 1
        if not section.depth:
            del _sections[thread]
            section.resume()


suspended = _UserCodeSuspension()


def is_suspended() -> bool:
    """Return whether user code is suspended in this thread."""
    return _thread.get_ident() in _sections


def has_signals() -> bool:
    """Return whether signals have arrived that will be handled at the end of this thread's outermost block."""
    return bool(_sections[_thread.get_ident()].arrived)


# ---- signal handlers in a context of their own


class _EnclosedHandler:
    """A signal handler that runs in the context of `handler_context`."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, FrameType | None], Any]):
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        with handler_context():
            self.handler(number, frame)


#: all handlers at the last call of `enclose_handlers` that enclosed none; an equal list needs no work
_plain_handlers: list[Any] = []


def enclose_handlers() -> dict[int, _EnclosedHandler]:
    """Have signal handlers run in the context of `handler_context`; return them for `release_handlers`."""
    global _plain_handlers
    enclosed: dict[int, _EnclosedHandler] = {}
    handlers = [*map(_signal.getsignal, _SIGNALS)]
    if (
        handlers == _plain_handlers
        or is_suspended()
        or _thread.get_ident() != threading.main_thread().ident
    ):
        return enclosed
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        if (
            callable(handler)
            and handler is not _signal.default_int_handler
            and type(handler) is not _EnclosedHandler
        ):
            enclosed[number] = _EnclosedHandler(handler)
            _signal.signal(number, enclosed[number])
    if not enclosed:
        _plain_handlers = handlers
    return enclosed


def release_handlers(enclosed: dict[int, _EnclosedHandler]) -> None:
    """Restore enclosed handlers, except handlers that were replaced in the meantime."""
    for number, handler in enclosed.items():
        if _signal.getsignal(number) is handler:
            _signal.signal(number, handler.handler)
