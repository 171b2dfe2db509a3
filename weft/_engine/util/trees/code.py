"""Functions generated for one pytree structure, several times faster than functions for any structure.

In:   the spec of a structure (`treedef.Spec`), and the flatten and unflatten functions of its node types.
Out:  `compile_builder`, a function from leaves to the tree; `compile_matcher`, a function from a tree to its leaves;
      `compile_taker` and `compile_constructor`, which flatten and rebuild one node.
Laws: the results equal the results of `PyTreeDef.unflatten` and `PyTreeDef.flatten_up_to`. A matcher returns None if the tree has
      another structure or a user's function fails; these methods then raise the error. Structures that nest too deep have
      no generated functions.
"""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_SEQUENCES = (tuple, list)


class _CodeConstants(dict):
    """The values that a generated text refers to, by name."""

    def add(self, prefix: str, value: Any) -> str:
        """Add `value` under a new name; return the name."""
        name = f"{prefix}{len(self)}"
        self[name] = value
        return name

    def key(self, value: Any) -> str:
        """Return the text of a dict key: a literal if it is a string, otherwise a new name."""
        return repr(value) if type(value) is str else self.add("k", value)


def _compile(text: str, name: str, names: _CodeConstants) -> Any:
    """Compile a text; return its function `name`."""
    # with a file name of weft, so that its frames count as internal
    exec(compile(text, f"{__file__}:builder", "exec"), names)
    return names[name]


def compile_builder(
    spec: Any, node_types: Mapping[type, Any]
) -> Callable[[Sequence[Any], Any], Any] | None:
    """Return a function of leaves and a spec that builds a tree; None if the structure nests too deep.

    The spec must equal the spec that the function is generated for. The tree gets the static data of the passed spec, whose types may
    differ (1 and True).

    For `{'b': *, 'w': (*, None)}` it is the function

        def build(leaves, s0):
            return {'b': leaves[0], 'w': (leaves[1], None)}
    """
    writer = _BuilderText(node_types)
    try:
        result = writer.node(spec, "s0")
        lines = ["def build(leaves, s0):", *writer.lines, f"return {result}"]
        return _compile("\n ".join(lines), "build", writer.names)
    except (SyntaxError, MemoryError, RecursionError):
        return None


class _BuilderText:
    """The writer of a builder's text: lines that unpack specs, and the expression of the tree."""

    def __init__(self, node_types: Mapping[type, Any]):
        self.node_types = node_types
        self.names, self.lines = _CodeConstants(), []
        self.positions, self.numbers = itertools.count(), itertools.count(1)

    def node(self, spec: Any, s: str) -> str:
        """Return the expression of a node; `s` names its spec in the text."""
        if spec is None:
            return f"leaves[{next(self.positions)}]"
        kind, aux, children = spec
        below = [f"s{next(self.numbers)}" if _has_data(child) else "_" for child in children]
        a = "_" if _is_plain(spec) else f"a{s}"
        if _has_data(spec):
            self.lines.append(f"_, {a}, [{', '.join(below)}] = {s}")
        texts = [self.node(child, name) for child, name in zip(children, below)]
        if kind is dict:
            keys = map(repr, aux) if _is_plain(spec) else [f"{a}[{i}]" for i in range(len(aux))]
            return "{" + ", ".join([f"{key}: {value}" for key, value in zip(keys, texts)]) + "}"
        if kind is list:
            return f"[{', '.join(texts)}]"
        if kind is type(None):
            return "None"
        inner = f"({', '.join(texts)}{',' * (len(texts) == 1)})"
        return inner if kind is tuple else self.build_registered(spec, a, texts, inner)

    def build_registered(self, spec: Any, a: str, texts: list[str], inner: str) -> str:
        """Return the expression of a node of a registered class; `a` names its static data."""
        kind, aux, _ = spec
        node = self.node_types[kind]
        if node.is_sequence:
            return f"{self.names.add('T', kind)}{inner}"
        if node.fields is not None:
            static = [f"{a}[{i}]" for i in range(len(aux))]
            pairs = zip((*node.fields[0], *node.fields[1]), (*texts, *static), strict=True)
            arguments = ", ".join([f"{name}={value}" for name, value in pairs])
            return f"{self.names.add('T', kind)}({arguments})"
        data = "None" if _is_plain(spec) else a
        return f"{self.names.add('unflatten', node.unflatten)}({data}, {inner})"


def _has_data(spec: Any) -> bool:
    """Return whether a structure has static data that its code takes from the spec."""
    return spec is not None and (not _is_plain(spec) or any(map(_has_data, spec[2])))


def _is_plain(spec: Any) -> bool:
    """Return whether a node has no static data, or only dict keys that are strings."""
    kind, aux, _ = spec
    return aux is None or (kind is dict and all(type(key) is str for key in aux))


