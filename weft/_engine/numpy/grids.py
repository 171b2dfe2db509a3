"""Grids and positions by indexing syntax: mgrid, ogrid, r_, c_, s_, index_exp, ix_; triangles and
diagonals of arrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim, max_dim, min_dim, note_nonnegative
from weft._engine.numpy import creation, manipulation as mp, selection
from weft._engine.numpy.facts import shape
from weft._engine.numpy.promote import array_of, cast, check_concrete
from weft._engine.numpy.reductions import cumsum
from weft._engine.numpy.repetition import resize
from weft._engine.ops import layout
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.promotion import common_dtype


def _range(api: str, s: slice):
    """Return a slice as a vector; an imaginary step counts the points, both ends included."""
    for part in ("start", "stop", "step"):
        check_concrete(api, f"the slice {part} of wnp.{api}", getattr(s, part))
    start, step = 0 if s.start is None else s.start, 1 if s.step is None else s.step
    if isinstance(step, complex):
        return creation.linspace(start, s.stop, int(abs(step)))
    return creation.arange(start, s.stop, step)


class _Grid:
    """The class of `mgrid` and `ogrid`.

    The index `[0:3, 0:2]` gives full index grids for `mgrid`, open ones for `ogrid`.
    """

    def __init__(self, name: str, sparse: bool):
        self.name, self.sparse = name, sparse

    def __getitem__(self, key):
        if isinstance(key, slice):
            return _range(self.name, key)
        if not key:
            return [] if self.sparse else creation.zeros((0,), int)
        parts = [_range(self.name, k) for k in key]
        dtype = functools.reduce(common_dtype, [p.dtype for p in parts])
        grids = creation.meshgrid(
            *[cast(p, dtype) for p in parts], indexing="ij", sparse=self.sparse
        )
        return list(grids) if self.sparse else mp.stack(grids)


class _Joiner:
    """The class of `r_` and `c_`.

    `r_[a, 0, 1:3]` joins along the first dim, `c_` along the last, with vectors as columns.

    A leading string 'axis', 'axis,ndim' or 'axis,ndim,place' sets the dims; 'r' and 'c' turn a
    vector result into a matrix of one row or one column.
    """

    def __init__(self, name: str, axis: int, ndim: int, place: int):
        self.name, self.defaults = name, (axis, ndim, place)

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        axis, ndim, place = self.defaults
        matrix = ""
        if parts and isinstance(parts[0], str):
            directive, *parts = parts
            if directive in ("r", "c"):
                matrix = directive
            else:
                axis, ndim, place = self._numbers(directive)
        out = mp.concatenate([self._part(p, ndim, place) for p in parts], axis)
        if matrix and out.ndim > 2:
            raise ValueError(
                f"{self.name}: the directive {matrix!r} makes a matrix, but the result has shape {tuple(out.shape)}."
            )
        return (
            mp.reshape(out, (-1, 1) if matrix == "c" else (1, -1))
            if matrix and out.ndim < 2
            else out
        )

    def _numbers(self, directive: str) -> list[int]:
        try:
            numbers = [int(n) for n in directive.split(",")]
        except ValueError:
            numbers = []
        if not 0 < len(numbers) <= 3:
            raise ValueError(
                f"{self.name}: could not understand directive {directive!r}: it must be 'r', 'c', or up to three integers "
                "'axis,ndim,place'."
            )
        return numbers + list(self.defaults)[len(numbers) :]

    def _part(self, part, ndim: int, place: int):
        """Return a part with at least `ndim` dims.

        Its own dims are at `place` among the added dims of size one.
        """
        if isinstance(part, str):
            raise ValueError(
                f"{self.name}: the string {part!r} is not the first part; a directive must stand at the beginning."
            )
        a = _range(self.name, part) if isinstance(part, slice) else creation.asarray(part)
        missing = ndim - a.ndim
        if missing <= 0:
            return a
        before = place + missing + 1 if place < 0 else place
        if not 0 <= before <= missing:
            raise ValueError(
                f"{self.name}: a part of shape {tuple(a.shape)} cannot stand at place {place} among {quantity(ndim, 'dim')}."
            )
        return mp.reshape(a, (*(1,) * before, *a.shape, *(1,) * (missing - before)))


mgrid, ogrid = _Grid("mgrid", False), _Grid("ogrid", True)
r_, c_ = _Joiner("r_", 0, 1, -1), _Joiner("c_", -1, 2, 0)
s_, index_exp = np.s_, np.index_exp


def ix_(*args):
    """Return index arrays, one per dim, that select the cross product of positions."""
    out = []
    for i, a in enumerate(args):
        a = creation.asarray(a)
        if a.ndim != 1:
            raise ValueError(f"Arguments to ix_ must be 1-dimensional, got shape {tuple(a.shape)}.")
        if a.dtype == np.bool_:
            a = creation.asarray(np.nonzero(np.asarray(a))[0].astype(dtypes.default_int_dtype()))
        out.append(mp.reshape(a, tuple(-1 if d == i else 1 for d in range(len(args)))))
    return tuple(out)


def iterable(y) -> bool:
    """Return whether `y` can be iterated over."""
    return np.iterable(y)


def _concrete_sizes(*sizes) -> list:
    """Return sizes as integers; arrays that are concrete during tracing are accepted."""
    return [
        None if n is None else n if isinstance(n, SymbolicDim) else operator.index(n) for n in sizes
    ]


def _triangle_positions(name: str, n, k, m) -> tuple:
    """Return the positions of a triangle of an n by m matrix, whose size follows from symbolic sizes."""
    n, k, m = _concrete_sizes(n, k, m)
    if not any(isinstance(size, SymbolicDim) for size in (n, k, m)):
        rows = np.tril_indices(n, k, m) if name == "tril" else np.triu_indices(n, k, m)
        return tuple(creation.asarray(i.astype(dtypes.default_int_dtype())) for i in rows)
    m = n if m is None else m
    mask = (
        creation.tri(n, m, k, dtype=bool)
        if name == "tril"
        else ~creation.tri(n, m, k - 1, dtype=bool)
    )
    size = _lower_triangle_size(n, k, m) if name == "tril" else _lower_triangle_size(m, -k, n)
    note_nonnegative(size)
    return selection.nonzero(mask, size=size)


def _lower_triangle_size(n, k, m):
    """Return the number of elements on and below diagonal `k` of an n by m matrix.

    >>> _lower_triangle_size(3, 0, 3), _lower_triangle_size(2, 1, 5), _lower_triangle_size(4, -1, 2)
    (6, 5, 5)
    """
    first, last = max_dim(-k, 0), min_dim(n, m - k)  # the rows that end at the diagonal
    partial = max_dim(last - first, 0) * (first + last + 1 + 2 * k) // 2
    return partial + (n - min_dim(n, max_dim(m - k, 0))) * m


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Return the positions of the lower triangle of an n by m matrix."""
    return _triangle_positions("tril", n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Return positions of the upper triangle of an n by m matrix."""
    return _triangle_positions("triu", n, k, m)


def tril_indices_from(arr, k: int = 0) -> tuple:
    """Return positions of the lower triangle of a matrix."""
    return tril_indices(*_triangle("tril", arr, k))


def triu_indices_from(arr, k: int = 0) -> tuple:
    """Return positions of the upper triangle of a matrix."""
    return triu_indices(*_triangle("triu", arr, k))


def _triangle(name: str, arr, k: int) -> tuple:
    dims = shape(arr)
    if len(dims) != 2:
        raise ValueError(f"{name}_indices_from: the argument must be a matrix, got shape {dims}.")
    return dims[0], k, dims[1]


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """Return positions of the main diagonal."""
    return (creation.arange(*_concrete_sizes(n)),) * ndim


def diag_indices_from(arr) -> tuple:
    """Return positions of the main diagonal of an array whose dims are equal."""
    dims = shape(arr)
    if len(dims) < 2 or len(set(dims)) != 1:
        raise ValueError(
            f"All dimensions of input must be of equal length, at least two of them; got {dims}."
        )
    return diag_indices(dims[0], len(dims))


def mask_indices(n: int, mask_func: Callable, k=0, *, size: int | None = None) -> tuple:
    """Return the positions that `mask_func(ones((n, n)), k)` keeps."""
    return selection.nonzero(mask_func(creation.ones((n, n)), k), size=size)


def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = True):
    """Return `a` with `val` on its main diagonal (a new array: pass inplace=False)."""
    if inplace:
        raise NotImplementedError(
            "fill_diagonal: arrays are immutable; pass inplace=False and use the result."
        )
    if wrap:
        raise NotImplementedError("fill_diagonal with wrap=True is not supported.")
    a, val = array_of("fill_diagonal", a), array_of("fill_diagonal", val)
    if a.ndim < 2 or (a.ndim > 2 and len(set(a.shape)) != 1):
        raise ValueError(
            f"fill_diagonal takes matrices, or arrays whose dims are all equal; got {tuple(a.shape)}."
        )
    n = functools.reduce(min_dim, a.shape)
    i = layout.index_range(n)
    return a.at[(i,) * a.ndim].set(resize(val, (n,)) if val.ndim else val)


def put(a, ind, v, mode: str | None = None, *, inplace: bool = True):
    """Return `a` with values `v` at flat positions `ind` (a new array: pass inplace=False)."""
    if inplace:
        raise ValueError("put: arrays are immutable; pass inplace=False and use the result.")
    a, ind = array_of("put", a), mp.ravel(ind)
    v = mp.ravel(v)
    if not a.size or not ind.size or not v.size:
        return a
    v = resize(v, (ind.size,))
    if mode == "wrap":
        ind, mode = ind % a.size, None
    elif mode == "clip":
        ind, mode = selection.clip(ind, 0, a.size - 1), None
    elif mode not in (None, "raise"):
        raise ValueError(f"put: mode must be 'clip' or 'wrap', got {mode!r}.")
    return mp.reshape(mp.ravel(a).at[ind].set(v, mode="drop"), a.shape)


def place(arr, mask, vals, *, inplace: bool = True):
    """Return a new array: `arr` with the values `vals`, cyclically, where `mask` holds.

    Pass inplace=False.
    """
    if inplace:
        raise ValueError("place: arrays are immutable; pass inplace=False and use the result.")

    arr, vals = array_of("place", arr), mp.ravel(vals)
    mask = mp.ravel(array_of("place", mask) != 0)
    if not vals.size:
        raise ValueError("place: cannot insert from an empty array.")
    number = selection.clip(cumsum(mask) - 1, 0, None) % vals.size
    return mp.reshape(
        selection.where(mask, vals.astype(arr.dtype)[number], mp.ravel(arr)), arr.shape
    )
