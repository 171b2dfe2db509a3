"""Code objects: what their bytecode does, and functions with other names of parameters.

Without facts about bytecode, the text of the source is read instead.
"""

from __future__ import annotations

import functools
import inspect
import opcode
import sys
import textwrap
import types
from collections.abc import Callable
from types import CodeType
from typing import Any

from weft._engine.cpython import self_check

_RAISE = opcode.opmap.get("RAISE_VARARGS", -1)


@self_check
def _reads_instructions() -> bool:
    """Whether the instruction of an error is the one that raised it."""

    def raise_error() -> None:
        raise KeyError

    def divide() -> int:
        return 1 // 0

    return [_last_instruction(fn) == _RAISE for fn in (raise_error, divide)] == [True, False]


def _last_instruction(function: Callable[[], object]) -> int:
    try:
        function()
    except (KeyError, ZeroDivisionError) as error:
        entry = error.__traceback__
        while entry is not None:
            if entry.tb_frame.f_code is function.__code__:
                return function.__code__.co_code[entry.tb_lasti]
            entry = entry.tb_next
    return -1


def is_raise_statement(code: CodeType, offset: int) -> bool:
    """Return whether the instruction of `code` at `offset` is a `raise`, not an operation that failed."""
    if _reads_instructions():
        return code.co_code[offset] == _RAISE
    import linecache  # only the fallback needs it

    line = list(code.co_positions())[offset // 2][0] or code.co_firstlineno
    words = linecache.getline(code.co_filename, line).split()
    return "raise" in words or "assert" in words


# ---- variables of other functions


@functools.lru_cache(maxsize=4096)
def assigned_free_variables(code: CodeType) -> frozenset[str]:
    """Return the variables of enclosing functions that the code itself assigns (`nonlocal`)."""
    if not code.co_freevars:
        return frozenset()
    assigned = _stored_cells(code) if _reads_stores() else _nonlocal_names(code)
    return assigned.intersection(code.co_freevars)


@self_check
def _reads_stores() -> bool:
    """Whether instructions show which variables of an enclosing function a function assigns."""
    written = read = 0

    def function() -> int:
        nonlocal written
        written = read
        return written

    return _stored_cells(function.__code__) == {"written"}


def _stored_cells(code: CodeType) -> frozenset[str]:
    import dis  # takes a millisecond, and few functions have free variables

    return frozenset([i.argval for i in dis.get_instructions(code) if i.opname == "STORE_DEREF"])


def _nonlocal_names(code: CodeType) -> frozenset[str]:
    """Return the names that the source of a function declares as nonlocal; none if it has no source."""
    import ast  # only the fallback needs it

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    own = next((node for node in ast.walk(tree) if isinstance(node, functions)), None)
    if own is None:
        return frozenset()
    names: set[str] = set()
    nodes: list[ast.AST] = list(own.body)
    for node in nodes:
        if isinstance(node, ast.Nonlocal):
            names.update(node.names)
        elif not isinstance(node, (*functions, ast.ClassDef)):
            nodes += ast.iter_child_nodes(node)
    return frozenset(names)


# ---- names of parameters


@self_check
def _renames() -> bool:
    """Return whether replaced variable names of a code object work as keyword arguments."""

    def function(x: int) -> int:
        return x

    return _with_variables(function, ("y",), "renamed", globals())(y=2) == 2


def _with_variables(
    function: Callable[..., Any], operands: tuple[str, ...], name: str, module: dict[str, Any]
) -> Callable[..., Any]:
    code = function.__code__
    variables = code.co_varnames[len(operands) :]
    code = code.replace(co_varnames=(*operands, *variables), co_name=name, co_qualname=name)
    renamed = types.FunctionType(code, module, name, function.__defaults__, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def caller_globals() -> dict[str, Any]:
    """Return the globals of the caller of the function that calls this."""
    return sys._getframe(2).f_globals


def rename(
    function: types.FunctionType, operands: tuple[str, ...], name: str, module: dict[str, Any]
) -> Callable[..., Any]:
    """Return a function that does the same, with other names for it and its first parameters, as a function of `module`.

    >>> rename(lambda x: x + 1, ("y",), "successor", {"__name__": "weft"})(y=1)
    2
    """
    if _renames():
        return _with_variables(function, operands, name, module)
    import inspect  # only the fallback needs it

    signature = inspect.signature(function)
    old = list(signature.parameters.values())
    new = [parameter.replace(name=to) for parameter, to in zip(old, operands)]
    signature = signature.replace(parameters=[*new, *old[len(new) :]])

    def renamed(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        return function(*bound.args, **bound.kwargs)

    renamed.__name__ = renamed.__qualname__ = name
    renamed.__module__ = module["__name__"]
    renamed.__signature__ = signature  # type: ignore[attr-defined]  # an attribute that inspect reads
    return renamed
