"""Functions written for one structure of trees, several times quicker than those that walk any structure.

In:   the spec of a structure (`treedef.Spec`), and how values of its types are taken apart and rebuilt.
Out:  `compile_builder`, a function of the leaves that gives the tree; `compile_matcher`, a function of a tree that gives the leaves;
      `compile_taker` and `compile_constructor`, which take one node apart and rebuild it.
Laws: they give what `PyTreeDef.unflatten` and `PyTreeDef.flatten_up_to` give. A matcher gives None where the tree has another structure or
      a function of the user's fails, and leaves it to those to say why. Structures that nest too deep have none.
"""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_SEQUENCES = (tuple, list)


class _Names(dict):
    """The values that a text refers to, by name."""

    def add(self, prefix: str, value: Any) -> str:
        """A new name for `value`."""
        name = f"{prefix}{len(self)}"
        self[name] = value
        return name

    def key(self, value: Any) -> str:
        """The text of a key of a dict: a literal if it is a string, else a new name."""
        return repr(value) if type(value) is str else self.add("k", value)


def _compiled(text: str, name: str, names: _Names) -> Any:
    """The function `name` of a text."""
    exec(
        compile(text, f"{__file__}:builder", "exec"), names
    )  # as part of weft, so that its frames count as weft's
    return names[name]


def compile_builder(
    spec: Any, node_types: Mapping[type, Any]
) -> Callable[[Sequence[Any], Any], Any] | None:
    """Return a function of leaves and a spec that builds a tree; None if the structure nests too deep. The spec is equal to the one that
    the function was written for, and its static data, which may be of other types (1 and True), are what the tree gets.

    For `{'b': *, 'w': (*, None)}` it is the function

        def build(leaves, s0):
            return {'b': leaves[0], 'w': (leaves[1], None)}
    """
    names, positions, numbers = _Names(), itertools.count(), itertools.count(1)
    lines: list[str] = []

    def has_data(spec: Any) -> bool:
        return spec is not None and (not _is_plain(spec) or any(map(has_data, spec[2])))

    def text(spec: Any, s: str) -> str:
        if spec is None:
            return f"leaves[{next(positions)}]"
        kind, aux, children = spec
        below = [f"s{next(numbers)}" if has_data(child) else "_" for child in children]
        is_plain = _is_plain(spec)
        a = "_" if is_plain else f"a{s}"
        if has_data(spec):
            lines.append(f"_, {a}, [{', '.join(below)}] = {s}")
        texts = [text(child, name) for child, name in zip(children, below)]
        if kind is dict:
            keys = map(repr, aux) if is_plain else [f"{a}[{i}]" for i in range(len(aux))]
            return "{" + ", ".join([f"{key}: {value}" for key, value in zip(keys, texts)]) + "}"
        if kind is list:
            return f"[{', '.join(texts)}]"
        if kind is type(None):
            return "None"
        inner = f"({', '.join(texts)}{',' * (len(texts) == 1)})"
        if kind is tuple:
            return inner
        node = node_types[kind]
        if node.is_sequence:
            return f"{names.add('T', kind)}{inner}"
        if node.fields is not None:
            static = [f"{a}[{i}]" for i in range(len(aux))]
            given = zip((*node.fields[0], *node.fields[1]), (*texts, *static), strict=True)
            return (
                f"{names.add('T', kind)}({', '.join([f'{name}={value}' for name, value in given])})"
            )
        return f"{names.add('unflatten', node.unflatten)}({'None' if is_plain else a}, {inner})"

    try:
        result = text(spec, "s0")
        return _compiled(
            "\n ".join(["def build(leaves, s0):", *lines, f"return {result}"]), "build", names
        )
    except (SyntaxError, MemoryError, RecursionError):
        return None


def _is_plain(spec: Any) -> bool:
    """Whether a node has no static data, or keys that are strings alone."""
    kind, aux, _ = spec
    return aux is None or (kind is dict and all(type(key) is str for key in aux))


