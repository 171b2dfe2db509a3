"""The user's source lines, tracebacks without the frames of weft, and errors that name what a public function was given.

In:  the Python stack at the moment an operation is recorded or an error is raised.
Out: `SourceLine`, a light record that becomes text only when printed, filtered tracebacks, and public functions that see to both.
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

_PACKAGE = os.path.abspath(__file__).rsplit(os.sep, 3)[0] + os.sep
# Helpers that call back into weft on the user's behalf are not places a user would recognise.
_HELPERS = tuple(os.sep + name for name in ("contextlib.py", "functools.py")) + (
    f"{os.sep}opt_einsum{os.sep}",
)


class _Internal(dict):
    """file name -> whether its frames are hidden; filled on first sight."""

    def __missing__(self, file: str) -> bool:
        hidden = os.path.abspath(file).startswith(_PACKAGE) or any(
            part in file for part in _HELPERS
        )
        self[file] = hidden
        if hidden:
            _hidden_files.add(file)
        return hidden


_internal = _Internal()
_hidden_files: set[str] = set()  # the same answer in the form that is quickest to ask


def function_name(fun: Callable) -> str:
    """The name a user knows a function by, seen through `functools.partial`s without a name of their own."""
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
    """Return the name of the module that defines a function, seen through `functools.partial`s.

    >>> function_module(functools.partial(named, None))
    'weft._engine.util.source'
    """
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__module__", None) or type(fun).__module__


def named(fun: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """`fun`, which is made by another function, under its public name and with its docstring."""
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return fun


def check_callable(api: str, fun: Any) -> None:
    """TypeError for a `fun` that cannot be called: the function `api` transforms functions."""
    if not callable(fun):
        raise TypeError(f"{api}: Expected a callable value, got {fun!r}.")


def wraps(fun: Callable, says: str = "") -> Callable:
    """Decorator: a function that stands for `fun`, with its name, docstring and attributes. `fun` may be an object that can be called:
    its fields are attributes then, even where one is called as an attribute of functions. `says`, with the name in the place of `{}`,
    goes before the docstring, where there is one.

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
    if not says or not isinstance(doc := getattr(fun, "__doc__", None), str):
        return decorate

    def documented(wrapper: Callable) -> Callable:
        wrapper = decorate(wrapper)
        wrapper.__doc__ = (
            f"{says.replace('{}', str(function_name(fun)))}\n\nOriginal documentation:\n\n{doc}"
        )
        return wrapper

    return documented


class _Scope(threading.local):
    """The names of operations that are traced now, joined by slashes."""

    name = ""


scope = _Scope()


