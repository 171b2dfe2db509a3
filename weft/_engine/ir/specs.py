"""PartitionSpec: the mesh axes that split each dim of an array.

An entry is None (not split), an axis name, a tuple of axis names (split by all of them, major to minor), or UNCONSTRAINED (chosen by
propagation). `P('a', None)` and `P('a')` place values of rank 2 the same way but are not equal, so a cache with specs as keys returns
the exact spec. In addition to its entries, a spec may name axes over which values are partial sums (`unreduced`), or over
which their cotangents are (`reduced`).
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh
from weft._engine.util.errors import ShardingError
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.trees.narrowing import class_of, is_tuple, is_tuple_or_list

DimSpec = tuple[Any, ...]  # mesh axes that split one dim, major to minor
Spec = tuple[DimSpec, ...]  # one DimSpec per dim: the partitioner's form of a PartitionSpec


def axis_parts(name: Any) -> tuple[str, str]:
    """Return the names of the major and the minor part of an axis that the partitioner splits in two."""
    return f"{name}.0", f"{name}.1"


def join_axis_parts(axes: Iterable[Any]) -> tuple[Any, ...]:
    """Return `axes` for messages: the major part of an axis followed by its minor part is replaced by the axis.

    >>> join_axis_parts(("b", "a.0", "a.1.0", "a.1.1")), join_axis_parts(("a.1", "a.0"))
    (('b', 'a'), ('a.1', 'a.0'))
    """
    names: list[Any] = []
    for axis in axes:
        names.append(axis)
        while (
            len(names) > 1
            and (whole := str(names[-1]).removesuffix(".1")) != names[-1]
            and tuple(names[-2:]) == axis_parts(whole)
        ):
            names[-2:] = [whole]
    return tuple(names)


class _Unconstrained:
    """The class of the singleton UNCONSTRAINED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class UnreducedKind(enum.Enum):
    """The reduction that is still to be applied to the values on devices along unreduced axes."""

    __module__ = "weft.sharding"

    sum = enum.auto()
    max = enum.auto()
    min = enum.auto()


NO_AXES: frozenset[Any] = frozenset()
_specs: dict[tuple[Any, ...], PartitionSpec] = {}


