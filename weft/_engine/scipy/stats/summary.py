"""Statistics of samples: the most common value, ranks, the standard error of the mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import numpy as wnp
from weft._engine.numpy.promote import canonical_axis, concrete, inexact
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all
from weft.lax import cummax, cummin


class ModeResult(NamedTuple):
    """The most common values and their counts."""

    mode: Any
    count: Any


def mode(
    a, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """Return the most common value along `axis`, the smallest if tied, and its count. NaN is a value, larger than all others."""
    if nan_policy != "propagate":
        raise NotImplementedError(
            f"mode: nan_policy={nan_policy!r} is not supported; use 'propagate'."
        )
    x = wnp.asarray(a)
    ndim = x.ndim
    x, axis = (wnp.ravel(x), 0) if axis is None else (x, canonical_axis(axis, x.ndim, "mode"))
    if x.shape[axis] == 0:
        shape = [n for d, n in enumerate(x.shape) if d != axis]
        shape = (
            [1] * ndim
            if keepdims and x.ndim != ndim
            else [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
            if keepdims
            else shape
        )
        nothing = dtypes.canonicalize_dtype(np.result_type(x.dtype, np.float32))
        return ModeResult(wnp.full(shape, np.nan, nothing), wnp.zeros(shape, nothing))
    x = wnp.sort(wnp.moveaxis(x, axis, -1), -1)
    equal = x[..., :, None] == x[..., None, :]
    if dtypes.issubdtype(x.dtype, np.inexact):
        nan = wnp.isnan(x)
        equal = equal | (nan[..., :, None] & nan[..., None, :])
    counts = wnp.sum(equal, -1)
    at = wnp.argmax(counts, -1)[..., None]
    out = [wnp.squeeze(wnp.take_along_axis(v, at, -1), -1) for v in (x, counts)]
    if keepdims:
        dims = tuple(range(ndim)) if len(x.shape) != ndim else axis
        out = [wnp.expand_dims(v, dims) for v in out]
    return ModeResult(*out)


def rankdata(a, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"):
    """Return the ranks of the values, from 1; ties are resolved by `method`: average, min, max, dense or ordinal."""
    if nan_policy != "propagate":
        raise NotImplementedError(
            f"rankdata: nan_policy={nan_policy!r} is not supported; use 'propagate'."
        )
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(
            f"rankdata: unknown method {method!r}; use average, min, max, dense or ordinal."
        )
    x = wnp.asarray(a)
    if axis is None:
        x, axis = wnp.ravel(x), 0
    x = wnp.moveaxis(x, axis, -1)
    place = wnp.argsort(wnp.argsort(x, -1, stable=True), -1) + 1
    if method == "ordinal":
        return wnp.moveaxis(place, -1, axis)
    y = wnp.sort(x, -1)
    new = wnp.concatenate([wnp.ones_like(y[..., :1], dtype=bool), y[..., 1:] != y[..., :-1]], -1)
    last = wnp.concatenate([new[..., 1:], wnp.ones_like(new[..., :1])], -1)
    index = wnp.broadcast_to(wnp.arange(1, x.shape[-1] + 1), y.shape)
    low = cummax(wnp.where(new, index, 0), axis=y.ndim - 1)
    high = cummin(wnp.where(last, index, x.shape[-1]), axis=y.ndim - 1, reverse=True)
    ranks = {
        "min": lambda: low,
        "max": lambda: high,
        "average": lambda: (low + high) / 2,
        "dense": lambda: wnp.cumsum(new, -1),
    }[method]()
    return wnp.moveaxis(wnp.take_along_axis(ranks, place - 1, -1), -1, axis)


def sem(
    a, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
):
    """Return the standard error of the mean along `axis`."""
    x = concrete(inexact("sem", a))
    if nan_policy == "omit":
        count = wnp.sum(~wnp.isnan(x), axis, keepdims=keepdims)
        return wnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / wnp.sqrt(count.astype(x.dtype))
    if nan_policy != "propagate":
        raise ValueError(
            f"sem: nan_policy must be 'propagate' or 'omit', got {nan_policy!r}: nothing can be raised for values here."
        )
    n = wnp.size(x, axis)
    return wnp.std(x, axis, ddof=ddof, keepdims=keepdims) / wnp.sqrt(wnp.asarray(n, x.dtype))


guard_all(globals())
