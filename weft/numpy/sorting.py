"""Sorting, searching, sets and histograms."""

from __future__ import annotations

import builtins

import numpy as np

from weft.core.trace import Tracer
from weft.numpy import manipulation as mp
from weft.numpy import reductions as rd
from weft.numpy import ufuncs as uf
from weft.numpy.promote import broadcast_to_shape, cast, check_arraylike, concrete, promote_dtypes, value
from weft.ops import elementwise as ew
from weft.ops import layout, sorting
from weft.util import dtypes
from weft.util.errors import ConcretizationTypeError


def _array(a, api: str):
    check_arraylike(api, a)
    return concrete(value(a))


def _axis(axis: int, ndim: int, api: str) -> int:
    return rd.canonical_axes(axis, ndim, api)[0]


def _host(x, api: str, remedy: str = "") -> np.ndarray:
    """The concrete value of `x`; functions whose result shape depends on values need it."""
    if isinstance(x, Tracer) and x.concrete() is None:
        raise ConcretizationTypeError(f"{api}: the shape of the result depends on values, but got {x.describe()}. {remedy}")
    return np.asarray(x)


def sort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False):
    """Elements in ascending (or descending) order along `axis`; NaN last."""
    a = _array(a, "sort")
    if axis is None:
        a, axis = mp.ravel(a), 0
    axis = _axis(axis, a.ndim, "sort")
    out = sorting.sort(a, dimension=axis, is_stable=stable)
    return layout.rev(out, (axis,)) if descending else out


def argsort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False):
    """Positions that sort `a` along `axis`."""
    a = _array(a, "argsort")
    if axis is None:
        a, axis = mp.ravel(a), 0
    axis = _axis(axis, a.ndim, "argsort")
    positions = layout.broadcasted_iota(dtypes.default_int_dtype(), tuple(a.shape), axis)
    if descending:        # stable: equal elements keep their order, so both sequences are reversed before and after
        flipped = [layout.rev(x, (axis,)) for x in (a, positions)]
        out = sorting.sort(flipped, dimension=axis, is_stable=True, num_keys=1)[1]
        return layout.rev(out, (axis,))
    return sorting.sort([a, positions], dimension=axis, is_stable=stable, num_keys=1)[1]


def lexsort(keys, axis: int = -1):
    """Positions that sort by several keys, the last one first."""
    keys = [_array(k, "lexsort") for k in keys]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    axis = _axis(axis, keys[0].ndim, "lexsort")
    positions = layout.broadcasted_iota(dtypes.default_int_dtype(), tuple(keys[0].shape), axis)
    return sorting.sort([*reversed(keys), positions], dimension=axis, is_stable=True, num_keys=len(keys))[-1]


def partition(a, kth: int, axis: int = -1):
    """Elements so arranged that the `kth` is in its sorted place (here: sorted)."""
    return sort(a, axis)


def argpartition(a, kth: int, axis: int = -1):
    """Positions so arranged that the `kth` is in its sorted place (here: sorted)."""
    return argsort(a, axis)


def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan"):
    """Where to insert `v` into sorted `a` to keep it sorted, by bisection.

    >>> import weft.numpy as wnp
    >>> wnp.searchsorted(wnp.arange(5.), wnp.array([0.5, 4.0]))
    Array([1, 4], dtype=int32)
    """
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'; expected one of ['left', 'right'].")
    a, v = [concrete(x) for x in promote_dtypes(value(a), value(v))]
    if a.ndim != 1:
        raise ValueError(f"a should be 1-dimensional, got shape {tuple(a.shape)}.")
    if sorter is not None:
        a = a[sorter]
    n = a.shape[0]
    low = layout.broadcast_in_dim(np.int32(0), tuple(v.shape), ())
    high = layout.broadcast_in_dim(np.int32(n), tuple(v.shape), ())
    for _ in range(n.bit_length()):
        middle = ew.shift_right_logical(ew.add(low, high), 1)
        probe = a[mp.clip(middle, 0, builtins.max(n - 1, 0))] if n else v
        right = _not_after(probe, v, side)
        open_ = ew.lt(low, high)
        low, high = (ew.select_n(ew.bitwise_and(open_, right), low, ew.add(middle, 1)),
                     ew.select_n(ew.bitwise_and(open_, ew.bitwise_not(right)), high, middle))
    return cast(low, dtypes.default_int_dtype())


