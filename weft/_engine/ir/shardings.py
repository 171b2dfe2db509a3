"""Shardings: the placement of the shards of a global array on devices.

For a given rank, every sharding has a `ShardLayout`: the ordered devices, the number of blocks along each dim, and the number of the shard
that each device holds. Two shardings with the same layout are equivalent. Laws: shards are blocks of equal shape. Shards are numbered
in row-major order. A replicated shard is a shard that several devices hold.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh
from weft._engine.ir.specs import PartitionSpec, Spec, check_spec, entry_axes, grid_of_dims
from weft._engine.util.errors import ShardingError
from weft._engine.util.messages.notebook import NotebookDisplay
from weft._engine.util.record import record
from weft._engine.util.source import clean_method_error, user_frame

Index = tuple[slice, ...]
Shape = tuple[int, ...]

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class MemorySpace(enum.Enum):
    """The memory that stores an array: the memory of its devices or of their host. It is a part of the sharding; CPUs read both.

    >>> from weft.sharding import MemorySpace
    >>> weft.device_put(wnp.ones(3), MemorySpace.Host).sharding.memory_kind
    'pinned_host'
    """

    __module__ = "weft.sharding"

    Device = "device"
    Host = "pinned_host"
    Any = "any"

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

    __str__ = __repr__


@record
class ShardLayout:
    """The canonical form of a sharding for values of one rank.

    There are `splits[d]` blocks along dim d. Device `devices[i]` holds the block with the row-major number `shard_ids[i]`.
    """

    devices: tuple[Any, ...]
    splits: Shape
    shard_ids: tuple[int, ...]

    @property
    def num_shards(self) -> int:
        """Number of distinct shards."""
        return math.prod(self.splits)

    @property
    def positions(self) -> tuple[Shape, ...]:
        """Grid position of the shard of each device, in device order."""
        return _positions(self.splits, self.shard_ids)


@lru_cache(maxsize=4096)
def _positions(splits: Shape, shard_ids: tuple[int, ...]) -> tuple[Shape, ...]:
    grid = list(itertools.product(*map(range, splits)))
    return tuple([grid[i] for i in shard_ids])


class Sharding(NotebookDisplay):
    """The placement of the shards of an array on devices. Subclasses define `device_assignment` and `grid`."""

    __module__ = "weft.sharding"

    __slots__ = ("_memory_kind",)

    _memory_kind: str | None

    @property
    def device_assignment(self) -> tuple[Any, ...]:
        """All devices, in the order of a program's device numbers."""
        raise NotImplementedError(f"{type(self).__name__}.device_assignment")

    @property
    def memory_kind(self) -> str | None:
        """The memory kind of values; None for an abstract mesh without an explicit memory kind."""
        return self._memory_kind

    def with_memory_kind(self, kind: str) -> Sharding:
        """Return the same placement in memory of another kind."""
        raise NotImplementedError(f"{type(self).__name__}.with_memory_kind")

    def grid(self, ndim: int) -> tuple[Shape, tuple[int, ...]]:
        """Return `splits` and `shard_ids` of the layout for values of rank `ndim`. Raise ShardingError if the rank does not fit."""
        raise NotImplementedError(f"{type(self).__name__}._grid")

    @property
    def device_set(self) -> set[Any]:
        """The devices, as a set."""
        return set(self.device_assignment)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.device_assignment)

    @property
    def unreduced(self) -> frozenset[Any]:
        """The mesh axes along which each device holds a term of the value."""
        return frozenset()

    @property
    def without_partial_axes(self) -> Sharding:
        """The sharding without unreduced and reduced axes."""
        return self

    @property
    def storage_sharding(self) -> Sharding:
        """The sharding of the stored array, which has an extra first dim of terms for a value with unreduced axes."""
        return self

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are devices of this process."""
        return all(d.is_addressable for d in self.device_assignment)

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        """`device_assignment`, under the name that libraries use."""
        return self.device_assignment

    @property
    def _addressable_device_assignment(self) -> tuple[Any, ...]:
        """The devices of this process, in order; libraries use this name."""
        return tuple(d for d in self.device_assignment if d.is_addressable)

    @property
    def addressable_devices(self) -> set[Any]:
        """The devices of this process."""
        return {d for d in self.device_assignment if d.is_addressable}

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        raise NotImplementedError(f"{type(self).__name__}.is_fully_replicated")

    def splits(self, shape: int | Sequence[int]) -> Shape:
        """Return the number of blocks along each dim of a value of the given shape or rank."""
        return layout_of(self, shape if isinstance(shape, int) else len(shape)).splits

    def shard_of_device(self, ndim: int) -> tuple[Shape, ...]:
        """Return the grid position of each device's shard, in the order of `device_assignment`."""
        return layout_of(self, ndim).positions

    def check_shape(self, shape: Sequence[int], what: str = "the value") -> None:
        """Raise ShardingError unless every dim of `shape` is divisible by its number of blocks."""
        shape = tuple(shape)
        try:
            splits = self.splits(shape)
        except ShardingError as error:
            raise ShardingError(f"cannot split {what} of shape {list(shape)}: {error}") from None
        bad = [d for d, (size, n) in enumerate(zip(shape, splits)) if size % n]
        if bad:
            raise ShardingError(_divisibility_message(self, shape, splits, bad, what))

    def check_value(self, shape: Sequence[int], what: str) -> None:
        """Call `check_shape`, and also raise ShardingError if a spec has more entries than `shape` has dims."""
        try:
            self.check_compatible_aval(shape)
        except ShardingError as error:
            raise ShardingError(f"cannot split {what} of shape {list(shape)}: {error}") from None
        self.check_shape(shape, what)

    def shard_shape(self, global_shape: Sequence[int]) -> Shape:
        """Return the shape of one shard of a value of shape `global_shape`."""
        shape = tuple(int(s) for s in global_shape)
        self.check_shape(shape)
        return tuple(s // n for s, n in zip(shape, self.splits(shape)))

    def devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Any, Index]:
        """Return for every device the slices of the global array that it holds."""
        shape = tuple(int(s) for s in global_shape)
        local = self.shard_shape(shape)
        layout = layout_of(self, len(shape))
        return {
            device: block_index(position, local, layout.splits)
            for device, position in zip(layout.devices, layout.positions)
        }

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> Mapping[Any, Index]:
        """Return `devices_indices_map` for the devices of this process."""
        indices = self.devices_indices_map(global_shape)
        return {d: index for d, index in indices.items() if d.is_addressable}

    def on_devices(self, devices: Sequence[Any]) -> Sharding:
        """Return the same sharding on other devices, which replace the devices of this sharding in order."""
        raise NotImplementedError(f"{type(self).__name__}.on_devices")

    def with_free_dim(self, dim: int) -> Sharding:
        """Return the sharding of values with an additional, unconstrained dim at position `dim`."""
        raise NotImplementedError(f"{type(self).__name__}.with_free_dim")

    def transpose_dims(self, order: Sequence[int]) -> Sharding:
        """Return the sharding of transposed values: dim i of the result is dim `order[i]` of this sharding."""
        raise NotImplementedError(f"{type(self).__name__}.transpose_dims")

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Return whether both place values of rank `ndim` the same way: same devices in order, same shards, same memory kind."""
        if self is other:
            return True
        terms = bool(self.unreduced)
        if terms or other.unreduced:
            return terms == bool(other.unreduced) and self.storage_sharding.is_equivalent_to(
                other.storage_sharding, ndim + 1
            )
        if isinstance(getattr(self, "mesh", None), AbstractMesh) or isinstance(
            getattr(other, "mesh", None), AbstractMesh
        ):
            return self._is_like(other, ndim)
        return self.memory_kind == other.memory_kind and layout_of(self, ndim) == layout_of(
            other, ndim
        )

    def _is_like(self, other: Sharding, ndim: int) -> bool:
        """Return whether this and another sharding, one of them over an abstract mesh, shard values of rank `ndim` the same way."""
        same_mesh = getattr(self, "mesh", None) is getattr(other, "mesh", None)
        same_memory = self.memory_kind == other.memory_kind
        return same_mesh and same_memory and self.grid(ndim) == other.grid(ndim)

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise ShardingError if the sharding does not fit values of this rank."""
        self.grid(len(aval_shape))