def joined(outer: str, inner: str) -> str:
    """Names within names. The first of them goes into the parentheses of a transformation that has no name in it yet.

    >>> joined('net/vmap()', 'layer/attend'), joined('vmap(layer)', 'attend'), joined('', 'layer')
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
    """Context: operations have the name of a transformation around the names that they get inside."""

    __slots__ = ("_name", "_outer")

    def __init__(self, name: str) -> None:
        self._name = f"{name}()"

    def __enter__(self) -> None:
        self._outer = scope.name
        scope.name = joined(self._outer, self._name)

    def __exit__(self, *error: object) -> None:
        scope.name = self._outer


#: attributes of an operation, sorted by their keys
Metadata = tuple[tuple[str, Any], ...]


def with_metadata(outer: Metadata, inner: Metadata) -> Metadata:
    """Attributes within attributes: an inner value counts, and None removes an outer one.

    >>> with_metadata((("a", 1), ("c", 2)), (("b", "x"), ("c", None)))
    (('a', 1), ('b', 'x'))
    """
    if not inner or not outer:
        return inner or outer
    return tuple(
        sorted([(k, v) for k, v in {**dict(outer), **dict(inner)}.items() if v is not None])
    )


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

    __slots__ = ("_code", "_lasti", "metadata", "scope")

    def __init__(
        self, code: CodeType | _Place, lasti: int, scope: str = "", metadata: Metadata = ()
    ) -> None:
        self._code = code
        self._lasti = lasti
        self.scope = scope  # the names that `named_scope` gave it, joined by slashes
        self.metadata = metadata  # the attributes that `set_xla_metadata` gave it

    def within(self, scope: str, metadata: Metadata = ()) -> SourceLine:
        """The same place under one more outer name, and with attributes of what is around it."""
        names = scope if not self.scope else joined(scope, self.scope) if scope else self.scope
        return SourceLine(self._code, self._lasti, names, with_metadata(metadata, self.metadata))

    def tagged(self, metadata: Metadata) -> SourceLine:
        """The same place with more attributes."""
        return SourceLine(
            self._code, self._lasti, self.scope, with_metadata(self.metadata, metadata)
        )

    def unnamed(self) -> SourceLine:
        """The same place and attributes, without names around it."""
        return SourceLine(self._code, self._lasti, "", self.metadata)

    def transposed(self) -> SourceLine:
        """The same place for operations of the transpose of a derivative, by the names around it.

        >>> SourceLine.at('train.py', 41, scope='net/jvp(layer)/attend').transposed().scope
        'net/transpose(jvp(layer))/attend'
        """
        names = self.scope.split("/")
        at = next((i for i, name in enumerate(names) if "jvp(" in name), None)
        if at is None:  # in a program that is called, whose names are its own
            return self
        names[at] = f"transpose({names[at]})"
        return SourceLine(self._code, self._lasti, "/".join(names), self.metadata)

    @property
    def name_stack(self) -> str:
        """The names of scopes and transformations around the operation, joined by slashes."""
        return self.scope

    @property
    def traceback(self) -> SourceLine:
        """The place itself: the part of a record of a source that has no names."""
        return self

    @staticmethod
    def at(
        file: str, line: int, function: str = "<module>", scope: str = "", metadata: Metadata = ()
    ) -> SourceLine:
        """Return the record of a place that is not on the stack.

        >>> str(SourceLine.at('/src/train.py', 41, 'attend'))
        'train.py:41 in attend'
        """
        return SourceLine(_Place(file, line, function), 0, scope, metadata)

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
    def column(self) -> int:
        """Column in that line where the expression begins, from 0; 0 where it is not known."""
        positions = getattr(self._code, "co_positions", tuple)()
        found = next(itertools.islice(positions, self._lasti // 2, None), None)
        return found[2] or 0 if found is not None else 0

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
            return SourceLine(code, frame.f_lasti, scope.name, config.xla_metadata)
        frame = frame.f_back
    return None


def is_internal(file: str) -> bool:
    """Whether frames of code in `file` are weft's own."""
    return _internal[file]


def hide(file: str) -> None:
    """Count the frames of a file as internal: they are left out of tracebacks, and are never taken as the user's."""
    _internal[file] = True
    _hidden_files.add(file)


def show(file: str) -> None:
    """Undo `hide`."""
    _internal.pop(file, None)
    _hidden_files.discard(file)


# What is between a call of the user's and the promotion of its operands and computes nothing itself.
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
    """Whether what is computed now is a step of another public function, not what the user asked for: functions of two modules are on
    the stack above the user's. Settings that make promotion stricter concern the user's operands only.

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
    """Warn at the user's line, whatever the number of weft's frames above it."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and _internal[frame.f_code.co_filename]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# ---- tracebacks

_NOTE = "For simplicity, weft's own frames are left out of this traceback; WEFT_TRACEBACK=full shows them"


class UnfilteredStackTrace(Exception):
    """The cause of an error whose own traceback lacks the frames of weft: here they are (`traceback_filtering="remove_frames"`)."""


def _wants_all_frames() -> bool:
    return config.traceback == "full" or config.traceback_filtering == "off"