def compile_matcher(
    spec: Any, node_types: Mapping[type, Any], identical: bool = False
) -> Callable[[Any], list[Any] | None] | None:
    """Return a function from a tree to its subtrees at the leaves of one structure, or to None for trees of other structures.

    Return None if the structure nests too deep. With `identical`, static data other than strings must be the same objects, not only
    equal: 1 and True are equal, but a rebuilt tree needs its own. Structures that contain dicts with other keys than strings then
    have no matcher.

    For `{'w': (*, None)}` it is the function

        def match(x0):
            try:
                if type(x0) is not dict or len(x0) != 1: return None
                x1 = x0['w']
                if type(x1) is not tuple: return None
                [x2, x3] = x1
                if x3 is not None: return None
            except Exception: return None
            return [x2]
    """
    if identical and not _has_string_keys(spec):
        return None
    writer = _MatcherText(node_types, identical)
    try:
        writer.visit(spec, "x0")
        body, leaves = "\n  ".join(["pass", *writer.lines]), ", ".join(writer.leaves)
        text = (
            f"def match(x0):\n try:\n  {body}\n except Exception: return None\n return [{leaves}]"
        )
        return _compile(text, "match", writer.names)
    except (SyntaxError, MemoryError, RecursionError):
        return None


class _MatcherText:
    """The writer of a matcher's text: lines that compare a tree, and the names of its leaves."""

    def __init__(self, node_types: Mapping[type, Any], identical: bool):
        self.node_types, self.identical = node_types, identical
        self.names, self.numbers = _CodeConstants(), itertools.count(1)
        self.lines: list[str] = []
        self.leaves: list[str] = []

    def differs(self, x: str, value: Any) -> str:
        name = self.names.add("a", value)
        is_other = f"{x} is not {name}"
        if self.identical and type(value) is not str:
            return is_other
        return f"{is_other} and not {x} == {name}"

    def visit(self, spec: Any, x: str) -> None:
        """Write the comparison of a node; `x` names its value in the text."""
        if spec is None:
            self.leaves.append(x)
            return
        kind, aux, children = spec
        if kind is type(None):
            self.lines.append(f"if {x} is not None: return None")
            return
        parts = [f"x{next(self.numbers)}" for _ in children]
        is_builtin = kind is dict or kind in _SEQUENCES
        type_text = kind.__name__ if is_builtin else self.names.add("T", kind)
        differs = f"if type({x}) is not {type_text}"
        if kind is dict:
            self.lines.append(f"{differs} or len({x}) != {len(aux)}: return None")
            self.lines += [f"{part} = {x}[{self.names.key(key)}]" for part, key in zip(parts, aux)]
        else:
            self.lines.append(f"{differs}: return None")
            if kind in _SEQUENCES or self.node_types[kind].is_sequence:
                self.lines.append(f"[{', '.join(parts)}] = {x}")
            else:
                self.match_registered(spec, x, parts)
        for part, child in zip(parts, children):
            self.visit(child, part)

    def match_registered(self, spec: Any, x: str, parts: list[str]) -> None:
        """Write the comparison of static data, and the assignment of the children."""
        kind, aux, _ = spec
        node = self.node_types[kind]
        if node.fields is None:
            self.lines += [
                f"{x}_c, {x}_a = {self.names.add('flatten', node.flatten)}({x})",
                f"if {self.differs(f'{x}_a', aux)}: return None",
                f"[{', '.join(parts)}] = {x}_c",
            ]
            return
        data, static = node.fields
        for name, value in zip(static, aux):
            self.lines.append(f"{x}_a = {x}.{name}")
            self.lines.append(f"if {self.differs(f'{x}_a', value)}: return None")
        self.lines += [f"{part} = {x}.{name}" for part, name in zip(parts, data)]


def _has_string_keys(spec: Any) -> bool:
    """Return whether all dict keys in a structure are strings."""
    return spec is None or (
        (spec[0] is not dict or _is_plain(spec)) and all(map(_has_string_keys, spec[2]))
    )


def compile_constructor(
    kind: type, data: Sequence[str], static: Sequence[str]
) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """Return a function of static data and children that calls the class `kind` with them as keyword arguments."""
    arguments = [f"{name}=children[{i}]" for i, name in enumerate(data)] + [
        f"{name}=aux[{i}]" for i, name in enumerate(static)
    ]
    return _compile(
        f"def make(aux, children): return kind({', '.join(arguments)})",
        "make",
        _CodeConstants(kind=kind),
    )


def compile_taker(
    data: Sequence[str], static: Sequence[str]
) -> Callable[[Any], tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return a function of a node that returns its attributes `data`, the children, and its attributes `static`, the static data."""
    children, aux = [f"({''.join([f'x.{name}, ' for name in names])})" for names in (data, static)]
    return _compile(f"def take(x): return {children}, {aux}", "take", _CodeConstants())


def are_plain_names(names: Iterable[str]) -> bool:
    """Return whether names can be attributes and parameters in a generated text."""
    return all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
