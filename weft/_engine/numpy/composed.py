"""Functions composed of others: rounding, polynomials, convolutions, differences, interpolation,
mapping along a dim.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from weft._engine.core.trace import Tracer
from weft._engine.ir.symbolic import is_more_than, max_dim
from weft._engine.numpy import creation, manipulation as mp, promote, selection, ufuncs as uf
from weft._engine.numpy.dtype_kinds import check_no_out, check_real
from weft._engine.numpy.products import arrays_of
from weft._engine.numpy.promote import (
    array_of,
    broadcast_to_shape,
    canonical_axis,
    cast,
    check_arraylike,
    concrete,
    promote_dtypes_inexact,
    value,
)
from weft._engine.numpy.reductions import sum as total
from weft._engine.ops import elementwise as ew, layout
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity


def round(a, decimals: int = 0, out=None):  # noqa: A001
    """Round to `decimals` places, halves to even.

    Raise TypeError for a number of places that is not an integer.
    """
    check_no_out(out, "round")
    decimals = operator.index(decimals)
    x = array_of("round", a)
    if not dtypes.issubdtype(x.dtype, np.inexact):
        if decimals >= 0 or x.dtype == np.bool_:
            return x
        if -decimals > math.log10(np.iinfo(x.dtype).max):
            return creation.zeros_like(x)
        step = x.dtype.type(10**-decimals)
        low = uf.multiply(uf.floor_divide(x, step), step)
        twice = uf.multiply(uf.subtract(x, low), 2)
        odd = uf.equal(uf.remainder(uf.floor_divide(x, step), 2), 1)
        up = uf.logical_or(uf.greater(twice, step), uf.logical_and(uf.equal(twice, step), odd))
        return selection.where(up, uf.add(low, step), low)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return ew.complex(round(ew.real(x), decimals), round(ew.imag(x), decimals))
    if decimals == 0:
        return ew.round(x, ew.RoundingMethod.TO_NEAREST_EVEN)
    if decimals > math.log10(float(dtypes.finfo(x.dtype).max)):
        # finer than the precision of the dtype, except for the smallest numbers
        return x
    if -decimals > math.log10(float(dtypes.finfo(x.dtype).max)):
        return uf.multiply(x, 0)
    scale = 10.0**decimals
    return ew.div(ew.round(ew.mul(x, scale), ew.RoundingMethod.TO_NEAREST_EVEN), scale)


around = round


def polyval(p, x, *, unroll: int = 16):
    """Return the polynomial with coefficients `p` at `x`, by Horner's rule.

    Coefficients are along the first dim, highest power first; other dims broadcast.
    """
    p, x = arrays_of("polyval", p, x)
    if p.ndim == 0:
        raise ValueError(
            f"polyval: the coefficients p must have a dim, got shape {tuple(p.shape)}."
        )
    out = broadcast_to_shape(
        uf.multiply(x, 0), promote.broadcast_shapes(tuple(p.shape[1:]), tuple(x.shape))
    )
    for i in range(p.shape[0]):
        out = uf.add(uf.multiply(out, x), p[i])
    return out


def convolve(a, v, mode: str = "full", *, precision=None, preferred_element_type=None):
    """Return the convolution of two vectors."""
    return _convolve(a, v, mode, True, precision, preferred_element_type)


def correlate(a, v, mode: str = "valid", *, precision=None, preferred_element_type=None):
    """Return the cross-correlation of two vectors."""
    return _convolve(a, uf.conjugate(v), mode, False, precision, preferred_element_type)


def _convolve(a, v, mode: str, flip: bool, precision, preferred):
    check_arraylike("convolve", a, v)
    a, v = [concrete(x) for x in promote_dtypes_inexact(value(a), value(v))]
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError("convolve and correlate take 1-dimensional arrays.")
    if not a.shape[0] or not v.shape[0]:
        raise ValueError("convolve: inputs cannot be empty.")
    out_flip = False
    # a full convolution is symmetric
    if is_more_than(v.shape[0], a.shape[0]) if mode == "full" else a.shape[0] < v.shape[0]:
        if flip:
            a, v = v, a
        else:
            a, v, out_flip = v, a, True
    if flip:
        v = mp.flip(v)
    n, m = a.shape[0], v.shape[0]
    pads = {"full": (m - 1, m - 1), "same": (m // 2, m - m // 2 - 1), "valid": (0, 0)}
    if mode not in pads:
        raise ValueError(f"convolve: mode must be one of ['full', 'same', 'valid'], got {mode!r}.")
    from weft._engine.ops.convolution import conv_general_dilated

    out = conv_general_dilated(
        layout.reshape(a, (1, 1, n)),
        layout.reshape(v, (1, 1, m)),
        (1,),
        [pads[mode]],
        precision=precision,
    )
    out = layout.reshape(out, (out.shape[-1],))
    out = mp.flip(out) if out_flip else out
    return out if preferred is None else cast(out, np.dtype(preferred))


def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """Return differences of neighbors along `axis`, `n` times."""
    a = array_of("diff", a)
    if n < 0:
        raise ValueError(f"diff: order must be non-negative but got {n}.")
    if n == 0:
        return a
    axis = canonical_axis(axis, a.ndim, "diff")
    shape = tuple(1 if d == axis else k for d, k in enumerate(a.shape))
    for extra, first in ((prepend, True), (append, False)):
        if extra is not None:
            e = concrete(extra)
            e = (
                broadcast_to_shape(cast(e, dtypes.result_type(a, extra)), shape)
                if e.ndim == 0
                else e
            )
            a = mp.concatenate([e, a] if first else [a, e], axis)
    for _ in range(n):
        high = a[(slice(None),) * axis + (slice(1, None),)]
        low = a[(slice(None),) * axis + (slice(None, -1),)]
        a = uf.not_equal(high, low) if a.dtype == np.bool_ else uf.subtract(high, low)
    return a


def ediff1d(ary, to_end=None, to_begin=None):
    """Return differences of neighbors in the flattened array, between `to_begin` and `to_end`.

    These are cast to the dtype of the array.
    """
    out = diff(mp.ravel(ary))
    begin, end = (
        [] if x is None else [mp.ravel(cast(concrete(x), out.dtype))] for x in (to_begin, to_end)
    )
    parts = [*begin, out, *end]
    return mp.concatenate(parts) if len(parts) > 1 else out


def gradient(f, *varargs, axis=None, edge_order=None):
    """Return central differences along each dim (or `axis`), one-sided at the ends.

    Spacings are numbers or coordinate arrays, one for all dims or one for each.
    """
    if edge_order is not None:
        raise NotImplementedError("gradient: edge_order is not supported; leave it None.")
    check_arraylike("gradient", f)
    f = concrete(promote_dtypes_inexact(value(f))[0])
    # differences of 16-bit numbers are computed in 32 bits
    half = f.dtype if f.dtype.itemsize < 4 else None
    f = cast(f, np.dtype(np.float32) if half else f.dtype)
    some = range(f.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [canonical_axis(d, f.ndim, "gradient") for d in some]
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(
            f"gradient: {quantity(len(varargs), 'spacing')} for {quantity(len(axes), 'dim')}; give none, one, or one for each."
        )
    spacing = [value(h) for h in varargs] * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(
        axes
    )
    out = [_gradient_along(f, d, h) for d, h in zip(axes, spacing)]
    out = [cast(x, half) for x in out] if half else out
    return out[0] if len(out) == 1 else out


def _gradient_along(f, d: int, h):
    if f.shape[d] < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are required."
        )
    at = lambda lo, hi: f[(slice(None),) * d + (slice(lo, hi),)]
    step = uf.subtract(at(1, None), at(None, -1))
    if np.ndim(h) == 0:
        middle = uf.multiply(uf.subtract(at(2, None), at(None, -2)), 0.5)
        return uf.divide(mp.concatenate([step[_first(d)], middle, step[_last(d)]], d), h)
    if np.shape(h) != (f.shape[d],):
        raise ValueError(
            f"gradient: coordinates along dim {d} must be a vector of {quantity(f.shape[d], 'value')}, got shape {np.shape(h)}."
        )
    gaps = mp.reshape(diff(cast(concrete(h), f.dtype)), (-1,) + (1,) * (f.ndim - d - 1))
    slope = uf.divide(step, gaps)
    before, after = gaps[:-1], gaps[1:]
    low, high = (
        slope[(slice(None),) * d + (slice(None, -1),)],
        slope[(slice(None),) * d + (slice(1, None),)],
    )
    middle = uf.divide(
        uf.add(uf.multiply(low, after), uf.multiply(high, before)), uf.add(before, after)
    )
    return mp.concatenate([slope[_first(d)], middle, slope[_last(d)]], d)


def _first(d: int) -> tuple:
    return (slice(None),) * d + (slice(0, 1),)


def _last(d: int) -> tuple:
    return (slice(None),) * d + (slice(-1, None),)


def interp(x, xp, fp, left=None, right=None, period=None):
    """Return the piecewise linear interpolation of the points (xp, fp) at `x`.

    Beyond the points it returns `left` and `right` (numbers, or 'extrapolate' to continue the outer
    segment), or continues with `period`.
    """
    from weft._engine.numpy.sorting import searchsorted

    check_real("interp", value(x), value(xp))
    fp = concrete(promote_dtypes_inexact(value(fp))[0])  # may be complex
    x, xp = [
        cast(v, dtypes.to_real_dtype(dtypes.result_type(v, fp)))
        for v in [concrete(v) for v in promote_dtypes_inexact(value(x), value(xp))]
    ]
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("interp: xp and fp must be one-dimensional arrays of equal size")
    if period is not None:
        x, xp, fp = _repeat_points(x, xp, fp, period)
    for name, side in (("left", left), ("right", right)):
        if isinstance(side, str) and side != "extrapolate":
            raise ValueError(
                f"interp: the only valid string value of `{name}` is 'extrapolate', got {side!r}."
            )
    i = selection.clip(searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    lo_f, hi_f, lo_x, hi_x = fp[i - 1], fp[i], xp[i - 1], xp[i]
    dx = uf.subtract(hi_x, lo_x)
    flat = uf.less_equal(uf.abs(dx), float(np.spacing(dtypes.finfo(xp.dtype).eps)))
    slope = uf.divide(uf.subtract(hi_f, lo_f), selection.where(flat, 1, dx))
    out = selection.where(flat, lo_f, uf.add(lo_f, uf.multiply(uf.subtract(x, lo_x), slope)))
    if period is not None:
        return out
    if not isinstance(left, str):
        out = selection.where(uf.less(x, xp[0]), fp[0] if left is None else left, out)
    if not isinstance(right, str):
        out = selection.where(uf.greater(x, xp[-1]), fp[-1] if right is None else right, out)
    return out


def trapezoid(y, x=None, dx: float = 1.0, axis: int = -1):
    """Return the integral of samples `y` by the trapezoidal rule."""

    if x is None:
        y = concrete(promote_dtypes_inexact(value(y))[0])
        steps = concrete(cast(value(dx), y.dtype))
    else:
        y, steps = [concrete(v) for v in promote_dtypes_inexact(value(y), value(x))]
    y = mp.moveaxis(cast(y, y.dtype), canonical_axis(axis, y.ndim, "trapezoid"), -1)
    if x is None:  # several steps: one for each dim before `axis`, or for each position along it
        steps = (
            steps
            if steps.ndim == 0
            else mp.moveaxis(mp.expand_dims(steps, tuple(range(y.ndim - steps.ndim))), axis, -1)
        )
    else:
        steps = diff(mp.moveaxis(steps, axis, -1) if steps.ndim > 1 else steps)
    return uf.multiply(total(uf.multiply(steps, uf.add(y[..., 1:], y[..., :-1])), -1), 0.5)


def apply_along_axis(func1d, axis: int, arr, *args, **kwargs):
    """Return `func1d` of every 1-d slice along `axis`."""
    from weft._engine.api.vmap import vmap

    arr = concrete(value(arr))
    axis = canonical_axis(axis, arr.ndim, "apply_along_axis")
    fun = lambda x: func1d(x, *args, **kwargs)
    for d in range(arr.ndim - axis - 1):
        fun = vmap(fun, in_axes=d + 1, out_axes=-1)
    for _ in range(axis):
        fun = vmap(fun, in_axes=0, out_axes=0)
    return fun(arr)


def vectorize(pyfunc, *, excluded=frozenset(), signature: str | None = None):
    """Return `pyfunc`, a function of scalars, mapped over broadcast arguments.

    `signature`, such as '(n),(m,n)->(m)', names the core dims.

    `excluded` arguments (by number or name) are passed unchanged. The result raises ValueError or
    ShapeError for arguments that lack core dims or do not broadcast.

    >>> wnp.vectorize(lambda row, x: (row * x).sum(), signature="(n),()->()")(wnp.ones((2, 3)), wnp.arange(2.0))
    Array([0., 3.], dtype=float32)
    """
    from weft._engine.numpy.vectorizing import vectorize as make

    return make(pyfunc, excluded=excluded, signature=signature)


def logspace(
    start, stop, num: int = 50, endpoint: bool = True, base: float = 10.0, dtype=None, axis: int = 0
):
    """Return `num` values from base**start to base**stop, evenly spaced on a log scale."""
    out_dtype = (
        dtype if dtype is not None else dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    )
    return cast(
        uf.power(base, creation.linspace(start, stop, num, endpoint, axis=axis)),
        dtypes.check_dtype(out_dtype, "logspace"),
    )


def geomspace(start, stop, num: int = 50, endpoint: bool = True, dtype=None, axis: int = 0):
    """Return `num` values from start to stop in geometric progression; the ends are exact."""
    out_dtype = (
        dtype if dtype is not None else dtypes.to_inexact_dtype(dtypes.result_type(start, stop))
    )
    sign = uf.sign(concrete(start))
    out = uf.exp(
        creation.linspace(
            uf.log(uf.divide(start, sign)), uf.log(uf.divide(stop, sign)), num, endpoint, axis=0
        )
    )
    out = uf.multiply(out, sign)
    out = out.at[:1].set(start)
    out = out.at[max_dim(num - 1, 1) :].set(stop) if endpoint else out
    return mp.moveaxis(cast(out, dtypes.check_dtype(out_dtype, "geomspace")), 0, axis)


def _repeat_points(x, xp, fp, period) -> tuple:
    """Return `x` and the sorted points within one period, with the neighbors of both ends added."""
    from weft._engine.numpy.sorting import argsort

    period = array_of("interp", period)
    check_real("interp", period)
    if period.ndim:
        raise ValueError(f"interp: period must be a scalar, got shape {period.shape}.")
    if not isinstance(period, Tracer) and not period:
        raise ValueError("interp: period must be a non-zero value")
    period = uf.abs(period)
    x, xp = uf.remainder(x, period), uf.remainder(xp, period)
    order = argsort(xp)
    xp, fp = xp[order], fp[order]
    xp = mp.concatenate([uf.subtract(xp[-1:], period), xp, uf.add(xp[:1], period)])
    return x, xp, mp.concatenate([fp[-1:], fp, fp[:1]])
