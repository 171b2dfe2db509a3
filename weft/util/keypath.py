"""Key paths: where a leaf or a node stands inside a pytree.

A path is a tuple of keys, one for each step down from the root. Each kind of key says how the step is written in
Python: `x[3]`, `x['name']`, `x.name`. `keystr` writes a whole path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class _Key:
    """One step of a path: an immutable value with one field, named by `__match_args__`."""

    __slots__ = ("_value",)

    __match_args__: tuple[str]

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._value == self._value

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__match_args__[0]}={self._value!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._value,)


class SequenceKey(_Key):
    """A step into a tuple or list, by position."""

    __slots__ = ()

    __match_args__ = ("idx",)

    def __init__(self, idx: int) -> None:
        super().__init__(idx)

    @property
    def idx(self) -> int:
        """The position."""
        return self._value

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class DictKey(_Key):
    """A step into a dictionary, by key."""

    __slots__ = ()

    __match_args__ = ("key",)

    def __init__(self, key: Hashable) -> None:
        super().__init__(key)

    @property
    def key(self) -> Hashable:
        """The dictionary's key."""
        return self._value

    def __str__(self) -> str:
        return f"[{self._value!r}]"


class GetAttrKey(_Key):
    """A step into an object, by attribute name."""

    __slots__ = ()

    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(name)

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self._value

    def __str__(self) -> str:
        return f".{self._value}"


class FlattenedIndexKey(_Key):
    """A step into a custom node that names no keys, by position among its children."""

    __slots__ = ()

    __match_args__ = ("key",)

    def __init__(self, key: int) -> None:
        super().__init__(key)

    @property
    def key(self) -> int:
        """The position."""
        return self._value

    def __str__(self) -> str:
        return f"[<flat index {self._value}>]"


KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


def _bare(key: KeyEntry) -> str:
    return str(key._value) if isinstance(key, _Key) else str(key)


def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """Write a key path as Python would index it, or as bare names between separators.

    >>> path = (SequenceKey(1), DictKey('w'), GetAttrKey('mean'))
    >>> keystr(path)
    "[1]['w'].mean"
    >>> keystr(path, simple=True, separator='/')
    '1/w/mean'
    """
    return separator.join(_bare(key) if simple else str(key) for key in keys)
