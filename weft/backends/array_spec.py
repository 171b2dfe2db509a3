"""Array specs: the type of an array, how it is laid out over devices, and the shapes that follow from both.

In:   a type, a sharding, and whether the array was placed there explicitly.
Out:  `ArraySpec`, interned: equal specs are one object, so that dispatch compares one pointer per argument.
Law:  all devices of a sharding belong to one backend, which holds the values. A process holds the blocks of its own devices.
Next: `runtime.array` has the arrays, `backends.base` what holds their values, `held` which of them are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.backends.held import Numbers, held_by_process
from weft.ir.explicit import type_sharding
from weft.ir.program_mesh import is_abstract
from weft.ir.shardings import Sharding
from weft.ir.specs import UnreducedKind
from weft.ir.types import ShapedArray
from weft.util import dtypes

_specs: dict[tuple, ArraySpec] = {}
_MAX_NDIM = 32          # NumPy holds 64, and every dim of an array is two of its memory: the shard, and the place in it


class ArraySpec:
    """Type, sharding and committed flag of an array.

    `splits` and `local_shape` are those of the memory of the array, which for random keys has more dims than the array, and for arrays with
    unreduced axes a first one, of their terms; `stored` is the array of the memory then, else the array itself;
    `backend` is that of its devices (None where the mesh is abstract). A process stores the distinct shards of its own devices:
    `held` has the numbers of their blocks along each dim, and is None where they are all shards; `by_process` has those of every process,
    and is None where this one drives all devices.
    """
    __slots__ = ("aval", "sharding", "committed", "backend", "splits", "storage_shape", "storage_dtype", "nbytes", "local_shape",
                 "global_shape", "stored", "is_row_major", "read_scalar", "held", "by_process", "storage_bytes", "__weakref__")

    backend: Any
    stored: ArraySpec
    read_scalar: Callable[[Any], bool | int | float] | None      # from the buffer of a scalar, where the backend can
    held: Numbers | None
    by_process: tuple[tuple[int, Numbers], ...] | None

    def __new__(cls, aval: ShapedArray, sharding: Sharding, committed: bool):
        key = (aval, sharding, committed)
        found = _specs.get(key)
        if found is not None:
            return found
        typed = aval.update(sharding=type_sharding(sharding, aval.ndim))
        if typed is not aval:                    # an explicit sharding is part of the type
            return _specs.setdefault(key, ArraySpec(typed, sharding, committed))
        if aval.ndim > _MAX_NDIM:
            raise NotImplementedError(f"arrays have at most {_MAX_NDIM} dims, got {aval.ndim}: {aval.str_short()}")
        self = object.__new__(cls)
        self.aval = aval
        self.sharding = sharding
        self.committed = committed
        self.backend = None if is_abstract(sharding) else getattr(sharding.device_assignment[0], "client", None)
        if sharding.unreduced:
            return _specs.setdefault(key, self._of_terms(_stored(aval, sharding, committed)))
        self.stored = self
        shape, dtype = physical(aval)
        splits = tuple(sharding.splits(aval.shape))
        for d, (n, s) in enumerate(zip(aval.shape, splits)):
            if s and n % s:
                sharding.check_shape(aval.shape)
                raise AssertionError(f"dim {d} of size {n} does not divide by {s}")
        splits += (1,) * (len(shape) - len(splits))
        self.splits = splits
        self.local_shape = tuple(n // s for n, s in zip(shape, splits))
        self.storage_dtype = dtype
        self.global_shape = shape                # of the memory of the whole array
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.by_process = None if self.backend is None or sharding.is_fully_addressable else held_by_process(sharding, aval.ndim)
        self.held = None if self.by_process is None else _held_here(self.by_process, self.backend.process_index(), splits)
        self.storage_shape = (splits if self.held is None else tuple(map(len, self.held))) + self.local_shape
        self.storage_bytes = math.prod(self.storage_shape) * dtype.itemsize if self.held != () else 0
        # whether the shards, one after another, are the row-major array: all dims before a split one have one row in a shard
        self.is_row_major = self.held is None and all(n == 1 for d, s in enumerate(splits) if s > 1 for n in self.local_shape[:d])
        self.read_scalar = None if shape or self.backend is None or self.held is not None else self.backend.scalar_reader(dtype)
        return _specs.setdefault(key, self)

    def _of_terms(self, stored: ArraySpec) -> ArraySpec:
        """Let the memory be that of `stored`, which has the terms of the array."""
        self.stored = stored
        for name in ("splits", "local_shape", "storage_dtype", "global_shape", "by_process", "held", "storage_shape", "storage_bytes",
                     "is_row_major"):
            setattr(self, name, getattr(stored, name))
        self.nbytes = math.prod(self.aval.shape) * self.storage_dtype.itemsize
        self.read_scalar = None
        return self

    def __repr__(self) -> str:
        return f"ArraySpec({self.aval.str_short()}, {self.sharding}, committed={self.committed})"


def stored_aval(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """The type of the memory of values that are terms over the unreduced axes of `sharding`: a first dim has the terms."""
    if dtypes.is_extended(aval.dtype):
        raise TypeError(f"random keys of type {aval.str_short()} are no sums; they cannot be laid out as {sharding.spec}.")
    return aval.update(shape=(sharding.num_terms, *aval.shape), sharding=type_sharding(sharding.stored, aval.ndim + 1))


def _stored(aval: ShapedArray, sharding: Any, committed: bool) -> ArraySpec:
    """The array of the terms of an array with unreduced axes."""
    if sharding.spec.unreduced_kind is not UnreducedKind.sum:
        raise NotImplementedError(f"arrays of type {aval.str_short()} cannot be laid out as {sharding.spec}: only sums can be unreduced, "
                                  f"not a {sharding.spec.unreduced_kind.name}.")
    return ArraySpec(stored_aval(aval, sharding), sharding.stored, committed)


def _held_here(by_process: tuple[tuple[int, Numbers], ...], process: int, splits: tuple[int, ...]) -> Numbers | None:
    """The numbers of the blocks that `process` holds along each dim of the memory; None if it holds all."""
    numbers = dict(by_process).get(process)
    if numbers is None:
        return ((),) * len(splits)
    numbers += ((0,),) * (len(splits) - len(numbers))
    return None if tuple(map(len, numbers)) == splits else numbers


def follow_processes() -> None:
    """Find again which process holds what, after devices have changed hands."""
    held_by_process.cache_clear()
    for spec in _specs.values():
        if spec.by_process is not None:
            spec.by_process = held_by_process(spec.stored.sharding, spec.stored.aval.ndim)


def held_numbers(spec: ArraySpec) -> dict[int, Numbers]:
    """The blocks of each process along all dims of the memory."""
    extra = ((0,),) * (len(spec.splits) - spec.stored.aval.ndim)
    return {rank: held + extra for rank, held in held_by_process(spec.stored.sharding, spec.stored.aval.ndim)}


def is_whole_everywhere(spec: ArraySpec, numbers: dict[int, Numbers]) -> bool:
    """Whether every process that has some of an array has all of it, where `numbers` says which blocks each has."""
    return all(tuple(map(len, held)) == spec.splits for held in numbers.values())


def physical(aval: ShapedArray) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the memory of a value: its own, but for random keys, which are rows of uint32."""
    if dtypes.is_extended(aval.dtype):
        return aval.shape + aval.dtype.impl.key_shape, np.dtype(np.uint32)
    return aval.shape, aval.dtype


