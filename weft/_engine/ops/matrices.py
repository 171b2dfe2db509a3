"""Matrices in the last two dims, for the rules of linear algebra: products, transposes, triangles,
diagonals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import is_complex
from weft._engine.ops.casting import size_as
from weft._engine.ops.contraction import Precision, batch_matmul
from weft._engine.ops.elementwise import (
    add,
    complex as complex_of,
    conj,
    convert_element_type,
    div,
    eq,
    ge,
    gt,
    imag,
    mul,
    neg,
    real,
    select_n,
    square,
    sub,
)
from weft._engine.ops.families import full, zeros
from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape, transpose
from weft._engine.ops.reduce import argmax, reduce_sum
from weft._engine.ops.slicing import concatenate, pad, slice_in_dim

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Value


def dot(x: Value, y: Value) -> Value:
    """Return matrix products, in full precision."""
    return batch_matmul(x, y, Precision.HIGHEST)


def matrix_transpose(x: Value):
    """Return the transposed matrices."""
    n = typeof(x).ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x: Value):
    """Return the conjugate transposed matrices."""
    return conj(matrix_transpose(x)) if is_complex(x) else matrix_transpose(x)


def triangle(x: Value, keep: Callable[[Value, Value], Value]):
    """Return `x` where `keep(row, column)` holds, zeros elsewhere."""
    shape = typeof(x).shape
    rows, columns = (broadcasted_iota(np.int32, shape, len(shape) - 2 + i) for i in (0, 1))
    return select_n(keep(rows, columns), zeros(typeof(x).strip_weak_type()), x)


def tril(x: Value):
    """Return the lower triangle with the diagonal."""
    return triangle(x, ge)


def strict_tril(x: Value):
    """Return the lower triangle without the diagonal."""
    return triangle(x, gt)


def triu(x: Value):
    """Return the upper triangle with the diagonal."""
    return triangle(x, lambda i, j: ge(j, i))


def diagonal_part(x: Value):
    """Return the matrices with zeros outside the diagonal."""
    return triangle(x, eq)


def hermitian_of_triangle(x: Value, lower: bool):
    """Return the Hermitian matrix with the given triangle.

    Imaginary parts of the diagonal are ignored.
    """
    part = tril(x) if lower else triu(x)
    part = sub(part, half(diagonal_part(x)))
    return add(part, adjoint(part))


def diagonal_of(x: Value):
    """Return the diagonals of square matrices, as vectors."""
    return reduce_sum(diagonal_part(x), (typeof(x).ndim - 1,))


def as_rows(v: Value, shape: Sequence[int]):
    """Return vectors `v` repeated as the rows of matrices of `shape`."""
    return broadcast_in_dim(v, tuple(shape), (*range(len(shape) - 2), len(shape) - 1))


def as_columns(v: Value, shape: Sequence[int]):
    """Return vectors `v` repeated as the columns of matrices of `shape`."""
    return broadcast_in_dim(v, tuple(shape), tuple(range(len(shape) - 1)))


def half(x: Value):
    """Return x / 2."""
    return mul(x, np.asarray(0.5, typeof(x).dtype)[()])


def like(x: Value, y: Value):
    """Return real `x` in the (possibly complex) dtype of `y`."""
    return convert_element_type(x, typeof(y).dtype)


def take_rows(x: Value, rows: Value):
    """Return the rows of the matrices `x` at the indices in the vectors `rows`."""
    shape, batch = typeof(x).shape, typeof(rows).ndim - 1
    lead = tuple(range(batch))
    numbers = GatherDimensionNumbers((batch + 1,), (batch,), (batch,), lead, lead)
    return gather_p.bind(
        x,
        reshape(rows, (*typeof(rows).shape, 1)),
        dimension_numbers=numbers,
        slice_sizes=(*(min_dim(s, 1) for s in shape[:-1]), shape[-1]),
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.UNCHECKED,
        fill_value=None,
    )


def identity(aval: ShapedArray, start: int = 0):
    """Return a matrix with ones on the diagonal from position `start` on."""
    ones = diagonal_part(full(aval.shape, 1, aval.dtype))
    if not start:
        return ones
    rows = broadcasted_iota(np.int32, aval.shape, aval.ndim - 2)
    return select_n(ge(rows, size_as(start, np.int32)), full(aval.shape, 0, aval.dtype), ones)


def widen(x: Value, dim: int, count: int):
    config = [(0, count if d == dim else 0, 0) for d in range(typeof(x).ndim)]
    return pad(x, np.zeros((), typeof(x).dtype)[()], config)


def border_matrix(corner: Value, below: Value):
    """Return an antihermitian matrix with `corner` at its upper left and `below` under it.

    Its lower right has zeros.
    """
    ndim, extra = typeof(below).ndim, typeof(below).shape[-2]
    column = ndim - 1
    right = neg(adjoint(below))
    last = full((*typeof(below).shape[:-2], extra, extra), 0, typeof(below).dtype)
    upper, lower = concatenate([corner, right], column), concatenate([below, last], column)
    return concatenate([upper, lower], ndim - 2)


def reciprocal_differences(values: Value):
    """Return the matrix with 1 / (v_j - v_i) at (i, j) and zeros on the diagonal."""
    shape = (*typeof(values).shape, typeof(values).shape[-1])
    difference = sub(as_rows(values, shape), as_columns(values, shape))
    one = identity(typeof(difference))
    return sub(div(full(shape, 1, typeof(values).dtype), add(difference, one)), one)


def columns(x: Value, bounds: tuple[int, int], dim: int = -1):
    return slice_in_dim(x, *bounds, 1, typeof(x).ndim + dim)


def symmetrize(x: Value):
    return mul(add(x, adjoint(x)), np.asarray(0.5, typeof(x).dtype)[()])


def gauge(v: Value, t_v: Value):
    """Return the coefficient of each column of `v` to add to its tangent.

    The addition keeps the length of the column 1 and its largest entry real.
    """
    rows, shape = typeof(v).ndim - 2, typeof(v).shape
    spread: Callable[[Value], Value] = lambda x: broadcast_in_dim(
        x, shape, (*range(rows), rows + 1)
    )
    longer = reduce_sum(real(mul(conj(v), t_v)), (rows,))
    size = add(square(real(v)), square(imag(v)))
    largest = eq(broadcasted_iota(np.int32, shape, rows), spread(argmax(size, rows, np.int32)))
    pick: Callable[[Value], Value] = lambda x: reduce_sum(
        select_n(largest, full(shape, 0, typeof(x).dtype), x), (rows,)
    )
    return neg(spread(complex_of(longer, div(pick(imag(t_v)), pick(real(v))))))
