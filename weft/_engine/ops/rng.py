"""Counter-based random bits: the block functions threefry and philox, for counters of two and of four words.

In:   the words of a key (one, two or four) and the two or four words of a counter, uint32, of one shape or rank 0.
Out:  two or four words of random bits per counter.
Laws: the bits depend only on key and counter; a counter that is the global position of an element
      makes them the same under every sharding, with no communication. Constants and key schedules
      are those defined by Random123 (20 and 10 rounds).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft._engine.core.primitive import ElementwiseOp, Primitive, declare_unsupported
from weft._engine.ir.factors import elementwise_rule
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import families

if TYPE_CHECKING:
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ops.rule_types import Avals, ElementIndex, ElementReader, NumPyArray, Value

_U32 = np.dtype(np.uint32)
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_ROTATIONS_OF_PAIRS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_MULTIPLIER = 0xD256D193
_WEYL = (0x9E3779B9, 0xBB67AE85)

# --- threefry ---------------------------------------------------------------------------------------------------------

threefry2x32_p = ElementwiseOp("threefry2x32", multiple_results=True, cost=100)
threefry4x32_p = ElementwiseOp("threefry4x32", multiple_results=True, cost=200)
philox2x32_p = ElementwiseOp("philox2x32", multiple_results=True, cost=75)
philox4x32_p = ElementwiseOp("philox4x32", multiple_results=True, cost=150)


def threefry2x32(k0: Value, k1: Value, x0: Value, x1: Value) -> list[Any]:
    """Return the two words of the threefry block cipher with key (k0, k1).

    The counter is (x0, x1). The function is elementwise in uint32.

    >>> [hex(w) for w in threefry2x32(*np.zeros(4, np.uint32))]
    ['0x6b200159', '0x99ba4efe']
    """
    return threefry2x32_p.bind(k0, k1, x0, x1)


def _threefry_rounds(ops: _WordOps, k0: Value, k1: Value, x0: Value, x1: Value):
    keys = (k0, k1, ops.xor(ops.xor(k0, k1), ops.word(_PARITY)))
    x0, x1 = ops.add(x0, k0), ops.add(x1, k1)
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x0 = ops.add(x0, x1)
            x1 = ops.xor(ops.rotate(x1, bits), x0)
        x0 = ops.add(x0, keys[(group + 1) % 3])
        x1 = ops.add(ops.add(x1, keys[(group + 2) % 3]), ops.word(group + 1))
    return [x0, x1]


def threefry4x32(
    k0: Value, k1: Value, k2: Value, k3: Value, x0: Value, x1: Value, x2: Value, x3: Value
) -> list[Any]:
    """Return the four words of the threefry block cipher with key (k0 ... k3).

    The counter is (x0 ... x3). The function is elementwise in uint32.

    >>> [hex(w) for w in threefry4x32(*np.zeros(8, np.uint32))]
    ['0x9c6ca96a', '0xe17eae66', '0xfc10ecd4', '0x5256a7d8']
    """
    return threefry4x32_p.bind(k0, k1, k2, k3, x0, x1, x2, x3)


def _wide_threefry_rounds(ops: _WordOps, *words: Value):
    keys, x = list(words[:4]), [ops.add(w, k) for w, k in zip(words[4:], words)]
    keys.append(functools.reduce(ops.xor, keys, ops.word(_PARITY)))
    for step in range(20):
        for at, bits in zip((0, 2), _ROTATIONS_OF_PAIRS[step % 8]):
            # each pair mixes, then the pairs exchange partners
            other = at + 1 if step % 2 == 0 else 3 - at
            x[at] = ops.add(x[at], x[other])
            x[other] = ops.xor(ops.rotate(x[other], bits), x[at])
        if step % 4 == 3:
            group = step // 4 + 1
            x = [ops.add(w, keys[(group + i) % 5]) for i, w in enumerate(x)]
            x[3] = ops.add(x[3], ops.word(group))
    return x


# --- philox -----------------------------------------------------------------------------------------------------------


def philox4x32(k0: Value, k1: Value, x0: Value, x1: Value, x2: Value, x3: Value) -> list[Any]:
    """Return the four words of the philox block function with key (k0, k1) on the counter (x0 ...
    x3), elementwise in uint32.

    >>> [hex(w) for w in philox4x32(*np.zeros(6, np.uint32))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    return philox4x32_p.bind(k0, k1, x0, x1, x2, x3)


def _philox_rounds(ops: _WordOps, k0: Value, k1: Value, x0: Value, x1: Value, x2: Value, x3: Value):
    for _ in range(10):
        (high0, low0), (high2, low2) = (
            ops.product(x0, _MULTIPLIERS[0]),
            ops.product(x2, _MULTIPLIERS[1]),
        )
        x0, x1, x2, x3 = (
            ops.xor(ops.xor(high2, x1), k0),
            low2,
            ops.xor(ops.xor(high0, x3), k1),
            low0,
        )
        k0, k1 = ops.add(k0, ops.word(_WEYL[0])), ops.add(k1, ops.word(_WEYL[1]))
    return [x0, x1, x2, x3]


def philox2x32(k: Value, x0: Value, x1: Value) -> list[Any]:
    """Return the two words of the philox block function with key k.

    The counter is (x0, x1). The function is elementwise in uint32.

    >>> [hex(w) for w in philox2x32(*np.zeros(3, np.uint32))]
    ['0xff1dae59', '0x6cd10df2']
    """
    return philox2x32_p.bind(k, x0, x1)


def _narrow_philox_rounds(ops: _WordOps, k: Value, x0: Value, x1: Value):
    for _ in range(10):
        high, low = ops.product(x0, _MULTIPLIER)
        x0, x1 = ops.xor(ops.xor(high, x1), k), low
        k = ops.add(k, ops.word(_WEYL[0]))
    return [x0, x1]


# --- rules of all block functions ------------------------------------------------------------


class _WordOps(Protocol):
    """Operations on words."""

    def word(self, value: int, /) -> Any: ...
    def add(self, x: Any, y: Any, /) -> Any: ...
    def xor(self, x: Any, y: Any, /) -> Any: ...
    def rotate(self, x: Any, bits: int, /) -> Any: ...
    def product(self, x: Any, factor: int, /) -> tuple[Any, Any]: ...


class _NumPyWords:
    """Operations on words as NumPy arrays."""

    add, xor, word = np.add, np.bitwise_xor, np.uint32

    @staticmethod
    def rotate(x: Value, bits: int):
        return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))

    @staticmethod
    def product(x: Value, factor: int):
        product = x.astype(np.uint64) * np.uint64(factor)
        return (product >> np.uint64(32)).astype(_U32), product.astype(_U32)


