"""Serialization of pytree structures as nested lists and as bytes.

In:  a spec (see `treedef`), and functions for nodes of types that are not built in.
Out: nested lists of names and keys, which `from_plain` converts back to a spec; or their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Spec = Any

#: name -> node type, for types without static data except the keys of dicts
BUILTIN = {"tuple": tuple, "list": list, "dict": dict, "None": type(None)}


def to_plain(spec: Spec, other: Callable[[Any, Any, list], Any]) -> Any:
    """Return a structure as nested lists of names; `other(kind, aux, parts)` converts a node of a type that is not built in."""
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
    """Return the structure from the result of `to_plain`; `other(name, aux, children)` returns the spec of a node of another type."""

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
    """Return a structure of built-in nodes as bytes; raise ValueError for other nodes."""
    return json.dumps(to_plain(spec, _not_builtin)).encode()


def from_bytes(data: bytes) -> Spec:
    """Return the structure from the result of `to_bytes`; raise ValueError for other bytes."""
    return from_plain(json.loads(data), _not_builtin)


def _not_builtin(kind: Any, _aux: Any, _children: Any) -> Any:
    raise ValueError(
        f"PyTreeDef: nodes of type {kind} cannot be written as bytes, only lists, tuples, dicts and None. weft.export writes "
        "types that are registered with it."
    )