def _not_after(x, v, side: str):
    """Whether `v` belongs after element `x`; NaN sorts last."""
    after = ew.lt(x, v) if side == "left" else ew.le(x, v)
    if dtypes.issubdtype(v.dtype, np.floating):
        nan_v, nan_x = ew.ne(v, v), ew.ne(x, x)
        after = ew.bitwise_or(after, ew.bitwise_and(nan_v, ew.bitwise_not(nan_x) if side == "left" else ew.bitwise_or(nan_v, nan_x)))
    return after


def digitize(x, bins, right: bool = False, *, method=None):
    """The number of the bin of each element."""
    bins = _array(bins, "digitize")
    if bins.ndim != 1:
        raise ValueError("digitize: bins must be a 1-dimensional array.")
    if bins.shape[0] == 0:
        return mp.broadcast_to(np.int32(0), np.shape(x))
    side = "right" if not right else "left"
    up = searchsorted(bins, x, side=side)
    down = uf.subtract(bins.shape[0], searchsorted(mp.flip(bins), x, side="left" if side == "right" else "right"))
    return mp.where(uf.greater_equal(bins[-1], bins[0]), up, down)


def nonzero(a, *, size: int | None = None, fill_value=None) -> tuple:
    """Positions of nonzero elements, one array per dim. Inside `jit`, give a static `size`; missing ones are `fill_value` (0)."""
    from weft.numpy.creation import asarray
    a = asarray(a)
    if a.ndim == 0:
        a = mp.reshape(a, (1,))
    if size is None:
        host = _host(a, "nonzero", "Give size=..., a static bound on the number of results.")
        return tuple(asarray(p.astype(dtypes.default_int_dtype())) for p in np.nonzero(host))
    mask = mp.ravel(uf.not_equal(a, 0) if a.dtype != np.bool_ else a)
    order = argsort(uf.logical_not(mask), stable=True)[:size]
    if order.shape[0] < size:
        order = mp.pad(order, (0, size - order.shape[0]))
    valid = uf.less(layout.broadcasted_iota(np.dtype(np.int32), (size,), 0), rd.sum(mask))
    out = []
    stride = a.size
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * a.ndim
    for n, fill in zip(a.shape, fills):
        stride //= builtins.max(n, 1)
        position = uf.remainder(uf.floor_divide(order, builtins.max(stride, 1)), builtins.max(n, 1))
        out.append(mp.where(valid, position, 0 if fill is None else fill))
    return tuple(out)


def flatnonzero(a, *, size: int | None = None, fill_value=None):
    """Positions of nonzero elements of the flattened array."""
    return nonzero(mp.ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a, *, size: int | None = None, fill_value=None):
    """Positions of nonzero elements as rows."""
    result = nonzero(a, size=size, fill_value=fill_value)
    return mp.stack(result, 1) if np.ndim(a) else mp.reshape(result[0], (-1, 0))


def extract(condition, arr, *, size: int | None = None, fill_value=0):
    """The elements of `arr` where `condition` holds."""
    return compress(mp.ravel(condition), mp.ravel(arr), size=size, fill_value=fill_value)


def compress(condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None):
    """The slices of `a` along `axis` where `condition` holds."""
    a = _array(a, "compress")
    if axis is None:
        a, axis = mp.ravel(a), 0
    axis = _axis(axis, a.ndim, "compress")
    positions = flatnonzero(condition, size=size, fill_value=a.shape[axis])
    return mp.take(a, positions, axis, mode="fill", fill_value=fill_value)


