"""Counter-based random bits: threefry2x32, and the keys and bits that are made of it.

In:   keys of dtype uint32 and shape (..., 2), one key per leading position; shapes of what to make.
Out:  uint32 keys of shape (..., 2), or unsigned integers of 8, 16, 32 or 64 random bits.
Laws: the bits at a position depend on the key and the global row-major index of the position alone, so they are the same
      under every sharding and need no communication. Constants and key schedule are those of Random123 (20 rounds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.primitive import Primitive, unsupported
from weft.core.trace import typeof
from weft.ir.factors import elementwise_rule
from weft.ir.types import ShapedArray
from weft.ops import families
from weft.ops.arithmetic import add, mul
from weft.ops.bitwise import bitwise_or, bitwise_xor, shift_left, shift_right_logical
from weft.ops.casting import convert_element_type, convert_element_type_p
from weft.ops.families import dtype_in
from weft.ops.layout import broadcast_in_dim, expand_dims, iota_p, squeeze
from weft.ops.slicing import concatenate, slice_in_dim

_U32 = np.dtype(np.uint32)
_U64 = np.dtype(np.uint64)
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# --- the block function -----------------------------------------------------------------------------------------------

threefry2x32_p = Primitive("threefry2x32", "elementwise", multiple_results=True)


def threefry2x32(k0, k1, x0, x1) -> list:
    """The two words of the threefry block cipher with key (k0, k1) on the counter (x0, x1), elementwise in uint32.

    >>> import numpy as np
    >>> [hex(w) for w in threefry2x32(*np.zeros(4, np.uint32))]
    ['0x6b200159', '0x99ba4efe']
    """
    return threefry2x32_p.bind(k0, k1, x0, x1)


def _rounds(k0, k1, x0, x1, add, xor, rotate, constant):
    """The cipher in terms of the word operations that are given."""
    keys = (k0, k1, xor(xor(k0, k1), constant(_PARITY)))
    x0, x1 = add(x0, k0), add(x1, k1)
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x0 = add(x0, x1)
            x1 = xor(rotate(x1, bits), x0)
        x0 = add(x0, keys[(group + 1) % 3])
        x1 = add(add(x1, keys[(group + 2) % 3]), constant(group + 1))
    return [x0, x1]


@threefry2x32_p.def_type
def _threefry_type(*avals: ShapedArray):
    if len(avals) != 4 or any(a.dtype != _U32 for a in avals):
        raise TypeError(f"threefry2x32: takes four uint32 operands, got {', '.join(a.str_short() for a in avals)}.")
    out = ShapedArray(families.broadcast_shapes("threefry2x32", avals), _U32, False, None, families.joined_vma(avals))
    return out, out


@threefry2x32_p.def_reference
def _threefry_reference(*words):
    rotate = lambda x, bits: (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
    with np.errstate(over="ignore"):
        outs = _rounds(*words, np.add, np.bitwise_xor, rotate, np.uint32)
    shape = np.broadcast_shapes(*(w.shape for w in words))
    return [np.broadcast_to(o, shape) for o in outs]


@threefry2x32_p.def_lower
def _threefry_lower(b, index, *inputs, in_avals, out_avals):
    words = [x(index if a.ndim else ()) for x, a in zip(inputs, in_avals)]
    rotate = lambda x, bits: b.op("or", b.op("shl", x, b.const(bits, "u32")), b.op("shr_logical", x, b.const(32 - bits, "u32")))
    return _rounds(*words, lambda x, y: b.op("add", x, y), lambda x, y: b.op("xor", x, y), rotate,
                   lambda value: b.const(value, "u32"))


threefry2x32_p.define(jvp=families.zero_jvp(threefry2x32_p), batch=families.batch_elementwise(threefry2x32_p),
                      factors=elementwise_rule, transpose=unsupported("is not linear in any operand"))


# --- keys -------------------------------------------------------------------------------------------------------------


def threefry_seed(seed: Any) -> Any:
    """The key for an integer seed: its high and low 32 bits. `seed` is a Python int or an integer array of any shape.

    >>> import numpy as np
    >>> np.asarray(threefry_seed(42)).tolist()
    [0, 42]
    """
    if isinstance(seed, int):
        return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], _U32)
    aval = typeof(seed)
    if not dtype_in(aval.dtype, families.INTEGER):
        raise TypeError(f"threefry_seed: a seed must be an integer, got {aval.str_short()}.")
    low = convert_element_type(seed, _U32)
    if aval.dtype.itemsize == 8:
        high = convert_element_type(shift_right_logical(seed, np.array(32, aval.dtype)[()]), _U32)
    else:
        high = families.full(aval.shape, 0, _U32)
    return _pair(high, low)


def threefry_split(key, shape: int | Sequence[int] = 2):
    """New keys of shape (..., *shape, 2) from each key of `key`.

    >>> import numpy as np
    >>> threefry_split(threefry_seed(0), 3).shape
    (3, 2)
    """
    shape = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
    return _pair(*_blocks(key, shape))


def threefry_fold_in(key, data):
    """The key that `key` and an integer `data` give; `data` has rank 0 or the leading shape of `key`."""
    k0, k1 = _words(key)
    x0, x1 = _words(threefry_seed(data))
    return _pair(*threefry2x32(k0, k1, x0, x1))


def threefry_random_bits(key, bit_width: int, shape: Sequence[int]):
    """Random unsigned integers of `bit_width` bits in shape (..., *shape) for each key.

    >>> import numpy as np
    >>> np.asarray(threefry_random_bits(threefry_seed(42), 32, (2,))).tolist()
    [1832780943, 270669613]
    """
    if bit_width not in (8, 16, 32, 64):
        raise TypeError(f"threefry_random_bits: bit_width must be 8, 16, 32 or 64, got {bit_width}.")
    high, low = _blocks(key, tuple(map(int, shape)))
    if bit_width == 64:
        high, low = _as_counter(high, _U64), _as_counter(low, _U64)
        return bitwise_or(shift_left(high, np.uint64(32)), low)
    return convert_element_type(bitwise_xor(high, low), np.dtype(f"uint{bit_width}"))


def _as_counter(x, dtype: np.dtype):
    """`x` as `dtype`, also where 64-bit types are off: counters may need them."""
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False, sharding=None)


def _words(key) -> tuple[Any, Any]:
    """The two words of each key."""
    aval = typeof(key)
    if aval.dtype != _U32 or not aval.ndim or aval.shape[-1] != 2:
        raise TypeError(f"threefry: keys must be uint32 with a last dim of 2, got {aval.str_short()}.")
    last = aval.ndim - 1
    first, second = (slice_in_dim(key, i, i + 1, axis=last) for i in range(2))
    return squeeze(first, (last,)), squeeze(second, (last,))


def _pair(first, second):
    """Both as the last dim of one array."""
    ndim = typeof(first).ndim
    return concatenate([expand_dims(first, (ndim,)), expand_dims(second, (ndim,))], ndim)


def _blocks(key, shape: tuple[int, ...]) -> list:
    """The cipher on the counters 0, 1, ... of `shape`, in row-major order, for each key."""
    k0, k1 = _words(key)
    leading = typeof(k0).shape
    high, low = _counters(shape)
    if not leading:
        return threefry2x32(k0, k1, high, low)
    full_shape = (*leading, *shape)
    spread = lambda x, dims: broadcast_in_dim(x, full_shape, dims) if typeof(x).ndim else x
    own, inner = tuple(range(len(leading))), tuple(range(len(leading), len(full_shape)))
    return threefry2x32(spread(k0, own), spread(k1, own), spread(high, inner), spread(low, inner))


def _counters(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """High and low words of each position's row-major index; the high one is rank 0 where it is 0 throughout."""
    if math.prod(shape) <= 1 << 32:
        return np.uint32(0), _row_major_index(shape, _U32)
    index = _row_major_index(shape, _U64)
    return convert_element_type(shift_right_logical(index, np.uint64(32)), _U32), convert_element_type(index, _U32)


def _row_major_index(shape: tuple[int, ...], dtype: np.dtype):
    total: Any = None
    for d in range(len(shape)):
        if shape[d] == 1 and len(shape) > 1:
            continue
        stride = math.prod(shape[d + 1:])
        place = iota_p.bind(dtype=dtype, shape=shape, dimension=d)
        term = place if stride == 1 else mul(place, np.asarray(stride, dtype)[()])
        total = term if total is None else add(total, term)
    if total is None:
        return families.full(shape, 0, dtype) if shape else np.zeros((), dtype)[()]
    return total
