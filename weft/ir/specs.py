"""PartitionSpec: which mesh axes split each dim of an array.

An entry is None (not split), an axis name, a tuple of axis names (split by all of them, major to minor), or
UNCONSTRAINED (left to propagation). Trailing Nones never matter: `P('a', None)` and `P('a')` are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.util.errors import ShardingError

DimSpec = tuple[Any, ...]                 # mesh axes that split one dim, major to minor
Spec = tuple[DimSpec, ...]                # one DimSpec per dim: what the partitioner works with


class _Unconstrained:
    """The one value UNCONSTRAINED."""
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class PartitionSpec:
    """How the dims of an array are split over named mesh axes; immutable, hashable, read like a tuple.

    Entry d says which axes split dim d: a name, a tuple of names (the first is the major one), None for no split, or UNCONSTRAINED.
    Dims beyond the entries are not split. ShardingError is raised where it has more entries than a value has dims.

    >>> P(('x', 'y'), None)
    P(('x', 'y'), None)
    >>> P('x', None) == P('x'), P(('x',)) == P('x')
    (True, True)
    """
    __slots__ = ("_entries", "_key")

    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *entries: Any):
        self._entries = tuple(tuple(e) if isinstance(e, list) else e for e in entries)
        self._key = _strip(tuple(_canonical_entry(e) for e in self._entries))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._entries[index]

    def __contains__(self, entry: Any) -> bool:
        return entry in self._entries

    def __add__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*self._entries, *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*other, *self._entries)

    def index(self, entry: Any) -> int:
        """Position of the first entry equal to `entry`."""
        return self._entries.index(entry)

    def count(self, entry: Any) -> int:
        """Number of entries equal to `entry`."""
        return self._entries.count(entry)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._key == other._key

    def __hash__(self) -> int:
        return hash((PartitionSpec, self._key))

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self._entries))}{',' if len(self._entries) == 1 else ''})"

    def __reduce__(self) -> tuple:
        return PartitionSpec, self._entries

    @property
    def axes(self) -> tuple[Any, ...]:
        """All mesh axes named, in order of their appearance."""
        return tuple(a for e in self._key for a in entry_axes(e))

    def dims(self, ndim: int) -> Spec:
        """Per-dim tuples of axis names for a value of rank `ndim`; UNCONSTRAINED dims read as not split.

        >>> P('x', ('y', 'z')).dims(3)
        (('x',), ('y', 'z'), ())
        """
        if len(self._key) > ndim:
            raise ShardingError(
                f"{self!r} names {len(self._key)} dims, but was applied to a value of rank {ndim}.\n"
                f"  A spec has at most one entry per dim. Drop the entries beyond {ndim}.")
        return tuple(entry_axes(e) for e in self._key) + ((),) * (ndim - len(self._key))

    def unconstrained_dims(self) -> frozenset[int]:
        """Positions of the UNCONSTRAINED entries."""
        return frozenset(d for d, e in enumerate(self._entries) if e is UNCONSTRAINED)


P = PartitionSpec


def entry_axes(entry: Any) -> DimSpec:
    """Axis names of one entry of a PartitionSpec, major to minor."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def _canonical_entry(entry: Any) -> Any:
    if isinstance(entry, tuple):
        return None if not entry else entry[0] if len(entry) == 1 else entry
    return entry


def _strip(entries: tuple) -> tuple:
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return entries


def spec_of_dims(dims: Spec) -> PartitionSpec:
    """The PartitionSpec of per-dim axis tuples.

    >>> spec_of_dims((('x',), (), ('y', 'z')))
    P('x', None, ('y', 'z'))
    """
    return PartitionSpec(*(None if not d else d[0] if len(d) == 1 else d for d in dims))
