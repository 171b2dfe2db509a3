"""Imports that user code cannot interrupt.

A call of a program imports modules late: the compiler, the operations that it traces, native dispatch. Python runs user code at almost
any point of an import: handlers of signals, finalizers, trace and profile functions, import hooks. If that code calls a program, the
call meets modules that are half executed.

In:   imports of weft, and of the packages that its functions import late.
Out:  `install` puts a finder in front of `sys.meta_path`.
Laws: - From the creation of a module until its last statement has run, this thread runs no Python code except that of modules: signals
        are handled when the outermost module is complete, the garbage collector pauses, and trace functions, profile functions and
        import hooks written in Python are suspended. Other threads wait for Python's lock of the module.
      - A module is executed once, even if an interrupt arrives when its import is almost done.
      - Audit hooks and replaced methods of Python's own loaders still run.
"""

from __future__ import annotations

import _signal
import _thread
import builtins
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from weft.util.collector import paused

#: packages that functions of weft import late
_PACKAGES = frozenset("weft llvmlite ml_dtypes opt_einsum scipy dataclasses logging traceback".split())
_FINDERS = (BuiltinImporter, FrozenImporter, PathFinder)
_SIGNALS = range(1, _signal.NSIG)
#: the threads that import one of the packages, with the user code that each suspends
_sections: dict[int, _Section] = {}
#: complete modules whose imports an exception of a signal handler may have ended: Python forgets them, and imports them again
_interrupted: dict[str, ModuleType] = {}


class _Section:
    """User code suspended by one thread for the duration of an import."""
    __slots__ = ("arrived", "handlers", "importer", "name", "profile", "trace")

    def __init__(self, name: str):
        self.name = name
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.arrived: list[int] = []
        self.trace, self.profile, self.importer = sys.gettrace(), sys.getprofile(), builtins.__import__

    def enter(self) -> None:
        """Suspend user code, signals first: their handlers may run between any two statements."""
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
            self.exit()
            raise

    def exit(self) -> None:
        """Resume user code."""
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

    def _take_handlers(self) -> None:
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler):
                self.handlers[number] = handler
                try:
                    _signal.signal(number, self._note)
                except ValueError:              # only the main thread, which this one is not, runs handlers
                    self.handlers.clear()
                    return

    def _return_handlers(self) -> None:
        """Set the handlers again, except where a module has set another one."""
        try:
            for number, handler in self.handlers.items():
                if _signal.getsignal(number) == self._note:
                    _signal.signal(number, handler)
        except BaseException:                   # from a handler that is set again
            self._return_handlers()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.arrived.append(number)

    def handle_signals(self) -> None:
        """Call the handlers of the signals that arrived. If one raises, the others are called all the same."""
        while self.arrived:
            number = self.arrived.pop(0)
            try:
                self.handlers[number](number, sys._getframe())
            except BaseException:
                self.handle_signals()
                raise


def _calls_python(function: Any) -> bool:
    """Whether a trace or profile function may call programs; those of profilers and coverage tools written in C do not."""
    return isinstance(function, (FunctionType, MethodType))


class _Loader:
    """The loader of a module, which suspends user code from the creation of the module to its last statement."""

    def __init__(self, loader: Any):
        self._loader = loader
        self._is_complete = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module if user code has imported it since the search began; otherwise have it created."""
        importer = sys._getframe(2)
        if importer.f_code.co_name != "_load_unlocked":       # its execution may never follow, or much later
            return self._loader.create_module(spec)
        section = _begin(spec.name)
        complete = _interrupted.pop(spec.name, None) or sys.modules.get(spec.name)
        if complete is None:
            return self._loader.create_module(spec)
        self._is_complete = True
        if section is not None:
            _end(section)
        return complete

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, unless it is complete."""
        spec = module.__spec__
        assert spec is not None
        module.__loader__ = spec.loader = self._loader
        if self._is_complete:
            return
        _begin(spec.name)
        section = _sections[_thread.get_ident()]
        is_outermost = section.name == spec.name
        try:
            self._loader.exec_module(module)
            if is_outermost and section.arrived:
                _interrupted[spec.name] = module
        finally:
            if is_outermost:
                _end(section)
        _interrupted.pop(spec.name, None)


def _begin(name: str) -> _Section | None:
    """The section of this thread if module `name` begins it; None if the thread is in one."""
    thread = _thread.get_ident()
    if thread in _sections:
        return None
    section = _Section(name)
    section.enter()
    _sections[thread] = section
    return section


def _end(section: _Section) -> None:
    del _sections[_thread.get_ident()]
    section.exit()
    section.handle_signals()


class ImportGuard:
    """A finder for the packages above, and for whatever their modules import while they are executed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders give, with a loader that suspends user code."""
        is_listed = name.partition(".")[0] in _PACKAGES
        if target is not None or not (is_listed or _thread.get_ident() in _sections):
            return None
        spec = _find(name, path)
        if is_listed and spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)       # type: ignore[assignment]
        return spec


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Search with Python's own finders first: those of users may call programs."""
    others = [finder for finder in sys.meta_path if finder is not ImportGuard and finder not in _FINDERS]
    for finder in (*_FINDERS, *others):
        find = getattr(finder, "find_spec", None)
        spec = find and find(name, path, None)
        if spec is not None:
            return spec
    return None


def install() -> None:
    """Guard all later imports."""
    for finder in [finder for finder in sys.meta_path if getattr(finder, "__module__", None) == __name__]:
        sys.meta_path.remove(finder)                 # of an earlier import of weft
    sys.meta_path.insert(0, ImportGuard)             # type: ignore[arg-type]
