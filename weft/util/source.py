"""The user's source lines, and tracebacks without the frames of weft.

In:  the Python stack at the moment an operation is recorded or an error is raised.
Out: `SourceLine`, a light record that becomes text only when printed, and filtered tracebacks.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar

from weft.util.config import config

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Helpers that call back into weft on the user's behalf are no place a user would recognise.
_HELPERS = tuple(os.sep + name for name in ("contextlib.py", "functools.py")) + (f"{os.sep}opt_einsum{os.sep}",)


class _Internal(dict):
    """file name -> whether its frames are hidden; filled on first sight."""

    def __missing__(self, file: str) -> bool:
        hidden = os.path.abspath(file).startswith(_PACKAGE) or any(part in file for part in _HELPERS)
        self[file] = hidden
        if hidden:
            _hidden_files.add(file)
        return hidden


_internal = _Internal()
_hidden_files: set[str] = set()  # the same answer in the form that is quickest to ask


def function_name(fun: Callable) -> str:
    """The name a user knows a function by, seen through `functools.partial`."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


def named(fun: Callable, name: str, doc: str) -> Callable:
    """`fun`, which is made by another function, under its public name and with its docstring."""
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


class _Scope(threading.local):
    """The names of operations that are traced now, joined by slashes."""
    name = ""


scope = _Scope()


class _Place:
    """A place known by name and number alone, in the form of a code object."""

    __slots__ = ("co_filename", "co_firstlineno", "co_name")

    def __init__(self, file: str, line: int, function: str) -> None:
        self.co_filename = file
        self.co_firstlineno = line
        self.co_name = function

    def co_lines(self) -> tuple[tuple[int, int, int], ...]:
        return ()


class SourceLine:
    """One place in the user's program.

    Holds the code object and an instruction offset; file, line and text are found when asked for.
    """

    __slots__ = ("_code", "_lasti", "scope")

    def __init__(self, code: CodeType | _Place, lasti: int, scope: str = "") -> None:
        self._code = code
        self._lasti = lasti
        self.scope = scope                      # the names that `named_scope` gave it, joined by slashes

    def within(self, scope: str) -> SourceLine:
        """The same place under one more outer name."""
        return SourceLine(self._code, self._lasti, f"{scope}/{self.scope}" if self.scope else scope)

    @staticmethod
    def at(file: str, line: int, function: str = "<module>", scope: str = "") -> SourceLine:
        """Return the record of a place that is not on the stack.

        >>> str(SourceLine.at('/src/train.py', 41, 'attend'))
        'train.py:41 in attend'
        """
        return SourceLine(_Place(file, line, function), 0, scope)

    @property
    def file(self) -> str:
        """Path of the file, as Python knows it."""
        return self._code.co_filename

    @property
    def line(self) -> int:
        """Line number, from 1."""
        offset, result = self._lasti, self._code.co_firstlineno
        for start, end, line in self._code.co_lines():
            if start <= offset < end and line is not None:
                return line
        return result

    @property
    def function(self) -> str:
        """Name of the function, or `<module>`."""
        return self._code.co_name

    @property
    def text(self) -> str:
        """The line itself, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def short(self) -> str:
        """File name and line number, as in `train.py:41`."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        inside = "" if self.function == "<module>" else f" in {self.function}"
        text = self.text
        return f"{self.short}{inside}:  {text}" if text else f"{self.short}{inside}"

    def __repr__(self) -> str:
        return f"SourceLine({self.file}:{self.line} in {self.function})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceLine):
            return NotImplemented
        return (self.file, self.line, self.function) == (other.file, other.line, other.function)

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.function))

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceLine.at, (self.file, self.line, self.function, self.scope)


def user_frame() -> SourceLine | None:
    """Return the innermost place on the stack that is outside weft, or None if there is none.

    >>> user_frame().function
    '<module>'
    """
    frame = sys._getframe(1)
    hidden = _hidden_files
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in hidden and not _internal[code.co_filename]:
            return SourceLine(code, frame.f_lasti, scope.name)
        frame = frame.f_back
    return None


def is_internal(file: str) -> bool:
    """Whether frames of code in `file` are weft's own."""
    return _internal[file]


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's line, whatever the number of weft's frames above it."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and _internal[frame.f_code.co_filename]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# ---- tracebacks

F = TypeVar("F", bound=Callable[..., Any])
_NOTE = "weft's own frames are left out of this traceback; WEFT_TRACEBACK=full shows them"


def _wants_all_frames() -> bool:
    return config.traceback == "full" or config.traceback_filtering == "off"


def _without_internal_frames(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if not _internal[traceback.tb_frame.f_code.co_filename]:
            kept.append(traceback)
        traceback = traceback.tb_next
    result = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def strip_internal_frames(error: BaseException) -> None:
    """Remove the frames of weft from an error's traceback, and from those of the errors behind it."""
    if _wants_all_frames():
        return
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        shown = _without_internal_frames(current.__traceback__)
        if shown is not current.__traceback__:
            current.__traceback__ = shown
        current = current.__cause__ or current.__context__
    is_ours = type(error).__module__.startswith("weft")
    if not is_ours and isinstance(error, Exception) and _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


def api_boundary(function: F) -> F:
    """Decorate a public function so that errors raised through it show the user's frames alone."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            strip_internal_frames(error)
            raise  # a bare raise keeps the traceback as set and does not add this frame again

    return call  # type: ignore[return-value]
