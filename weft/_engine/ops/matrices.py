"""Matrices in the last two dims, for the rules of linear algebra: products, transposes, triangles, diagonals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import is_complex
from weft._engine.ops.casting import size_as
from weft._engine.ops.contraction import Precision, batch_matmul
from weft._engine.ops.elementwise import (
    add,
    conj,
    convert_element_type,
    eq,
    ge,
    gt,
    mul,
    select_n,
    sub,
)
from weft._engine.ops.families import full, zeros
from weft._engine.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape, transpose
from weft._engine.ops.reduce import reduce_sum


def dot(x, y):
    """Matrix products, in full precision."""
    return batch_matmul(x, y, Precision.HIGHEST)


def matrix_transpose(x):
    """Rows as columns."""
    n = typeof(x).ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x):
    """Rows as columns, complex numbers conjugated."""
    return conj(matrix_transpose(x)) if is_complex(x) else matrix_transpose(x)


def triangle(x, keep: Callable):
    """`x` where `keep(row, column)` holds, zeros elsewhere."""
    shape = typeof(x).shape
    rows, columns = (broadcasted_iota(np.int32, shape, len(shape) - 2 + i) for i in (0, 1))
    return select_n(keep(rows, columns), zeros(typeof(x).strip_weak_type()), x)


def tril(x):
    """The lower triangle with the diagonal."""
    return triangle(x, ge)


def strict_tril(x):
    """The lower triangle without the diagonal."""
    return triangle(x, gt)


def triu(x):
    """The upper triangle with the diagonal."""
    return triangle(x, lambda i, j: ge(j, i))


def diagonal_part(x):
    """The diagonal, among zeros."""
    return triangle(x, eq)


def hermitian_of_triangle(x, lower: bool):
    """The Hermitian matrix of which one triangle is given. Imaginary parts of the diagonal are ignored."""
    part = tril(x) if lower else triu(x)
    part = sub(part, half(diagonal_part(x)))
    return add(part, adjoint(part))


def diagonal_of(x):
    """The diagonals of square matrices, as vectors."""
    return reduce_sum(diagonal_part(x), (typeof(x).ndim - 1,))


def as_rows(v, shape: Sequence[int]):
    """Vectors `v` repeated as the rows of matrices of `shape`."""
    return broadcast_in_dim(v, tuple(shape), (*range(len(shape) - 2), len(shape) - 1))


def as_columns(v, shape: Sequence[int]):
    """Vectors `v` repeated as the columns of matrices of `shape`."""
    return broadcast_in_dim(v, tuple(shape), tuple(range(len(shape) - 1)))


def half(x):
    """x / 2."""
    return mul(x, np.asarray(0.5, typeof(x).dtype)[()])


def like(x, y):
    """Real `x` in the (possibly complex) dtype of `y`."""
    return convert_element_type(x, typeof(y).dtype)


def take_rows(x, rows):
    """The rows of the matrices `x` that the vectors `rows` name."""
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
    """Ones on the diagonal from position `start` on."""
    ones = diagonal_part(full(aval.shape, 1, aval.dtype))
    if not start:
        return ones
    rows = broadcasted_iota(np.int32, aval.shape, aval.ndim - 2)
    return select_n(ge(rows, size_as(start, np.int32)), full(aval.shape, 0, aval.dtype), ones)
