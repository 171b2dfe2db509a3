"""The text of jaxprs.

    { lambda ; a:f32[3] b:f32[3]. let
        c:f32[3] = mul a b
        d:f32[] = reduce_sum[axes=(0,) out_sharding=None] c
      in (d,) }

`jax_style_text` prints programs for users: operations and parameters in JAX's notation (`jax_equations`), and programs that occur several times
once, with a name. `jaxpr_text` prints the exact program, which `parse` reads.
This module recognizes programs, literals and unused variables by attributes (`eqns`, `val`, `unused`), because `ir.jaxpr` uses it.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

from weft._engine.ir.mesh import Mesh
from weft._engine.ir.text.jax_equations import (
    EquationLike,
    ProgramLike,
    TextLine,
    inner_programs,
    printed_lines,
    value_text,
)
from weft._engine.ir.text.layout import Break, Mark, Nest, Note, group, join, render
from weft._engine.ir.types import ShapedArray
from weft._engine.util.trees.narrowing import class_of, is_list, is_numpy_value

_KEYWORDS = frozenset({"let", "in", "lambda"})


def jaxpr_text(jaxpr: ProgramLike) -> str:
    """Return the exact text of a program, which `parse_jaxpr` reads."""
    return render(_ExactPrinter().program(jaxpr))


def jax_style_text(
    jaxpr: ProgramLike,
    *,
    source_info: bool = False,
    print_shapes: bool = True,
    print_effects: bool = False,
    width: int = 80,
) -> str:
    """Return the text of a program in JAX's notation."""
    return render(_JaxStylePrinter(source_info, print_shapes, print_effects).whole(jaxpr), width)


def shown_text_with_positions(
    jaxpr: ProgramLike, width: int = 80
) -> tuple[str, list[tuple[int, int, Any]]]:
    """Return `jax_style_text`, and per equation (line, column, source): its position in the text, from 0, and the user's line or None."""
    marks: list[tuple[int, int, Any]] = []
    return render(_JaxStylePrinter().whole(jaxpr), width, marks), marks


def eqn_text(eqn: EquationLike) -> str:
    """Return the text of one equation in JAX's notation."""
    return render(_JaxStylePrinter().equations([eqn]))


class _ExactPrinter:
    """A printer of exact programs. Variables are named a ... z, ba, bb, ..., continued in inner programs."""

    def __init__(self, source: bool = False, shapes: bool = True, effects: bool = False):
        self.source, self.shapes, self.effects = source, shapes, effects
        self.names: dict[Any, str] = {}
        self.used_names = set(_KEYWORDS)
        self.count = itertools.count()

    def name(self, var: Any) -> str:
        if var.unused:
            return "_"
        while var not in self.names:
            n, name = next(self.count), ""
            while True:
                n, digit = divmod(n, 26)
                name = chr(97 + digit) + name
                if n == 0:
                    break
            if name not in self.used_names:
                self.names[var] = name
        return self.names[var]

    def binders(self, variables: Iterable[Any]) -> Any:
        return _join_with_spaces(
            [
                f"{self.name(v)}:{self.type(v.aval)}" if self.shapes else self.name(v)
                for v in variables
            ]
        )

    def atom(self, atom: Any) -> str:
        if not hasattr(atom, "val"):
            return self.name(atom)
        value = atom.val
        item = value.item() if is_numpy_value(value) else value
        if isinstance(item, float) and atom.aval.dtype.name in ("bfloat16", "float16"):
            item = float(value)
        return f"{item!r}:{self.type(atom.aval)}"

    def type(self, aval: ShapedArray) -> str:
        return aval.str_short(True)

    def lines(self, jaxpr: ProgramLike) -> Sequence[TextLine]:
        return [
            TextLine(e.outvars, e.primitive.name, _params(e), e.invars, e.source)
            for e in jaxpr.eqns
        ]

    def results(self, jaxpr: ProgramLike) -> Sequence[Any]:
        return jaxpr.outvars

    def program(self, jaxpr: ProgramLike) -> Any:
        consts, ins = self.binders(jaxpr.constvars), self.binders(jaxpr.invars)
        body = join(Break("; "), [self.line(line) for line in self.lines(jaxpr)])
        outs = _join_with_spaces([self.atom(a) for a in self.results(jaxpr)], ",")
        effects = (
            " : { " + ", ".join(sorted(map(str, jaxpr.effects))) + " }" if self.effects else ""
        )
        return group(
            Nest(
                [
                    "{ lambda ",
                    consts,
                    "; ",
                    ins,
                    ". let",
                    Nest([Break(), body]),
                    Break(),
                    "in (",
                    outs,
                    ",)" if len(jaxpr.outvars) == 1 else ")",
                    effects,
                ]
            ),
            " }",
        )

    def line(self, line: TextLine) -> Any:
        outs = self.binders(line.outvars)
        inside = join(Break(), [self.pair(key, value) for key, value in line.params])
        params = group(Nest(["[", Break(""), inside]), Break(""), "]") if inside else ""
        note = (
            Note(f"{line.source.file}:{line.source.line} ({line.source.function})")
            if self.source and line.source
            else ""
        )
        result = [outs, " = "] if line.outvars else outs
        return [
            Mark(line.source),
            result,
            line.name,
            params,
            " ",
            _join_with_spaces([self.atom(a) for a in line.invars]),
            note,
        ]

    def pair(self, key: str, value: Any) -> Any:
        return [key + "=", self.value(value)]

    def value(self, value: Any) -> Any:
        if _is_program(value):
            return self.program(value)
        if class_of(value) is tuple and any(map(_is_program, value)):
            return group(
                Nest(["(", Break(""), join(Break(), map(self.value, value))]), Break(""), ")"
            )
        return self.text(value)

    def text(self, value: Any) -> str:
        return _value_text(value)


