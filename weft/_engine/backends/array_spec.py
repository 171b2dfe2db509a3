"""Array specs: the type of an array, its sharding, and the shapes that follow from both.

In:   a type, a sharding, whether the array was placed explicitly, and its dim order in memory.
Out:  `ArraySpec`, interned: equal array specs are one object, so that dispatch compares one pointer per argument.
Laws: all devices of a sharding belong to one backend, which stores the values. A process stores the blocks of its own devices. Memory is
      row-major: an array with another dim order is stored as the transposed array.
Next: `runtime.array` defines arrays, `backends.base` stores their values, `process_blocks` lists the blocks of each process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.backends.process_blocks import Numbers, blocks_by_process
from weft._engine.ir import mesh
from weft._engine.ir.explicit import type_sharding
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.specs import UnreducedKind
from weft._engine.ir.types import ShapedArray
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.dtype_table import KeyDType

_specs: dict[tuple, ArraySpec] = {}
_MAX_NDIM = 32  # NumPy supports 64, and memory has two dims for every dim of an array: the shard, and the index in it


class ArraySpec:
    """The type, sharding, committed flag and dim order of an array.

    `splits` and `local_shape` describe the stored array, which for random keys has more dims than the array, and for arrays with unreduced
    axes a leading dim of terms (`has_terms`); with an `order` (slowest dim first; None for row-major) the transposed array is stored.
    `stored` is the spec of the stored array if it differs by terms or order, else this spec; `backend` is the backend of the devices (None
    for an abstract mesh). A process stores the distinct shards of its own devices: `held` has their block numbers along each dim, or None
    if these are all shards; `by_process` has the block numbers of every process, or None if this process drives all devices.
    """

    __slots__ = (
        "aval",
        "sharding",
        "committed",
        "order",
        "backend",
        "splits",
        "storage_shape",
        "storage_dtype",
        "nbytes",
        "local_shape",
        "global_shape",
        "stored",
        "has_terms",
        "is_row_major",
        "read_scalar",
        "held",
        "by_process",
        "storage_bytes",
        "__weakref__",
    )

    order: tuple[int, ...] | None
    backend: Any
    stored: ArraySpec
    # reads a scalar from its buffer; None if the backend has no fast path
    read_scalar: Callable[[Any], bool | int | float] | None
    held: Numbers | None
    by_process: tuple[tuple[int, Numbers], ...] | None

    def __new__(
        cls,
        aval: ShapedArray,
        sharding: Sharding,
        committed: bool,
        order: tuple[int, ...] | None = None,
    ):
        key = (aval, sharding, committed) if order is None else (aval, sharding, committed, order)
        if config.remove_size_one_mesh_axis_from_type:  # types then omit mesh axes of size one
            key += (None,)
        spec = _specs.get(key)
        if spec is not None:
            return spec
        return _specs.setdefault(key, cls._make(aval, sharding, committed, order))

    @classmethod
    def _make(
        cls, aval: ShapedArray, sharding: Sharding, committed: bool, order: tuple[int, ...] | None
    ) -> ArraySpec:
        if order == tuple(range(aval.ndim)):
            return ArraySpec(aval, sharding, committed)
        explicit = type_sharding(sharding, aval.ndim)
        if explicit is not None or aval.explicit is not None:
            typed = aval.update(sharding=explicit)
            if typed is not aval:  # an explicit sharding is part of the type
                return ArraySpec(typed, sharding, committed, order)
        if aval.ndim > _MAX_NDIM:
            raise NotImplementedError(
                f"arrays have at most {_MAX_NDIM} dims, got {aval.ndim} in the shape of {aval.str_short()}"
            )
        self = object.__new__(cls)
        self.aval, self.sharding, self.committed, self.order = aval, sharding, committed, order
        self.has_terms = bool(sharding.unreduced)
        self.backend = _backend_of(aval, sharding)
        if self.has_terms or order is not None:
            return self._use_storage_of(_as_stored_array(self))
        self.stored = self
        self._lay_out()
        return self

    def _lay_out(self) -> None:
        """Compute the shapes of the stored array, global and in this process."""
        aval, sharding, backend = self.aval, self.sharding, self.backend
        shape, dtype = storage_type(aval)
        splits = tuple(sharding.splits(aval.shape))
        if any(s and n % s for n, s in zip(aval.shape, splits)):
            sharding.check_shape(aval.shape)
        splits += (1,) * (len(shape) - len(splits))
        self.splits = splits
        self.local_shape = tuple(n // s for n, s in zip(shape, splits))
        self.storage_dtype = dtype
        self.global_shape = shape  # of the memory of the whole array
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.by_process = self.held = None
        if backend is not None and not sharding.is_fully_addressable:
            self.by_process = blocks_by_process(sharding, aval.ndim)
            self.held = _numbers_on_process(self.by_process, backend.process_index(), splits)
        grid = splits if self.held is None else tuple(map(len, self.held))
        self.storage_shape = grid + self.local_shape
        size = math.prod(self.storage_shape) if self.held != () else 0
        self.storage_bytes = size * dtype.itemsize
        # whether the shards, in order, form the row-major array: dims before a split one have size 1 in a shard
        self.is_row_major = self.held is None and all(
            n == 1 for d, s in enumerate(splits) if s > 1 for n in self.local_shape[:d]
        )
        is_local_scalar = not shape and backend is not None and self.held is None
        self.read_scalar = backend.scalar_reader(dtype) if is_local_scalar else None

    def on_device(self, device: Any) -> ArraySpec:
        """Return the array spec of the same single-device array on another device of the backend."""
        sharding = self.sharding.on_devices([device])
        key = (self.aval, sharding, self.committed)
        if self.order is not None or config.remove_size_one_mesh_axis_from_type or key in _specs:
            return ArraySpec(*key, self.order)
        spec = object.__new__(ArraySpec)
        for name in _COPIED:
            setattr(spec, name, getattr(self, name))
        spec.sharding, spec.stored = sharding, spec
        return _specs.setdefault(key, spec)

    @property
    def row_major(self) -> ArraySpec:
        """The array spec of the row-major array in the same memory: the transposed array if this one has an order."""
        return self if self.order is None else self.stored

    def with_order(self, order: tuple[int, ...] | None) -> ArraySpec:
        """Return the array spec of the array with dims stored in `order` in the memory of this row-major array."""
        if order is None:
            return self
        back = inverse(order)
        sharding = self.sharding.transpose_dims(back)
        return ArraySpec(_transposed_type(self.aval, back), sharding, self.committed, order)

    def _use_storage_of(self, stored: ArraySpec) -> ArraySpec:
        """Use the storage of `stored`, the array spec of the terms of the array or of the transposed array; return self."""
        self.stored = stored
        for name in (
            "splits",
            "local_shape",
            "storage_dtype",
            "global_shape",
            "by_process",
            "held",
            "storage_shape",
            "storage_bytes",
            "is_row_major",
        ):
            setattr(self, name, getattr(stored, name))
        self.nbytes = (
            math.prod(self.aval.shape) * self.storage_dtype.itemsize
            if self.has_terms
            else stored.nbytes
        )
        self.read_scalar = None
        return self

    def __repr__(self) -> str:
        order = "" if self.order is None else f", order={self.order}"
        return f"ArraySpec({self.aval.str_short()}, {self.sharding}, committed={self.committed}{order})"


_COPIED = tuple([name for name in ArraySpec.__slots__ if name != "__weakref__"])


def _backend_of(aval: ShapedArray, sharding: Sharding) -> Any:
    """Return the backend of the devices; None if the mesh is abstract."""
    if is_abstract(sharding):
        return None
    backend = getattr(sharding.device_assignment[0], "client", None)
    if backend is not None and dtypes.is_strings(aval.dtype):
        return backend.string_backend()
    return backend


def type_of_terms(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """Return the type of the stored terms of a value with unreduced axes in `sharding`: it has a leading dim of terms."""
    if dtypes.is_extended(aval.dtype):
        raise TypeError(
            f"random keys of type {aval.str_short()} are not sums; they cannot have the sharding {sharding.spec}."
        )
    return aval.update(
        shape=(sharding.num_terms, *aval.shape),
        sharding=type_sharding(sharding.storage_sharding, aval.ndim + 1),
    )


def _transposed_type(aval: ShapedArray, order: tuple[int, ...]) -> ShapedArray:
    """Return the type of the transposed value, without its sharding."""
    return aval.update(shape=tuple([aval.shape[d] for d in order]), sharding=None)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse permutation.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def transpose(value: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
    """Return a view with the dims in another order; random keys have extra trailing dims. Without an order, return the value itself."""
    return value if order is None else value.transpose(*order, *range(len(order), value.ndim))


def undo_transpose(value: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
    """Return the value whose `transpose` is this one."""
    return value if order is None else transpose(value, inverse(order))


def _as_stored_array(spec: ArraySpec) -> ArraySpec:
    """Return the array spec of the stored array: the terms of an array with unreduced axes, or the transposed array."""
    aval, sharding, committed, order = spec.aval, spec.sharding, spec.committed, spec.order
    if order is not None:
        if spec.has_terms:
            raise NotImplementedError(
                f"arrays of type {aval.str_short()} with unreduced axes are stored row-major; major_to_minor={order} "
                f"is not supported for {sharding.spec}."
            )
        return ArraySpec(_transposed_type(aval, order), sharding.transpose_dims(order), committed)
    if sharding.spec.unreduced_kind is not UnreducedKind.sum:
        raise NotImplementedError(
            f"arrays of type {aval.str_short()} cannot have the sharding {sharding.spec}: only sums can be unreduced, "
            f"not a {sharding.spec.unreduced_kind.name}."
        )
    return ArraySpec(type_of_terms(aval, sharding), sharding.storage_sharding, committed)


def _numbers_on_process(
    by_process: tuple[tuple[int, Numbers], ...], process: int, splits: tuple[int, ...]
) -> Numbers | None:
    """Return the block numbers along each dim of the stored array that `process` holds; None if it holds all."""
    numbers = dict(by_process).get(process)
    if numbers is None:
        return ((),) * len(splits)
    numbers += ((0,),) * (len(splits) - len(numbers))
    return None if tuple(map(len, numbers)) == splits else numbers


def update_process_blocks() -> None:
    """Recompute the blocks of each process in all array specs, after the processes of devices have changed."""
    mesh.clear_process_cache()
    blocks_by_process.cache_clear()
    for spec in list(_specs.values()):  # a copy: other threads add to it
        if spec.by_process is not None:
            spec.by_process = blocks_by_process(spec.stored.sharding, spec.stored.aval.ndim)


def numbers_by_process(spec: ArraySpec) -> dict[int, Numbers]:
    """Return the block numbers of each process along all dims of the stored array."""
    extra = ((0,),) * (len(spec.splits) - spec.stored.aval.ndim)
    return {
        rank: held + extra
        for rank, held in blocks_by_process(spec.stored.sharding, spec.stored.aval.ndim)
    }


def is_whole_everywhere(spec: ArraySpec, numbers: dict[int, Numbers]) -> bool:
    """Return whether every process with a part of an array has all of it; `numbers` has the blocks of each process."""
    return all(tuple(map(len, held)) == spec.splits for held in numbers.values())


def storage_type(aval: ShapedArray) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of the stored value: its own, except for random keys, which are stored as rows of uint32."""
    if isinstance(aval.dtype, KeyDType):
        return aval.shape + aval.dtype.impl.key_shape, np.dtype(np.uint32)
    return aval.shape, aval.dtype