def to_blocks(value: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """A global value as the grid of its shards, [splits..., local dims...]: a view where the dtype is right. Where other processes have
    some of them, those that are here."""
    value = np.asarray(value, spec.storage_dtype)
    if spec.is_row_major:
        return value.reshape(spec.storage_shape)
    return those_here(blocks_of(value, spec.splits, spec.local_shape), spec)


def blocks_of(value: np.ndarray, splits: tuple[int, ...], local_shape: tuple[int, ...]) -> np.ndarray:
    """A value as the grid of blocks of one shape that it is cut into, [splits..., block dims...]."""
    n = len(splits)
    split = value.reshape([k for pair in zip(splits, local_shape) for k in pair])
    return split.transpose([2 * d for d in range(n)] + [2 * d + 1 for d in range(n)])


def those_here(blocks: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """Of the grid of all shards those that this process has."""
    if spec.held is None:
        return blocks
    return blocks[np.ix_(*spec.held)] if spec.storage_bytes else np.empty(spec.storage_shape if spec.held else 0, spec.storage_dtype)


def from_blocks(blocks: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """The dims of a grid of shards in the order of the array, [split, local dim, split, local dim...]."""
    n = len(spec.splits)
    return blocks.transpose([k for d in range(n) for k in (d, n + d)])


def on_backend(sharding: Any, backend: Any) -> Any:
    """A sharding on the devices of `backend` that have the same ids."""
    if sharding is None or sharding.device_assignment[0].client is backend:
        return sharding
    devices = {d.id: d for d in backend.devices()}
    return sharding.on_devices([devices[d.id] for d in sharding.device_assignment])
