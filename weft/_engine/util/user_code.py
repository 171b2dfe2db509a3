"""Statements that no user code interrupts.

Python runs user code at almost any point of a statement: handlers of signals, finalizers of garbage, trace and profile functions. If
that code calls a program, the call must not meet a module that is half executed or a table that is half filled.

Out:  `with suspended:` around the statements. `with paused:` stops the garbage collector alone: a compilation makes hundreds of thousands
      of long-lived objects with hardly a cycle among them, and walking them takes a quarter of its time. Where user code may run,
      `enclose_handlers` gives handlers of signals a context of their own, which is not the one that they interrupt.
Laws: - In the block this thread runs no handlers, finalizers of cyclic garbage, trace functions or profile functions that are written in
        Python. Handlers are called at the end of the outermost block, for the signals that arrived.
      - Other threads continue; a lock keeps them out of the block: `with suspended, lock: if not table: ...`. User code begins when the
        lock is released. While it runs in a thread that has a lock, it may wait for another lock, whose holder waits for this one: so only
        `program._lock` and the locks of whole compilations, which are taken before all others, are held where user code may run.
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

# ---- the collector of garbage

_pauses: list[None] = []  # one entry for each; a lock would be held where finalizers run
_owes = False  # whether the end of the last pause enables the collector


class _Paused:
    """The collector does not start by itself inside of the `with` block."""

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
        if _pauses:  # a fork inside leaves none
            _pauses.pop()
        if not _pauses and _owes:
            _owes = False
            gc.enable()
            if _pauses:  # another thread began one meanwhile
                _owes = True
                gc.disable()


def _after_fork() -> None:
    """A child does not have the threads that paused."""
    global _owes
    _pauses.clear()
    if _owes:
        _owes = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: use as `with paused:` around internal work that makes many objects and calls no user code
paused = _Paused()


# ---- everything

_SIGNALS = range(1, _signal.NSIG)
#: the threads in a block, with the user code that each suspends
_sections: dict[int, _Section] = {}


class _Section:
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
        """Begin, with signals first: their handlers may run between any two statements."""
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
        """End, with the signals that arrived last."""
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
                except ValueError:  # only the main thread, which this one is not, runs handlers
                    self.handlers.clear()
                    return

    def _return_handlers(self) -> None:
        """Set the handlers again, except where another one was set meanwhile."""
        try:
            for number, handler in self.handlers.items():
                if _signal.getsignal(number) == self._note:
                    _signal.signal(number, handler)
        except BaseException:  # from a handler that is set again
            self._return_handlers()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.arrived.append(number)

    def _handle_signals(self) -> None:
        """Call the handlers of the signals that arrived. If one raises, the others are called all the same."""
        while self.arrived:
            number = self.arrived.pop(0)
            try:
                with handler_context():
                    self.handlers[number](number, sys._getframe())
            except BaseException:
                self._handle_signals()
                raise


def _calls_python(function: Any) -> bool:
    """Whether a trace or profile function may call programs; those of profilers and coverage tools written in C do not."""
    return isinstance(function, (FunctionType, MethodType))


class _Suspended:
    """Suspend user code in this thread; blocks nest."""

    __slots__ = ()

    def __enter__(self) -> None:
        thread = _thread.get_ident()
        section = _sections.get(thread)
        if section is None:
            section = _Section()
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


suspended = _Suspended()


def is_suspended() -> bool:
    """Whether this thread is in a block."""
    return _thread.get_ident() in _sections


def has_signals() -> bool:
    """Whether signals arrived that the end of this thread's outermost block will handle."""
    return bool(_sections[_thread.get_ident()].arrived)


# ---- handlers of signals in a context of their own


class _EnclosedHandler:
    """A handler that runs in the context of `handler_context`."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, FrameType | None], Any]):
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        with handler_context():
            self.handler(number, frame)


#: all handlers, when there last was none to enclose: mostly they are the same the next time
_plain_handlers: list[Any] = []


def enclose_handlers() -> dict[int, _EnclosedHandler]:
    """Let handlers run in the context of `handler_context` from now on. Return what `release_handlers` takes."""
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
    """Set the handlers again that were enclosed, except where another one was set meanwhile."""
    for number, handler in enclosed.items():
        if _signal.getsignal(number) is handler:
            _signal.signal(number, handler.handler)
