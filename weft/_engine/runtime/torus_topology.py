"""Placement in a mesh of chips that are linked as a grid or a torus, by their coordinates.

In:   devices with `coords` (and `core_on_chip`, if a chip has several cores) that fill a grid, and the shape of the mesh.
Out:  the devices in an array of that shape, so that neighbors along its dims are linked.
Laws: the last mesh dims carry most data, so they choose their axes first. An axis of a torus is a ring, so a mesh dim on a whole axis is
      fastest. The axes of a plane of "lite" chips are no rings; a closed path through all chips of the plane is one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_TRAY = 8  # number of cores on the two by two chips of a tray


def place_devices(chosen: Sequence[Any], shape: tuple[int, ...], split: bool) -> np.ndarray | None:
    """Return the devices in an array of shape `shape`; None if they have no coordinates or do not fill a grid.

    Raises NotImplementedError if dims of the mesh need parts of axes of the torus, and `split` is False.
    """
    grid = _grid(chosen)
    if grid is None:
        return None
    x, y, z, cores = grid.shape
    if cores == 2 and (x, y) == (2, 2):
        return np.stack([_ring(grid[:, :, k].swapaxes(0, 1)) for k in range(z)]).reshape(shape)
    if cores == 2 and z == 1:
        return _in_trays(_array(chosen), shape)
    is_lite = all("lite" in str(getattr(d, "device_kind", "")) for d in chosen)
    if is_lite and cores == z == 1 and _has_ring(x, y, shape):
        rows = grid[:, :, 0, 0].T
        is_odd = rows.shape[0] % 2 == 1
        # two long rows, or an even number of rows
        along = is_odd or (rows.shape[1] == 2 and rows.shape[0] > 2)
        return _ring(rows.T if along else rows).reshape(shape)
    return _on_torus(grid[..., 0] if cores == 1 else grid, shape, split)


def _has_ring(x: int, y: int, shape: tuple[int, ...]) -> bool:
    """Return whether a closed path goes through all chips of a plane, and a mesh of `shape` uses it."""
    is_closed = min(x, y) > 1 and x * y % 2 == 0
    return is_closed and (min(x, y) == 2 or x * y in shape)


def _in_trays(listed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the listed cores tray by tray, each tray as a ring if the last dim of the mesh is a tray."""
    if shape[-1] != _TRAY:
        return listed.reshape(shape)
    trays = [(_grid(tray), tray) for tray in listed.reshape(-1, _TRAY)]
    rings = [
        tray.ravel() if grid is None else _ring(grid[:, :, 0].swapaxes(0, 1))
        for grid, tray in trays
    ]
    return np.stack(rings).reshape(shape)


def _array(devices: Sequence[Any]) -> np.ndarray:
    flat = np.empty(len(devices), object)
    flat[:] = devices
    return flat


def _grid(chosen: Sequence[Any] | np.ndarray) -> np.ndarray | None:
    """Return the devices by x, y, z and core; None if a place is empty."""
    if not all(len(getattr(d, "coords", None) or ()) == 3 for d in chosen):
        return None
    places = np.array([(*d.coords, getattr(d, "core_on_chip", 0) or 0) for d in chosen])
    places -= places.min(axis=0)
    sizes = tuple((places.max(axis=0) + 1).tolist())
    if math.prod(sizes) != len(chosen) or len(np.unique(places, axis=0)) != len(chosen):
        return None
    grid = np.empty(sizes, object)
    for device, place in zip(chosen, places):
        grid[tuple(place)] = device
    return grid


def _ring(rows: np.ndarray) -> np.ndarray:
    """Return a closed path through an even number of rows: along the first, back and forth next to the first column, and back along it."""
    turns = [row[1:] if k % 2 == 0 else row[:0:-1] for k, row in enumerate(rows)]
    return np.concatenate([rows[0, :1], *turns, rows[:0:-1, 0]]).reshape(-1)


def _on_torus(grid: np.ndarray, shape: tuple[int, ...], split: bool) -> np.ndarray:
    """Return the grid with its axes, or factors of them, distributed over the dims of the mesh."""
    shares = np.ones((grid.ndim, len(shape)), int)  # the factor of axis i that is part of dim j
    for j in reversed(range(len(shape))):
        free = [n // math.prod(mine) for n, mine in zip(grid.shape, shares.tolist())]
        factors_of_dim = (
            _whole_axes(grid.shape, shares, shape[j]) if shape[j] > 1 or not split else None
        )
        if factors_of_dim is None and split:
            factors_of_dim = _choose_factors(grid.shape, free, shape[j])
        if factors_of_dim is None:
            raise NotImplementedError(
                f"create_device_mesh: no whole free axes of the torus {grid.shape} form a dim of {shape[j]} of the mesh {shape}.\n"
                "  An axis serves one dim. allow_split_physical_axes=True distributes factors of axes."
            )
        shares[:, j] = factors_of_dim
    factors = grid.reshape(shares.reshape(-1))
    order = np.arange(shares.size).reshape(shares.shape).T.reshape(-1)
    return factors.transpose(order).reshape(shape)


def _whole_axes(sizes: Sequence[int], shares: np.ndarray, size: int) -> list[int] | None:
    """Return the first set of whole axes that form a dim of `size`, as a factor per axis; None if there is none. More axes come first."""
    free = [i for i, n in enumerate(sizes) if (shares[i] == 1).all()]
    for count in range(len(free), -1, -1):
        for axes in itertools.combinations(free, count):
            if math.prod(sizes[i] for i in axes) == size:
                return [n if i in axes else 1 for i, n in enumerate(sizes)]
    return None


def _choose_factors(sizes: Sequence[int], left: Sequence[int], size: int) -> list[int] | None:
    """Return factors of the free parts `left` of the axes whose product is `size`: of whole axes if possible, else of split ones."""
    best = min(
        _products(left, size),
        default=None,
        key=lambda parts: (
            -sum(p == n for p, n in zip(parts, sizes) if n > 1),
            -sum(p > 1 and m < n for p, m, n in zip(parts, left, sizes)),
            sum(p > 1 for p in parts),
        ),
    )
    return None if best is None else list(best)


def _products(left: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write `size` as a product of one divisor of each number."""
    if not left:
        if size == 1:
            yield ()
        return
    for part in range(math.gcd(left[0], size), 0, -1):
        if left[0] % part == 0 and size % part == 0:
            for tail in _products(left[1:], size // part):
                yield (part, *tail)