def block_index(position: Shape, local: Shape, splits: Shape) -> Index:
    """Return the slices of the block at a grid `position`, for dims divided into `splits` blocks of shape `local`.

    >>> block_index((2, 0), (4, 5), (8, 1))
    (slice(8, 12, None), slice(None, None, None))
    """
    return tuple(
        [
            slice(None) if n == 1 else slice(p * s, (p + 1) * s)
            for p, s, n in zip(position, local, splits)
        ]
    )


@lru_cache(maxsize=4096)
def layout_of(sharding: Sharding, ndim: int) -> ShardLayout:
    """Return the layout of values of rank `ndim` with `sharding`.

    >>> layout_of(SingleDeviceSharding(weft.devices()[0]), 2).splits
    (1, 1)
    """
    splits, shard_ids = sharding.grid(ndim)
    return ShardLayout(sharding.device_assignment, splits, shard_ids)


def _divisibility_message(
    sharding: Sharding, shape: Shape, splits: Shape, bad: Sequence[int], what: str
) -> str:
    lines = [
        f"cannot split {what} of shape {list(shape)} by {sharding!r}. The blocks should evenly divide the shape."
    ]
    advice: list[str] = []
    for d in bad:
        by = f"the sharding splits it {splits[d]} ways"
        if isinstance(sharding, NamedSharding):
            by = sharding.split_reason(d)
        lines.append(
            f"    dim {d} has size {shape[d]}, {by}; {shape[d]} is not divisible by {splits[d]}"
        )
        advice.append(f"pad dim {d} to {-(-shape[d] // splits[d]) * splits[d]}")
    line = user_frame()
    if line is not None:
        lines.append(f"  at {line}")
    lines.append(
        f"  The size of a dim must be divisible by its number of blocks. {' and '.join(advice).capitalize()}, leave "
        "it unsplit, or use fewer devices along it."
    )
    return "\n".join(lines)


