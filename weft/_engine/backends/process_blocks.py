"""The blocks of an array that each process holds, if its devices belong to several processes.

In:   a sharding, the rank of values: devices, the grid of blocks, the block of each device.
Out:  for every process and dim, the numbers of its blocks.
Laws: the blocks of a process form a product: some numbers along every dim, in ascending order, and all their combinations; every
      participating process holds equally many.
Next: `array_spec` computes the resulting shapes.
"""

from __future__ import annotations

import math
from functools import lru_cache

from weft._engine.ir.shardings import Sharding, ShardLayout, layout_of
from weft._engine.util.errors import ShardingError, describe

#: block numbers along each dim, in ascending order
Numbers = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def blocks_by_process(sharding: Sharding, ndim: int) -> tuple[tuple[int, Numbers], ...]:
    """Return every process that drives devices of `sharding`, with the blocks that it holds of values of rank `ndim`.

    Raises ShardingError if the processes hold different numbers of blocks, or blocks that are not a product of numbers along dims.
    """
    layout = layout_of(sharding, ndim)
    blocks_of_processes = []
    for process, positions in sorted(_positions(layout).items()):
        numbers = tuple([tuple(sorted(set(column))) for column in zip(*positions)])
        if math.prod(map(len, numbers)) != len(positions):
            raise _make_irregular_error(sharding, layout)
        blocks_of_processes.append((process, numbers))
    if len({tuple(map(len, numbers)) for _, numbers in blocks_of_processes}) > 1:
        raise _make_irregular_error(sharding, layout)
    return tuple(blocks_of_processes)


def _positions(layout: ShardLayout) -> dict[int, set[tuple[int, ...]]]:
    blocks: dict[int, set] = {}
    for device, position in zip(layout.devices, layout.positions):
        blocks.setdefault(device.process_index, set()).add(position)
    return blocks


def _make_irregular_error(sharding: Sharding, layout: ShardLayout) -> ShardingError:
    facts = [("sharding", repr(sharding))]
    facts += [
        (f"process {p}", f"blocks {', '.join(map(str, sorted(blocks)))}")
        for p, blocks in sorted(_positions(layout).items())
    ]
    return ShardingError(
        describe(
            "a sharding over processes",
            "the blocks of the array are distributed irregularly over the processes.",
            facts,
            None,
            "Every process must hold equally many blocks, and they must form a grid: some numbers along each dim, in all combinations.",
            "Make the mesh with weft.make_mesh or mesh_utils.create_hybrid_device_mesh, which keep the devices of a process together.",
        )
    )
