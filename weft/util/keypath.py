"""Key paths: where a leaf or a node stands inside a pytree.

A path is a tuple of keys, one for each step down from the root. Each kind of key says how the step is written in
Python: `x[3]`, `x['name']`, `x.name`. `keystr` writes a whole path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """A step into a tuple or list, by position."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True, slots=True)
class DictKey:
    """A step into a dictionary, by key."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """A step into an object, by attribute name."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """A step into a custom node that names no keys, by position among its children."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]

_BARE_NAME = {SequenceKey: "idx", DictKey: "key", GetAttrKey: "name", FlattenedIndexKey: "key"}


def _bare(key: KeyEntry) -> str:
    field = _BARE_NAME.get(type(key))
    return str(key) if field is None else str(getattr(key, field))


def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """Write a key path as Python would index it, or as bare names between separators.

    >>> path = (SequenceKey(1), DictKey('w'), GetAttrKey('mean'))
    >>> keystr(path)
    "[1]['w'].mean"
    >>> keystr(path, simple=True, separator='/')
    '1/w/mean'
    """
    return separator.join(_bare(key) if simple else str(key) for key in keys)
