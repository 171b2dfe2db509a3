"""Counter-based random bits: the threefry2x32 block cipher.

In:   the two words of a key and the two words of a counter, uint32, of one shape or rank 0.
Out:  two words of random bits per counter.
Laws: the bits depend on key and counter alone; a counter that is the global position of an element makes them the same
      under every sharding, with no communication. Constants and schedule are those of Random123 (20 rounds).
"""

from __future__ import annotations

import numpy as np

from weft.core.primitive import Primitive, unsupported
from weft.ir.factors import elementwise_rule
from weft.ir.types import ShapedArray
from weft.ops import families

_U32 = np.dtype(np.uint32)
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# --- the block function -----------------------------------------------------------------------------------------------

threefry2x32_p = Primitive("threefry2x32", "elementwise", multiple_results=True, cost=100)


def threefry2x32(k0, k1, x0, x1) -> list:
    """The two words of the threefry block cipher with key (k0, k1) on the counter (x0, x1), elementwise in uint32.

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
    word = lambda value: b.const(value, "u32")
    rotate = lambda x, bits: b.op("or", b.op("shl", x, word(bits)), b.op("shr_logical", x, word(32 - bits)))
    return _rounds(*words, lambda x, y: b.op("add", x, y), lambda x, y: b.op("xor", x, y), rotate, word)


threefry2x32_p.define(jvp=families.zero_jvp(threefry2x32_p), batch=families.batch_elementwise(threefry2x32_p),
                      factors=elementwise_rule, transpose=unsupported("is not linear in any operand"))
