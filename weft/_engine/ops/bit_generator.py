"""Random bits of a whole array from a state of four words, by philox or threefry on element
positions.

In:   uint32[4]: two words for the key of the block function, two for the start of its counter; a
      shape.
Out:  unsigned integers, and the state with the next counter.
Laws: the bits of an element depend only on the state and on the row-major position of the element;
      they equal the bits of XLA's RngBitGenerator.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import SymbolicDim, is_at_most, is_multiple
from weft._engine.ops import elementwise as ew, layout, rng, slicing
from weft._engine.ops.bitwise import mulhi
from weft._engine.ops.casting import size_as
from weft._engine.ops.placement import with_out_sharding
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Ints, Value, Values

_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)


class RandomAlgorithm(enum.IntEnum):
    """The block functions of `rng_bit_generator`; the default is philox."""

    __module__ = "weft.lax"

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def rng_bit_generator(
    key: Value,
    shape: Sequence[int],
    dtype: dtypes.DTypeLike = np.uint32,
    algorithm: Any = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
):
    """Return random bits and the next state.

    This is `weft.lax.rng_bit_generator` without a mapped axis.
    """
    aval, dtype, algorithm = (
        typeof(key),
        dtypes.check_dtype(dtype, "rng_bit_generator"),
        RandomAlgorithm(algorithm),
    )
    if (aval.dtype, aval.shape) not in ((_U32, (4,)), (_U64, (2,))):
        raise TypeError(
            f"rng_bit_generator: key must be uint32[4] or uint64[2], got {aval.str_short()}."
        )
    if not dtypes.issubdtype(dtype, np.unsignedinteger) or dtypes.itemsize_bits(dtype) < 8:
        raise TypeError(
            f"rng_bit_generator: dtype must be uint8, uint16, uint32 or uint64, got {dtype.name}."
        )
    if any(n < 0 for n in shape):
        raise ShapeError(f"rng_bit_generator: dims must not be negative, got shape {tuple(shape)}.")
    words = _halves(key) if aval.dtype == _U64 else key
    width, shape = 8 * dtype.itemsize, tuple(shape)
    k0, k1, low, high = words_of(words)
    if algorithm is RandomAlgorithm.RNG_THREE_FRY:
        draw, paired = _threefry_bits, _paired_dim(width, shape)
        blocks = math.prod(-(-n // 2) if d == paired else n for d, n in enumerate(shape))
    else:
        draw = philox_bits
        blocks = -(-math.prod(shape) // (2 if width == 64 else 4))
    after = [k0, k1, *_plus(_halves_of(blocks), low, high)]
    if aval.dtype == _U64:
        after = [join_words(*after[:2]), join_words(*after[2:])]
    state = slicing.concatenate([layout.reshape(w, (1,)) for w in after], 0)
    return state, with_out_sharding(
        out_sharding, "rng_bit_generator", lambda: draw(words, width, shape), key
    )


def positions(shape: Ints, paired: int = -1) -> list[Any]:
    """Return the row-major position of every element of `shape` in 32-bit words, low word first.

    There are two words where the array has more than 2**32 elements. Pairs of neighbors along the
    dim `paired` share one position.
    """
    if not shape:
        return [np.uint32(0)]
    is_wide, total, stride = not is_at_most(math.prod(shape), 1 << 32), None, 1
    for d in reversed(range(len(shape))):
        if not is_at_most(shape[d], 1) or len(shape) == 1:
            part = _indices(shape, d, is_wide)
            part = _shift(part, 1) if d == paired else part
            part = part if stride == 1 else _times(part, stride)
            total = part if total is None else _plus(part, *total)
        stride *= -(-shape[d] // 2) if d == paired else shape[d]
    return [layout.broadcasted_iota(_U32, shape, 0)] if total is None else total


#: the length of the rows in which a dim of more than 2**32 elements is counted
_ROW = 1 << 31


def _indices(shape: Ints, dim: int, wide: bool) -> list[Any]:
    """Return the index of every element along `dim`, in one or two words."""
    if not wide:
        return [layout.broadcasted_iota(_U32, shape, dim)]
    if isinstance(shape[dim], SymbolicDim) or shape[dim] <= 1 << 32:
        low = layout.broadcasted_iota(_U32, shape, dim)
        return [low, ew.bitwise_xor(low, low)]
    rows = -(-shape[dim] // _ROW)
    row, column = (layout.broadcasted_iota(_U32, (rows, _ROW), d) for d in (0, 1))
    words = ew.add(ew.mul(row, np.uint32(_ROW)), column), ew.shift_right_logical(row, np.uint32(1))
    cut: Callable[[Value], Value] = lambda x: slicing.slice_in_dim(
        layout.reshape(x, (rows * _ROW,)), 0, shape[dim], axis=0
    )
    return [layout.broadcast_in_dim(cut(x), shape, (dim,)) for x in words]


def _shift(words: list[Any], by: int) -> list[Any]:
    """Shift a number of one or two words to the right by fewer than 32 bits."""
    if len(words) == 1:
        return [ew.shift_right_logical(words[0], np.uint32(by))]
    low, high = words
    carried = ew.shift_left(high, np.uint32(32 - by))
    return [
        ew.bitwise_or(ew.shift_right_logical(low, np.uint32(by)), carried),
        ew.shift_right_logical(high, np.uint32(by)),
    ]


def _times(words: list[Any], n: int) -> list[Any]:
    """Multiply a number of one or two words by `n`; the result has as many words."""
    factor = size_as(n % (1 << 32), np.uint32)
    low = ew.mul(words[0], factor)
    if len(words) == 1:
        return [low]
    high = ew.add(mulhi(words[0], factor), ew.mul(words[1], factor))
    return [low, ew.add(high, ew.mul(words[0], size_as(n // (1 << 32), np.uint32)))]


def _halves_of(n: int) -> list[Any]:
    """Return an integer in 32-bit words, low word first; one word if it fits."""
    low, high = n % (1 << 32), n // (1 << 32)
    return [size_as(low, np.uint32), *([size_as(high, np.uint32)] if high else [])]


def philox_bits(raw: Value, width: int, shape: Ints):
    """Return bits of `width` by philox.

    Each element takes one word, or two for 64 bits, of the four-word block at its position.
    """
    k0, k1, low, high = words_of(raw)
    at, per_block = positions(shape), 2 if width == 64 else 4
    counter = _plus(_shift(at, per_block // 2), low, high, k0, k1)
    return _pick(
        rng.philox4x32(k0, k1, *counter), ew.bitwise_and(at[0], np.uint32(per_block - 1)), width
    )


def _threefry_bits(raw: Value, width: int, shape: Ints):
    """Return bits of `width` by threefry; neighbors along one dim take the two words of a block."""
    k0, k1, low, high = words_of(raw)
    paired = _paired_dim(width, shape)
    lane = (
        np.uint32(0)
        if paired < 0
        else ew.bitwise_and(layout.broadcasted_iota(_U32, shape, paired), np.uint32(1))
    )
    return _pick(rng.threefry2x32(k0, k1, *_plus(positions(shape, paired), low, high)), lane, width)


def _paired_dim(width: int, shape: Ints) -> int:
    """Return the first dim of even size, else the largest; -1 if an element takes both words."""
    if width == 64 or not shape:
        return -1
    return next((d for d, n in enumerate(shape) if is_multiple(n, 2)), shape.index(max(shape)))


def _pick(words: Values, lane: Value, width: int):
    """Return the word of a block in a lane, or the pair of words for 64 bits."""
    if width == 64:
        pairs = [join_words(*words[i : i + 2]) for i in range(0, len(words), 2)]
        return pairs[0] if len(pairs) == 1 else ew.select_n(ew.ne(lane, np.uint32(0)), *pairs)
    word = ew.select_n(ew.convert_element_type(lane, np.dtype(np.int32)), *words)
    return word if width == 32 else ew.convert_element_type(word, np.dtype(f"uint{width}"))


def _plus(count: list[Any], low: Value, *higher: Value) -> list[Any]:
    """Add a count of one or two words to a number of several words, low word first."""
    words, carry = [ew.add(low, count[0])], ew.lt(ew.add(low, count[0]), count[0])
    for i, word in enumerate(higher):
        carry = ew.convert_element_type(carry, _U32)
        total = ew.add(word, carry)
        carry = ew.lt(total, carry)
        if i == 0 and len(count) > 1:
            total = ew.add(total, count[1])
            carry = ew.bitwise_or(carry, ew.lt(total, count[1]))
        words.append(total)
    return words


def words_of(raw: Value) -> list[Any]:
    """Return the words of a vector as rank-0 values."""
    return [
        layout.reshape(slicing.slice_in_dim(raw, i, i + 1, axis=0), ()) for i in range(raw.shape[0])
    ]


def join_words(low: Value, high: Value):
    """Return uint64 values from their low and high words."""
    return ew.bitwise_or(
        ew.shift_left(ew.convert_element_type(high, _U64), np.uint64(32)),
        ew.convert_element_type(low, _U64),
    )


def _halves(key: Value):
    """Return uint32[4] from uint64[2]."""
    wide = words_of(key)
    words = [w for x in wide for w in (x, ew.shift_right_logical(x, np.uint64(32)))]
    return slicing.concatenate(
        [layout.reshape(ew.convert_element_type(w, _U32), (1,)) for w in words], 0
    )
