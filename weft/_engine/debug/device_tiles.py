"""The devices that hold each part of an array: the data of the pictures in
`weft._engine.debug.visualize`.

In:  a shape, and a sharding with the method `devices_indices_map(shape)`, which returns {device:
     one slice per dim}. A dim that does not divide evenly is split as in programs: into equal
     blocks; the last may be shorter or empty.
Out: `Tiling`: the cut points of every dim, and the devices of every tile between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

from weft._engine.ir.shardings import layout_of
from weft._engine.util.errors import ShardingError
from weft._engine.util.record import record

Bounds = tuple[tuple[int, int], ...]


@record
class Tiling:
    """The tiles of an array of `shape`, each with the devices that hold it.

    `cuts[d]` are the sorted borders of dim `d`, both ends included; `holders[i, j, …]` are the sorted ids of the
    devices that hold tile number `i, j, …`. A tile that no device holds (another process may) has no entry.
    """

    shape: tuple[int, ...]
    platform: str
    cuts: tuple[tuple[int, ...], ...]
    holders: Mapping[tuple[int, ...], tuple[int, ...]]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of tiles along each dim."""
        return tuple(len(cuts) - 1 for cuts in self.cuts)

    def bounds(self, tile: Sequence[int]) -> Bounds:
        """The (start, stop) of `tile` in every dim."""
        return tuple((self.cuts[dim][i], self.cuts[dim][i + 1]) for dim, i in enumerate(tile))

    def label(self, tile: tuple[int, ...]) -> str:
        """Return the text of a tile: the platform and the ids of its devices."""
        ids = self.holders.get(tile)
        return f"{self.platform} {spell_ids(ids)}" if ids else "elsewhere"


def tile(shape: Sequence[int], sharding: Any) -> Tiling:
    """Return the tiles into which `sharding` splits an array of `shape`."""
    shape = tuple(shape)
    placed = list(_parts_by_device(shape, sharding))
    cuts = tuple(
        _cuts(size, (bounds[dim] for _, bounds in placed)) for dim, size in enumerate(shape)
    )
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, bounds in placed:
        for cell in _cells(bounds, cuts):
            holders.setdefault(cell, []).append(device.id)
    platforms = sorted({str(device.platform).upper() for device, _ in placed})
    return Tiling(
        shape,
        "/".join(platforms),
        cuts,
        {cell: tuple(sorted(ids)) for cell, ids in holders.items()},
    )


def spell_ids(ids: Sequence[int], most_listed: int = 8) -> str:
    """Return the sorted ids with commas; if there are more than `most_listed`, ranges are abbreviated.

    >>> spell_ids([0, 2, 4]), spell_ids([*range(12), 20])
    ('0,2,4', '0-11,20')
    """
    if len(ids) <= most_listed:
        return ",".join(map(str, ids))
    runs: list[list[int]] = []
    for i in ids:
        if runs and i == runs[-1][-1] + 1:
            runs[-1][1:] = [i]
        else:
            runs.append([i])
    return ",".join("-".join(map(str, run)) for run in runs)


def _parts_by_device(shape: tuple[int, ...], sharding: Any) -> Iterable[tuple[Any, Bounds]]:
    """Yield each device and its part."""
    try:
        return [
            (device, _bounds(shape, indices))
            for device, indices in sharding.devices_indices_map(shape).items()
        ]
    except ShardingError:
        layout = layout_of(sharding, len(shape))
        blocks = [-(-size // n) for size, n in zip(shape, layout.splits)]
        part = lambda position: tuple(
            (min(i * b, s), min((i + 1) * b, s)) for i, b, s in zip(position, blocks, shape)
        )
        return [
            (device, part(position)) for device, position in zip(layout.devices, layout.positions)
        ]


def _bounds(shape: tuple[int, ...], indices: Sequence[slice]) -> Bounds:
    full = (*indices, *(slice(None),) * (len(shape) - len(indices)))
    spans = (entry.indices(size) for entry, size in zip(full, shape))
    return tuple((start, max(start, stop)) for start, stop, _ in spans)


def _cuts(size: int, spans: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    cuts = {0, size}.union(*spans)
    # An empty dim has one empty tile, so that its devices are still shown.
    return tuple(sorted(cuts)) if len(cuts) > 1 else (0, size)


def _cells(bounds: Bounds, cuts: tuple[tuple[int, ...], ...]) -> Iterable[tuple[int, ...]]:
    """Yield the numbers of the tiles inside `bounds`."""
    inside = []
    for (start, stop), borders in zip(bounds, cuts):
        inside.append(
            [i for i, (low, high) in enumerate(pairwise(borders)) if start <= low and high <= stop]
        )
    return product(*inside)
