"""Packed bits, unwrapped phases, and piecewise functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.api.jit import jit
from weft._engine.numpy import (
    creation,
    manipulation as mp,
    padding,
    reductions as rd,
    selection,
    ufuncs as uf,
)
from weft._engine.numpy.promote import array_of, canonical_axis, cast
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity

_U8 = np.dtype(np.uint8)


def _weights(bitorder: str) -> tuple[int, ...]:
    """Return the weight of each of eight bits."""
    if bitorder not in ("little", "big"):
        raise ValueError(f"'bitorder' must be either 'little' or 'big', got {bitorder!r}.")
    return tuple(1 << k for k in range(8))[:: 1 if bitorder == "little" else -1]


def _combine_bits(bits, weights: tuple[int, ...]):
    """Return bytes of eight bits each.

    Eight strided loads fill whole registers; a sum over a dim of size eight would not.
    """
    worth = [
        selection.where(bits[..., k], _U8.type(weight), _U8.type(0))
        for k, weight in enumerate(weights)
    ]
    return functools.reduce(uf.bitwise_or, worth)


def _split_bytes(bytes_, weights: tuple[int, ...]):
    """Return the eight bits of each byte by bit tests, because no instruction shifts bytes."""
    return cast(uf.not_equal(uf.bitwise_and(bytes_[..., None], np.array(weights, _U8)), 0), _U8)


@functools.cache
def _compile(fun: Callable) -> Callable:
    """Compile a function of an array and constants.

    Eager calls would run each of its operations separately.
    """

    return jit(fun, static_argnums=1)


def packbits(a, axis: int | None = None, bitorder: str = "big"):
    """Return bytes whose bits are the elements of `a`, eight by eight along `axis`.

    Nonzero elements count as 1.
    """
    a = array_of("packbits", a)
    if not (dtypes.issubdtype(a.dtype, np.integer) or a.dtype == np.bool_):
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = _weights(bitorder)
    bits = uf.not_equal(a, 0) if a.dtype != np.bool_ else a
    if axis is None:
        bits, axis = mp.ravel(bits), 0
    bits = mp.moveaxis(bits, axis, -1)
    num_missing = -(-bits.shape[-1] // 8) * 8 - bits.shape[-1]
    if num_missing:
        bits = padding.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, num_missing)])
    packed = _compile(_combine_bits)(
        mp.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8)), weights
    )
    return mp.moveaxis(packed, -1, axis)


def unpackbits(a, axis: int | None = None, count: int | None = None, bitorder: str = "big"):
    """Return the bits of bytes as elements 0 and 1 along `axis`.

    `count` limits their number; a negative count removes that many from the end.
    """
    a = array_of("unpackbits", a)
    if a.dtype != _U8:
        raise TypeError("Expected an input array of unsigned byte data type")
    weights = _weights(bitorder)
    if axis is None:
        a, axis = mp.ravel(a), 0
    a = mp.moveaxis(a, axis, -1)
    bits = mp.reshape(_compile(_split_bytes)(a, weights), (*a.shape[:-1], a.shape[-1] * 8))
    if count is not None:
        have = bits.shape[-1]
        bits = (
            bits[..., :count]
            if count <= have
            else padding.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, count - have)])
        )
    return mp.moveaxis(bits, -1, axis)


def unwrap(p, discont=None, axis: int = -1, period=2 * math.pi):
    """Return phases without jumps of more than half a `period` along `axis`."""
    from weft._engine.numpy.composed import diff

    p = array_of("unwrap", p)
    axis = canonical_axis(axis, p.ndim, "unwrap")
    if dtypes.issubdtype(p.dtype, np.complexfloating):
        raise ValueError("unwrap is not defined for complex numbers.")
    if not dtypes.issubdtype(p.dtype, np.integer) or not isinstance(period, int):
        p = cast(p, dtypes.to_inexact_dtype(p.dtype))
    if not p.shape[axis]:
        return p
    half = period / 2 if dtypes.issubdtype(p.dtype, np.floating) else period // 2
    d = diff(p, axis=axis)
    turned = uf.subtract(uf.remainder(uf.add(d, half), period), half)
    turned = selection.where(
        uf.logical_and(uf.equal(turned, -half), uf.greater(d, 0)), half, turned
    )
    correction = uf.subtract(turned, d)
    if discont is not None:
        correction = selection.where(uf.less(uf.abs(d), max(discont, half)), 0, correction)
    else:
        correction = selection.where(uf.less(uf.abs(d), half), 0, correction)
    total = rd.cumsum(correction, axis)
    first = [(0, 0)] * p.ndim
    first[axis % p.ndim] = (1, 0)
    return cast(uf.add(p, padding.pad(total, first)), p.dtype)


def piecewise(x, condlist, funclist: Sequence, *args, **kw):
    """Return the value of the function (or constant) whose condition holds, elementwise.

    An extra function applies where no condition holds.
    """
    x = array_of("piecewise", x)
    if not isinstance(condlist, (list, tuple)) and not np.ndim(condlist):
        raise ValueError(
            f"piecewise: `condlist` must be a list of conditions, or an array of them along its first dim, got {condlist!r}."
        )
    conditions = (
        list(condlist)
        if isinstance(condlist, (list, tuple))
        else [condlist[i] for i in range(condlist.shape[0])]
    )
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {quantity(len(conditions) + 1, 'function')} are expected; "
            f"got {len(funclist)}"
        )
    default = funclist[-1] if len(funclist) > len(conditions) else 0
    functions = tuple(
        _Constant(f) if not callable(f) else f for f in (default, *funclist[: len(conditions)])
    )
    return _piecewise(x, conditions, functions, args, kw)


class _Constant:
    """A number or array in place of a function of `piecewise`."""

    def __init__(self, value):
        self.value = value

    def __call__(self, x, *args, **kw):
        return self.value

    def __hash__(self):
        return hash(self.value) if np.isscalar(self.value) else id(self.value)

    def __eq__(self, other):
        same = type(other) is _Constant and type(self.value) is type(other.value)
        return same and (
            self.value is other.value or (np.isscalar(self.value) and self.value == other.value)
        )


def _piecewise(x, conditions, functions: tuple, args, kw):

    def choose(x, conditions, functions, args, kw):
        apply = lambda f: mp.broadcast_to(
            cast(array_of("piecewise", f(x, *args, **kw)), x.dtype), x.shape
        )
        out = apply(functions[0])
        for c, f in zip(conditions, functions[1:]):  # the last condition that holds wins
            out = selection.where(c, apply(f), out)
        return out

    global _choose_pieces
    # the functions are traced once
    _choose_pieces = _choose_pieces or jit(choose, static_argnums=2)
    return _choose_pieces(x, conditions, functions, args, kw)


_choose_pieces: Callable | None = None


def apply_over_axes(func: Callable, a, axes):
    """Return the result of `func(a, axis)` applied successively over `axes`; dims are kept."""
    a = creation.asarray(a)
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        b = array_of("apply_over_axes: the result of `func`", func(a, axis))
        if b.ndim not in (a.ndim, a.ndim - 1):
            raise ValueError(
                f"apply_over_axes: `func` must keep the dims of its array, or leave one out, got {b.ndim} of {a.ndim}."
            )
        a = (
            b
            if b.ndim == a.ndim
            else mp.expand_dims(b, canonical_axis(axis, a.ndim, "apply_over_axes"))
        )
    return a


def sort_complex(a):
    """Return `a` sorted along the last dim, as complex numbers."""
    from weft._engine.numpy.sorting import sort

    out = sort(array_of("sort_complex", a, "a", 1), -1)
    return cast(out, dtypes.to_complex_dtype(out.dtype))
