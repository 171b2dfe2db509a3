"""Random words from a counter split into halves: threefry without `threefry_partitionable`.

In:   the two words of a key, of one shape; the even length of the sequence.
Out:  uint32[*key shape, length]: counters i < length / 2 are paired with i + length / 2; the first
      words of all pairs, then the second words.
Laws: the words equal `ops.rng.threefry2x32`. On several devices `partition.rules.counters` computes
      each pair once.
Next: `random.generators`, which calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import SortOp, declare_unsupported
from weft._engine.core.trace import typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import arithmetic, families, layout, rng, slicing
from weft._engine.ops.families import move_dim
from weft._engine.ops.lowering_specs import ExpandSpec

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import Avals, BatchDims, NumPyArray, Value, Values

_U32 = np.dtype(np.uint32)

#: params: length
threefry_sequence_p = SortOp("threefry_sequence")


def threefry_sequence(k0: Any, k1: Any, length: int) -> Any:
    """Return `length` random words of a key (an even number), from counters split into halves.

    >>> threefry_sequence(np.uint32(0), np.uint32(0), 4).tolist() == [
    ...     int(w) for half in zip(*[rng.threefry2x32(*np.uint32([0, 0, i, i + 2])) for i in (0, 1)]) for w in half]
    True
    """
    return threefry_sequence_p.bind(k0, k1, length=length)


def pairs(k0: Any, k1: Any, start: Any, count: int, half: int) -> list[Any]:
    """Return the words of `count` counters from `start`, paired with the counters `half` later."""
    shape = (*typeof(k0).shape, count)
    spread: Callable[[Value], Value] = lambda k: layout.broadcast_in_dim(
        k, shape, tuple(range(len(shape) - 1))
    )
    first = arithmetic.add(
        layout.broadcasted_iota(_U32, shape, len(shape) - 1),
        layout.broadcast_in_dim(start, shape, ()),
    )
    return rng.threefry2x32(
        spread(k0), spread(k1), first, arithmetic.add(first, layout.full(shape, half, _U32))
    )


def whole(k0: Any, k1: Any, *, length: int) -> Any:
    return slicing.concatenate(
        pairs(k0, k1, np.uint32(0), length // 2, length // 2), typeof(k0).ndim
    )


@threefry_sequence_p.def_type
def _type(k0: ShapedArray, k1: ShapedArray, *, length: int) -> ShapedArray:
    return ShapedArray((*k0.shape, length), _U32, False, None, families.joined_vma((k0, k1)))


@threefry_sequence_p.def_reference
def _reference(k0: NumPyArray, k1: NumPyArray, *, length: int):
    first = np.arange(length // 2, dtype=_U32)
    words = rng.threefry2x32_p.reference(
        k0[..., None], k1[..., None], first, first + np.uint32(length // 2)
    )
    return np.concatenate(words, -1)


@threefry_sequence_p.def_batch
def _batch(axis: BatchAxis, args: Values, dims: BatchDims, *, length: int):
    spread: Callable[[Value], Value] = lambda x: layout.broadcast_in_dim(
        x, (axis.size, *typeof(x).shape), tuple(range(1, typeof(x).ndim + 1))
    )
    keys = [spread(x) if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)]
    return threefry_sequence_p.bind(*keys, length=length), 0


@threefry_sequence_p.def_factors
def _factors(in_avals: Avals, out_avals: Avals, *, length: int):
    b = RuleBuilder()
    fs = b.add_factors(in_avals[0].shape)
    along = b.new(length)
    return b.rule([fs, fs], [[*fs, along]], special={along: "scan"})


threefry_sequence_p.define(
    jvp=families.zero_jvp(threefry_sequence_p),
    transpose=declare_unsupported("is not linear in any operand"),
    lower=ExpandSpec(whole),
)