def choose(a, choices, out=None, mode: str = "raise"):
    """Elements picked from `choices` by the numbers in `a`."""
    a = _array(a, "choose")
    stacked = mp.stack(mp.broadcast_arrays(*choices), 0)
    n = stacked.shape[0]
    if mode == "wrap":
        a = uf.remainder(a, n)
    elif mode == "clip":
        a = mp.clip(a, 0, n - 1)
    elif mode == "raise":
        if isinstance(a, Tracer):
            raise ConcretizationTypeError("choose with mode='raise' needs concrete values; use mode='clip' or 'wrap'.")
        if np.any((np.asarray(a) < 0) | (np.asarray(a) >= n)):
            raise ValueError("invalid entry in choice array")
    return mp.take_along_axis(stacked, mp.expand_dims(broadcast_to_shape(a, tuple(stacked.shape[1:])), 0), 0)[0]


def unique(ar, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
           *, equal_nan: bool = True, size: int | None = None, fill_value=None, sorted: bool = True):  # noqa: A002
    """The sorted distinct elements; their number depends on values, so inside `jit` give a static `size`."""
    from weft.numpy.creation import asarray
    ar = asarray(ar)
    if size is None:
        host = _host(ar, "unique", "Give size=..., a static bound on the number of results.")
        out = np.unique(host, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
        if not isinstance(out, tuple):
            return asarray(out)
        int_dtype = dtypes.default_int_dtype()
        return tuple(asarray(o) if i == 0 else asarray(o.astype(int_dtype)) for i, o in enumerate(out))
    if axis is not None or not equal_nan:
        raise NotImplementedError("weft.numpy.unique with size and axis (or equal_nan=False) is not there yet.")
    flat = mp.ravel(ar)
    order = argsort(flat)
    ordered = flat[order]
    new = mp.concatenate([np.ones((builtins.min(1, flat.size),), bool), _differs(ordered[1:], ordered[:-1])])
    number = uf.subtract(rd.cumsum(new), 1)
    starts = flatnonzero(new, size=size, fill_value=flat.size)
    valid = uf.less(starts, flat.size)
    fill = rd.min(flat) if fill_value is None else fill_value
    values = mp.where(valid, ordered[mp.clip(starts, 0, builtins.max(flat.size - 1, 0))], cast(fill, flat.dtype))
    result = [values]
    if return_index:
        result.append(mp.where(valid, order[mp.clip(starts, 0, builtins.max(flat.size - 1, 0))], 0))
    if return_inverse:
        inverse = mp.reshape(uf.multiply(order, 0).at[order].set(cast(number, order.dtype)), tuple(ar.shape))
        result.append(inverse)
    if return_counts:
        ends = mp.concatenate([starts[1:], np.array([flat.size], np.int32)])
        result.append(mp.where(valid, uf.subtract(ends, starts), 0))
    return result[0] if len(result) == 1 else tuple(result)


def _differs(x, y):
    both_nan = uf.logical_and(uf.isnan(x), uf.isnan(y))
    return uf.logical_and(uf.not_equal(x, y), uf.logical_not(both_nan))


def unique_values(x, /, *, size=None, fill_value=None):
    """The sorted distinct elements."""
    return unique(x, size=size, fill_value=fill_value)


def _set_function(name: str, text: str):
    def fun(ar1, ar2, *args, **kwargs):
        from weft.numpy.creation import asarray
        if kwargs.pop("size", None) is not None:
            raise NotImplementedError(f"weft.numpy.{name} with size is not there yet.")
        kwargs.pop("fill_value", None)
        hosts = [_host(asarray(x), name) for x in (ar1, ar2)]
        out = getattr(np, name)(*hosts, *args, **kwargs)
        return tuple(map(asarray, out)) if isinstance(out, tuple) else asarray(out)
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = text
    return fun


union1d = _set_function("union1d", "The sorted elements that are in either array (values must be concrete).")
intersect1d = _set_function("intersect1d", "The sorted elements that are in both arrays (values must be concrete).")
setdiff1d = _set_function("setdiff1d", "The sorted elements of the first array that are not in the second (concrete values).")
setxor1d = _set_function("setxor1d", "The sorted elements that are in exactly one array (values must be concrete).")


def isin(element, test_elements, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"):
    """Where elements are among `test_elements`."""
    a, b = [concrete(x) for x in promote_dtypes(value(element), value(test_elements))]
    b = mp.ravel(b)
    wide = uf.equal(mp.expand_dims(a, -1), b)
    found = rd.any(wide, -1)
    return uf.logical_not(found) if invert else found


def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None):
    """How often each non-negative integer occurs (or the sum of its weights). Inside `jit`, give a static `length`."""
    from weft.numpy.creation import zeros
    x = _array(x, "bincount")
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype.name}")
    if length is None:
        host = _host(x, "bincount", "Give length=..., the static number of bins.")
        length = builtins.max(minlength, int(host.max()) + 1 if host.size else 0)
    weights = np.int32(1) if weights is None else _array(weights, "bincount")
    dtype = weights.dtype if hasattr(weights, "aval") else dtypes.default_int_dtype()
    return zeros((length,), dtype).at[mp.clip(x, 0, None)].add(weights, mode="drop")


