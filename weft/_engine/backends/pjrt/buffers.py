"""The memory of arrays on the devices of a plugin.

In:   NumPy arrays and array specs.
Out:  `ShardBuffers`: one buffer for each device of the sharding, in the order of its devices.
Laws: replicated shards have a buffer on each device. A buffer is in the sharding's memory kind.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.pjrt.client import PjrtClient
from weft._engine.cpython.references import is_held_at_most
from weft._engine.ir.shardings import Sharding


class ShardBuffers:
    """The buffers of an array, one for each device of its sharding.

    They are `count` pointers at `address`, in memory that `block` owns. If `owner` is set, it owns
    the buffers. `host_copy` is the copy that `start_copy_to_host` has started.
    """

    __slots__ = ("__weakref__", "address", "block", "client", "count", "host_copy", "owner")

    def __init__(
        self, client: PjrtClient, block: Any, address: int, count: int, owner: Any = None
    ) -> None:
        self.client = client
        self.block = block
        self.address = address
        self.count = count
        self.owner = owner
        self.host_copy: HostCopy | None = None

    def __del__(self) -> None:
        library = self.client.library
        if self.owner is None and library.is_open:
            library.native.destroy(library.addresses["Buffer_Destroy"], self.address, self.count)

    def pointers(self) -> list[int]:
        """Return the plugin's pointers."""
        return list((ctypes.c_void_p * self.count).from_address(self.address))

    def part(self, index: int) -> ShardBuffers:
        """Return the buffer of one device; this object still owns it."""
        return ShardBuffers(self.client, self.block, self.address + 8 * index, 1, owner=self)

    def is_held_by_one_array(self) -> bool:
        """Return whether only one array and the operands of a call hold references.

        The plugin may then reuse the memory for results. False if the interpreter does not count references.
        """
        return self.owner is None and is_held_at_most(self, 3)  # `self` is the third

    def wait(self) -> None:
        """Wait for the values on all devices; raise DeviceRuntimeError if their computation failed."""
        for pointer in self.pointers():
            self.client.wait_for_buffer(pointer)

    def is_ready(self) -> bool:
        """Return whether all values are computed."""
        return all(map(self.client.is_buffer_ready, self.pointers()))


def own(client: PjrtClient, pointers: Sequence[int]) -> ShardBuffers:
    """Return an object that owns new buffers."""
    block = (ctypes.c_void_p * len(pointers))(*pointers)
    client.library.native.count_buffers(len(pointers))
    return ShardBuffers(client, block, ctypes.addressof(block), len(pointers))


def join(client: PjrtClient, parts: Sequence[ShardBuffers]) -> ShardBuffers:
    """Return the array whose buffer on each device is the respective one of `parts`."""
    if len(parts) == 1:
        return parts[0]
    block = (ctypes.c_void_p * len(parts))(*[part.pointers()[0] for part in parts])
    return ShardBuffers(client, block, ctypes.addressof(block), len(parts), owner=tuple(parts))


class HostCopy:
    """A copy of the distinct shards of an array to the host.

    `unfinished` keeps memory alive that plugins still write, even if the array is deleted.
    """

    unfinished: ClassVar[set[HostCopy]] = set()

    def __init__(self, buffers: ShardBuffers, spec: ArraySpec) -> None:
        client = buffers.client
        self._library = client.library
        self._blocks = np.empty(spec.storage_shape, spec.storage_dtype)
        first_of_block: dict[tuple[int, ...], int] = {}
        if spec.storage_dtype.itemsize:  # float0 has no bytes
            for pointer, position in zip(buffers.pointers(), block_positions(spec)):
                first_of_block.setdefault(position, pointer)
        self._lock = threading.Lock()
        self._events: list[int] = []
        self.unfinished.add(self)
        try:
            for position, pointer in first_of_block.items():
                target = self._blocks[(*position, ...)]
                self._events.append(client.start_copy_to_host(pointer, target))
        except BaseException:
            self.finish()
            raise

    def finish(self) -> BaseException | None:
        """Wait for the copy; return its error. Several threads may call it."""
        with self._lock:
            error = self._library.wait_for_all(self._events)
            self._events = []
            self.unfinished.discard(self)
        return error

    def blocks(self) -> np.ndarray:
        """Wait for the copy; return the grid of shards, [splits..., local dims...]."""
        error = self.finish()
        if error is not None:
            raise error
        return self._blocks

    def finish_if_ready(self) -> None:
        """Finish the copy if that does not wait."""
        if self._lock.acquire(blocking=False):
            try:
                is_ready = all(map(self._library.is_ready, self._events))
            finally:
                self._lock.release()
            if is_ready:
                self.finish()


@atexit.register
def _finish_copies() -> None:
    """Wait for all copies to the host, whose memory is about to be freed."""
    for copy in [copy for copy in HostCopy.unfinished if copy._library.functions]:
        copy.finish()


@functools.lru_cache(maxsize=4096)
def _positions(sharding: Sharding, ndim: int, extra: int) -> tuple[tuple[int, ...], ...]:
    positions = sharding.shard_of_device(ndim)
    return tuple([tuple(position) + (0,) * extra for position in positions])


def block_positions(spec: ArraySpec) -> tuple[tuple[int, ...], ...]:
    """Return, for each device of the sharding, the position of its block in the grid of shards."""
    ndim = spec.aval.ndim
    return _positions(spec.sharding, ndim, len(spec.splits) - ndim)


def device_ids(spec: ArraySpec) -> list[int]:
    """Return the ids of the sharding's devices, in order."""
    return [device.id for device in spec.sharding.device_assignment]


def put_blocks(client: PjrtClient, blocks: np.ndarray, spec: ArraySpec) -> ShardBuffers:
    """Copy the grid of shards to the devices."""
    kind = spec.sharding.memory_kind
    places = zip(device_ids(spec), block_positions(spec))
    pointers: list[int] = []
    try:
        for id, position in places:
            pointers.append(client.put(blocks[(*position, ...)], id, kind))
    finally:  # own the buffers created so far, so that a failure frees them
        buffers = own(client, pointers)
    return buffers


def move(buffers: ShardBuffers, have: ArraySpec, want: ArraySpec) -> ShardBuffers | None:
    """Copy between devices or memories; return None if that needs other blocks than there are."""
    if have.splits != want.splits:
        return None
    client, kind = buffers.client, want.sharding.memory_kind
    is_same_kind = have.sharding.memory_kind == kind
    sources = list(zip(device_ids(have), block_positions(have)))
    index_of_place = {place: i for i, place in enumerate(sources)}
    index_of_block = {position: i for i, (_, position) in enumerate(sources)}
    pointers = buffers.pointers()
    parts = []
    for device, position in zip(device_ids(want), block_positions(want)):
        index = index_of_place.get((device, position)) if is_same_kind else None
        if index is not None:
            parts.append(buffers.part(index))
        else:
            copy = client.copy(pointers[index_of_block[position]], device, kind)
            parts.append(own(client, [copy]))
    return join(client, parts)
