"""Sampling and shuffling: categories by probabilities, permutations, elements of an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.control.loops import fori_loop
from weft._engine.core.trace import Tracer
from weft._engine.ir.symbolic import SymbolicDim, as_int, as_size
from weft._engine.numpy.promote import (
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axis,
    cast,
    concrete,
)
from weft._engine.ops import elementwise as ew, layout, sorting
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.random.draws import (
    _bits,
    _check_single_key,
    _sampler,
    _shape,
    _split_one,
    gumbel,
    randint,
    uniform,
)
from weft._engine.util import dtypes


@_sampler("logits")
def categorical(
    key, logits, axis: int = -1, shape=None, replace: bool = True, mode: str | None = None
):  # noqa: A002
    """Return samples of categorical distributions with log-probabilities `logits` along `axis`.

    The log-probabilities need not be normalized.

    `mode` is passed to `gumbel`.
    """
    key, logits = _check_single_key(key, "categorical"), concrete(logits)
    logits = cast(logits, dtypes.to_inexact_dtype(logits.dtype))
    axis = canonical_axis(axis, logits.ndim, "categorical")
    batch = tuple(n for d, n in enumerate(logits.shape) if d != axis)
    shape = batch if shape is None else _shape(shape)
    prefix, wide = shape[: len(shape) - len(batch)], list(shape[len(shape) - len(batch) :])
    if broadcast_shapes(tuple(wide), batch) != tuple(wide):
        raise ValueError(
            f"categorical: the shape {shape} of the samples must end with what the shape {batch} of the distributions "
            "to."
        )
    wide.insert(axis, logits.shape[axis])
    logits = broadcast_to_shape(logits, tuple(wide))
    if not replace:
        k = math.prod(prefix)
        if k > logits.shape[axis]:
            raise ValueError(
                f"categorical: Number of samples without replacement, {k}, cannot exceed the number of categories, "
                f"{logits.shape[axis]}."
            )
        noisy = ew.add(logits, gumbel(key, tuple(logits.shape), logits.dtype, mode))
        _, positions = sorting.top_k(wnp.moveaxis(noisy, axis, -1), k)
        return wnp.reshape(wnp.moveaxis(positions, -1, 0), shape)
    noise = gumbel(key, (*prefix, *logits.shape), logits.dtype, mode)
    return wnp.argmax(
        ew.add(noise, broadcast_to_shape(logits, tuple(noise.shape))), axis=axis + len(prefix)
    )


@takes_out_sharding
def permutation(key, x, axis: int = 0, independent: bool = False):  # noqa: A002
    """Return `x` shuffled along `axis`.

    If `x` is an integer, return the integers below it in random order.
    """
    raw = _check_single_key(key, "permutation")
    if np.ndim(x) == 0:
        canonical_axis(axis, 1, "permutation")
        count: Any = x if isinstance(x, Tracer) else as_size(x)
        return _shuffle(raw, wnp.arange(count), 0)
    x = concrete(wnp.asarray(x))
    axis = canonical_axis(axis, x.ndim, "permutation")
    if independent or x.ndim == 1:
        return _shuffle(raw, x, axis)
    return wnp.take(x, _shuffle(raw, wnp.arange(x.shape[axis]), 0), axis, mode="clip")


def _shuffle(raw, x, axis: int):
    """Sort by random keys, in enough rounds that equal keys do not matter."""
    if isinstance(x.size, SymbolicDim):
        return wnp.take_along_axis(x, _shuffled_positions(raw, x.shape, axis), axis)
    rounds = _rounds(x.size)
    for _ in range(rounds):
        raw, sub = _split_one(raw, 2)
        order = _bits(sub, 32, tuple(x.shape))
        x = sorting.sort([order, x], dimension=axis, is_stable=True, num_keys=1)[1]
    return x


def _rounds(size: int) -> int:
    """Return the number of rounds of sorting by random keys for `size` elements."""
    return math.ceil(3 * math.log(max(1, size)) / math.log(np.iinfo(np.uint32).max))


def _shuffled_positions(raw, shape, axis: int):
    """Return the positions along a dim of symbolic size in the order of `_shuffle`."""
    size: Any = math.prod(shape)
    most = int(min(size.bounds()[1], np.iinfo(np.int32).max))
    least = [
        next(n for n in _sizes_around(rounds) if _rounds(n) > rounds)
        for rounds in range(_rounds(most))
    ]
    rounds = sum((wnp.asarray(size) >= n).astype(np.int32) for n in least)

    def repeat(_, state):
        raw, positions = state
        raw, sub = _split_one(raw, 2)
        return raw, sorting.sort(
            [_bits(sub, 32, tuple(shape)), positions], dimension=axis, is_stable=True, num_keys=1
        )[1]

    return fori_loop(0, rounds, repeat, (raw, layout.broadcasted_iota(np.int32, shape, axis)))[1]


def _sizes_around(rounds: int) -> range:
    """Return a range that contains the smallest size with more than `rounds` rounds."""
    about = round(np.iinfo(np.uint32).max ** (rounds / 3))
    return range(max(about - 2, 0), about + 3)


def choice(key, a, shape=(), replace: bool = True, p=None, axis: int = 0, mode: str | None = None):  # noqa: A002
    """Return elements (or slices along `axis`) of `a`, drawn with probabilities `p`.

    If `a` is an integer, the integers below it are drawn.

    `mode` is passed to `gumbel`, which draws without replacement if there are probabilities. Raises
    TypeError for a `shape` that is not a sequence, ValueError for more draws than elements without
    replacement, or if `p` does not fit `a`.

    >>> weft.random.choice(weft.random.key(0), 5, (2,)).shape
    (2,)
    """
    if not isinstance(shape, Sequence):
        raise TypeError(
            f"choice: shape must be a sequence of sizes, got {shape!r}. Say ({shape!r},) for one dim."
        )
    raw, shape = _check_single_key(key, "choice"), _shape(shape)
    whole = isinstance(a, (int, np.integer, SymbolicDim)) or np.ndim(a) == 0
    arr = None if whole else concrete(wnp.asarray(a))
    axis = 0 if arr is None else canonical_axis(axis, arr.ndim, "choice")
    n = as_int(a) if arr is None else arr.shape[axis]
    draws = math.prod(shape)
    if draws == 0:
        return wnp.zeros(shape, dtypes.default_int_dtype() if arr is None else arr.dtype)
    if n <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > n:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {n}) when 'replace=False'"
        )
    if p is not None:
        positions = _weighted_positions(raw, p, shape, n, replace, mode)
    elif replace:
        positions = randint(raw, shape, 0, n)
    else:
        order = _shuffle(raw, wnp.arange(n), 0)
        positions = wnp.reshape(order[:draws], shape)
    if arr is None:
        return cast(positions, dtypes.default_int_dtype())
    return wnp.take(arr, positions, axis, mode="clip")


def _weighted_positions(raw, p, shape: tuple, n: int, replace: bool, mode: str | None):
    """Draw positions below `n` with probabilities `p`."""
    p = concrete(wnp.asarray(p))
    p = cast(p, dtypes.to_inexact_dtype(p.dtype))
    if tuple(p.shape) != (n,):
        raise ValueError(
            f"p must be None or a 1D vector with the same size as a.shape[axis]. p has shape {tuple(p.shape)} and "
            f"a.shape[axis] is {n}."
        )
    if replace:
        cumulative = wnp.cumsum(p)
        draw = wnp.multiply(cumulative[-1], wnp.subtract(1, uniform(raw, shape, p.dtype)))
        return wnp.searchsorted(cumulative, draw)
    noisy = ew.add(gumbel(raw, (n,), p.dtype, mode), ew.log(p))
    return wnp.reshape(sorting.top_k(noisy, math.prod(shape))[1], shape)
