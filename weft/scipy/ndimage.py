"""Interpolation of arrays with SciPy's names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.numpy.promote import value
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = ["map_coordinates"]


def _mirror(i, n: int):
    """Reflect indices about the centers of the first and last elements."""
    period = max(2 * (n - 1), 1)
    return (n - 1) - wnp.abs(i % period - (n - 1))


def _reflect(i, n: int):
    """Reflect indices about the outer edges of the first and last elements."""
    return _mirror(2 * i + 1, 2 * n + 1) // 2


_BORDERS: dict[str, Callable] = {
    "constant": lambda i, n: i,
    "nearest": lambda i, n: wnp.clip(i, 0, n - 1),
    "wrap": lambda i, n: i % n,
    "mirror": _mirror,
    "reflect": _reflect,
}


def map_coordinates(input, coordinates: Sequence, order: int, mode: str = "constant", cval=0.0):
    """Return `input` at real positions, one array of `coordinates` per dim, rounded (order 0) or interpolated linearly (order 1).

    `mode` extends the input beyond its border: constant (`cval`), nearest, wrap, mirror or reflect.

    >>> float(map_coordinates(wnp.array([0.0, 10.0]), [wnp.array(0.25)], order=1))
    2.5
    """
    x, places = wnp.asarray(input), [value(c) for c in coordinates]
    if len(places) != x.ndim:
        raise ValueError(
            f"map_coordinates: there must be one array of coordinates per dim of the input, {x.ndim}, got {len(places)}."
        )
    if mode not in _BORDERS:
        raise NotImplementedError(
            f"map_coordinates: mode {mode!r} is not supported; use one of {', '.join(_BORDERS)}."
        )
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates: order {order} is not supported; use 0 or 1.")
    corners = [_corners(wnp.asarray(c), order) for c in places]
    fill = wnp.asarray(cval, x.dtype)
    total: Any = None
    for chosen in itertools.product(*corners):
        inside: Any = True
        index = []
        for (i, _), n in zip(chosen, x.shape):
            index.append(_BORDERS[mode](i, n))
            inside = inside & (i >= 0) & (i < n) if mode == "constant" else inside
        term = x[tuple(index)]
        term = wnp.where(inside, term, fill) if mode == "constant" else term
        for _, weight in chosen:
            term = term if weight is None else term * weight
        total = term if total is None else total + term
    if dtypes.issubdtype(x.dtype, np.integer) and order:
        # halves away from zero, as SciPy rounds them
        total = wnp.trunc(total + wnp.copysign(0.5, total))
    return total.astype(x.dtype)


def _corners(place, order: int) -> list[tuple]:
    """Return the integer positions next to a real one, with their weights."""
    if dtypes.issubdtype(place.dtype, np.integer):
        return [(place, None)]
    if order == 0:
        return [(wnp.floor(place + 0.5).astype(np.int32), None)]
    low = wnp.floor(place)
    upper = place - low
    return [(low.astype(np.int32), 1 - upper), (low.astype(np.int32) + 1, upper)]


guard_all(globals())