def quantile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
             interpolation=None):
    """The quantiles `q` (0 to 1) of elements over `axis`."""
    a, q = _array(a, "quantile"), _array(q, "quantile") if not isinstance(q, (list, tuple)) else concrete(np.asarray(q, np.float32))
    work = dtypes.to_inexact_dtype(dtypes.result_type(a))
    a, q = cast(a, work), cast(q, work)
    axes = rd.canonical_axes(axis, a.ndim, "quantile")
    rest = [d for d in range(a.ndim) if d not in axes]
    kept = tuple(1 if d in axes else n for d, n in enumerate(a.shape))
    flat = mp.reshape(mp.transpose(a, (*rest, *axes)), (*(a.shape[d] for d in rest), -1)) if a.ndim else mp.reshape(a, (1,))
    n = flat.shape[-1]
    ordered = sort(flat, -1)
    position = uf.multiply(q, n - 1)
    low, high = uf.floor(position), uf.ceil(position)
    weight = uf.subtract(position, low)
    index = lambda p: cast(mp.clip(p, 0, n - 1), np.dtype(np.int32))
    at_low, at_high = [mp.take(ordered, index(p), -1, mode="clip") for p in (low, high)]
    blend = {"linear": lambda: uf.add(uf.multiply(at_low, uf.subtract(1, weight)), uf.multiply(at_high, weight)),
             "lower": lambda: at_low, "higher": lambda: at_high,
             "nearest": lambda: mp.take(ordered, index(uf.rint(position)), -1, mode="clip"),
             "midpoint": lambda: uf.multiply(uf.add(at_low, at_high), 0.5)}
    if method not in blend:
        raise NotImplementedError(f"weft.numpy.quantile: method={method!r} is not there yet; use one of {builtins.sorted(blend)}.")
    out = blend[method]()
    nan = rd.any(uf.isnan(flat), -1)
    out = mp.where(mp.reshape(nan, tuple(nan.shape) + (1,) * q.ndim), np.nan, out) if dtypes.issubdtype(work, np.floating) else out
    out = mp.moveaxis(out, tuple(range(out.ndim - q.ndim, out.ndim)), tuple(range(q.ndim))) if q.ndim else out
    return mp.reshape(out, tuple(q.shape) + kept) if keepdims else out


def percentile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
               interpolation=None):
    """The percentiles `q` (0 to 100) of elements over `axis`."""
    q = np.asarray(q, np.float32) / 100 if isinstance(q, (int, float, list, tuple, np.ndarray)) else uf.divide(q, 100)
    return quantile(a, q if not isinstance(q, np.ndarray) else concrete(q), axis, out, overwrite_input, method, keepdims)


def median(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False):
    """The median of elements over `axis`."""
    return quantile(a, 0.5, axis, keepdims=keepdims, method="midpoint")


def histogram_bin_edges(a, bins=10, range=None, weights=None):  # noqa: A002
    """The edges of `bins` equal bins over the range of `a` (or the given ones)."""
    from weft.numpy.creation import asarray, linspace
    if not isinstance(bins, int):
        return asarray(bins)
    a = mp.ravel(asarray(a))
    low, high = (rd.min(a), rd.max(a)) if range is None else range
    same = uf.equal(low, high)
    return linspace(mp.where(same, uf.subtract(low, 0.5), low), mp.where(same, uf.add(high, 0.5), high), bins + 1)