def without_internal_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a copy of a traceback without the frames of weft and of excluded files."""
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
    """Remove the frames of weft from an error's traceback, and from those of its causes."""
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
        shown = without_internal_frames(current.__traceback__)
        if shown is not current.__traceback__:
            current.__traceback__ = shown
    is_ours = type(error).__module__.startswith("weft")
    if (
        not is_ours
        and isinstance(error, Exception)
        and _NOTE not in getattr(error, "__notes__", ())
    ):
        error.add_note(_NOTE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _is_outermost() -> bool:
    """Whether no other public function of weft is further up the stack."""
    frame: FrameType | None = sys._getframe(1)
    boundaries = 0
    while frame is not None:
        boundaries += frame.f_code in _BOUNDARIES
        frame = frame.f_back
    return boundaries <= 1


def _mark_internal_frames(error: BaseException) -> None:
    """Have debuggers and IPython pass over the frames of weft."""
    for current in _chain(error):
        entry = current.__traceback__
        while entry is not None:
            if _internal[entry.tb_frame.f_code.co_filename]:
                entry.tb_frame.f_locals["__tracebackhide__"] = True
            entry = entry.tb_next


def _move_to_cause(error: BaseException) -> None:
    """Leave the user's frames alone in an error's traceback; all of them are in its cause."""
    whole = UnfilteredStackTrace(
        "The traceback of this error, with the frames of weft, is that above."
    ).with_traceback(error.__traceback__)
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


F = TypeVar("F", bound=Callable[..., Any])


def api_boundary(function: F, name: str = "") -> F:
    """Decorate a public function: errors raised through it show the user's frames alone, and name what was given.

    An error that Python or a library raised in the middle of weft becomes one of a documented class, with a table of the arguments; a
    message of weft's own that names neither the function nor a parameter gets the function's `name` in front (which those that wrap a
    function of the user's lack). Errors of the user's functions are left as they are. A call that succeeds pays one frame.
    """
    name = name or ("" if hasattr(function, "__wrapped__") else function.__name__)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            better = _explained(error, name, function, args, kwargs)
            if better is error:
                raise  # a bare raise keeps the traceback as set and does not add this frame again
            raise better from error

    return cast(F, call)


#: the code of functions that explain errors raised through them
_BOUNDARIES = {api_boundary(lambda: None).__code__}


def boundary(function: F) -> F:
    """Decorate a function that explains the errors raised through it itself, by `explained`, as `api_boundary` does for others."""
    _BOUNDARIES.add(function.__code__)
    return function


def explained(
    error: Exception, called: Any, args: Sequence, kwargs: Mapping[str, Any]
) -> Exception:
    """Return what to raise for an `error` that leaves the function object `called`: itself, or a better one."""
    name = called.name if getattr(called, "is_public", False) else ""
    return _explained(error, name, called.fun, args, kwargs, frames=1)


def guarded(fun: Any, module: str, name: str) -> Any:
    """A plain function, or its attribute `public` if it has one for users, as the public function `module.name`, within an
    `api_boundary`; other values as they are.

    >>> guarded(len, "weft", "length") is len
    True
    """
    if type(fun) is not FunctionType or inspect.isgeneratorfunction(fun):
        return fun
    made = api_boundary(getattr(fun, "public", fun), name)
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    return made


def guard_all(namespace: dict[str, Any], names: Iterable[str] = ()) -> None:
    """Guard the public functions that a module states itself, and those of `names` and `__all__`: its last line."""
    module = namespace["__name__"]
    own = [
        name
        for name, value in namespace.items()
        if name[0] != "_" and getattr(value, "__module__", None) == module
    ]
    for name in {*own, *names, *namespace.get("__all__", ())}:
        namespace[name] = guarded(namespace[name], module, name)


def _explained(
    error: Exception,
    name: str,
    fun: Callable,
    args: Sequence,
    kwargs: Mapping[str, Any],
    frames: int = 2,
) -> Exception:
    """Return what to raise for an `error` that leaves the public function `fun`: itself, or a better one.

    A traceback of fewer than `frames` frames is that of a call with a wrong number of arguments.
    """
    inside = _is_inside(error, frames)
    called = name or getattr(fun, "__name__", "a function")
    if inside and isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        said = str(error) or f"no memory for Python's own objects.{limit_text()}"
        return _shown(OutOfMemoryError(f"{called}: {said}"))
    kind = next((to for of, to in _CLASSES if isinstance(error, of)), None)
    if inside and kind is not None:
        rule = f"{type(error).__name__}: {error}"
        wrong = (
            _wrong_argument(error, fun, args, kwargs) if isinstance(error, AttributeError) else None
        )
        if wrong is not None:
            return _shown(
                TypeError(describe(called, wrong, _table(fun, args, kwargs), user_frame(), rule))
            )
        return _shown(
            kind(
                describe(
                    called,
                    "failed on these arguments.",
                    _table(fun, args, kwargs),
                    user_frame(),
                    rule,
                )
            )
        )
    said = getattr(error, "_said", error.args[0] if len(error.args) == 1 else None)
    if (
        inside is False
        and name
        and isinstance(said, str)
        and not isinstance(error, KeyError)
        and not _names(said, name, fun)
    ):
        error.__dict__["_said"], error.args = said, (f"{name}: {said}",)
    return _shown(error)


def _shown(error: Exception) -> Exception:
    strip_internal_frames(error)
    return error


def _is_inside(error: Exception, frames: int) -> bool | None:
    """Whether Python or a library raised an error while weft worked (True), or weft itself did (False); None for the user's code."""
    codes, entry, at = [], error.__traceback__, 0
    while entry is not None:
        code, at = entry.tb_frame.f_code, entry.tb_lasti
        if (
            not _internal[code.co_filename]
            and not code.co_filename.startswith("<frozen")
            and not _LIBRARIES.search(code.co_filename)
        ):
            return None
        codes.append(code)
        entry = entry.tb_next
    known = error.__dict__.get("_inside")
    if known is not None:  # frames of weft may have been left out since
        return known
    if len(codes) < frames:
        return None  # the call itself: a wrong number of arguments
    last = codes[-1]
    by_protocol = type(error).__module__ == "builtins" and any(
        code.co_name in _PROTOCOLS for code in codes[-3:]
    )
    by_weft = _internal[last.co_filename] and is_raise_statement(last, at) and not by_protocol
    error.__dict__["_inside"] = not by_weft
    return not by_weft


#: methods by which Python asks an array for what it is not
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
#: what weft calls
_LIBRARIES = re.compile(
    r"[/\\](numpy|scipy|ml_dtypes|opt_einsum|python3\.\d+)[/\\](?!site-packages)"
)


def _names(text: str, name: str, fun: Callable) -> bool:
    names = "|".join(map(re.escape, (name, *inspect.signature(fun).parameters)))
    return re.search(rf"(?<!\w)({names})(?!\w)", text) is not None


def _wrong_argument(
    error: AttributeError, fun: Callable, args: Sequence, kwargs: Mapping[str, Any]
) -> str | None:
    """Which argument, or entry of one, lacks the attribute that was asked for, and what it should be; None if it is none of them."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    for name, x in bound.arguments.items():
        entries = (
            list(x.values()) if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
        )
        if any(value is error.obj for value in (x, *entries)):
            takes = bound.signature.parameters[name].annotation
            entry = x is not error.obj
            said = (
                (" cannot hold" if entry else " cannot be")
                if takes is inspect.Parameter.empty
                else f" takes {getattr(takes, '__name__', takes)}, got{' an entry' if entry else ''}"
            )
            return (
                f"argument `{name}`{said} {_words(error.obj)} of type {type(error.obj).__name__}."
            )
    return None


#: of a list or dictionary of arguments, so many are in a message
_MOST_SHOWN = 12


def _table(fun: Callable, args: Sequence, kwargs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The arguments by name, each in a few words."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [
            *[(f"argument {i}", _words(x)) for i, x in enumerate(args)],
            *[(name, _words(x)) for name, x in kwargs.items()],
        ]
    rows = []
    for name, x in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        several = {
            inspect.Parameter.VAR_POSITIONAL: enumerate,
            inspect.Parameter.VAR_KEYWORD: dict.items,
        }.get(kind)
        if several is None:
            rows.append((name, _words(x)))
            continue
        rows += [
            (f"{name}[{k!r}]", _words(part))
            for k, part in itertools.islice(several(x), _MOST_SHOWN)
        ]
        if len(x) > _MOST_SHOWN:
            rows.append(("...", f"{len(x) - _MOST_SHOWN} more"))
    return rows


def _words(x: Any) -> str:
    if isinstance(getattr(x, "shape", None), tuple) and hasattr(x, "dtype"):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    try:
        text = repr(x)
    except Exception:
        text = f"<{type(x).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
