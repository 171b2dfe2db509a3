"""Interpolation on grids with SciPy's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.core.trace import Tracer
from weft._engine.numpy.promote import concrete, inexact
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """Interpolation of `values` on a rectangular grid of any number of dims; a call takes positions [..., dims].

    `points` has the increasing grid positions of each dim; `values` has a size for each dim and may have more dims. `method`
    is 'linear' or 'nearest'. Outside the grid the result is `fill_value`; for None the outermost cells are extrapolated.
    Positions may be traced, so no error can be raised for positions outside: `bounds_error` must be False.
    Raises ValueError for another method, points that do not increase, and invalid shapes.

    >>> f = RegularGridInterpolator((wnp.array([0.0, 1.0, 3.0]),), wnp.array([0.0, 10.0, 30.0]))
    >>> f(wnp.array([[0.5], [2.0], [4.0]])).tolist()
    [5.0, 20.0, nan]
    """

    def __init__(
        self,
        points: Sequence,
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = np.nan,
    ):
        name = "RegularGridInterpolator"
        if method not in _METHODS:
            raise ValueError(
                f"{name}: method must be one of {', '.join(_METHODS)}, got {method!r}."
            )
        if bounds_error:
            raise NotImplementedError(
                f"{name}: bounds_error=True is not supported; positions outside give `fill_value`."
            )
        self.method, self.bounds_error = method, False
        self.values = concrete(inexact(name, values))
        self.grid = tuple(concrete(inexact(name, p)) for p in points)
        if len(self.grid) > self.values.ndim:
            raise ValueError(
                f"{name}: there are {quantity(len(self.grid), 'array')} of points, but values have {quantity(self.values.ndim, 'dim')}."
            )
        for d, (p, size) in enumerate(zip(self.grid, self.values.shape)):
            if p.ndim != 1 or p.shape[0] != size or size < 1:
                raise ValueError(
                    f"{name}: the points of dim {d} must be a vector of {quantity(size, 'number')}, got shape {tuple(p.shape)}."
                )
            if not isinstance(p, Tracer) and not (np.asarray(p)[1:] > np.asarray(p)[:-1]).all():
                raise ValueError(f"{name}: the points of dim {d} must increase strictly.")
        if fill_value is not None:
            kind = wnp.asarray(fill_value).dtype
            if dtypes.promote_types(
                kind, self.values.dtype
            ) != self.values.dtype and dtypes.issubdtype(kind, np.complexfloating):
                raise ValueError(
                    f"{name}: fill_value of {kind} cannot be an element of values of {self.values.dtype}."
                )
        self.fill_value = fill_value

    def __call__(self, xi: Any, method: str | None = None):
        """Return the values at positions [..., dims], or at a tuple of one array for each dim."""
        method = self.method if method is None else method
        if method not in _METHODS:
            raise ValueError(
                f"RegularGridInterpolator: method must be one of {', '.join(_METHODS)}, got {method!r}."
            )
        dims = len(self.grid)
        if isinstance(xi, tuple):
            xi = wnp.stack(wnp.broadcast_arrays(*xi), -1)
        xi = concrete(inexact("RegularGridInterpolator", xi))
        if xi.ndim == 1 and dims == 1:
            xi = xi[:, None]
        if xi.shape[-1] != dims:
            raise ValueError(
                f"RegularGridInterpolator: positions of {quantity(xi.shape[-1], 'number')} on a grid of {quantity(dims, 'dim')}."
            )
        lead = tuple(xi.shape[:-1])
        columns = [wnp.reshape(xi[..., d], (-1,)) for d in range(dims)]
        cells, shares = zip(*map(self._cell, self.grid, columns))
        trailing = (slice(None),) + (None,) * (self.values.ndim - dims)
        if method == "nearest":
            at = tuple(i + (s > 0.5) for i, s in zip(cells, shares))
            out = self.values[at]
        else:
            out = self._interpolate_linearly(cells, shares, trailing)
        if self.fill_value is not None:
            outside: Any = False
            for p, x in zip(self.grid, columns):
                outside = outside | (x < p[0]) | (x > p[-1])
            out = wnp.where(outside[trailing], self.fill_value, out)
        for x in columns:
            out = wnp.where(wnp.isnan(x)[trailing], np.nan, out)
        return wnp.reshape(out, (*lead, *self.values.shape[dims:]))

    def _interpolate_linearly(self, cells: Sequence, shares: Sequence, trailing: tuple) -> Any:
        """Return the sum of the corners of each cell, weighted by the shares along each dim."""
        out: Any = 0
        for corner in itertools.product((0, 1), repeat=len(self.grid)):
            weight: Any = 1
            for side, share in zip(corner, shares):
                weight = weight * (share if side else 1 - share)
            at = tuple(
                wnp.minimum(i + side, p.shape[0] - 1)
                for i, side, p in zip(cells, corner, self.grid)
            )
            out = out + self.values[at] * weight[trailing]
        return out

    @staticmethod
    def _cell(points: Any, x: Any) -> tuple:
        """Return the cell of each position and the relative position in it; below 0 or above 1 outside the grid."""
        if points.shape[0] == 1:
            return wnp.zeros(x.shape, np.int32), wnp.zeros_like(x)
        cell = wnp.clip(wnp.searchsorted(points, x) - 1, 0, points.shape[0] - 2)
        return cell, (x - points[cell]) / (points[cell + 1] - points[cell])


guard_all(globals())
