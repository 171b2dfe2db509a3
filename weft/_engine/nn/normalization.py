"""Softmax and related functions, standardization, and one-hot vectors.

The maximum that keeps exponentials from overflowing counts as a constant for derivatives, which it does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft._engine.ir.symbolic import as_size
from weft._engine.nn.activations import _float
from weft._engine.numpy.promote import canonical_axis, check_concrete
from weft._engine.ops.arithmetic import stop_gradient
from weft._engine.ops.collectives import AxisName, axis_index, axis_size
from weft._engine.util.errors import ShapeError
from weft._engine.util.source import warn_user

Axis = int | Sequence[int] | None


def logsumexp(
    a: Any,
    axis: Axis = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(b exp(a))) along `axis`, without overflow; `b` is 1 if not given.

    With `return_sign`, gives the logarithm of the absolute sum, and its sign.

    >>> logsumexp(wnp.array([1000.0, 1000.0])).item()
    1000.693...
    """
    a = _float(a)
    if b is not None:
        b = _float(b)
        a = wnp.where(b != 0, a, -wnp.inf)
    masked = a if where is None else wnp.where(where, a, -wnp.inf)
    top = wnp.max(masked.real, axis=axis, keepdims=True, initial=-wnp.inf)
    top = stop_gradient(wnp.where(wnp.isfinite(top), top, 0.0))
    terms = wnp.exp(masked - top)
    total = wnp.sum(terms if b is None else b * terms, axis=axis, keepdims=True)
    sign = wnp.sign(total)
    out = wnp.log(wnp.abs(total) if return_sign or b is not None else total) + top
    if b is not None and not return_sign:
        out = wnp.where(sign < 0, wnp.nan, out)
    if not keepdims:
        out, sign = wnp.squeeze(out, axis), wnp.squeeze(sign, axis)
    return (out, sign) if return_sign else out


def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Any:
    """log(mean(exp(x))) along `axis`, without overflow."""
    x = _float(x)
    if where is None:
        weights = wnp.ones_like(x.real)
    else:
        weights = wnp.broadcast_to(where, x.shape).astype(x.real.dtype)
    count = wnp.sum(weights, axis=axis, keepdims=keepdims)
    return logsumexp(x, axis=axis, keepdims=keepdims, where=where) - wnp.log(count)


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)) for positive `x`, exact near 0 and far from it."""
    x = _float(x)
    near = x < 0.6931471805599453  # log 2, where both forms are equally accurate
    return wnp.where(near, wnp.log(-wnp.expm1(-x)), wnp.log1p(-wnp.exp(-x)))


def _top(x: Any, axis: Axis, initial: Any) -> Any:
    """The largest values along `axis` and `initial`, as a constant; an empty array has none, so any will do."""
    return stop_gradient(
        wnp.max(
            x, axis=axis, keepdims=True, initial=0 if initial is None and not x.size else initial
        )
    )


def softmax(x: Any, axis: Axis = -1, where: Any = None, initial: Any = None) -> Any:
    """exp(x), divided by its sum along `axis`; where `where` is false, 0.

    Before exp the largest value along `axis` is subtracted, or `initial` if that is larger; the result does not depend on it.

    >>> softmax(wnp.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    x = _float(x)
    masked = x if where is None else wnp.where(where, x, -wnp.inf)
    terms = wnp.exp(masked - _top(masked, axis, initial))
    out = terms / wnp.sum(terms, axis=axis, keepdims=True)
    return out if where is None else wnp.where(where, out, 0.0)


def log_softmax(x: Any, axis: Axis = -1, where: Any = None, initial: Any = None) -> Any:
    """The logarithm of `softmax`, without cancellation; where `where` is false, minus infinity. `initial` is that of `softmax`."""
    x = _float(x)
    masked = x if where is None else wnp.where(where, x, -wnp.inf)
    shifted = masked - _top(masked, axis, initial)
    out = shifted - wnp.log(wnp.sum(wnp.exp(shifted), axis=axis, keepdims=True))
    return out if where is None else wnp.where(where, out, -wnp.inf)


def standardize(
    x: Any,
    axis: Axis = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """`x` less its mean, divided by its deviation along `axis`; `epsilon` is added to the variance.

    `algorithm` says how the variance is computed: "fast" as the mean of squares less the square of the mean, which loses digits where
    the mean is large; "stable" as the mean of squared distances from the mean. Raises ValueError for another one.
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm must be 'fast' or 'stable', got {algorithm!r}.")
    x = _float(x)
    if mean is None:
        mean = wnp.mean(x, axis=axis, keepdims=True, where=where)
    if variance is None and algorithm == "stable":
        variance = wnp.mean(wnp.square(x - mean), axis=axis, keepdims=True, where=where)
    elif variance is None:
        variance = wnp.mean(wnp.square(x), axis=axis, keepdims=True, where=where) - wnp.square(mean)
    return (x - mean) / wnp.sqrt(variance + epsilon)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int | AxisName = -1) -> Any:
    """Vectors of `num_classes` along a new dim `axis`: 1 at index `x`, 0 elsewhere, all 0 for an index out of range.

    `x` holds integers; floats are deprecated. With the name of a mapped axis as `axis`, each of its `num_classes` examples has the entry of
    its own class. ValueError if the axis has another size.

    >>> one_hot(wnp.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_concrete("one_hot", "the argument `num_classes`", num_classes)
    num_classes = as_size(num_classes)
    x = wnp.asarray(x)
    if wnp.issubdtype(x.dtype, wnp.inexact):
        warn_user(
            f"one_hot: its input should be integer-typed, got {x.dtype.name}.", DeprecationWarning
        )
    dtype = wnp.result_type(float) if dtype is None else dtype
    if not hasattr(axis, "__index__"):
        size = axis_size(axis)
        if size != num_classes:
            raise ValueError(
                f"one_hot: Expected num_classes to match the size of axis {axis}, but {num_classes} != {size}."
            )
        return (x == axis_index(axis).astype(x.dtype)).astype(dtype)
    axis = canonical_axis(axis, x.ndim + 1, "one_hot")
    shape = [1] * (x.ndim + 1)
    if num_classes < 0:
        raise ShapeError(f"one_hot: there cannot be {num_classes} classes.")
    shape[axis] = num_classes
    classes = wnp.arange(num_classes, dtype=x.dtype).reshape(shape)
    return (wnp.expand_dims(x, axis) == classes).astype(dtype)