def to_blocks(value: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """Return a global value as the grid of its local shards, [splits..., local dims...]: a view if the dtype matches."""
    value = np.asarray(value, spec.storage_dtype)
    if spec.is_row_major:
        return value.reshape(spec.storage_shape)
    return select_local_blocks(split_into_blocks(value, spec.splits, spec.local_shape), spec)


def split_into_blocks(
    value: np.ndarray, splits: tuple[int, ...], local_shape: tuple[int, ...]
) -> np.ndarray:
    """Split a value into equal blocks; return the grid of blocks, [splits..., block dims...]."""
    n = len(splits)
    split = value.reshape([k for pair in zip(splits, local_shape) for k in pair])
    return split.transpose([2 * d for d in range(n)] + [2 * d + 1 for d in range(n)])


def select_local_blocks(blocks: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """Return the shards that this process has, from the grid of all shards."""
    if spec.held is None:
        return blocks
    return (
        blocks[np.ix_(*spec.held)]
        if spec.storage_bytes
        else np.empty(spec.storage_shape if spec.held else 0, spec.storage_dtype)
    )


def from_blocks(blocks: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """Return a grid of shards with its dims in the order of the array: [split, local dim, split, local dim...]."""
    n = len(spec.splits)
    return blocks.transpose([k for d in range(n) for k in (d, n + d)])


def with_backend_devices(sharding: Any, backend: Any) -> Any:
    """Return a sharding on the devices of `backend` with the same ids."""
    if sharding is None or sharding.device_assignment[0].client is backend:
        return sharding
    devices = {d.id: d for d in backend.devices()}
    return sharding.on_devices([devices[d.id] for d in sharding.device_assignment])
