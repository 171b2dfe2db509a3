"""Key paths: the positions of leaves and nodes in a pytree.

A path is a tuple of keys, one for each level below the root. The text of a key is its Python expression: `[3]`, `['name']`,
`.name`. `keystr` returns the text of a path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from weft._engine.util.record import record


@record
class SequenceKey:
    """A step into a tuple or list, by position."""

    __module__ = "weft.tree_util"

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@record
class DictKey:
    """A step into a dictionary, by key."""

    __module__ = "weft.tree_util"

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@record
class GetAttrKey:
    """A step into an object, by attribute name."""

    __module__ = "weft.tree_util"

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@record
class FlattenedIndexKey:
    """A step into a custom node that names no keys, by position among its children."""

    __module__ = "weft.tree_util"

    key: int

    def __hash__(self) -> int:  # differs from the hash of a SequenceKey
        return hash((FlattenedIndexKey, self.key))

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry = TypeVar("KeyEntry", bound=Any)
KeyPath = tuple[Any, ...]

_KINDS = frozenset((SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey))


def keystr(keys: Iterable[Any], *, simple: bool = False, separator: str = "") -> str:
    """Write a key path as Python would index it, or as bare names between separators.

    >>> path = (SequenceKey(1), DictKey('w'), GetAttrKey('mean'))
    >>> keystr(path)
    "[1]['w'].mean"
    >>> keystr(path, simple=True, separator='/')
    '1/w/mean'
    """
    bare = lambda key: str(getattr(key, key.__match_args__[0])) if type(key) in _KINDS else str(key)
    return separator.join(bare(key) if simple else str(key) for key in keys)