def histogram(a, bins=10, range=None, weights=None, density: bool | None = None):  # noqa: A002
    """Counts (or sums of weights) of elements per bin, and the edges of the bins."""
    from weft.numpy.creation import asarray, ones_like
    a = mp.ravel(cast(asarray(a), dtypes.to_inexact_dtype(asarray(a).dtype)))
    edges = cast(histogram_bin_edges(a, bins, range), a.dtype)
    n = edges.shape[0] - 1
    w = ones_like(a) if weights is None else mp.ravel(asarray(weights))
    number = uf.subtract(searchsorted(edges, a, side="right"), 1)
    number = mp.where(uf.equal(a, edges[-1]), n - 1, number)
    inside = uf.logical_and(uf.greater_equal(a, edges[0]), uf.less_equal(a, edges[-1]))
    from weft.numpy.creation import zeros
    counts = zeros((n,), w.dtype).at[mp.clip(number, 0, n - 1)].add(mp.where(inside, w, 0))
    if density:
        counts = uf.divide(uf.divide(counts, rd.sum(counts)), uf.subtract(edges[1:], edges[:-1]))
    return counts, edges


def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None):
    """The covariance matrix of variables in rows (or columns)."""
    if fweights is not None or aweights is not None:
        raise NotImplementedError("weft.numpy.cov with weights is not there yet.")
    from weft.numpy.products import dot
    x = mp.atleast_2d(m)
    if not rowvar and x.shape[0] != 1:
        x = x.T
    if y is not None:
        other = mp.atleast_2d(y)
        x = mp.concatenate([x, other.T if not rowvar and other.shape[0] != 1 else other], 0)
    x = cast(x, dtypes.to_inexact_dtype(x.dtype))
    ddof = (0 if bias else 1) if ddof is None else ddof
    x = uf.subtract(x, rd.mean(x, 1, keepdims=True))
    return mp.squeeze(uf.divide(dot(x, uf.conjugate(x.T)), x.shape[1] - ddof))


def corrcoef(x, y=None, rowvar: bool = True):
    """The matrix of correlation coefficients."""
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return uf.divide(c, c)
    d = uf.sqrt(uf.real(mp.diag(c)))
    return uf.divide(uf.divide(c, d[:, None]), d[None, :])


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Positions of the lower triangle of an n by m matrix."""
    from weft.numpy.creation import asarray
    return tuple(asarray(i.astype(np.int32)) for i in np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Positions of the upper triangle of an n by m matrix."""
    from weft.numpy.creation import asarray
    return tuple(asarray(i.astype(np.int32)) for i in np.triu_indices(n, k, m))


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """Positions of the main diagonal."""
    from weft.numpy.creation import arange
    return (arange(n),) * ndim


def unravel_index(indices, shape) -> tuple:
    """Flat positions as positions per dim."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    rest, out = _array(indices, "unravel_index"), []
    for n in reversed(shape):
        out.append(uf.remainder(rest, n))
        rest = uf.floor_divide(rest, n)
    return tuple(reversed(out))


def ravel_multi_index(multi_index, dims, mode: str = "raise", order: str = "C"):
    """Positions per dim as flat positions."""
    if mode == "raise":
        for i, n in zip(multi_index, dims):
            host = _host(i, "ravel_multi_index", "Use mode='clip' or 'wrap'.")
            if np.any((host < 0) | (host >= n)):
                raise ValueError("invalid entry in coordinates array")
    else:
        multi_index = [mp.clip(i, 0, n - 1) if mode == "clip" else uf.remainder(i, n) for i, n in zip(multi_index, dims)]
    pairs = list(zip(multi_index, dims))
    flat = 0
    for i, n in pairs if order == "C" else reversed(pairs):
        flat = uf.add(uf.multiply(flat, n), i)
    return flat
