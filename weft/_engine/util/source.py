"""The user's source lines, tracebacks without internal frames, and errors of public functions that name the arguments.

In:  the Python stack when an operation is recorded or an error is raised.
Out: `SourceLine`, a small record that is converted to text only when printed, filtered tracebacks, and wrappers of public functions.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

from weft._engine.cpython.code_objects import is_raise_statement
from weft._engine.util.config import config
from weft._engine.util.errors import OutOfMemoryError, describe, limit_text
from weft._engine.util.events import above, spell_names
from weft._engine.util.messages.argument_texts import (
    argument_table,
    is_refused_call,
    is_wrong_call,
    names_argument,
    suggest_keyword,
    wrong_argument,
)

_PACKAGE = os.path.abspath(__file__).rsplit(os.sep, 3)[0] + os.sep
# Helpers that call weft for the user; their frames are not source lines of the user.
_HELPERS = tuple(os.sep + name for name in ("contextlib.py", "functools.py")) + (
    f"{os.sep}opt_einsum{os.sep}",
)


class _Internal(dict):
    """file name -> whether its frames are internal; filled on first use."""

    def __missing__(self, file: str) -> bool:
        hidden = os.path.abspath(file).startswith(_PACKAGE) or any(
            part in file for part in _HELPERS
        )
        self[file] = hidden
        if hidden:
            _hidden_files.add(file)
        return hidden


_internal = _Internal()
_hidden_files: set[str] = set()  # the files with internal frames, for faster tests


def function_name(fun: Callable) -> str:
    """Return the name of a function; a `functools.partial` without a name has the name of its function."""
    while isinstance(fun, functools.partial) and not hasattr(fun, "__name__"):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


def positional_names(signature: inspect.Signature) -> list[str]:
    """Return the names of the parameters that can be passed by position.

    >>> positional_names(inspect.signature(lambda a, /, b, *c, d=1: 0))
    ['a', 'b']
    """
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def function_module(fun: Callable) -> str:
    """Return the name of the module that defines a function; for a `functools.partial`, the module of its function.

    >>> function_module(functools.partial(named, None))
    'weft._engine.util.source'
    """
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__module__", None) or type(fun).__module__


def named(fun: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """Set the public name and the docstring of a function created by another function; return it."""
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


def check_callable(api: str, fun: Any) -> None:
    """Raise TypeError if `fun`, the argument of the transformation `api`, is not callable."""
    if not callable(fun):
        raise TypeError(f"{api}: Expected a callable value, got {fun!r}.")


def wraps(fun: Callable, prefix: str = "") -> Callable:
    """Return a decorator of a function that wraps `fun`: it gets the name, docstring and attributes of `fun`.

    `fun` may be a callable object; its fields become attributes, even if an attribute of functions has the same name. `prefix`, with the
    name in place of `{}`, precedes the docstring if there is one.

    >>> wraps(len)(lambda x: 0).__name__
    'len'
    >>> wraps(len, "Half of {}.")(lambda x: 0).__doc__
    'Half of len.\\n\\nOriginal documentation:\\n\\nReturn the number of items in a container.'
    """
    kinds = {
        "__module__": str,
        "__name__": str,
        "__qualname__": str,
        "__doc__": str,
        "__annotations__": dict,
    }
    decorate = functools.wraps(
        fun, [name for name, kind in kinds.items() if isinstance(getattr(fun, name, None), kind)]
    )
    if not prefix or not isinstance(doc := getattr(fun, "__doc__", None), str):
        return decorate

    def documented(wrapper: Callable) -> Callable:
        wrapper = decorate(wrapper)
        wrapper.__doc__ = (
            f"{prefix.replace('{}', str(function_name(fun)))}\n\nOriginal documentation:\n\n{doc}"
        )
        return wrapper

    return documented


class _NameStack(threading.local):
    """The current name scope of traced operations: names joined by slashes."""

    name = ""


scope = _NameStack()


def join(outer: str, inner: str) -> str:
    """Join an outer and an inner name scope. The first inner name is put into empty parentheses of a transformation.

    >>> join('net/vmap()', 'layer/attend'), join('vmap(layer)', 'attend'), join('', 'layer')
    ('net/vmap(layer)/attend', 'vmap(layer)/attend', 'layer')
    """
    if not outer:
        return inner
    head, empty, tail = outer.rpartition("()")
    if not empty or tail.strip(")"):
        return f"{outer}/{inner}"
    first, slash, rest = inner.partition("/")
    return f"{head}({first}){tail}{slash}{rest}"


class transformed_scope:
    """A context manager that puts the name of a transformation around the name scopes of operations."""

    __slots__ = ("_name", "_outer")

    def __init__(self, name: str) -> None:
        self._name = f"{name}()"

    def __enter__(self) -> None:
        self._outer = scope.name
        scope.name = join(self._outer, self._name)

    def __exit__(self, *error: object) -> None:
        scope.name = self._outer


#: attributes of an operation, sorted by key
Metadata = tuple[tuple[str, Any], ...]


def with_metadata(outer: Metadata, inner: Metadata) -> Metadata:
    """Merge outer and inner attributes: inner values take precedence, and None removes an outer attribute.

    >>> with_metadata((("a", 1), ("c", 2)), (("b", "x"), ("c", None)))
    (('a', 1), ('b', 'x'))
    """
    if not inner or not outer:
        return inner or outer
    return tuple(
        sorted([(k, v) for k, v in {**dict(outer), **dict(inner)}.items() if v is not None])
    )


class _NamedLine:
    """A stand-in for a code object that only has a file name, a line number and a function name."""

    __slots__ = ("co_filename", "co_firstlineno", "co_name")

    def __init__(self, file: str, line: int, function: str) -> None:
        self.co_filename = file
        self.co_firstlineno = line
        self.co_name = function

    def co_lines(self) -> tuple[tuple[int, int, int], ...]:
        return ()


class SourceLine:
    """A source line of the user's program, with the name scope and the attributes of an operation.

    It has the code object and an instruction offset; file, line and text are computed on demand.
    """

    __slots__ = ("_code", "_lasti", "metadata", "scope")

    def __init__(
        self, code: CodeType | _NamedLine, lasti: int, scope: str = "", metadata: Metadata = ()
    ) -> None:
        self._code = code
        self._lasti = lasti
        self.scope = scope  # names of `named_scope` and transformations, joined by slashes
        self.metadata = metadata  # attributes of `set_xla_metadata`

    def with_outer_name(self, scope: str, metadata: Metadata = ()) -> SourceLine:
        """Return the same line with an additional outer scope and outer attributes."""
        names = scope if not self.scope else join(scope, self.scope) if scope else self.scope
        return SourceLine(self._code, self._lasti, names, with_metadata(metadata, self.metadata))

    def tag(self, metadata: Metadata) -> SourceLine:
        """Return the same line with additional attributes."""
        return SourceLine(
            self._code, self._lasti, self.scope, with_metadata(self.metadata, metadata)
        )

    def unnamed(self) -> SourceLine:
        """Return the same line with its attributes, without a name scope."""
        return SourceLine(self._code, self._lasti, "", self.metadata)

    def mark_transposed(self) -> SourceLine:
        """Return the same line with the name scope of operations in the transpose of a derivative.

        >>> SourceLine.at('train.py', 41, scope='net/jvp(layer)/attend').mark_transposed().scope
        'net/transpose(jvp(layer))/attend'
        """
        names = self.scope.split("/")
        at = next((i for i, name in enumerate(names) if "jvp(" in name), None)
        if at is None:  # in a called program, which has its own names
            return self
        names[at] = f"transpose({names[at]})"
        return SourceLine(self._code, self._lasti, "/".join(names), self.metadata)

    @property
    def name_stack(self) -> str:
        """The names of scopes and transformations that contain the operation, joined by slashes."""
        return self.scope

    @property
    def traceback(self) -> SourceLine:
        """The line without names; JAX's source information has it as a separate object."""
        return self

    @staticmethod
    def at(
        file: str, line: int, function: str = "<module>", scope: str = "", metadata: Metadata = ()
    ) -> SourceLine:
        """Return the record of a line that is not on the stack.

        >>> str(SourceLine.at('/src/train.py', 41, 'attend'))
        'train.py:41 in attend'
        """
        return SourceLine(_NamedLine(file, line, function), 0, scope, metadata)

    @property
    def file(self) -> str:
        """Path of the file, as in the code object."""
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
    def column(self) -> int:
        """Column of the start of the expression, from 0; 0 if unknown."""
        positions = getattr(self._code, "co_positions", tuple)()
        position = next(itertools.islice(positions, self._lasti // 2, None), None)
        return position[2] or 0 if position is not None else 0

    @property
    def function(self) -> str:
        """Name of the function, or `<module>`."""
        return self._code.co_name

    @property
    def text(self) -> str:
        """The text of the line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def short(self) -> str:
        """File name and line number, as in `train.py:41`."""
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def place(self) -> str:
        """File, line, column and function, as in `/src/train.py:41:4 (attend)`."""
        return f"{self.file}:{self.line}:{self.column} ({getattr(self._code, 'co_qualname', self.function)})"

    def __str__(self) -> str:
        inside = "" if self.function == "<module>" else f" in {self.function}"
        text = self.text
        return f"{self.short}{inside}:  {text}" if text else f"{self.short}{inside}"

    def __repr__(self) -> str:
        return f"SourceLine({self.file}:{self.line} in {self.function})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceLine):
            return NotImplemented
        return (self.file, self.line, self.function, self.metadata) == (
            other.file,
            other.line,
            other.function,
            other.metadata,
        )

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.function))

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceLine.at, (
            self.file,
            self.line,
            self.function,
            self.scope,
            *([self.metadata] if self.metadata else ()),
        )


class CollectiveLine(SourceLine):
    """The line of an operation that implements a collective between devices of one process; `collective` is its kind."""

    __slots__ = ("collective",)

    def __init__(self, line: SourceLine, collective: str) -> None:
        super().__init__(line._code, line._lasti, line.scope, line.metadata)
        self.collective = collective


def user_frame() -> SourceLine | None:
    """Return the innermost line on the stack outside of weft, or None if there is none.

    >>> user_frame().function
    '<module>'
    """
    frame = sys._getframe(1)
    hidden = _hidden_files
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in hidden and not _internal[code.co_filename]:
            return SourceLine(code, frame.f_lasti, scope.name, config.xla_metadata)
        frame = frame.f_back
    return None


def is_internal(file: str) -> bool:
    """Return whether frames of code in `file` are internal to weft."""
    return _internal[file]


def hide(file: str) -> None:
    """Treat the frames of a file as internal: tracebacks omit them, and they are never source lines of the user."""
    _internal[file] = True
    _hidden_files.add(file)


def show(file: str) -> None:
    """Undo `hide`."""
    _internal.pop(file, None)
    _hidden_files.discard(file)


# Modules between a user's call and the promotion of its operands that compute nothing themselves.
_FORWARDING = tuple(
    f"{_PACKAGE}{part}"
    for part in (
        *[
            f"_engine{os.sep}{package}{os.sep}"
            for package in ("api", "control", "core", "ops", "runtime", "transforms", "util")
        ],
        *[
            f"_engine{os.sep}numpy{os.sep}{module}.py"
            for module in ("promote", "eager", "eager_choice", "methods", "ufunc_type")
        ],
    )
)


def is_own_arithmetic() -> bool:
    """Return whether the current operation is a step of another public function of weft instead of a call by the user.

    This is so if functions of two modules of weft are on the stack above the user's frame. Settings for strict promotion apply to the
    user's operands only.

    >>> is_own_arithmetic()
    False
    """
    frame, modules = sys._getframe(1), set()
    while frame is not None and _internal[frame.f_code.co_filename]:
        file = os.path.abspath(frame.f_code.co_filename)
        if file.startswith(_PACKAGE) and not file.startswith(_FORWARDING):
            modules.add(file)
        frame = frame.f_back
    return len(modules) > 1


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning at the user's source line."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and _internal[frame.f_code.co_filename]:
        level, frame = level + 1, frame.f_back
    warnings.warn(spell_names(message), category, stacklevel=level)


# ---- tracebacks

F = TypeVar("F", bound=Callable[..., Any])

_NOTE = "For simplicity, weft's own frames are left out of this traceback; WEFT_TRACEBACK=full shows them"


class UnfilteredStackTrace(Exception):
    """The cause of an error with a filtered traceback; it has the unfiltered one (`traceback_filtering="remove_frames"`)."""


def _wants_all_frames() -> bool:
    return config.traceback == "full" or config.traceback_filtering == "off"


def without_internal_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a copy of a traceback without internal frames."""
    user_entries = []
    while traceback is not None:
        if not _internal[traceback.tb_frame.f_code.co_filename]:
            user_entries.append(traceback)
        traceback = traceback.tb_next
    result = None
    for entry in reversed(user_entries):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def strip_internal_frames(error: BaseException) -> None:
    """Remove internal frames from the tracebacks of an error and its causes, and errors that were handled inside weft."""
    if _wants_all_frames():
        return
    if config.traceback_filtering in ("tracebackhide", "remove_frames"):
        if _is_outermost():
            (
                _mark_internal_frames
                if config.traceback_filtering == "tracebackhide"
                else _move_to_cause
            )(error)
        return
    for current in _chain(error):
        traceback = without_internal_frames(current.__traceback__)
        if traceback is not current.__traceback__:
            current.__traceback__ = traceback
    for current in _chain(error):
        if current.__cause__ is None and not current.__suppress_context__:
            current.__context__ = _without_internal_errors(current.__context__)
    is_ours = type(error).__module__.startswith("weft")
    if (
        not is_ours
        and isinstance(error, Exception)
        and _NOTE not in getattr(error, "__notes__", ())
    ):
        error.add_note(_NOTE)


def clean_method_error(error: Exception) -> None:
    """Remove internal frames from an error that leaves a method of an array, and use the names that the user's file uses.

    Call it in an `except` clause of the method, or of a public function without an `api_boundary`. Nothing changes if weft itself
    called the method.
    """
    if not _internal[sys._getframe(2).f_code.co_filename]:
        _use_names_of_user(error)
        strip_internal_frames(error)


def array_method(function: F) -> F:
    """Decorate a method of arrays: `clean_method_error` applies to its errors."""

    @functools.wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            clean_method_error(error)
            raise

    return cast(F, method)


def _without_internal_errors(context: BaseException | None) -> BaseException | None:
    """Return the first error of a chain of contexts that was raised or handled in the user's code, after frames are stripped."""
    while context is not None and context.__traceback__ is None:
        context = context.__context__
    return context


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _is_outermost() -> bool:
    """Return whether no other public function of weft is further up the stack."""
    frame: FrameType | None = sys._getframe(1)
    boundaries = 0
    while frame is not None:
        boundaries += frame.f_code in _BOUNDARIES
        frame = frame.f_back
    return boundaries <= 1


def _mark_internal_frames(error: BaseException) -> None:
    """Mark internal frames so that debuggers and IPython skip them."""
    for current in _chain(error):
        entry = current.__traceback__
        while entry is not None:
            if _internal[entry.tb_frame.f_code.co_filename]:
                entry.tb_frame.f_locals["__tracebackhide__"] = True
            entry = entry.tb_next


def _move_to_cause(error: BaseException) -> None:
    """Keep only the user's frames in an error's traceback, and add a cause with all frames."""
    if isinstance(error.__cause__, UnfilteredStackTrace):
        error.__traceback__ = without_internal_frames(error.__traceback__)
        return
    whole = UnfilteredStackTrace("The unfiltered traceback of this error is above.").with_traceback(
        error.__traceback__
    )
    whole.__cause__, whole.__context__ = error.__cause__, error.__context__
    whole.__suppress_context__ = error.__suppress_context__
    error.__traceback__ = without_internal_frames(error.__traceback__)
    error.__cause__ = whole


# ---- public functions

_CLASSES: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (TypeError, TypeError),
    (OverflowError, OverflowError),
    (ValueError, ValueError),
    (IndexError, IndexError),
    (AttributeError, TypeError),
    (KeyError, ValueError),
    (NameError, ValueError),
    (ArithmeticError, ValueError),
    (RecursionError, ValueError),
    (StopIteration, ValueError),
    (BufferError, TypeError),
)


def api_boundary(function: F, name: str = "") -> F:
    """Decorate a public function: the tracebacks of its errors only show the user's frames, and messages name the arguments.

    An error raised by Python or a library inside weft is converted to a documented class, with a table of the arguments. If a message
    of weft names neither the function nor a parameter, the function's `name` is prepended (wrappers of user functions have no name).
    Errors of the user's functions are unchanged. A successful call costs one frame.
    """
    name = name or ("" if hasattr(function, "__wrapped__") else function.__name__)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            better = _explain(error, name, function, args, kwargs)
            if better is error:
                raise  # a bare raise keeps the traceback and does not add this frame
            raise better from error

    return cast(F, call)


#: the code objects of functions that explain the errors raised through them
_BOUNDARIES = {api_boundary(lambda: None).__code__}


def boundary(function: F) -> F:
    """Decorate a function that itself explains the errors raised through it, by `explain`, as `api_boundary` does."""
    _BOUNDARIES.add(function.__code__)
    return function


def explain(error: Exception, called: Any, args: Sequence, kwargs: Mapping[str, Any]) -> Exception:
    """Return the exception to raise for an `error` from the function object `called`: the error itself or a more helpful one."""
    name = called.name if getattr(called, "is_public", False) else ""
    return _explain(error, name, called.fun, args, kwargs, frames=1)


def guard(fun: Any, module: str, name: str) -> Any:
    """Return a plain function, or its attribute `public`, as the public function `module.name` with an `api_boundary`.

    Other values are returned unchanged.

    >>> guard(len, "weft", "length") is len
    True
    """
    if type(fun) is not FunctionType or inspect.isgeneratorfunction(fun):
        return fun
    public = api_boundary(getattr(fun, "public", fun), name)
    public.__module__, public.__name__, public.__qualname__ = module, name, name
    return public


def guard_all(namespace: dict[str, Any], names: Iterable[str] = ()) -> None:
    """Guard the public functions that a module defines, and the functions in `names` and `__all__`. Call it at the end of the module."""
    module = namespace["__name__"]
    own = [
        name
        for name, value in namespace.items()
        if name[0] != "_" and getattr(value, "__module__", None) == module
    ]
    for name in {*own, *names, *namespace.get("__all__", ())}:
        namespace[name] = guard(namespace[name], module, name)


def _explain(
    error: Exception,
    name: str,
    fun: Callable,
    args: Sequence,
    kwargs: Mapping[str, Any],
    frames: int = 2,
) -> Exception:
    """Return the exception to raise for an `error` from the public function `fun`: the error itself or a more helpful one.

    A traceback of fewer than `frames` frames belongs to a call with a wrong number of arguments.
    """
    if is_refused_call(error, fun, args, kwargs):
        return _explain_refusal(error, fun, kwargs)
    inside = _is_inside(error, frames)
    _use_names_of_user(error)
    called = name or getattr(fun, "__name__", "a function")
    if inside and isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        message = str(error) or f"no memory for Python's own objects.{limit_text()}"
        return _format_value(OutOfMemoryError(f"{called}: {message}"))
    kind = next((to for of, to in _CLASSES if isinstance(error, of)), None)
    if inside and kind is not None:
        rule = f"{type(error).__name__}: {error}"
        wrong = (
            wrong_argument(error, fun, args, kwargs) if isinstance(error, AttributeError) else None
        )
        if wrong is not None:
            return _format_value(
                TypeError(
                    describe(called, wrong, argument_table(fun, args, kwargs), user_frame(), rule)
                )
            )
        return _format_value(
            kind(
                describe(
                    called,
                    "failed on these arguments.",
                    argument_table(fun, args, kwargs),
                    user_frame(),
                    rule,
                )
            )
        )
    message = getattr(error, "_said", error.args[0] if len(error.args) == 1 else None)
    if (
        inside is False
        and name
        and isinstance(message, str)
        and not isinstance(error, KeyError)
        and not _API_PREFIX.match(message)
        and not names_argument(message, name, fun)
    ):
        error.__dict__["_said"], error.args = message, (f"{name}: {message}",)
    return _format_value(error)


def _explain_refusal(error: Exception, fun: Callable, kwargs: Mapping[str, Any]) -> Exception:
    """Add the keyword that the user probably means to Python's error for a call that `fun` does not accept."""
    if meant := suggest_keyword(error, fun, kwargs):
        error.args = (f"{error.args[0]}. {meant}",)
    return _format_value(error)


#: the beginning of a message that names its function, as in `shard_map(<lambda>): `
_API_PREFIX = re.compile(r"[A-Za-z_][\w.]*\(.*?\): ")


def _use_names_of_user(error: Exception) -> None:
    """Write the names of weft in the message as the calling program does, if weft raised the error."""
    entry = error.__traceback__
    if not above or entry is None or not error.args or not isinstance(error.args[0], str):
        return
    while entry.tb_next is not None:
        entry = entry.tb_next
    if _internal[entry.tb_frame.f_code.co_filename]:
        error.args = (spell_names(error.args[0]), *error.args[1:])


def _format_value(error: Exception) -> Exception:
    strip_internal_frames(error)
    return error


def _is_inside(error: Exception, frames: int) -> bool | None:
    """Return True if Python or a library raised an error inside weft, False if weft itself raised it, None if the user's code did."""
    codes, entry, at, frame = [], error.__traceback__, 0, None
    while entry is not None:
        frame, at = entry.tb_frame, entry.tb_lasti
        code = frame.f_code
        if (
            not _internal[code.co_filename]
            and not code.co_filename.startswith("<frozen")
            and not _LIBRARIES.search(code.co_filename)
        ):
            return None
        codes.append(code)
        entry = entry.tb_next
    known = error.__dict__.get("_inside")
    if known is not None:  # internal frames may have been removed since
        return known
    if len(codes) < frames:
        return None  # raised by the call itself, for a wrong number of arguments
    last = codes[-1]
    by_protocol = type(error).__module__ == "builtins" and any(
        code.co_name in _PROTOCOLS for code in codes[-3:]
    )
    by_weft = _internal[last.co_filename] and is_raise_statement(last, at) and not by_protocol
    inside = not by_weft and not (frame is not None and is_wrong_call(error, frame))
    error.__dict__["_inside"] = inside
    return inside


#: methods that Python calls to use an array as another type
_PROTOCOLS = {
    f"__{name}__"
    for name in (
        "bool",
        "index",
        "int",
        "float",
        "complex",
        "hash",
        "iter",
        "len",
        "contains",
        "getattr",
    )
}
#: files of the libraries that weft calls
_LIBRARIES = re.compile(
    r"[/\\](numpy|scipy|ml_dtypes|opt_einsum|python3\.\d+)[/\\](?!site-packages)"
)
