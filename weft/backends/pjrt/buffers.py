"""The memory of arrays on the devices of a plugin.

In:   NumPy arrays and array specs.
Out:  `ShardBuffers`: one `DeviceBuffer` for each device of the sharding, in the order of its devices.
Laws: replicated shards have a buffer on each device. A buffer is in the sharding's memory kind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from weft.backends.array_spec import ArraySpec, to_blocks
from weft.backends.pjrt.client import DeviceBuffer, PjrtClient
from weft.ir.shardings import Sharding


class ShardBuffers(tuple[DeviceBuffer, ...]):
    """The buffers of an array; `host_copy` is the copy that `start_copy_to_host` has started."""

    host_copy: HostCopy | None = None

    def wait(self) -> None:
        """Wait for the values on all devices."""
        for buffer in self:
            buffer.wait()

    def is_ready(self) -> bool:
        """Return whether all values are there."""
        return all(buffer.is_ready() for buffer in self)


class HostCopy:
    """A copy of the distinct shards of an array to the host."""

    def __init__(self, buffers: Sequence[DeviceBuffer], spec: ArraySpec) -> None:
        self._library = buffers[0].client.library
        self._blocks = np.empty(spec.storage_shape, spec.storage_dtype)
        first_of_block: dict[tuple[int, ...], DeviceBuffer] = {}
        for buffer, position in zip(buffers, block_positions(spec)):
            first_of_block.setdefault(position, buffer)
        self._events = [
            buffer.start_copy_to_host(self._blocks[(*position, ...)])
            for position, buffer in first_of_block.items()
        ]

    def blocks(self) -> np.ndarray:
        """Wait for the copy; return the grid of shards, [splits..., local dims...]."""
        while self._events:
            self._library.wait(self._events.pop())
        return self._blocks


@functools.lru_cache(maxsize=4096)
def _positions(sharding: Sharding, ndim: int, extra: int) -> tuple[tuple[int, ...], ...]:
    positions = sharding.shard_of_device(ndim)
    return tuple([tuple(position) + (0,) * extra for position in positions])


def block_positions(spec: ArraySpec) -> tuple[tuple[int, ...], ...]:
    """Return the position in the grid of shards that each device of the sharding holds."""
    ndim = spec.aval.ndim
    return _positions(spec.sharding, ndim, len(spec.splits) - ndim)


def device_ids(spec: ArraySpec) -> list[int]:
    """Return the ids of the sharding's devices, in order."""
    return [device.id for device in spec.sharding.device_assignment]


def put_blocks(client: PjrtClient, blocks: np.ndarray, spec: ArraySpec) -> ShardBuffers:
    """Copy the grid of shards to the devices."""
    kind = spec.sharding.memory_kind
    places = zip(device_ids(spec), block_positions(spec))
    return ShardBuffers([client.put(blocks[(*at, ...)], id, kind) for id, at in places])


def put_value(client: PjrtClient, value: np.ndarray, spec: ArraySpec) -> ShardBuffers:
    """Copy a global value to the devices."""
    return put_blocks(client, to_blocks(value, spec), spec)


def move(buffers: ShardBuffers, have: ArraySpec, want: ArraySpec) -> ShardBuffers | None:
    """Copy between devices or memories; None where that needs other blocks than there are."""
    if have.splits != want.splits:
        return None
    kinds = have.sharding.memory_kind, want.sharding.memory_kind
    held = dict(zip(zip(device_ids(have), block_positions(have)), buffers))
    of_block = {position: buffer for (_, position), buffer in reversed(held.items())}
    moved = []
    for place in zip(device_ids(want), block_positions(want)):
        there = held.get(place) if kinds[0] == kinds[1] else None
        moved.append(there or of_block[place[1]].copy_to(place[0], kinds[1]))
    return ShardBuffers(moved)