class PartitionSpec:
    """The mesh axes that split the dims of an array: immutable, hashable, and readable like a tuple.

    Specs with the same entries and axes are one object; only these are equal. `NamedSharding.is_equivalent_to` compares placements.
    Subclassing raises TypeError.

    Entry d contains the axes that split dim d: a name, a tuple of names (the first is the major one), None for no split, or UNCONSTRAINED.
    A tuple with one name is replaced by the name, an empty tuple by None.
    Dims beyond the entries are not split. Using a spec with more entries than a value has dims raises ShardingError.

    Along the axes in the set `unreduced`, each device holds a term of a sum that is still to be computed (or of a maximum or minimum, by
    `unreduced_kind`). Along the axes in the set `reduced`, all devices hold the same value, whose cotangent is unreduced. ValueError is
    raised if an axis occurs twice, TypeError if an argument is not a set. A spec with such axes cannot be read as a tuple; its
    entries are `partitions`.

    >>> P(('x', 'y'), None)
    P(('x', 'y'), None)
    >>> P('x', None) == P('x'), P(('x',), ()), P(('x',)) == P('x')
    (False, P('x', None), True)
    >>> P('x', unreduced={'y'}).update(unreduced=set(), reduced={'y'})
    P('x', reduced={'y'})
    """

    __module__ = "weft.sharding"

    __slots__ = ("_entries", "_key", "unreduced", "reduced", "unreduced_kind", "__weakref__")

    UNCONSTRAINED = UNCONSTRAINED
    _entries: tuple[Any, ...]
    _key: tuple[Any, ...]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    unreduced_kind: UnreducedKind | None

    def __new__(
        cls,
        *entries: Any,
        unreduced: Any = NO_AXES,
        reduced: Any = NO_AXES,
        unreduced_kind: UnreducedKind | None = None,
    ) -> PartitionSpec:
        key = entries, unreduced, reduced, unreduced_kind
        try:
            return _specs[key]
        except (KeyError, TypeError):  # TypeError: entries that are lists, axes that are sets
            pass
        for entry in entries:
            if is_tuple_or_list(entry) and any(isinstance(name, (tuple, list)) for name in entry):
                raise ValueError(
                    f"PartitionSpec: the entry {entry} contains a tuple of names in a tuple.\n"
                    "  A tuple inside PartitionSpec cannot contain a nested tuple. Write all names in one tuple, major axes first."
                )
        self = object.__new__(cls)
        self._entries = tuple(map(_canonical_entry, entries))
        self._key = _without_trailing_nones(self._entries)
        self.unreduced, self.reduced = (
            _axis_set("unreduced", unreduced),
            _axis_set("reduced", reduced),
        )
        self.unreduced_kind = (
            UnreducedKind.sum if self.unreduced and unreduced_kind is None else unreduced_kind
        )
        self._check()
        return _specs.setdefault(
            (self._entries, self.unreduced, self.reduced, self.unreduced_kind), self
        )

    def __init_subclass__(cls) -> None:
        raise TypeError(
            f"{cls.__name__}: Subclassing `PartitionSpec` is prohibited: equal specs are one object."
        )

    def _check(self) -> None:
        """Raise ValueError for axes that occur twice, and TypeError or ValueError for an invalid `unreduced_kind`."""
        if self.unreduced & self.reduced:
            raise ValueError(
                f"PartitionSpec: `unreduced` and `reduced` cannot overlap, got {set(self.unreduced)} and {set(self.reduced)}."
            )
        for name in ("unreduced", "reduced"):
            common_axes = getattr(self, name) & frozenset(self.axes)
            if common_axes:
                raise ValueError(
                    f"PartitionSpec: partitions cannot overlap with {name} axes, got {sorted(map(str, common_axes))} in "
                    f"{self._entries} and in {name}. An axis either splits a dim or is {name}."
                )
        if not issubclass(class_of(self.unreduced_kind), (UnreducedKind, type(None))):
            raise TypeError(
                f"PartitionSpec: unreduced_kind must be an UnreducedKind, got {type(self.unreduced_kind)}."
            )
        if self.unreduced_kind is not None and not self.unreduced:
            raise ValueError(
                f"PartitionSpec: unreduced_kind={self.unreduced_kind} needs unreduced axes, and there are none."
            )

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries."""
        return self._entries

    @property
    def is_partial(self) -> bool:
        """Whether it has unreduced or reduced axes."""
        return bool(self.unreduced or self.reduced)

    def update(
        self, partitions: Any = None, unreduced: Any = None, reduced: Any = None, **kind: Any
    ) -> PartitionSpec:
        """Return a copy with other entries, unreduced or reduced axes.

        >>> P('x').update(partitions=(None, 'y'))
        P(None, 'y')
        """
        terms = self.unreduced if unreduced is None else unreduced
        if not kind and terms:
            kind = {"unreduced_kind": self.unreduced_kind}
        return PartitionSpec(
            *(self._entries if partitions is None else partitions),
            unreduced=terms,
            reduced=self.reduced if reduced is None else reduced,
            **kind,
        )

    def of_rank(self, ndim: int) -> PartitionSpec:
        """Return the spec with one entry per dim of a value of rank `ndim`; missing entries are None.

        >>> P('x').of_rank(2)
        P('x', None)
        """
        return self.update((*self._entries, *[None] * (ndim - len(self._entries)))[:ndim])

    def without_trailing(self) -> PartitionSpec:
        """Return the spec without trailing Nones.

        >>> P('x', None).without_trailing()
        P('x',)
        """
        return self.update(self._key)

    def without_partial_axes(self) -> PartitionSpec:
        """Return the spec without unreduced and reduced axes."""
        return PartitionSpec(*self._entries) if self.is_partial else self

    def _plain(self, use: str) -> tuple[Any, ...]:
        if self.is_partial:
            raise ValueError(
                f"{self!r} cannot be used as a tuple ({use}): its unreduced or reduced axes would be lost. "
                "Use spec.partitions."
            )
        return self._entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain("*spec"))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._plain("spec[...]")[index]

    def __contains__(self, entry: Any) -> bool:
        return entry in self._entries

    def __add__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, PartitionSpec):
            if self.is_partial:
                raise TypeError(
                    f"PartitionSpec: a {type(other).__name__} cannot be added to {self!r}, which has unreduced or reduced "
                    "axes."
                )
            return PartitionSpec(*self._entries, *other)
        if not (self.is_partial or other.is_partial):
            return PartitionSpec(*self._entries, *other._entries)
        if (
            None not in (self.unreduced_kind, other.unreduced_kind)
            and self.unreduced_kind is not other.unreduced_kind
        ):
            raise TypeError(
                f"PartitionSpec: {self!r} and {other!r} cannot be added, their unreduced_kind differs."
            )
        return PartitionSpec(
            *self._entries,
            *other._entries,
            unreduced=self.unreduced | other.unreduced,
            reduced=self.reduced | other.reduced,
            unreduced_kind=self.unreduced_kind or other.unreduced_kind,
        )

    def __radd__(self, other: Any) -> PartitionSpec:
        if self.is_partial:
            raise TypeError(
                f"PartitionSpec: {self!r}, which has unreduced or reduced axes, cannot be added to a {type(other).__name__}."
            )
        return PartitionSpec(*other, *self._entries)

    def index(self, entry: Any) -> int:
        """Return the position of the first entry equal to `entry`."""
        return self._entries.index(entry)

    def count(self, entry: Any) -> int:
        """Return the number of entries equal to `entry`."""
        return self._entries.count(entry)

    def __repr__(self) -> str:
        parts = [repr(e) for e in self._entries]
        if not self.is_partial:
            return f"P({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        for name in ("unreduced", "reduced"):
            axes = getattr(self, name)
            if axes:
                parts.append(f"{name}={{{', '.join(sorted(map(repr, axes)))}}}")
        if self.unreduced_kind not in (None, UnreducedKind.sum):
            parts.append(f"unreduced_kind={self.unreduced_kind.name}")
        return f"P({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_partial:
            return PartitionSpec, self._entries
        return _make_spec, (self._entries, self.unreduced, self.reduced, self.unreduced_kind)

    @property
    def axes(self) -> tuple[Any, ...]:
        """All mesh axes that split a dim, in the order of the entries."""
        return tuple(a for e in self._key for a in entry_axes(e))

    def dims(self, ndim: int) -> Spec:
        """Return a tuple of axis names per dim of a value of rank `ndim`. UNCONSTRAINED dims count as not split.

        >>> P('x', ('y', 'z')).dims(3)
        (('x',), ('y', 'z'), ())
        """
        if len(self._key) > ndim:
            raise ShardingError(
                f"{self!r} names {quantity(len(self._key), 'dim')}, but was applied to a value of rank {ndim}.\n"
                f"  A spec has at most one entry per dim. Drop the entries beyond {ndim}."
            )
        return tuple(entry_axes(e) for e in self._key) + ((),) * (ndim - len(self._key))

    def unconstrained_dims(self) -> frozenset[int]:
        """Return the positions of the UNCONSTRAINED entries."""
        return frozenset(d for d, e in enumerate(self._entries) if e is UNCONSTRAINED)


def _make_spec(
    entries: tuple[Any, ...],
    unreduced: frozenset[Any],
    reduced: frozenset[Any],
    kind: UnreducedKind | None,
) -> PartitionSpec:
    return PartitionSpec(*entries, unreduced=unreduced, reduced=reduced, unreduced_kind=kind)


def _axis_set(name: str, axes: Any) -> frozenset[Any]:
    """Return axis names as a frozenset. Raise TypeError for another type, ValueError for None among the names."""
    if not issubclass(class_of(axes), (set, frozenset)):
        raise TypeError(
            f"PartitionSpec: {name} must be a set of axis names, got {axes!r} of type {type(axes)}."
        )
    if None in axes:
        raise ValueError(
            f"PartitionSpec: {name} cannot contain None: its elements are names of mesh axes."
        )
    return frozenset(axes)


P = PartitionSpec


def entry_axes(entry: Any) -> DimSpec:
    """Return the axis names of one entry of a PartitionSpec, major to minor."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if is_tuple(entry) else (entry,)


