"""Concatenations as copies of their operands, or as concatenations of fewer operands.

In:   a `concatenate` equation.
Out:  `decompose_concatenation(eqn)`, a function that computes its result; None if a kernel does, which
      selects an operand for each element. `copying_concatenate()` is the primitive that copies.
"""

from __future__ import annotations

import functools
import math

from weft._engine.compiler.fusion.classify import (
    MOST_JOINED,
    SPLIT_PLACES,
    TILE_LEAST_SIDE,
    UNROLLED_ELEMENTS,
)
from weft._engine.core.primitive import LibraryOp, Primitive, registry
from weft._engine.core.trace import typeof
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ops.lowering_specs import JoinSpec
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: minimal size of a concatenation that copies its operands if there are many
_JOIN_FROM_BYTES = 1 << 16
#: maximal number of interleaved operands of a concatenation in a kernel
_INTERLEAVED = 4


@functools.cache
def copying_concatenate() -> Primitive:
    """Return the primitive of a concatenation that copies its operands."""
    concatenate = registry["concatenate"]
    return LibraryOp("concatenate", register=False).define(
        type=concatenate.type, reference=concatenate.reference, lower=JoinSpec()
    )


def decompose_concatenation(eqn: Eqn):
    """Return a function that computes a concatenation by other ops; None if a kernel computes it.

    Operands of a large concatenation are copied if there are many, because a kernel would select among them for every element."""
    dim, out, count = eqn.params["dimension"], eqn.outvars[0].aval, len(eqn.invars)
    lengths = [n for a in eqn.invars if (n := a.aval.shape[dim])]
    if out.nbytes >= _JOIN_FROM_BYTES:
        shortest = min(lengths) * math.prod(out.shape[dim + 1 :]) * out.dtype.itemsize
        narrow = (
            len({*lengths}) == 1 and shortest <= MODEL.cache_line and shortest & (shortest - 1) == 0
        )
        if (shortest >= MODEL.cache_line and count > SPLIT_PLACES + 1) or (
            narrow and count > _INTERLEAVED
        ):
            is_fast_transpose = count <= UNROLLED_ELEMENTS or count >= TILE_LEAST_SIDE
            return (
                _stack(dim)
                if shortest == out.dtype.itemsize and is_fast_transpose
                else lambda *xs: [copying_concatenate().bind(*xs, dimension=dim)]
            )
    return _join_by_parts(eqn) if count > MOST_JOINED else None


def _stack(dim: int):
    """Return a function that interleaves the elements of its arguments along `dim`: it stacks and transposes them."""

    def stacked(*xs):
        shape = typeof(xs[0]).shape
        flat = [registry["reshape"].bind(x, new_sizes=(1, math.prod(shape))) for x in xs]
        turned = registry["transpose"].bind(
            copying_concatenate().bind(*flat, dimension=0), permutation=(1, 0)
        )
        return [
            registry["reshape"].bind(turned, new_sizes=(*shape[:dim], len(xs), *shape[dim + 1 :]))
        ]

    return stacked


def _join_by_parts(eqn: Eqn):
    """Return a function for a concatenation of n operands: a concatenation of concatenations of about sqrt(n) operands each."""
    join, dim = eqn.primitive, eqn.params["dimension"]

    def by_parts(*operands):
        n = math.isqrt(len(operands))
        return [
            join.bind(
                *(
                    join.bind(*operands[i : i + n], dimension=dim)
                    for i in range(0, len(operands), n)
                ),
                dimension=dim,
            )
        ]

    return by_parts