class _EmittedWords:
    """Operations on words as scalars of Loops."""

    def __init__(self, builder: LoopsBuilder):
        self.b = builder

    def word(self, value: int):
        return self.b.const(value, "u32")

    def add(self, x: Value, y: Value):
        return self.b.op("add", x, y)

    def xor(self, x: Value, y: Value):
        return self.b.op("xor", x, y)

    def rotate(self, x: Value, bits: int):
        return self.b.op(
            "or",
            self.b.op("shl", x, self.word(bits)),
            self.b.op("shr_logical", x, self.word(32 - bits)),
        )

    def product(self, x: Value, factor: int):
        b = self.b
        product = b.op("mul", b.cast(x, "u64"), b.const(factor, "u64"))
        return b.cast(b.op("shr_logical", product, b.const(32, "u64")), "u32"), b.cast(
            product, "u32"
        )


def _define(
    primitive: Primitive, rounds: Callable[..., list[Any]], words_in: int, words_out: int
) -> None:
    @primitive.def_type
    def _type(*avals: ShapedArray):
        if len(avals) != words_in or any(a.dtype != _U32 for a in avals):
            raise TypeError(
                f"{primitive.name}: takes {words_in} uint32 operands, got {', '.join(a.str_short() for a in avals)}."
            )
        out = ShapedArray(
            families.broadcast_shapes(primitive.name, avals),
            _U32,
            False,
            None,
            families.joined_vma(avals),
        )
        return (out,) * words_out

    @primitive.def_reference
    def _reference(*words: NumPyArray):
        with np.errstate(over="ignore"):
            outs = rounds(_NumPyWords, *words)
        shape = np.broadcast_shapes(*(w.shape for w in words))
        return [np.broadcast_to(o, shape) for o in outs]

    @primitive.def_lower
    def _lower(
        b: LoopsBuilder,
        index: ElementIndex,
        *inputs: ElementReader,
        in_avals: Avals,
        out_avals: Avals,
    ):
        return rounds(
            _EmittedWords(b), *(x(index if a.ndim else ()) for x, a in zip(inputs, in_avals))
        )

    primitive.define(
        jvp=families.zero_jvp(primitive),
        batch=families.batch_elementwise(primitive),
        factors=elementwise_rule,
        transpose=declare_unsupported("is not linear in any operand"),
    )


_define(threefry2x32_p, _threefry_rounds, 4, 2)
_define(threefry4x32_p, _wide_threefry_rounds, 8, 4)
_define(philox2x32_p, _narrow_philox_rounds, 3, 2)
_define(philox4x32_p, _philox_rounds, 6, 4)