def _canonical_entry(entry: Any) -> Any:
    if is_tuple_or_list(entry):
        return None if not entry else entry[0] if len(entry) == 1 else tuple(entry)
    return entry


def _without_trailing_nones(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return entries


def spec_of_dims(dims: Spec) -> PartitionSpec:
    """Return the PartitionSpec of a tuple of axis names per dim.

    >>> spec_of_dims((('x',), (), ('y', 'z')))
    P('x', None, ('y', 'z'))
    """
    return PartitionSpec(*(None if not d else d[0] if len(d) == 1 else d for d in dims))


def _suggest_axis(axis: Any, known: tuple[Any, ...]) -> str:
    import difflib

    names = [str(name) for name in known]
    close = difflib.get_close_matches(str(axis), names, 1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Use {' or '.join(map(repr, names))}." if names else "This mesh has no axes."


def check_spec(mesh: Any, spec: Any) -> None:
    """Raise TypeError if an argument of NamedSharding is not a mesh or a spec.

    Raise ShardingError if the spec does not fit the mesh, and ValueError for unreduced axes of type Auto.
    """
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"NamedSharding takes a Mesh first, got {type(mesh).__name__}")
    if spec is None:
        raise TypeError(
            "NamedSharding: Unexpected None for `spec`. Write P() for a replicated value."
        )
    if not isinstance(spec, PartitionSpec):
        raise TypeError(
            f"NamedSharding takes a PartitionSpec second, got {spec!r}. Write PartitionSpec(...)."
        )
    known = mesh.axis_names
    automatic = (
        spec.unreduced & frozenset(mesh.axes_of_type(AxisType.Auto)) if spec.unreduced else ()
    )
    if automatic:
        raise ValueError(
            f"NamedSharding: Unreduced axes can only refer to mesh axes of type Explicit: {sorted(map(str, automatic))} of "
            f"{spec!r} are of type Auto in {mesh}.\n  Types must record unreduced values, and they contain explicit axes only."
        )
    if PartitionSpec.UNCONSTRAINED in spec.partitions and not any(
        kind is AxisType.Auto for kind in mesh.axis_types
    ):
        raise ShardingError(
            f"NamedSharding: {spec!r} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`, and none of "
            f"{mesh} is.\n  Propagation chooses the axes of an unconstrained dim among axes of type Auto. Write None."
        )
    seen: set[Any] = set()
    for axis in (*spec.axes, *spec.unreduced, *spec.reduced):
        if axis not in known:
            kind = "Unreduced axes" if axis in spec.unreduced else "Resource axis"
            raise ShardingError(
                f"NamedSharding: {kind}: {axis} of {spec!r} is not found in mesh: {known}.\n"
                f"  All axes of a spec must be axes of its mesh. {_suggest_axis(axis, known)}"
            )
        if axis in seen:
            raise ShardingError(
                f"NamedSharding: {spec!r} has duplicate entries for {axis!r}.\n"
                "  A mesh axis can split at most one dim. Use it once."
            )
        seen.add(axis)


@lru_cache(maxsize=4096)
def grid_of_dims(
    dims: Spec, axis_names: tuple[Any, ...], axis_sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return `splits` and `shard_ids` (by row-major device number) of a `Layout` for dims split by mesh axes.

    >>> grid_of_dims((('y',), ('x',)), ('x', 'y'), (2, 2))
    ((2, 2), (0, 2, 1, 3))
    """
    sizes = dict(zip(axis_names, axis_sizes))
    splits = tuple(math.prod(sizes[a] for a in axes) for axes in dims)
    numbers = np.zeros(axis_sizes, int)
    for axis in itertools.chain.from_iterable(dims):
        i, size = axis_names.index(axis), sizes[axis]
        numbers = numbers * size + np.arange(size).reshape(
            [size if k == i else 1 for k in range(len(axis_sizes))]
        )
    return splits, tuple(numbers.ravel().tolist())
