"""Jaxprs as text.

    { lambda ; a:f32[3] b:f32[3]. let
        c:f32[3] = mul a b
        d:f32[] = reduce_sum[axes=(0,)] c
      in (d,) }

Programs are known here by their attributes (`eqns`, `val`, `unused`), so that `ir.jaxpr` can print itself. `parse` reads the text.
"""

from __future__ import annotations

import enum
import itertools
import re
from typing import Any

import numpy as np

WIDTH = 100


class _Names(dict):
    """Variable -> letter(s): a ... z, ba, bb, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count()

    def __missing__(self, var) -> str:
        n, name = next(self.count), ""
        while True:
            n, digit = divmod(n, 26)
            name = chr(97 + digit) + name
            if n == 0:
                break
        if name in _KEYWORDS:
            return self[var]
        self[var] = name
        return name

    def binder(self, var) -> str:
        name = "_" if var.unused else self[var]
        return f"{name}:{_type_text(var.aval)}"


_KEYWORDS = frozenset({"let", "in", "lambda"})


def _type_text(aval) -> str:
    return aval.str_short(True)


def _atom_text(atom, names: _Names) -> str:
    if not hasattr(atom, "val"):
        return names[atom]
    value = atom.val
    item = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(item, float) and atom.aval.dtype.name in ("bfloat16", "float16"):
        item = float(value)
    return f"{item!r}:{_type_text(atom.aval)}"


def jaxpr_text(jaxpr) -> str:
    """The program as text."""
    return "\n".join(_jaxpr_lines(jaxpr, _Names(), None))


def eqn_text(eqn) -> str:
    """One equation as text."""
    return "\n".join(_eqn_lines(eqn, _Names()))


def _jaxpr_lines(jaxpr, names: _Names, room: int | None) -> list[str]:
    """Lines of a program; one line if it fits in `room` columns."""
    binders = lambda vs: " ".join(names.binder(v) for v in vs)
    consts = binders(jaxpr.constvars)
    head = f"{{ lambda {consts}; {binders(jaxpr.invars)}. let"
    body = [_eqn_lines(eqn, names) for eqn in jaxpr.eqns]
    outs = ", ".join(_atom_text(a, names) for a in jaxpr.outvars)
    tail = f"in ({outs}{',' if len(jaxpr.outvars) == 1 else ''}) }}"
    if all(len(lines) == 1 for lines in body) and len(body) <= 1:
        inline = f"{head} {'; '.join(lines[0] for lines in body)} {tail}"
        if len(inline) <= (WIDTH if room is None else room):
            return [inline]
    return [head, *("    " + line for lines in body for line in lines), "  " + tail]


def _eqn_lines(eqn, names: _Names) -> list[str]:
    args = "".join(" " + _atom_text(a, names) for a in eqn.invars)
    implied = eqn.primitive.attrs.get("implied", ())         # what the types of the results say already
    params = _param_lines({k: v for k, v in eqn.params.items() if k not in implied} if implied else eqn.params)
    left = " ".join(names.binder(v) for v in eqn.outvars)
    left = f"{left} = {eqn.primitive.name}" if left else eqn.primitive.name
    if not params:
        return [left + args]
    flat = " ".join(line for lines in params for line in lines)
    short = len(left) + len(flat) + len(args) < WIDTH
    if short and "{ lambda" not in flat and all(len(lines) == 1 for lines in params):
        return [f"{left}[{flat}]{args}"]
    return [left + "[", *("  " + line for lines in params for line in lines), "]" + args]


def _param_lines(params: dict) -> list[list[str]]:
    keys = sorted(params, key=lambda k: (k != "name", k))
    return [_value_lines(key + "=", params[key]) for key in keys]


def _is_jaxpr(value) -> bool:
    return hasattr(value, "eqns")


def _value_lines(prefix: str, value) -> list[str]:
    if _is_jaxpr(value):
        lines = _jaxpr_lines(value, _Names(), WIDTH - 16)
        return [prefix + lines[0], *lines[1:]]
    if isinstance(value, tuple) and any(_is_jaxpr(v) for v in value):
        return [prefix + "(", *("  " + line for v in value for line in _value_lines("", v)), ")"]
    return [prefix + _value_text(value)]


def _value_text(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, tuple) and type(value) is tuple:
        return f"({', '.join(map(_value_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w.<>-]*", value) and value not in ("None", "True", "False")
        return value if plain else repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if callable(value) and hasattr(value, "__name__"):
        return f"<{value.__name__}>"
    return repr(value)
