"""Helpers of irregular families: positions of dims for batch rules, and jvp rules of linear ops.

`batch_dim_to_front`, `shift_dims` and `insert` serve batch rules. `jointly_linear` and `multilinear` fill the jvp slot of an op that is
linear in some operands: jointly (concatenate), or in one at a time (dot_general).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import Primitive, registry
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import add_tangents, instantiate, joined_vma, move_dim, zero_tangent
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Values


def shaped_like(aval: ShapedArray, shape: Sequence[int], *others: ShapedArray) -> ShapedArray:
    """Return the type of a result with `shape` and the dtype of `aval`.

    It is weak if all operands are, and varies over the axes of any of them.
    """
    weak = aval.weak_type and all(o.weak_type for o in others)
    return ShapedArray(tuple(shape), aval.dtype, weak, None, joined_vma((aval, *others)))


def aval_of(x: Any) -> ShapedArray:
    """Return the type of an argument of a transpose rule.

    The argument is a value, or the `UndefPrimal` of a linear input.
    """
    return x.aval if type(x) is UndefPrimal else typeof(x)


def batch_dim_to_front(x: Any, dim: int | None, size: int) -> Any:
    """Return `x` with its batch dim first, repeated `size` times if it has none."""
    if dim is not None:
        return move_dim(x, dim, 0)
    shape = typeof(x).shape
    return registry["broadcast_in_dim"].bind(
        x, shape=(size, *shape), broadcast_dimensions=tuple(range(1, len(shape) + 1))
    )


def shift_dims(dims: Sequence[int], inserted: int) -> tuple[int, ...]:
    """Return `dims` after the insertion of a dim at position `inserted`.

    >>> shift_dims((0, 1, 2), 1)
    (0, 2, 3)
    """
    return tuple(d + (d >= inserted) for d in dims)


def insert(items: Sequence[Any], position: int, item: Any) -> tuple[Any, ...]:
    """Return `items` as a tuple with `item` inserted at `position`."""
    return (*items[:position], item, *items[position:])


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `permutation`.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    out = [0] * len(permutation)
    for position, dim in enumerate(permutation):
        out[dim] = position
    return tuple(out)


def jointly_linear(primitive: Primitive, positions: Sequence[int] | None = None) -> None:
    """Fill the jvp slot of an op that is linear in several operands together.

    These are at `positions` (None: all operands).
    """

    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        where = range(len(primals)) if positions is None else positions
        if all(type(tangents[i]) is Zero for i in where):
            return out, zero_tangent(out)
        args = list(primals)
        for i in where:
            args[i] = instantiate(tangents[i])
        return out, primitive.bind(*args, **params)

    primitive.define(jvp=jvp)


def multilinear(primitive: Primitive, positions: Sequence[int]) -> None:
    """Fill the jvp slot of an op that is linear in each operand at `positions` separately."""

    def jvp(primals: Values, tangents: Values, **params: Any):
        out = primitive.bind(*primals, **params)
        total: Any = zero_tangent(out)
        if not dtypes.issubdtype(typeof(out).dtype, np.inexact):
            return out, total
        for i in positions:
            if type(tangents[i]) is not Zero:
                args = list(primals)
                args[i] = tangents[i]
                total = add_tangents(total, primitive.bind(*args, **params))
        return out, total

    primitive.define(jvp=jvp)
