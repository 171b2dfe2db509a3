"""Texts on the arguments of a call, for error messages.

In:  a function, the arguments of a call, and an error from within it.
Out: rows with the names and short texts of the arguments, and the argument to blame.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any


def names_argument(text: str, name: str, fun: Callable) -> bool:
    names = "|".join(map(re.escape, (name, *inspect.signature(fun).parameters)))
    return re.search(rf"(?<!\w)({names})(?!\w)", text) is not None


def wrong_argument(
    error: AttributeError, fun: Callable, args: Sequence, kwargs: Mapping[str, Any]
) -> str | None:
    """Return a sentence on the argument, or entry of an argument, that lacks an attribute, and its annotation; None if it is neither."""
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
            verb = (
                (" cannot hold" if entry else " cannot be")
                if takes is inspect.Parameter.empty
                else f" takes {getattr(takes, '__name__', takes)}, got{' an entry' if entry else ''}"
            )
            return (
                f"argument `{name}`{verb} {_words(error.obj)} of type {type(error.obj).__name__}."
            )
    return None


#: maximal number of entries of *args or **kwargs in a message
_MOST_SHOWN = 12


def argument_table(
    fun: Callable, args: Sequence, kwargs: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return rows (name, short text) of the arguments."""
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [
            *[(f"argument {i}", _words(x)) for i, x in enumerate(args)],
            *[(name, _words(x)) for name, x in kwargs.items()],
        ]
    rows = []
    for name, x in bound.arguments.items():
        if name == "self":
            continue
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


_WRONG_CALL = re.compile(r"([\w.<>]+)\(\) (takes|missing|got) ")


def is_wrong_call(error: Exception, frame: FrameType) -> bool:
    """Return whether `frame` called a function of the user with a wrong number of arguments or a wrong name."""
    match = _WRONG_CALL.match(str(error)) if type(error) is TypeError else None
    if match is None:
        return False
    values = list(frame.f_locals.values())
    functions = [*values, *[getattr(value, "fun", None) for value in values]]
    return any(
        getattr(function, "__qualname__", None) == match[1]
        and not (getattr(function, "__module__", None) or "").startswith("weft.")
        for function in functions
    )


def is_refused_call(
    error: Exception, fun: Callable[..., Any], args: Sequence, kwargs: Mapping[str, Any]
) -> bool:
    """Return whether `error` is Python's refusal to call `fun` with these arguments, which the user passed."""
    match = _WRONG_CALL.match(str(error)) if type(error) is TypeError else None
    if match is None or getattr(fun, "__qualname__", None) != match[1]:
        return False
    try:
        inspect.signature(fun).bind(*args, **kwargs)
    except TypeError:
        return True
    return False


#: keywords of PyTorch, and the parameters of NumPy's functions
_OTHER_NAMES = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}
_UNKNOWN_KEYWORD = re.compile(r"([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'$")


def suggest_keyword(error: Exception, fun: Callable[..., Any], kwargs: Mapping[str, Any]) -> str:
    """Return a question with the parameter of `fun` that a misspelled keyword of the call probably means; "" if there is none."""
    match = _UNKNOWN_KEYWORD.match(str(error)) if type(error) is TypeError else None
    if match is None or match[2] not in kwargs or getattr(fun, "__qualname__", None) != match[1]:
        return ""
    import difflib  # only needed here

    parameters = inspect.signature(fun).parameters
    if _OTHER_NAMES.get(match[2]) in parameters:
        return f"Did you mean {_OTHER_NAMES[match[2]]}?"
    near = difflib.get_close_matches(match[2], parameters, n=1)
    return f"Did you mean {near[0]}?" if near else ""