def _check_memory_kind(kind: str | None) -> str:
    if kind is None:
        return MEMORY_KINDS[0]
    if kind not in MEMORY_KINDS:
        raise ShardingError(
            f"Got invalid memory kind {kind!r}. Could not find memory addressable by device of that kind: Device memories "
            f"can address the following memory kinds: {', '.join(MEMORY_KINDS)}.\n"
            f"  Memory kinds are {', '.join(map(repr, MEMORY_KINDS))}."
        )
    return kind


class NamedSharding(Sharding):
    """A sharding over a mesh. A PartitionSpec assigns mesh axes to dims.

    Raise TypeError if an argument is not a mesh or a spec. Raise ShardingError for axes that the mesh does not have or that occur twice.
    Along unreduced axes of the spec each device holds a term of the value; `storage_sharding` is the sharding of the array of terms.

    >>> mesh = Mesh(np.array(weft.devices()[:4]).reshape(2, 2), ('x', 'y'))
    >>> rows = NamedSharding(mesh, PartitionSpec('x'))
    >>> rows.spec, rows.mesh is mesh, rows.memory_kind, len(rows.device_set)
    (P('x',), True, 'device', 4)
    >>> rows.shard_shape((8, 6)), rows.devices_indices_map((4,))[weft.devices()[0]]
    ((4, 6), (slice(0, 2, None),))
    >>> rows.is_equivalent_to(rows.update(('x', None)), 2), rows == rows.update(('x', None)), rows.with_memory_kind('device') == rows
    (True, False, True)
    """

    __module__ = "weft.sharding"

    __slots__ = ("_hash", "mesh", "spec")

    mesh: Any
    spec: PartitionSpec

    def __init__(self, mesh: Any, spec: Any, *, memory_kind: str | None = None):
        try:
            check_spec(mesh, spec)
        except Exception as error:
            clean_method_error(error)
            raise
        self.mesh, self.spec = mesh, spec
        self._memory_kind = (
            None
            if memory_kind is None and isinstance(mesh, AbstractMesh)
            else _check_memory_kind(memory_kind)
        )
        self._hash = hash((mesh, spec, self._memory_kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_named, (self.mesh, self.spec, self._memory_kind)

    @property
    def unreduced(self) -> frozenset[Any]:
        """The mesh axes along which each device holds a term of the value."""
        return self.spec.unreduced

    @property
    def device_assignment(self) -> tuple[Any, ...]:
        """The devices in the order of the mesh. ShardingError for an abstract mesh."""
        if isinstance(self.mesh, AbstractMesh):
            raise ShardingError(
                f"{self!r} has no devices: its mesh is abstract.\n  Use a Mesh of devices here."
            )
        return self.mesh.flat_devices

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are devices of this process."""
        return (
            self.mesh.is_addressable
            if isinstance(self.mesh, Mesh)
            else super().is_fully_addressable
        )

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Return whether both place values of rank `ndim` the same way: same devices in order, same shards, same memory kind."""
        if not isinstance(other, NamedSharding) or other.mesh is not self.mesh:
            return super().is_equivalent_to(other, ndim)
        if self is other or self.unreduced or other.unreduced:
            return super().is_equivalent_to(other, ndim)
        same_axes = self._splitting_axes(ndim) == other._splitting_axes(ndim)
        return same_axes and self._memory_kind == other._memory_kind

    def _splitting_axes(self, ndim: int) -> list[list[Any]]:
        """Return the mesh axes of each dim for values of rank `ndim`, without axes of size 1."""
        sizes = self.mesh.shape
        return [[a for a in axes if sizes[a] > 1] for axes in self.spec_dims(ndim)]

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """Return the same sharding with another memory kind."""
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def on_devices(self, devices: Sequence[Any]) -> NamedSharding:
        """Return the same sharding on other devices, which replace the devices of this sharding in order."""
        grid = np.array(devices, object).reshape(self.mesh.axis_sizes)
        return NamedSharding(
            Mesh(grid, self.mesh.axis_names, axis_types=self.mesh.axis_types),
            self.spec,
            memory_kind=self._memory_kind,
        )

    def with_spec(self, spec: Any) -> NamedSharding:
        """Return the sharding over the same mesh with another spec."""
        return NamedSharding(
            self.mesh,
            spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec),
            memory_kind=self._memory_kind,
        )

    update = with_spec

    def without_dim(self, dim: int) -> NamedSharding:
        """Return the sharding of one entry along `dim` of values with this sharding."""
        entries = self.spec.partitions
        return self.with_spec(self.spec.update((*entries[:dim], *entries[dim + 1 :])))

    def with_dim(self, dim: int, axes: Sequence[Any]) -> NamedSharding:
        """Return the sharding of such values stacked along a new dim `dim`, which is sharded over the unused axes among `axes`."""
        entries = list(self.spec.partitions) + [None] * (dim - len(self.spec))
        unused = tuple(
            a for a in axes if a not in (*self.spec.axes, *self.spec.unreduced, *self.spec.reduced)
        )
        return self.with_spec(self.spec.update((*entries[:dim], unused or None, *entries[dim:])))

    def with_free_dim(self, dim: int) -> NamedSharding:
        """Return the sharding with an additional dim at `dim`: unconstrained, or not sharded if the mesh has no Auto axis."""
        entries = list(self.spec.partitions) + [None] * (dim - len(self.spec))
        free = PartitionSpec.UNCONSTRAINED if AxisType.Auto in self.mesh.axis_types else None
        return self.with_spec(self.spec.update((*entries[:dim], free, *entries[dim:])))

    def transpose_dims(self, order: Sequence[int]) -> NamedSharding:
        """Return the sharding of transposed values: dim i of the result is dim `order[i]` of this sharding.

        >>> NamedSharding(Mesh(np.array(weft.devices()[:2]), ('x',)), PartitionSpec('x')).transpose_dims((1, 0)).spec
        P(None, 'x')
        """
        entries = [*self.spec.partitions, *[None] * (len(order) - len(self.spec.partitions))]
        return self.with_spec(self.spec.update([entries[d] for d in order]))

    @property
    def without_partial_axes(self) -> NamedSharding:
        """The sharding without unreduced and reduced axes."""
        return self.with_spec(self.spec.without_partial_axes()) if self.spec.is_partial else self

    @property
    def storage_sharding(self) -> NamedSharding:
        """The sharding of the stored array. If there are unreduced axes, it has an extra first dim of terms, sharded over these axes.

        >>> mesh = Mesh(np.array(weft.devices()[:2]), ('x',), axis_types=(AxisType.Explicit,))
        >>> NamedSharding(mesh, PartitionSpec(None, unreduced={'x'})).storage_sharding.spec
        P('x', None)
        """
        if not self.spec.is_partial:
            return self
        terms = self.term_axes
        return self.with_spec((terms, *self.spec.partitions) if terms else self.spec.partitions)

    @property
    def term_axes(self) -> tuple[Any, ...]:
        """The unreduced axes, in the order of the mesh."""
        return tuple(a for a in self.mesh.axis_names if a in self.spec.unreduced)

    @property
    def num_terms(self) -> int:
        """The number of terms of a value: the product of the sizes of the unreduced axes."""
        return math.prod(self.mesh.shape[a] for a in self.spec.unreduced)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole value."""
        sizes = self.mesh.shape
        return not self.spec.unreduced and all(sizes[a] == 1 for a in self.spec.axes)

    def grid(self, ndim: int) -> tuple[Shape, tuple[int, ...]]:
        dims = self.spec_dims(ndim)
        return grid_of_dims(dims, self.mesh.axis_names, self.mesh.axis_sizes)

    def spec_dims(self, ndim: int) -> Spec:
        """Return a tuple of axis names per dim for values of rank `ndim`."""
        try:
            return self.spec.dims(ndim)
        except ShardingError:
            raise self._too_long(ndim) from None

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise ShardingError if the spec has more entries than dims, even if the extra entries are None."""
        if len(self.spec) > len(aval_shape):
            raise self._too_long(len(aval_shape))

    def _too_long(self, ndim: int) -> ShardingError:
        remedy = (
            f"Keep at most {ndim} of these {len(self.spec)} entries."
            if ndim
            else "For scalars the PartitionSpec should be P()."
        )
        return ShardingError(
            f"Sharding {self!r} is only valid for values of rank at least {len(self.spec)}, but was applied to a value of rank {ndim}.\n"
            f"  A spec has at most one entry per dim. {remedy}"
        )

    def splits(self, shape: int | Sequence[int]) -> Shape:
        """Return the number of blocks along each dim."""
        sizes = self.mesh.shape
        return tuple(
            math.prod(sizes[a] for a in axes)
            for axes in self.spec_dims(shape if isinstance(shape, int) else len(shape))
        )

    def split_reason(self, dim: int) -> str:
        """Return the axes that split dim `dim` and their sizes, for error messages."""
        sizes = self.mesh.shape
        axes = entry_axes(self.spec.partitions[dim])
        total = math.prod(sizes[a] for a in axes)
        sizes_text = " and ".join(f"{a!r} of size {sizes[a]}" for a in axes)
        return f"mesh {'axis' if len(axes) == 1 else 'axes'} {sizes_text} split it {total} ways"

    def format_dims(self, shape: Sequence[int]) -> str:
        """Return the dims of a type with their axes, as in `8@x,16`."""
        return ",".join(
            f"{size}@{_axes_text(axes)}" if axes else str(size)
            for size, axes in zip(shape, self.spec_dims(len(shape)))
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, NamedSharding)
            and self.mesh is other.mesh
            and self.spec is other.spec
            and self._memory_kind == other._memory_kind
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return (
            f"NamedSharding(mesh={self.mesh}, spec={self.spec!r}, memory_kind={self._memory_kind})"
        )


def _make_named(mesh: Any, spec: Any, memory_kind: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def _axes_text(axes: Sequence[Any]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({','.join(map(str, axes))})"


class SingleDeviceSharding(Sharding):
    """A sharding with the whole array on one device.

    >>> SingleDeviceSharding(weft.devices()[0]).is_fully_replicated
    True
    """

    __module__ = "weft.sharding"

    __slots__ = ("device",)

    def __init__(self, device: Any, *, memory_kind: str | None = None):
        self.device = device
        self._memory_kind = _check_memory_kind(memory_kind)

    @property
    def device_assignment(self) -> tuple[Any, ...]:
        return (self.device,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def on_devices(self, devices: Sequence[Any]) -> SingleDeviceSharding:
        """Return the same sharding on another device."""
        return SingleDeviceSharding(devices[0], memory_kind=self._memory_kind)

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """Return the same sharding with another memory kind."""
        return SingleDeviceSharding(self.device, memory_kind=kind)

    def with_free_dim(self, dim: int) -> SingleDeviceSharding:
        """Return the sharding of values with an additional dim: this sharding."""
        return self

    def transpose_dims(self, order: Sequence[int]) -> SingleDeviceSharding:
        """Return the sharding of transposed values: this sharding."""
        return self

    def splits(self, shape: int | Sequence[int]) -> Shape:
        return (1,) * (shape if isinstance(shape, int) else len(shape))

    def grid(self, ndim: int) -> tuple[Shape, tuple[int, ...]]:
        return (1,) * ndim, (0,)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SingleDeviceSharding)
            and self.device is other.device
            and self._memory_kind == other._memory_kind
        )

    def __hash__(self) -> int:
        return hash((SingleDeviceSharding, self.device, self._memory_kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_single, (self.device, self._memory_kind)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self._memory_kind})"


def make_single_device_sharding(
    device: Any, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """Return the sharding of a whole array on one device. Raises ShardingError for an unknown `memory_kind`.

    >>> make_single_device_sharding(weft.devices()[0]).is_fully_replicated
    True
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def _make_single(device: Any, memory_kind: str) -> SingleDeviceSharding:
    return SingleDeviceSharding(device, memory_kind=memory_kind)


class _DeviceSet:
    """An element of a printed PositionalSharding: `{CPU 0, 1}`."""

    __slots__ = ("text",)

    def __init__(self, devices: Iterable[Any]):
        devices = sorted(devices, key=lambda d: d.id)
        self.text = f"{{{devices[0].platform.upper()} {', '.join(str(d.id) for d in devices)}}}"

    def __repr__(self) -> str:
        return self.text


class PositionalSharding(Sharding):
    """A sharding given by an array of device sets: the devices in element (i, j) hold block (i, j). Immutable.

    `reshape` and `transpose` rearrange the elements, `replicate` merges the sets along a dim. These methods do not change the order of
    devices. Leading dims of size 1 are removed for values of lower rank.

    >>> PositionalSharding(weft.devices()[:4]).reshape(2, 2).replicate(0)
    PositionalSharding([[{CPU 0, 2} {CPU 1, 3}]])
    """

    __module__ = "weft.sharding"

    __slots__ = ("_devices", "_hash", "_ids")

    def __init__(self, devices: Any, *, memory_kind: str | None = None):
        grid = np.asarray(devices, dtype=object)
        if not grid.size:
            raise ShardingError(
                "PositionalSharding: the array of devices is empty.\n  Pass at least one device."
            )
        flat = tuple(grid.flat)
        if len(set(flat)) != len(flat):
            raise ShardingError(
                "PositionalSharding: a device appears more than once.\n"
                f"    devices   {[d.id for d in flat]}\n  Pass every device once; `replicate` replicates values."
            )
        ids = np.empty(grid.shape, object)
        for number, where in enumerate(np.ndindex(grid.shape)):
            ids[where] = frozenset((number,))
        self.initialize(flat, ids, _check_memory_kind(memory_kind))

    def initialize(
        self, devices: tuple[Any, ...], ids: np.ndarray, memory_kind: str | None
    ) -> PositionalSharding:
        self._devices, self._ids, self._memory_kind = devices, ids, memory_kind
        self._hash = hash((devices, ids.shape, tuple(ids.flat), memory_kind))
        return self

    def on_devices(self, devices: Sequence[Any]) -> PositionalSharding:
        """Return the same sharding on other devices, which replace the devices of this sharding in order."""
        return object.__new__(type(self)).initialize(tuple(devices), self._ids, self._memory_kind)

    def with_sets(self, ids: np.ndarray) -> PositionalSharding:
        """Return the sharding of the same devices with other sets: an array of frozensets of device positions."""
        return object.__new__(type(self)).initialize(self._devices, ids, self._memory_kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_positional, (self._devices, self._ids, self._memory_kind)

    shape = property(lambda self: self._ids.shape)
    ndim = property(lambda self: self._ids.ndim)
    size = property(lambda self: self._ids.size)
    T = property(lambda self: self.transpose(), doc="The dims reversed.")

    def reshape(self, *shape: Any) -> PositionalSharding:
        """Return the sharding with the same sets, in row-major order, in an array of another shape. One size may be -1."""
        return self.with_sets(self._ids.reshape(*shape))

    def transpose(self, *axes: Any) -> PositionalSharding:
        """Return the sharding with permuted dims (reversed by default)."""
        return self.with_sets(self._ids.transpose(*axes))

    def replicate(
        self, axis: int | Sequence[int] | None = None, keepdims: bool = True
    ) -> PositionalSharding:
        """Return the sharding with the sets along `axis` (all dims by default) merged, so that their devices hold the same shard."""
        if isinstance(axis, int):
            axis = (axis,)
        dims, utils = range(self.ndim), getattr(np.lib, "array_utils", None)  # NumPy 2 has them
        axes = {
            dims[a] if utils is None else utils.normalize_axis_index(a, self.ndim)
            for a in (dims if axis is None else axis)
        }
        merged_shape = tuple(1 if d in axes else s for d, s in enumerate(self.shape))
        ids = np.empty(merged_shape, object)
        for where in np.ndindex(merged_shape):
            ids[where] = frozenset()
        for where, group in np.ndenumerate(self._ids):
            target = tuple(0 if d in axes else p for d, p in enumerate(where))
            ids[target] = ids[target] | group
        if not keepdims:
            ids = ids.reshape(tuple(s for d, s in enumerate(merged_shape) if d not in axes))
        return self.with_sets(ids)

    def with_free_dim(self, dim: int) -> PositionalSharding:
        """Return the sharding of values with an additional dim at position `dim`, which is not sharded."""
        return self.with_sets(np.expand_dims(self._ids, dim))

    def transpose_dims(self, order: Sequence[int]) -> PositionalSharding:
        """Return the sharding of transposed values: dim i of the result is dim `order[i]` of this sharding."""
        return self.with_sets(self._ids.reshape(self.splits(len(order))).transpose(*order))

    @property
    def device_assignment(self) -> tuple[Any, ...]:
        return self._devices

    @property
    def is_fully_replicated(self) -> bool:
        return self.size == 1

    def with_memory_kind(self, kind: str) -> PositionalSharding:
        """Return the same sharding with another memory kind."""
        return object.__new__(type(self)).initialize(
            self._devices, self._ids, _check_memory_kind(kind)
        )

    def grid(self, ndim: int) -> tuple[Shape, tuple[int, ...]]:
        extra = self.ndim - ndim
        if extra > 0 and math.prod(self.shape[:extra]) == 1:
            splits = self.shape[extra:]
        elif extra == 0:
            splits = self.shape
        elif self.size == 1:
            splits = (1,) * ndim
        else:
            raise ShardingError(
                f"{self!r} is only valid for values of rank {self.ndim}, but was applied to a value of rank {ndim}.\n"
                f"    sharding  shape {self.shape}\n  A PositionalSharding must be congruent with the value: one dim of the sharding per dim "
                f"of the value. Use sharding.reshape(...) with {ndim} sizes, or sharding.replicate()."
            )
        shard_ids = [0] * len(self._devices)
        for number, group in enumerate(self._ids.flat):
            for device in group:
                shard_ids[device] = number
        return tuple(splits), tuple(shard_ids)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, PositionalSharding)
            and self._hash == other._hash
            and self._devices == other._devices
            and self.shape == other.shape
            and self._memory_kind == other._memory_kind
            and all(a == b for a, b in zip(self._ids.flat, other._ids.flat))
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        sets = np.empty(self.shape, object)
        for where, group in np.ndenumerate(self._ids):
            sets[where] = _DeviceSet(self._devices[i] for i in group)
        name = type(self).__name__
        body = np.array2string(
            sets, prefix=f"{name}(", suffix=")", max_line_width=100, threshold=sets.size + 1
        )
        return f"{name}({body})"


def _make_positional(
    devices: tuple[Any, ...], ids: np.ndarray, memory_kind: str
) -> PositionalSharding:
    return object.__new__(PositionalSharding).initialize(devices, ids, memory_kind)