def compile_matcher(
    spec: Any, node_types: Mapping[type, Any], identical: bool = False
) -> Callable[[Any], list[Any] | None] | None:
    """Return a function of a tree that gives what is at the leaves of one structure, or None for trees of other structures; None if
    the structure nests too deep. With `identical`, static data that are no strings have to be the same objects, not only equal ones:
    1 and True are equal, and a tree that is rebuilt needs its own. Structures with dicts of other keys than strings have none then.

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
    names, numbers = _Names(), itertools.count(1)
    lines: list[str] = []
    leaves: list[str] = []

    def differs(x: str, value: Any) -> str:
        name = names.add("a", value)
        return f"{x} is not {name}" + (
            "" if identical and type(value) is not str else f" and not {x} == {name}"
        )

    def visit(spec: Any, x: str) -> None:
        if spec is None:
            leaves.append(x)
            return
        kind, aux, children = spec
        if kind is type(None):
            lines.append(f"if {x} is not None: return None")
            return
        parts = [f"x{next(numbers)}" for _ in children]
        node = node_types[kind]
        same_type = f"if type({x}) is not {kind.__name__ if kind in (*_SEQUENCES, dict) else names.add('T', kind)}"
        if kind is dict:
            lines.append(f"{same_type} or len({x}) != {len(aux)}: return None")
            lines.extend([f"{part} = {x}[{names.key(key)}]" for part, key in zip(parts, aux)])
        elif kind in _SEQUENCES or node.is_sequence:
            lines.extend([f"{same_type}: return None", f"[{', '.join(parts)}] = {x}"])
        elif node.fields is not None:
            data, static = node.fields
            lines.append(f"{same_type}: return None")
            lines.extend(
                [
                    f"{x}_a = {x}.{name}\n  if {differs(f'{x}_a', value)}: return None"
                    for name, value in zip(static, aux)
                ]
            )
            lines.extend([f"{part} = {x}.{name}" for part, name in zip(parts, data)])
        else:
            lines.extend(
                [
                    f"{same_type}: return None",
                    f"{x}_c, {x}_a = {names.add('flatten', node.flatten)}({x})",
                    f"if {differs(f'{x}_a', aux)}: return None",
                    f"[{', '.join(parts)}] = {x}_c",
                ]
            )
        for part, child in zip(parts, children):
            visit(child, part)

    if identical and not _has_string_keys(spec):
        return None
    try:
        visit(spec, "x0")
        body = "\n  ".join(["pass", *lines])
        return _compiled(
            f"def match(x0):\n try:\n  {body}\n except Exception: return None\n return [{', '.join(leaves)}]",
            "match",
            names,
        )
    except (SyntaxError, MemoryError, RecursionError):
        return None


def _has_string_keys(spec: Any) -> bool:
    """Whether the keys of all dicts are strings."""
    return spec is None or (
        (spec[0] is not dict or _is_plain(spec)) and all(map(_has_string_keys, spec[2]))
    )


def compile_constructor(
    kind: type, data: Sequence[str], static: Sequence[str]
) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """Return a function of static data and children that calls the class `kind` with them by name."""
    given = [f"{name}=children[{i}]" for i, name in enumerate(data)] + [
        f"{name}=aux[{i}]" for i, name in enumerate(static)
    ]
    return _compiled(
        f"def make(aux, children): return kind({', '.join(given)})", "make", _Names(kind=kind)
    )


def compile_taker(
    data: Sequence[str], static: Sequence[str]
) -> Callable[[Any], tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return a function that takes one node apart: attributes that are children, and those that are static data."""
    children, aux = [f"({''.join([f'x.{name}, ' for name in names])})" for names in (data, static)]
    return _compiled(f"def take(x): return {children}, {aux}", "take", _Names())


def are_plain_names(names: Iterable[str]) -> bool:
    """Whether names can be written as attributes and parameters in a text."""
    return all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