class _JaxStylePrinter(_ExactPrinter):
    """A printer of programs in JAX's notation."""

    def whole(self, jaxpr: ProgramLike) -> Any:
        """Return the document of a program, preceded by inner programs that occur more than once or are long. Unused results are `_`."""
        used = {a for a in self.results(jaxpr) if not hasattr(a, "val")}
        for line in reversed(self.lines(jaxpr)):
            self.names.update({v: "_" for v in line.outvars if v not in used})
            used.update(a for a in line.invars if not hasattr(a, "val"))
        named = self.find_shared(jaxpr)
        self.used_names = _KEYWORDS.union(self.shared.values())
        parts = [
            ["let ", name, " = ", super(_JaxStylePrinter, self).program(inner), " in", Break()]
            for name, inner in named
        ]
        return [*parts, self.program(jaxpr)]

    def __init__(self, *options: bool):
        super().__init__(*options)
        self.shared: dict[int, str] = {}
        self.printed: dict[int, tuple[Sequence[TextLine], dict[Any, Any]]] = {}

    def find_shared(self, jaxpr: ProgramLike) -> list[tuple[str, ProgramLike]]:
        counts: Counter[int] = Counter()
        programs: dict[int, ProgramLike] = {}
        names: dict[int, str] = {}
        queue = deque([jaxpr])
        while queue:
            inner = queue.popleft()
            programs[id(inner)] = inner
            counts[id(inner)] += 1 + (inner is not jaxpr and len(self.lines(inner)) > 10)
            for line in self.lines(inner):
                title = dict(line.params).get("name") if line.name == "jit" else None
                for program in inner_programs(line):
                    queue.append(program)
                    if title is not None:
                        names.setdefault(id(program), title.strip("<>"))
        used: Counter[str] = Counter()
        for key, count in counts.items():
            if count > 1:
                title = names.get(key, "jaxpr")
                used[title] += 1
                self.shared[key] = title if used[title] == 1 else f"{title}{used[title] - 1}"
        return [(name, programs[key]) for key, name in self.shared.items()]

    def name(self, var: Any) -> str:
        return self.names[var] if var in self.names else super().name(var)

    def type(self, aval: ShapedArray) -> str:
        return aval.str_short(True, kinds=True)

    def equations(self, eqns: Sequence[EquationLike]) -> Any:
        return join(Break(), [self.line(line) for line in printed_lines(eqns)[0]])

    def lines(self, jaxpr: ProgramLike) -> Sequence[TextLine]:
        return self.cached_lines(jaxpr)[0]

    def results(self, jaxpr: ProgramLike) -> Sequence[Any]:
        other = self.cached_lines(jaxpr)[1]
        return [a if hasattr(a, "val") else other.get(a, a) for a in jaxpr.outvars]

    def cached_lines(self, jaxpr: ProgramLike) -> tuple[Sequence[TextLine], dict[Any, Any]]:
        if id(jaxpr) not in self.printed:
            self.printed[id(jaxpr)] = printed_lines(jaxpr.eqns, jaxpr.outvars)
        return self.printed[id(jaxpr)]

    def program(self, jaxpr: ProgramLike) -> Any:
        name = self.shared.get(id(jaxpr))
        return super().program(jaxpr) if name is None else name

    def line(self, line: TextLine) -> Any:
        if line.name == "jit":
            for inner in inner_programs(line):
                if id(inner) not in self.shared:
                    self.name_alike(inner.invars, line.invars)
                    self.name_alike(self.results(inner), line.outvars)
        return super().line(line)

    def name_alike(self, inner: Sequence[Any], outer: Sequence[Any]) -> None:
        """Give the values of a called program the names of the caller's values, each name to one value."""
        used: set[Any] = set()
        for inner_value, outer_value in zip(inner, outer):
            if (
                not hasattr(outer_value, "val")
                and outer_value not in used
                and not hasattr(inner_value, "val")
                and inner_value not in self.names
            ):
                used.add(outer_value)
                self.names[inner_value] = self.name(outer_value)

    def text(self, value: Any) -> str:
        return value_text(value)


def _join_with_spaces(items: Sequence[Any], separator: str = "") -> Any:
    return Nest(group(*join([separator, group(Break())], items)))


def _is_program(value: Any) -> TypeGuard[ProgramLike]:
    return hasattr(value, "eqns")


def _params(eqn: EquationLike) -> list[tuple[str, Any]]:
    implied = eqn.primitive.implied  # parameters that follow from the types of the results
    keys = sorted(eqn.params, key=lambda k: (k != "name", k))
    return [(k, eqn.params[k]) for k in keys if k not in implied]


def _value_text(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if class_of(value) is tuple:
        return f"({', '.join(map(_value_text, value))}{',' if len(value) == 1 else ''})"
    if is_list(value):
        return f"[{', '.join(map(_value_text, value))}]"
    if issubclass(class_of(value), np.generic):
        return repr(value.item())
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w.<>-]*", value) and value not in (
            "None",
            "True",
            "False",
        )
        return value if plain else repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Mesh):
        return str(value)
    if callable(value) and hasattr(value, "__name__"):
        return f"<{value.__name__}>"
    return repr(value)
