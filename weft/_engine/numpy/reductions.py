"""NumPy's reductions: sums, means, extrema, tests, cumulative functions."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from weft._engine.numpy import promote
from weft._engine.numpy.creation import asarray, full
from weft._engine.numpy.dtype_kinds import check_no_out, truth
from weft._engine.numpy.ufuncs import (
    equal,
    greater,
    isclose,
    isnan,
    maximum,
    minimum,
    subtract,
    true_divide,
)
from weft._engine.ops import elementwise as ew, reduce as rd
from weft._engine.ops.comparison import select
from weft._engine.ops.layout import broadcast_in_dim, expand_dims, reshape, transpose
from weft._engine.util import dtypes
from weft._engine.util.source import named


def _keep(out, axes, keepdims: bool):
    return expand_dims(out, axes) if keepdims and axes else out


def _boolean(api: str, where):
    """Return the argument `where` as an array, or None.

    Raise ValueError unless its elements are bools.
    """
    if where is None:
        return None
    where = promote.array_of("where", where)
    if where.dtype != np.bool_:
        raise ValueError(
            f"wnp.{api}: where must be None or a boolean array, got one of {where.dtype.name}. "
            "Compare it with a number: where != 0."
        )
    return where


def _mask(api: str, a, where, fill):
    """Return `a` with `fill` where `where` is false."""
    where = _boolean(api, where)
    if where is None:
        return a
    where = promote.broadcast_to_shape(where, tuple(a.shape))
    return select(where, a, promote.cast(fill, a.dtype))


def _initial(out, initial, op):
    if initial is None:
        return out
    initial = promote.value(initial)
    if np.ndim(initial):
        raise ValueError(
            f"initial value must be a scalar. Got array of shape {tuple(np.shape(initial))}."
        )
    return op(out, promote.cast(initial, out.dtype))


def sum_dtype(a, dtype=None, promote_integers: bool = True):
    """Return the accumulation dtype of sums and products.

    Small integers widen to the default integer.
    """
    if dtype is not None:
        return dtypes.check_dtype(dtype, "sum")
    if a.dtype == np.bool_:
        return dtypes.default_int_dtype()
    if promote_integers and dtypes.issubdtype(a.dtype, np.integer):
        acc_dtype = (
            dtypes.default_uint_dtype()
            if dtypes.issubdtype(a.dtype, np.unsignedinteger)
            else dtypes.default_int_dtype()
        )
        return acc_dtype if acc_dtype.itemsize > a.dtype.itemsize else a.dtype
    return a.dtype


def _as(a, dtype):
    return a if a.dtype == dtype else ew.convert_element_type(a, dtype)


def sum(
    a,
    axis=None,
    dtype=None,
    out=None,
    keepdims: bool = False,
    initial=None,
    where=None,
    promote_integers: bool = True,
):  # noqa: A001
    """Return the sum of elements over `axis`, one dim or several (all of them by default).

    Sums of 16-bit floats accumulate in 32 bits; bools and small integers widen to the default
    integer type. `where` selects elements, `initial` is added. Raises ValueError for an axis out of
    bounds, NotImplementedError for `out`.

    >>> wnp.sum(wnp.arange(6.).reshape(2, 3), axis=0)
    Array([3., 5., 7.], dtype=float32)
    """
    check_no_out(out, "sum")
    a = promote.array_of("sum", a)
    out_dtype = sum_dtype(a, dtype, promote_integers)
    work = _work_dtype(out_dtype) if dtype is None else out_dtype
    axes = promote.canonical_axes(axis, a.ndim, "sum")
    x = _mask("sum", promote.cast(a, work), where, 0)
    reduce, add = (
        (rd.reduce_or, ew.bitwise_or) if out_dtype == np.bool_ else (rd.reduce_sum, ew.add)
    )
    return _as(_initial(_keep(reduce(x, axes), axes, keepdims), initial, add), out_dtype)


def prod(
    a,
    axis=None,
    dtype=None,
    out=None,
    keepdims: bool = False,
    initial=None,
    where=None,
    promote_integers: bool = True,
):
    """Return the product of elements over `axis`, one dim or several (all of them by default).

    Dtypes and errors are as in `sum`.

    Raises ValueError for an axis out of bounds, NotImplementedError for `out`.

    >>> wnp.prod(wnp.array([[1, 2], [3, 4]]), axis=1)
    Array([ 2, 12], dtype=int32)
    """
    check_no_out(out, "prod")
    a = promote.array_of("prod", a)
    out_dtype = sum_dtype(a, dtype, promote_integers)
    work = _work_dtype(out_dtype) if dtype is None else out_dtype
    axes = promote.canonical_axes(axis, a.ndim, "prod")
    x = _mask("prod", promote.cast(a, work), where, 1)
    reduce, mul = (
        (rd.reduce_and, ew.bitwise_and) if out_dtype == np.bool_ else (rd.reduce_prod, ew.mul)
    )
    return _as(_initial(_keep(reduce(x, axes), axes, keepdims), initial, mul), out_dtype)


def _extremum(name: str, op, combine, lowest: bool):
    def fun(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
        check_no_out(out, name)
        a = promote.array_of(name, a)
        axes = promote.canonical_axes(axis, a.ndim, name)
        if initial is None:
            if where is not None:
                raise ValueError(f"{name}: initial must be specified when where is not None.")
            if 0 in [a.shape[d] for d in axes]:
                raise ValueError(
                    f"zero-size array to reduction operation {name} which has no identity"
                )
        x = _mask(name, promote.cast(a, a.dtype), where, initial)
        if x.dtype == np.bool_:
            reduced = (rd.reduce_or if lowest else rd.reduce_and)(x, axes)
        else:
            reduced = op(x, axes)
        return _initial(_keep(reduced, axes, keepdims), initial, combine)

    return named(
        fun,
        name,
        f"""Return the {name}imum of elements over `axis`, one dim or several (all by default); NaN propagates.

    Raises ValueError for an axis out of bounds and, without `initial`, for dims without elements, NotImplementedError for `out`.

    >>> wnp.{name}(wnp.array([[1, 5], [3, 4]]), axis=1)
    Array([{"5, 4" if lowest else "1, 3"}], dtype=int32)
    """,
    )


max = amax = _extremum("max", rd.reduce_max, maximum, True)  # noqa: A001
min = amin = _extremum("min", rd.reduce_min, minimum, False)  # noqa: A001


def all(a, axis=None, out=None, keepdims: bool = False, *, where=None):  # noqa: A001
    """Return whether every element over `axis` is true (nonzero), as bools.

    Raises ValueError for an axis out of bounds, NotImplementedError for `out`.

    >>> wnp.all(wnp.array([[1, 0], [2, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    check_no_out(out, "all")
    a = promote.as_strong(truth(promote.array_of("all", a)))
    axes = promote.canonical_axes(axis, a.ndim, "all")
    return _keep(rd.reduce_and(_mask("all", a, where, True), axes), axes, keepdims)


def any(a, axis=None, out=None, keepdims: bool = False, *, where=None):  # noqa: A001
    """Return whether some element over `axis` is true (nonzero), as bools.

    Raises ValueError for an axis out of bounds, NotImplementedError for `out`.

    >>> wnp.any(wnp.array([[0, 0], [2, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    check_no_out(out, "any")
    a = promote.as_strong(truth(promote.array_of("any", a)))
    axes = promote.canonical_axes(axis, a.ndim, "any")
    return _keep(rd.reduce_or(_mask("any", a, where, False), axes), axes, keepdims)


def _count(a, axes, where, keepdims, dtype):
    """Return the number of elements: a Python int, or an array of `dtype` if there is a `where`."""
    if where is None:
        return math.prod(a.shape[d] for d in axes)
    where = promote.broadcast_to_shape(promote.array_of("where", where), tuple(a.shape))
    return _keep(rd.reduce_sum(promote.cast(where, dtype), axes), axes, keepdims)


def mean(a, axis=None, dtype=None, out=None, keepdims: bool = False, *, where=None):
    """Return the arithmetic mean over `axis`, one dim or several (all of them by default).

    Integers give floats; 16-bit floats are averaged in 32 bits. The mean of no elements is NaN.
    Raises ValueError for an axis out of bounds, NotImplementedError for `out`.

    >>> wnp.mean(wnp.array([[1, 2], [3, 6]]), axis=0)
    Array([2., 4.], dtype=float32)
    """
    check_no_out(out, "mean")
    a, where = promote.array_of("mean", a), _boolean("mean", where)
    out_dtype = (
        dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtypes.check_dtype(dtype, "mean")
    )
    work = _work_dtype(out_dtype) if dtype is None else out_dtype
    axes = promote.canonical_axes(axis, a.ndim, "mean")
    total = sum(_as(a, work), axes, work, keepdims=keepdims, where=where)
    return promote.cast(true_divide(total, _count(a, axes, where, keepdims, work)), out_dtype)


_mean = mean  # `var` has a parameter `mean`


def _work_dtype(dtype):
    """Return the dtype of averages; 16-bit floats are averaged in 32 bits."""
    return (
        np.dtype(np.float32)
        if dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
        else dtype
    )


def average(a, axis=None, weights=None, returned: bool = False, keepdims: bool = False) -> Any:
    """Return the weighted mean over `axis`; with `returned`, also the sum of weights.

    Weights have the shape of `a`, or one dim for each of `axis`. Raises TypeError for a wrong
    number of dims, ValueError for wrong sizes.

    >>> wnp.average(wnp.array([[1., 2.], [3., 6.]]), axis=1, weights=wnp.array([3., 1.]))
    Array([1.25, 3.75], dtype=float32)
    """
    a = promote.array_of("average", a)
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        count = _count(a, promote.canonical_axes(axis, a.ndim), None, keepdims, result.dtype)
        if not returned:
            return result
        return result, promote.broadcast_to_shape(
            promote.concrete(promote.cast(count, result.dtype)), tuple(result.shape)
        )
    if promote.shape_of(a) == promote.shape_of(weights):
        a, weights = [
            promote.concrete(x) for x in promote.promote_to_inexact("average", a, weights)
        ]
    else:
        weights = promote.array_of("average", weights)
    if tuple(weights.shape) != tuple(a.shape):
        axes = () if axis is None else promote.as_axes(axis, "average")
        promote.canonical_axes(axes, a.ndim, "average")
        axes = tuple(d % a.ndim for d in axes)
        if len(axes) != weights.ndim:
            raise TypeError(
                "average: weights of another shape than a have one dim for each of axis; "
                f"got weights of shape {tuple(weights.shape)} and axis={axis!r}."
            )
        if tuple(weights.shape) != tuple(a.shape[d] for d in axes):
            raise ValueError(
                f"average: weights of shape {tuple(weights.shape)} do not fit the dims {axes} of shape {tuple(a.shape)}."
            )
        weights = transpose(weights, tuple(sorted(range(len(axes)), key=axes.__getitem__)))
        shape = tuple(n if d in axes else 1 for d, n in enumerate(a.shape))
        weights = promote.broadcast_to_shape(reshape(weights, shape), tuple(a.shape))
    out_dtype = dtypes.to_inexact_dtype(dtypes.result_type(a, weights))
    a, weights = promote.cast(a, out_dtype), promote.cast(weights, out_dtype)
    total = sum(weights, axis, keepdims=keepdims)
    result = ew.div(sum(ew.mul(a, weights), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


def var(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """Return the variance over `axis`; the divisor is the number of elements minus `ddof`."""
    return _variance("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


def _variance(api: str, a, axis, dtype, out, ddof, keepdims: bool, where, mean, correction=None):
    check_no_out(out, api)
    if correction is not None:
        if ddof:
            raise ValueError(
                f"{api}: ddof and correction are two names of one thing, give one of them."
            )
        ddof = correction
    a, where = promote.array_of(api, a), _boolean(api, where)
    out_dtype = (
        dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtypes.check_dtype(dtype, api)
    )
    if not dtypes.issubdtype(out_dtype, np.inexact):
        raise ValueError(f"{api}: dtype must be floating or complex, got {out_dtype.name}.")
    if dtypes.issubdtype(a.dtype, np.complexfloating) and not dtypes.issubdtype(
        out_dtype, np.complexfloating
    ):
        raise ValueError(
            f"{api}: the variance of complex numbers cannot be computed in {out_dtype.name}, which would drop their imaginary "
            "parts."
        )
    work = _work_dtype(out_dtype)
    axes = promote.canonical_axes(axis, a.ndim, api)
    x = _as(a, work)
    center = (
        _mean(x, axes, keepdims=True, where=where)
        if mean is None
        else _as(promote.array_of(api, mean), work)
    )
    d = ew.sub(x, promote.broadcast_to_shape(center, tuple(x.shape)))
    square = (
        ew.square(d)
        if not dtypes.issubdtype(work, np.complexfloating)
        else ew.add(ew.square(ew.real(d)), ew.square(ew.imag(d)))
    )
    total = sum(square, axes, keepdims=keepdims, where=where)
    count = _count(a, axes, where, keepdims, total.dtype)
    if isinstance(count, int):
        free = count - ddof if count > ddof else math.nan
    else:
        free = select(ew.gt(count, ddof), ew.sub(count, ddof), math.nan)
    return _as(
        ew.div(total, free),
        dtypes.to_real_dtype(out_dtype)
        if dtypes.issubdtype(a.dtype, np.complexfloating)
        else out_dtype,
    )


def std(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """Return the standard deviation over `axis`."""
    return ew.sqrt(_variance("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction))


def ptp(a, axis=None, out=None, keepdims: bool = False):
    """Return maximum minus minimum over `axis`."""
    check_no_out(out, "ptp")
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def count_nonzero(a, axis=None, keepdims: bool = False):
    """Return the number of nonzero elements over `axis`."""
    return sum(truth(promote.array_of("count_nonzero", a)), axis, keepdims=keepdims)


def _arg(name: str, op):
    def fun(a, axis=None, out=None, keepdims: bool | None = None):
        check_no_out(out, name)
        a = promote.array_of(name, a)
        shape, dim = a.shape, axis
        if axis is None:
            a, dim = reshape(a, (a.size,)), 0
        dim = promote.canonical_axis(dim, a.ndim, name)
        if a.shape[dim] == 0:
            raise ValueError(f"attempt to get {name} of an empty sequence")
        x = _as(a, np.dtype(np.int8)) if a.dtype == np.bool_ else a
        result = op(x, dim, dtypes.default_int_dtype())
        if keepdims:
            result = expand_dims(result, range(len(shape)) if axis is None else (dim,))
        return result

    return named(
        fun,
        name,
        f"Return the index of the first {name[3:]}imum along `axis` (of the flattened array by default); NaN counts as extreme.",
    )


argmax = _arg("argmax", lambda x, d, t: rd.argmax(x, d, t))
argmin = _arg("argmin", lambda x, d, t: rd.argmin(x, d, t))


# ---- ignoring NaN
def _nan_reduction(name: str, reduction, fill):
    def fun(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None):
        a, where = promote.array_of(name, a), _boolean(name, where)
        if dtypes.issubdtype(a.dtype, np.inexact):
            a = select(isnan(a), promote.cast(fill, a.dtype), a)
        return reduction(a, axis, dtype, out, keepdims, initial, where)

    return named(fun, name, f"Return `{name[3:]}` over `axis`, ignoring NaN.")


nansum = _nan_reduction("nansum", sum, 0)
nanprod = _nan_reduction("nanprod", prod, 1)


def _nan_extremum(name: str, extremum, fill):
    def fun(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None):
        a, where = promote.array_of(name, a), _boolean(name, where)
        if not dtypes.issubdtype(a.dtype, np.inexact):
            return extremum(a, axis, out, keepdims, initial, where)
        nan = isnan(a)
        filled = select(nan, promote.cast(fill, a.dtype), a)
        result = extremum(filled, axis, out, keepdims, initial, where)
        return (
            result
            if initial is not None
            else select(all(nan, axis, keepdims=keepdims), promote.cast(math.nan, a.dtype), result)
        )

    return named(
        fun,
        name,
        f"Return `{name[3:]}` over `axis`, ignoring NaN; `initial`, else NaN, where all are.",
    )


nanmax = _nan_extremum("nanmax", max, -math.inf)
nanmin = _nan_extremum("nanmin", min, math.inf)


def _nan_arg(name: str, arg, fill):
    def fun(a, axis=None, out=None, keepdims: bool | None = None):
        a = promote.array_of(name, a)
        if not dtypes.issubdtype(a.dtype, np.inexact):
            return arg(a, axis, out, keepdims)
        if axis is not None:
            axis = operator.index(axis)
        nan = isnan(a)
        result = arg(select(nan, promote.cast(fill, a.dtype), a), axis, out, keepdims)
        return select(
            all(nan, axis, keepdims=bool(keepdims)), promote.cast(-1, result.dtype), result
        )

    return named(fun, name, f"Return `{name[3:]}` along `axis`, ignoring NaN; -1 where all are.")


nanargmax = _nan_arg("nanargmax", argmax, -math.inf)
nanargmin = _nan_arg("nanargmin", argmin, math.inf)


def nanmean(a, axis=None, dtype=None, out=None, keepdims: bool = False, where=None):
    """Return `mean` over `axis`, ignoring NaN."""
    a = promote.array_of("nanmean", a)
    return mean(a, axis, dtype, out, keepdims, where=_numbers("nanmean", a, where))


def nanvar(
    a, axis=None, dtype=None, out=None, ddof: int = 0, keepdims: bool = False, where=None, mean=None
):
    """Return `var` over `axis`, ignoring NaN; NaN where at most `ddof` numbers remain."""
    return _nan_variance("nanvar", a, axis, dtype, out, ddof, keepdims, where, mean)


def _nan_variance(api: str, a, axis, dtype, out, ddof, keepdims: bool, where, mean):
    a = promote.array_of(api, a)
    good = _numbers(api, a, where)
    result = _variance(api, _zero_nan(a), axis, dtype, out, ddof, keepdims, good, mean)
    if dtype is not None:
        result = promote.cast(result, dtypes.check_dtype(dtype, api))
    free = greater(sum(good, axis, keepdims=keepdims), ddof)
    return select(free, result, promote.cast(math.nan, result.dtype))


def _numbers(api: str, a, where):
    """Return a mask of the elements of `a` that are not NaN and that `where` selects."""
    return _mask(api, ew.bitwise_not(isnan(a)), where, False)


def _zero_nan(a):
    return select(isnan(a), 0, a) if dtypes.issubdtype(a.dtype, np.inexact) else a


def nanstd(
    a, axis=None, dtype=None, out=None, ddof: int = 0, keepdims: bool = False, where=None, mean=None
):
    """Return `std` over `axis`, ignoring NaN."""
    return ew.sqrt(_nan_variance("nanstd", a, axis, dtype, out, ddof, keepdims, where, mean))


# ---- cumulative
def _cumulative(name: str, op, nan_fill=None):
    def fun(a, axis=None, dtype=None, out=None):
        check_no_out(out, name)
        a = promote.array_of(name, a)
        if nan_fill is not None and dtypes.issubdtype(a.dtype, np.inexact):
            a = select(isnan(a), promote.cast(nan_fill, a.dtype), a)
        dim = axis
        if axis is None or a.ndim == 0:
            a, dim = reshape(a, (a.size,)), 0
        dim = promote.canonical_axis(dim, a.ndim, name)
        out_dtype = (
            dtypes.check_dtype(dtype, name)
            if dtype is not None
            else dtypes.default_int_dtype()
            if a.dtype == np.bool_
            else a.dtype
        )
        if out_dtype == np.bool_:  # whether any element so far is true, or whether all are
            return truth(
                (rd.cummin if op is rd.cumprod else rd.cummax)(
                    promote.cast(promote.cast(a, out_dtype), np.int8), dim
                )
            )
        return op(promote.cast(a, out_dtype), dim, False)

    return named(
        fun,
        name,
        f"Return the running {'sum' if 'sum' in name else 'product'} along `axis` (of the flattened array by default).",
    )


cumsum = _cumulative("cumsum", rd.cumsum)
cumprod = _cumulative("cumprod", rd.cumprod)
nancumsum = _cumulative("nancumsum", rd.cumsum, 0)
nancumprod = _cumulative("nancumprod", rd.cumprod, 1)


def cumulative_sum(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """Return the running sum along `axis`, optionally with a leading zero."""
    x = promote.array_of("cumulative_sum", x)
    return _array_api_cumulative(cumsum, x, axis, sum_dtype(x, dtype), include_initial, 0)


def cumulative_prod(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False):
    """Return the running product along `axis`, optionally with a leading one."""
    return _array_api_cumulative(cumprod, x, axis, dtype, include_initial, 1)


def _array_api_cumulative(fun, x, axis, dtype, include_initial, first):
    x = promote.array_of(fun.__name__, x)
    if x.ndim == 0:
        raise ValueError(
            f"{fun.__name__}: The input must be non-scalar to take its running sums or products, got a scalar."
        )
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{fun.__name__}: axis must be given for arrays of more than one dim.")
        axis = 0
    out = fun(x, axis, dtype)
    if include_initial:
        from weft._engine.ops.slicing import concatenate

        axis = promote.canonical_axes(axis, x.ndim)[0]
        lead = full(tuple(1 if d == axis else n for d, n in enumerate(out.shape)), first, out.dtype)
        out = concatenate([lead, out], axis)
    return out


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Return whether all elements are close; see `isclose`."""
    return all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1, a2, equal_nan: bool = False):
    """Return whether shapes and all elements are equal."""
    a, b = _array_or_list(a1), _array_or_list(a2)
    if tuple(a.shape) != tuple(b.shape):
        return asarray(False)
    same = equal(a, b)
    if equal_nan:
        same = ew.bitwise_or(same, ew.bitwise_and(isnan(a), isnan(b)))
    return all(same)


def _array_or_list(x):

    return asarray(x)


def array_equiv(a1, a2):
    """Return whether all elements are equal after broadcasting."""

    try:
        return all(equal(asarray(a1), asarray(a2)))
    except ValueError:
        return asarray(False)


def logsumexp(a, axis=None, b=None, keepdims: bool = False, return_sign: bool = False, where=None):
    """Return log(sum(b * exp(a))) over `axis`, without overflow.

    With `return_sign` return the logarithm of the absolute value, and the sign of the sum.

    >>> round(float(logsumexp(wnp.array([1000., 1000.]))), 3)
    1000.693
    """
    if b is None:
        a = promote.concrete(promote.inexact("logsumexp", a))
    else:
        a, b = [promote.concrete(x) for x in promote.promote_to_inexact("logsumexp", a, b)]
        a, b = (
            promote.broadcast_to_shape(a, b.shape or a.shape),
            promote.broadcast_to_shape(b, a.shape or b.shape),
        )
        a = select(ew.ne(b, 0), a, -math.inf)
    axes = promote.canonical_axes(axis, a.ndim, "logsumexp")
    a = _mask("logsumexp", a, where, -math.inf)
    top = ew.stop_gradient(
        rd.reduce_max(ew.real(a) if dtypes.issubdtype(a.dtype, np.complexfloating) else a, axes)
    )
    top = select(ew.is_finite(top), top, 0)
    full_top = broadcast_in_dim(
        promote.cast(top, a.dtype), tuple(a.shape), tuple(d for d in range(a.ndim) if d not in axes)
    )
    terms = ew.exp(ew.sub(a, full_top))
    total = rd.reduce_sum(terms if b is None else ew.mul(terms, b), axes)
    sign = ew.sign(total) if return_sign else None
    total = ew.abs(total) if return_sign else total
    result = _keep(ew.add(ew.log(total), promote.cast(top, total.dtype)), axes, keepdims)
    return (result, _keep(sign, axes, keepdims)) if return_sign else result
