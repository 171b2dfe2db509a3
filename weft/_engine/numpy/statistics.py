"""Order statistics, histograms, covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft._engine.numpy import (
    creation,
    manipulation as mp,
    reductions as rd,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.creation import asarray
from weft._engine.numpy.dtype_kinds import check_no_out
from weft._engine.numpy.promote import (
    array_of,
    canonical_axes,
    cast,
    check_arraylike,
    concrete,
    promote_dtypes_inexact,
    value,
)
from weft._engine.numpy.sorting import argsort, searchsorted, sort
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity


def quantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """Return the quantiles `q` (0 to 1) of elements over `axis`; NaN if any element is NaN.

    Methods: linear, lower, higher, nearest, midpoint, inverted_cdf. The last one accepts `weights`,
    one per element or per element of `axis`. Raises ValueError for another method and for `out` and
    `overwrite_input`, NotImplementedError for weights with another method.
    """
    _check_not_written("quantile", out, overwrite_input)
    return _quantile("quantile", a, q, axis, method, keepdims, False, weights)


def nanquantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """Return `quantile` over `axis`, ignoring NaN."""
    _check_not_written("nanquantile", out, overwrite_input)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, weights)


def _check_not_written(api: str, out, overwrite_input: bool) -> None:
    """Raise ValueError for an array to fill or to overwrite."""
    check_no_out(out, api, ValueError)
    if overwrite_input:
        raise ValueError(f"{api}: overwrite_input=True is not supported: arrays are immutable.")


_QUANTILE_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _quantile(api: str, a, q, axis, method: str, keepdims: bool, ignore_nan: bool, weights):
    check_arraylike(api, a, q)
    a, q = [concrete(promote_dtypes_inexact(value(x))[0]) for x in (a, q)]
    dtype = a.dtype
    _check_quantile(api, dtype, q, method, weights)
    # positions in narrow floats would be coarse
    work = np.dtype(np.float64 if 8 in (dtype.itemsize, q.dtype.itemsize) else np.float32)
    a, q = cast(a, work), cast(q, work)
    axes = canonical_axes(axis, a.ndim, api)
    other_dims = [d for d in range(a.ndim) if d not in axes]
    lead = tuple(a.shape[d] for d in other_dims)
    n = math.prod([a.shape[d] for d in axes])
    flat = mp.reshape(mp.transpose(a, (*other_dims, *axes)), (*lead, n))
    if n == 0:  # NaN, like the mean of no elements
        flat, n = creation.full((*lead, 1), np.nan, a.dtype), 1
    if weights is None:
        ordered, w = sort(flat, -1), None  # NaN last
    else:
        w = _weights(api, a, weights, axes)
        w = mp.reshape(mp.transpose(w, (*other_dims, *axes)), flat.shape)
        order = argsort(flat, -1)
        ordered, w = [selection.take_along_axis(x, order, -1) for x in (flat, w)]
    nan = uf.isnan(flat)
    last = (n - 1) * 1.0
    if ignore_nan:
        last = uf.maximum(uf.subtract(cast(rd.sum(uf.logical_not(nan), -1), a.dtype), 1), 0)
    full_q = mp.reshape(q, (*q.shape, *(1,) * len(lead)))
    if w is None:
        picked = _pick_by_position(method, ordered, full_q, last, lead)
    else:
        if ignore_nan:
            w = selection.where(uf.isnan(ordered), 0, w)
        picked = _pick_by_weight(ordered, w, full_q, last, lead)
    spoiled = rd.all(nan, -1) if ignore_nan else rd.any(nan, -1)
    picked = cast(selection.where(spoiled, np.nan, picked), dtype)
    if not keepdims:
        return picked
    return mp.reshape(picked, (*q.shape, *_keep_dims(a.shape, axes)))


def _check_quantile(api: str, dtype, q, method: str, weights) -> None:
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise ValueError(f"{api} is not defined for complex numbers.")
    if method not in _QUANTILE_METHODS:
        raise ValueError(
            f"{api}: method can only be 'linear', 'lower', 'higher', 'midpoint', 'nearest' or 'inverted_cdf', got {method!r}."
        )
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(
            f"{api}: weights are for method='inverted_cdf', got method={method!r}."
        )
    if q.ndim > 1:
        raise ValueError(f"{api}: q must be a number or a vector, got shape {tuple(q.shape)}.")


def _keep_dims(shape, axes: tuple[int, ...]) -> tuple:
    """Return `shape` with size 1 along `axes`."""
    return tuple(1 if d in axes else n for d, n in enumerate(shape))


def _pick_by_position(method: str, ordered, q, last, lead):
    """Return the quantiles `q` of sorted rows with last position `last`."""
    position = uf.multiply(q, last)
    if method == "inverted_cdf":
        rank = uf.multiply(q, uf.add(last, 1))
        return _pick(ordered, uf.ceil(uf.subtract(rank, 1)), last, lead)
    if method == "nearest":
        return _pick(ordered, uf.ceil(uf.subtract(position, 0.5)), last, lead)
    low, high = [_pick(ordered, p, last, lead) for p in (uf.floor(position), uf.ceil(position))]
    weight = uf.subtract(position, uf.floor(position))
    if method == "linear":
        return uf.add(uf.multiply(low, uf.subtract(1, weight)), uf.multiply(high, weight))
    if method == "midpoint":
        return uf.multiply(uf.add(low, high), 0.5)
    return low if method == "lower" else high


def _pick_by_weight(ordered, weights, q, last, lead):
    """Return the first elements at which the cumulative weight reaches `q` of the total."""
    reached = rd.cumsum(weights, -1)
    threshold = mp.expand_dims(uf.multiply(q, reached[..., -1]), -1)
    counts = uf.logical_and(uf.greater_equal(reached, threshold), uf.greater(weights, 0))
    return _pick(ordered, cast(rd.argmax(counts, -1), ordered.dtype), last, lead)


def _weights(api: str, a, weights, axes: tuple[int, ...]):
    """Return the weights in the shape of `a`: one per element, or one per element of `axes`."""
    check_arraylike(api, weights)
    w = cast(concrete(value(weights)), a.dtype)
    if tuple(w.shape) != tuple(a.shape):
        if tuple(w.shape) != tuple(a.shape[d] for d in axes):
            raise ValueError(
                f"{api}: weights must have the shape of a, {tuple(a.shape)}, or of its axes {axes}, got {tuple(w.shape)}."
            )
        w = mp.reshape(w, tuple(k if d in axes else 1 for d, k in enumerate(a.shape)))
    return mp.broadcast_to(w, a.shape)


def _pick(ordered, position, last, lead):
    """Return elements of the last dim at float positions.

    Positions have the shape [q..., lead...], or are one position for all.
    """
    k = cast(selection.clip(position, 0, last), np.dtype(np.int32))
    k = mp.broadcast_to(k, (*k.shape[: k.ndim - len(lead)], *lead)) if lead else k
    if not lead:
        return selection.take(ordered, k, 0, mode="clip")
    if k.ndim == len(lead):
        return selection.take_along_axis(ordered, k[..., None], -1, mode="clip")[..., 0]
    return mp.moveaxis(
        selection.take_along_axis(ordered, mp.moveaxis(k, 0, -1), -1, mode="clip"), -1, 0
    )


@takes_out_sharding
def percentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """Return the percentiles `q` (0 to 100) of elements over `axis`."""
    _check_not_written("percentile", out, overwrite_input)
    check_arraylike("percentile", a, q)
    return quantile(
        a,
        uf.divide(promote_dtypes_inexact(value(q))[0], 100),
        axis,
        method=method,
        keepdims=keepdims,
        weights=weights,
    )


def nanpercentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights=None,
):
    """Return `percentile` over `axis`, ignoring NaN."""
    _check_not_written("nanpercentile", out, overwrite_input)
    check_arraylike("nanpercentile", a, q)
    return nanquantile(
        a,
        uf.divide(promote_dtypes_inexact(value(q))[0], 100),
        axis,
        method=method,
        keepdims=keepdims,
        weights=weights,
    )


def median(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """Return the median of elements over `axis`."""
    _check_not_written("median", out, overwrite_input)
    return quantile(a, 0.5, axis, keepdims=keepdims, method="midpoint")


def nanmedian(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """Return `median` over `axis`, ignoring NaN."""
    _check_not_written("nanmedian", out, overwrite_input)
    return nanquantile(a, 0.5, axis, keepdims=keepdims, method="midpoint")


def histogram_bin_edges(a, bins=10, range=None, weights=None):  # noqa: A002
    """Return the edges of `bins` equal bins over the range of `a` (or the given edges)."""
    if isinstance(bins, str):
        raise NotImplementedError(
            "histogram_bin_edges: names of bin rules are not there; give a number or the edges."
        )
    if not isinstance(bins, (int, np.integer)):
        bins = asarray(bins)
        if bins.ndim:
            return bins
    a = mp.ravel(asarray(a))
    low, high = ((rd.min(a), rd.max(a)) if a.size else (0.0, 1.0)) if range is None else range
    dtype = dtypes.to_inexact_dtype(a.dtype)
    low, high = cast(concrete(low), dtype), cast(concrete(high), dtype)
    same = uf.equal(low, high)
    return creation.linspace(
        selection.where(same, uf.subtract(low, 0.5), low),
        selection.where(same, uf.add(high, 0.5), high),
        int(bins) + 1,
    )


def _bin_numbers(x, edges):
    """Return the bin of each element, -1 outside; the last bin includes its right edge."""
    n = edges.shape[0] - 1
    number = uf.subtract(searchsorted(edges, x, side="right"), 1)
    number = selection.where(uf.equal(x, edges[-1]), n - 1, number)
    inside = uf.logical_and(uf.greater_equal(x, edges[0]), uf.less_equal(x, edges[-1]))
    return selection.where(inside, selection.clip(number, 0, n - 1), -1)


def histogram(a, bins=10, range=None, weights=None, density: bool | None = None):  # noqa: A002
    """Return the counts (or sums of weights) of elements per bin, and the edges of the bins."""
    a, w = mp.ravel(asarray(a)), None if weights is None else mp.ravel(asarray(weights))
    if w is not None and not dtypes.issubdtype(w.dtype, np.complexfloating):
        a, w = promote_dtypes_inexact(a, w)
    edges = histogram_bin_edges(a, bins, range)
    # integer weights adapt to the dtype, regardless of the promotion rules
    inexact = [x.dtype for x in (a, edges) if dtypes.issubdtype(x.dtype, np.inexact)]
    dtype = (
        dtypes.result_type(*inexact)
        if inexact
        else dtypes.to_inexact_dtype(dtypes.result_type(a, edges))
    )
    a, edges = cast(a, dtype), cast(edges, dtype)
    w = creation.ones_like(a) if w is None else w
    n = edges.shape[0] - 1
    number = _bin_numbers(a, edges)
    counts = (
        creation.zeros((n,), w.dtype)
        .at[selection.where(uf.less(number, 0), n, number)]
        .add(w, mode="drop")
    )
    if density:
        counts = uf.divide(uf.divide(counts, rd.sum(counts)), uf.subtract(edges[1:], edges[:-1]))
    return counts, edges


def histogramdd(sample, bins: Any = 10, range=None, weights=None, density: bool | None = None):  # noqa: A002
    """Return the counts of points (rows) per cell of a grid, and the bin edges of each dim."""
    if isinstance(sample, (list, tuple)):
        sample = mp.stack([asarray(s) for s in sample], -1)
    sample = asarray(sample)
    if sample.ndim != 2 or not sample.shape[1]:
        raise ValueError(
            f"histogramdd takes points as rows of a matrix, got shape {tuple(sample.shape)}."
        )
    sample = cast(sample, dtypes.to_inexact_dtype(sample.dtype))
    points = sample.shape[0]
    columns, edges = _grid_edges(sample, bins, range)
    numbers = [_bin_numbers(x, e) for x, e in zip(columns, edges)]
    outside = numbers[0] < 0
    for k in numbers[1:]:
        outside = uf.logical_or(outside, k < 0)
    shape = tuple(e.shape[0] - 1 for e in edges)
    if weights is None:
        w = creation.ones((points,), dtypes.default_int_dtype())
    else:
        w = asarray(weights)
    if w.dtype == dtypes.float0:
        raise TypeError("histogramdd: `weights` must be numbers, got float0.")
    index = tuple(selection.where(outside, n, k) for n, k in zip(shape, numbers))
    counts = creation.zeros(shape, w.dtype).at[index].add(w, mode="drop")
    if density:
        counts = counts / rd.sum(counts)
        for d, e in enumerate(edges):
            trailing = (1,) * (len(edges) - 1 - d)
            counts = counts / mp.reshape(e[1:] - e[:-1], (*(1,) * d, -1, *trailing))
    return counts, edges


def _grid_edges(sample, bins, ranges) -> tuple[list, list]:
    """Return the columns of `sample` and the edges of the bins along each."""
    dims = sample.shape[1]
    if ranges is None:
        ranges = [None] * dims
    if len(ranges) != dims:
        raise ValueError(
            f"histogramdd: {quantity(len(ranges), 'range')} for {quantity(dims, 'dim')}."
        )
    per_dim = [bins] * dims if isinstance(bins, (int, np.integer)) else list(bins)
    if len(per_dim) != dims:
        raise ValueError("histogramdd: should be a bin for each dimension.")
    edges = [
        cast(histogram_bin_edges(sample[:, d], per_dim[d], ranges[d]), sample.dtype)
        for d in range(dims)
    ]
    return [sample[:, d] for d in range(dims)], edges


def histogram2d(x, y, bins=10, range=None, weights=None, density: bool | None = None):  # noqa: A002
    """Return the counts of points (x, y) per cell of a grid, and the edges along x and y."""
    # separate edges along x and y
    per_dim = isinstance(bins, (list, tuple)) and any(np.ndim(b) for b in bins)
    if (
        not isinstance(bins, (int, np.integer))
        and not per_dim
        and np.ndim(bins) == 1
        and len(bins) not in (1, 2)
    ):
        bins = [bins, bins]
    x, y = asarray(x), asarray(y)
    counts, (x_edges, y_edges) = histogramdd(mp.stack([x, y], -1), bins, range, weights, density)
    return counts, x_edges, y_edges


def cov(
    m,
    y=None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights=None,
    aweights=None,
    dtype=None,
):
    """Return the covariance matrix of variables in rows (or columns).

    `fweights` are counts of observations, `aweights` their weights.

    It is computed in `dtype`, floating or complex; by default in the dtype of the variables.
    """
    return _covariance("cov", m, y, rowvar, bias, ddof, fweights, aweights, dtype)


def _covariance(
    api: str, m, y, rowvar: bool, bias: bool, ddof: int | None, fweights, aweights, dtype
):
    from weft._engine.numpy.products import dot

    x = _observations(api, m, y, rowvar, dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        centered = uf.subtract(x, rd.mean(x, 1, keepdims=True))
        return mp.squeeze(
            uf.divide(dot(centered, uf.conjugate(centered.T)), max(x.shape[1] - ddof, 0))
        )
    w = cast(_joint_weights(api, x.shape[1], fweights, aweights), dtypes.to_real_dtype(x.dtype))
    mean, total = rd.average(x, 1, weights=cast(w, x.dtype), returned=True)
    total = total[0]
    if aweights is not None:
        weighted = rd.sum(uf.multiply(w, array_of(api, aweights)))
        ddof = uf.divide(uf.multiply(ddof, weighted), total)
    norm = uf.subtract(total, ddof)
    centered = uf.subtract(x, mean[:, None])
    return mp.squeeze(uf.divide(dot(uf.multiply(centered, w), uf.conjugate(centered.T)), norm))


def _observations(api: str, m, y, rowvar: bool, dtype):
    """Return a matrix with one row per variable of `m` and `y`, and one column per observation."""
    arrays = [array_of(api, v) for v in (m, y) if v is not None]
    if any(v.ndim > 2 for v in arrays):
        raise ValueError(f"{api}: variables and their observations have at most 2 dims.")
    if dtype is not None:
        dtype = dtypes.check_dtype(dtype, api)
        if not dtypes.issubdtype(dtype, np.inexact):
            raise ValueError(f"{api}: dtype must be floating or complex, got {dtype.name}.")
    rows = [v.T if not rowvar and v.ndim == 2 else mp.atleast_2d(v) for v in arrays]
    if dtype is not None:
        rows = [cast(v, dtype) for v in rows]
    else:
        rows[0] = cast(rows[0], dtypes.to_inexact_dtype(rows[0].dtype))
    return rows[0] if len(rows) == 1 else mp.concatenate(rows, 0)


def _joint_weights(api: str, count: int, *weights):
    """Return the product of the `weights` that are not None, vectors of `count` values."""
    product = None
    for w in weights:
        if w is None:
            continue
        w = array_of(api, w)
        if w.ndim != 1 or w.shape[0] != count:
            raise ValueError(
                f"{api}: weights must be a vector of {count} values, got shape {tuple(w.shape)}."
            )
        product = w if product is None else uf.multiply(product, w)
    return product


def corrcoef(x, y=None, rowvar: bool = True, dtype=None):
    """Return the matrix of correlation coefficients, in `dtype` if given."""
    c = _covariance("corrcoef", x, y, rowvar, False, None, None, None, dtype)
    if c.ndim == 0:
        return uf.divide(c, c)
    d = uf.sqrt(uf.real(selection.diag(c)))
    return uf.divide(uf.divide(c, d[:, None]), d[None, :])
