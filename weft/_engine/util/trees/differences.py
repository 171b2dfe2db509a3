"""Differences between trees, as text for error messages.

In:  a tree and its prefix, or two structures.
Out: lines with the key path of each difference and the kind of node on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft._engine.util.messages.quantities import quantity
from weft._engine.util.trees.keypath import KeyPath, keystr
from weft._engine.util.trees.treedef import IsLeaf, PyTreeDef, node_type


def prefix_errors(
    prefix_tree: Any,
    full_tree: Any,
    is_leaf: IsLeaf | None = None,
    *,
    prefix_name: str = "prefix",
    full_name: str = "tree",
) -> str:
    """Return a text of the positions where `prefix_tree` is not a prefix of `full_tree`, with reasons; '' if it is a prefix.

    >>> print(prefix_errors({'w': (1, 2)}, {'w': (1, 2, 3)}, prefix_name='in_axes', full_name='args'))
      at in_axes['w']:
        in_axes  tuple of length 2
        args     tuple of length 3
    """
    width = max(len(prefix_name), len(full_name))
    return "\n".join(
        [
            f"  at {prefix_name}{keystr(path)}:\n    {prefix_name:{width}}  {left}\n    {full_name:{width}}  {right}"
            for path, left, right in disagreements(prefix_tree, full_tree, is_leaf)
        ]
    )


def disagreements(
    prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None
) -> list[tuple[KeyPath, str, str]]:
    """Return (key path, description in the prefix, description in the full tree) where `prefix_tree` is not a prefix of `full_tree`.

    >>> disagreements({'w': (1, 2)}, {'w': (1, 2, 3)})
    [((DictKey(key='w'),), 'tuple of length 2', 'tuple of length 3')]
    """

    def visit(path: KeyPath, prefix: Any, full: Any) -> Iterable[tuple[KeyPath, str, str]]:
        if (is_leaf is not None and is_leaf(prefix)) or (node := node_type(type(prefix))) is None:
            return
        if type(prefix) is not type(full):
            yield path, _kind(prefix), f"{_kind(full)} (different types)"
            return
        keys, children, aux = node.children_with_keys(prefix)
        _, full_children, full_aux = node.children_with_keys(full)
        name = type(prefix).__name__
        if isinstance(prefix, dict) and prefix.keys() != full.keys():
            yield path, *_describe_keys(prefix, full)
        elif len(children) != len(full_children):
            yield (
                path,
                f"{name} of length {len(children)}",
                f"{name} of length {len(full_children)}",
            )
        elif aux != full_aux:
            yield path, f"{name} with static data {aux!r}", f"{name} with static data {full_aux!r}"
        else:
            for key, x, y in zip(keys, children, full_children, strict=True):
                yield from visit((*path, key), x, y)

    return list(visit((), prefix_tree, full_tree))


def describe_difference(left: PyTreeDef, right: PyTreeDef, left_name: str, right_name: str) -> str:
    """Return lines with the positions where two structures differ, after a line break; '' if there is no such position.

    >>> one, other = weft.tree.structure(1), weft.tree.structure([1, 2])
    >>> print(describe_difference(one, other, 'primals', 'tangents'))
    <BLANKLINE>
      at tangents:
        tangents  list of length 2
        primals   a leaf (different types)
    """
    try:
        trees = [t.unflatten([LeafPlaceholder()] * t.num_leaves) for t in (left, right)]
        text = prefix_errors(*trees, prefix_name=left_name, full_name=right_name)
        text = text or prefix_errors(*trees[::-1], prefix_name=right_name, full_name=left_name)
    except Exception:  # a class of the user that does not accept placeholders
        return ""
    return f"\n{text}" if text else ""


class LeafPlaceholder:
    """A placeholder for a leaf where only the structure of a tree matters."""

    __slots__ = ()


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if type(value) is LeafPlaceholder:
        return "a leaf"
    node = node_type(type(value))
    if node is None:
        return f"a leaf of type {_leaf_type(value)}"
    children, _ = node.split(value)
    if type(value) is dict:
        return f"dict with keys {_key_list([*value])}"
    return f"{type(value).__name__} of length {len(children)}"


def _leaf_type(value: Any) -> str:
    """Return the type of an array or a traced value as `float32[3]`, and the class name of other leaves."""
    spell = getattr(getattr(value, "aval", None), "str_short", None)
    return str(spell()) if callable(spell) else type(value).__name__


def _describe_keys(prefix: dict[Any, Any], full: dict[Any, Any]) -> tuple[str, str]:
    texts = []
    for one, other in ((prefix, full), (full, prefix)):
        extra, absent = (
            [key for key in some if key not in others]
            for some, others in ((one, other), (other, one))
        )
        keys = f"{quantity(len(one), 'key')}, among them {_key_list(extra)}"
        if len(one) <= _MOST_KEYS or not extra:
            keys = f"keys {_key_list([*one])}"
        texts.append(
            f"{type(one).__name__} with {keys}" + f" (without {_key_list(absent)})" * bool(absent)
        )
    return texts[0], texts[1]


#: maximal number of keys in a message
_MOST_KEYS = 8


def _key_list(keys: Sequence[Any]) -> str:
    shown = ", ".join(repr(key) for key in keys[:_MOST_KEYS]) or "(none)"
    more = len(keys) - _MOST_KEYS
    return f"{shown} and {more} more" if more > 0 else shown
