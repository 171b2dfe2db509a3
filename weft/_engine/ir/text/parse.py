"""The parser of jaxprs in the text format of `jaxpr.jaxpr_text`.

The caller passes the values of constants. Parameters without a text form, such as functions, raise JaxprSyntaxError.
Operations are looked up by name in `ir.registry`. It contains the operations of packages that have been imported, such as
`weft._engine.control` and its imports.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.registry import find  # text identifies an operation by its name
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes


class JaxprSyntaxError(ValueError):
    """The error for text that is not a program. The message contains the position."""


_TOKEN = re.compile(
    r"\s*(?:(?P<num>-?(?:\d[\w.]*(?:(?<=e)[+-]\d+)?|inf|nan)(?![\w]))"
    r"|(?P<name>[A-Za-z_][\w-]*(?:<\w+>)?(?:\.\w+)*)"
    r"|(?P<str>'[^']*'|\"[^\"]*\")|(?P<fn><[^>\n]*>)|(?P<p>[{}\[\]();:,=.]))"
)
_SHORT = {
    "bool": "bool",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    **{f"{k}{n}": f"{'u' if k == 'u' else ''}int{n}" for k in "iu" for n in (8, 16, 32, 64)},
}


def parse_jaxpr(text: str, consts: Sequence[Any] = ()) -> Jaxpr:
    """Return the program with the given text. `consts` are the values of its constant variables.

    Raise JaxprSyntaxError for other text.

    >>> parse_jaxpr("{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }").out_avals
    [ShapedArray(float32[3])]
    """
    parser = _JaxprParser(text)
    jaxpr = parser.jaxpr(consts)
    parser.end()
    return jaxpr


class _JaxprParser:
    """A recursive-descent parser of one program."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.kind, self.token = "", ""
        #: the module of the current operation; names of parameter types are looked up there
        self.module: Any = None
        self.step()

    def step(self) -> str:
        """Read the next token and return the current one."""
        last = self.token
        match = _TOKEN.match(self.text, self.at)
        self.start = self.at
        if match is None:
            if self.text[self.at :].strip():
                self.fail("an unknown character")
            self.kind, self.token = "end", ""
        else:
            kind = match.lastgroup
            assert kind is not None  # every alternative of the pattern is a named group
            self.at, self.kind, self.token = match.end(), kind, match[kind]
        return last

    def fail(self, what: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        near = self.text[self.start : self.start + 30].strip()
        raise JaxprSyntaxError(f"parse_jaxpr: {what} at line {line}, near {near!r}.")

    def take(self, token: str) -> None:
        if self.token != token:
            self.fail(f"expected {token!r}, found {self.token!r}")
        self.step()

    def at_token(self, token: str) -> bool:
        """Return whether the current token is `token`."""
        return self.token == token

    def end(self) -> None:
        if self.kind != "end":
            self.fail("unexpected text after the program")

    def aval(self) -> ShapedArray:
        name = self.step()
        if name not in _SHORT:
            self.fail(f"unknown type {name!r}")
        self.take("[")
        shape: list[int] = []
        while not self.at_token("]"):
            shape.append(int(self.step()))
            if self.at_token(","):
                self.step()
        self.take("]")
        return ShapedArray(
            tuple(shape), np.dtype(dtypes.bfloat16 if name == "bf16" else _SHORT[name])
        )

    def binders(self, env: dict[Any, Any], stop: str) -> list[Var]:
        out: list[Var] = []
        while self.token != stop:
            name = self.step()
            self.take(":")
            aval = self.aval()
            var = DropVar(aval) if name == "_" else Var(aval)
            if name != "_":
                env[name] = var
            out.append(var)
        return out

    def atom(self, env: dict[Any, Any]) -> Atom:
        if self.kind == "num" or self.token in ("True", "False", "inf", "nan", "("):
            value = self.value()
            self.take(":")
            aval = self.aval()
            return Literal(np.asarray(value, aval.dtype)[()], aval)
        if self.token not in env:
            self.fail(f"{self.token!r} is not bound")
        return env[self.step()]

    def jaxpr(self, consts: Sequence[Any] = ()) -> Jaxpr:
        env: dict[str, Var] = {}
        self.take("{")
        self.take("lambda")
        constvars = self.binders(env, ";")
        self.take(";")
        invars = self.binders(env, ".")
        self.take(".")
        self.take("let")
        if len(constvars) != len(consts):
            self.fail(f"the program has {len(constvars)} constants, got {len(consts)} values")
        eqns: list[Eqn] = []
        while not self.at_token("in"):
            eqns.append(self.eqn(env))
            if self.token == ";":
                self.step()
        self.take("in")
        self.take("(")
        outs: list[Atom] = []
        while not self.at_token(")"):
            outs.append(self.atom(env))
            if self.at_token(","):
                self.step()
        self.take(")")
        self.take("}")
        return Jaxpr(constvars, consts, invars, outs, eqns)

    def eqn(self, env: dict[Any, Any]) -> Eqn:
        new_vars: dict[str, Var] = {}
        outvars = self.binders(new_vars, "=")
        self.take("=")
        name = self.step()
        primitive = find(name)
        if primitive is None:
            self.fail(f"unknown operation {name!r}")
        outer, self.module = (
            self.module,
            sys.modules.get(getattr(primitive.type, "__module__", "")),
        )
        params: dict[str, Any] = {}
        if self.token == "[":
            self.step()
            while not self.at_token("]"):
                key = self.step()
                self.take("=")
                params[key] = self.value()
            self.take("]")
        self.module = outer
        ins: list[Atom] = []
        while self.token not in (";", "in") and not self._at_binder():
            ins.append(self.atom(env))
        env.update(new_vars)
        effects = primitive.effects_of(params, [a.aval for a in ins])
        return Eqn(primitive, ins, outvars, params, None, effects)

    def _at_binder(self) -> bool:
        numbers = ("True", "False", "inf", "nan")
        return (
            self.kind == "name"
            and self.token not in numbers
            and self.text[self.at : self.at + 1] == ":"
        )

    def value(self) -> Any:
        if self.kind == "num":
            text = self.step()
            try:
                return int(text)
            except ValueError:
                return complex(text) if text.endswith("j") else float(text)
        if self.kind == "str":
            return self.step()[1:-1]
        if self.token in ("(", "["):
            close = ")" if self.step() == "(" else "]"
            items: list[Any] = []
            comma = False
            while not self.at_token(close):
                items.append(self.value())
                comma = self.at_token(",")
                if comma:
                    self.step()
            self.step()
            if close == ")" and len(items) == 1 and not comma and isinstance(items[0], complex):
                return items[0]
            return tuple(items)
        if self.token == "{":
            return self.jaxpr()
        if self.kind == "name":
            return self.named(self.step())
        self.fail("a parameter that cannot be parsed")

    def named(self, name: str) -> Any:
        plain = {
            "None": None,
            "True": True,
            "False": False,
            "inf": float("inf"),
            "nan": float("nan"),
        }
        if name in plain:
            return plain[name]
        class_name, _, member = name.partition(".")
        cls = getattr(self.module, class_name, None)
        if isinstance(cls, enum.EnumMeta) and member in cls.__members__:
            return cls[member]
        if self.token == "(" and isinstance(cls, type):
            self.step()
            kwargs: dict[str, Any] = {}
            while not self.at_token(")"):
                key = self.step()
                self.take("=")
                kwargs[key] = self.value()
                if self.at_token(","):
                    self.step()
            self.step()
            return cls(**kwargs)
        if name in _SHORT.values():
            return np.dtype(dtypes.bfloat16 if name == "bfloat16" else name)
        return name
