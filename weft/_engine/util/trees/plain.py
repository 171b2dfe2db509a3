"""Structures of trees as nested lists and as bytes.

In:  a spec (see `treedef`), and what writes or reads nodes of types that are not built in.
Out: lists of names, keys and lists, which `from_plain` makes a spec again; or bytes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Spec = Any

#: name -> the type of nodes of which only the keys of dicts are to be written beside the children
BUILTIN = {"tuple": tuple, "list": list, "dict": dict, "None": type(None)}


def to_plain(spec: Spec, other: Callable[[Any, Any, list], Any]) -> Any:
    """A structure as nested lists of names; `other(kind, aux, parts)` gives that of a node of a type that is not built in."""
    names = {kind: name for name, kind in BUILTIN.items()}

    def visit(spec: Spec) -> Any:
        if spec is None:
            return None
        kind, aux, children = spec
        parts = [visit(child) for child in children]
        return (
            [names[kind], list(aux) if kind is dict else None, parts]
            if kind in names
            else other(kind, aux, parts)
        )

    return visit(spec)


def from_plain(plain: Any, other: Callable[[Any, Any, tuple], Any]) -> Spec:
    """The structure that `to_plain` wrote; `other(name, aux, children)` gives the spec of a node of a type that is not built in."""

    def visit(node: Any) -> Spec:
        if node is None:
            return None
        name, aux, parts = node
        children = tuple(visit(part) for part in parts)
        kind = BUILTIN.get(name)
        return (
            other(name, aux, children)
            if kind is None
            else (kind, tuple(aux) if kind is dict else None, children)
        )

    return visit(plain)


def to_bytes(spec: Spec) -> bytes:
    """A structure of built-in nodes as bytes; ValueError for others."""
    return json.dumps(to_plain(spec, _not_builtin)).encode()


def from_bytes(data: bytes) -> Spec:
    """The structure that `to_bytes` wrote; ValueError for other bytes."""
    return from_plain(json.loads(data), _not_builtin)


def _not_builtin(kind: Any, _aux: Any, _children: Any) -> Any:
    raise ValueError(
        f"PyTreeDef: nodes of type {kind} cannot be written as bytes, only lists, tuples, dicts and None. weft.export writes "
        "types that are registered with it."
    )
