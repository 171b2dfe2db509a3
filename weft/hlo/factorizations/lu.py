"""LU factorization with partial pivoting, by blocks of columns.

How:  Within a block, each step exchanges two rows and subtracts a rank-1 product. The columns after
      the block get all of its steps at once, as a triangular solve and a matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.trace import typeof
from weft.hlo.factorizations.columns import (
    column,
    columns_between,
    count_up,
    magnitude,
    numbers,
    over_matrix,
    row,
    rows_between,
    where,
)
from weft.ops.arithmetic import add, div, mul, sub
from weft.ops.bitwise import bitwise_and
from weft.ops.comparison import eq, gt, lt, select
from weft.ops.families import full
from weft.ops.layout import broadcasted_iota, expand_dims, squeeze
from weft.ops.linalg import lu_pivots_to_permutation, triangular_solve
from weft.ops.matrices import as_columns, as_rows, dot, take_rows
from weft.ops.reduce import argmax
from weft.ops.slicing import concatenate

#: columns of a block
_BLOCK = 64


def lu(x: Any) -> list:
    """Return the factors in one matrix, the row exchanges, and the permutation that they make."""
    m, n = typeof(x).shape[-2:]
    rows, columns = typeof(x).ndim - 2, typeof(x).ndim - 1
    exchanges = []
    for start in range(0, min(m, n), _BLOCK):
        stop = min(start + _BLOCK, m, n)
        done, rest = rows_between(x, 0, start), rows_between(x, start, m)
        block, pivots = _factor_block(columns_between(rest, start, stop))
        rest = take_rows(rest, lu_pivots_to_permutation(pivots, m - start))
        after = _eliminate(block, columns_between(rest, stop, n))
        rest = concatenate([columns_between(rest, 0, start), block, after], columns)
        x = concatenate([done, rest], rows)
        exchanges.append(add(pivots, start))
    if not exchanges:
        order = broadcasted_iota(np.int32, typeof(x).shape[:-1], rows)
        return [x, full((*typeof(x).shape[:-2], 0), 0, np.int32), order]
    pivots = concatenate(exchanges, rows)
    return [x, pivots, lu_pivots_to_permutation(pivots, m)]


def _factor_block(a: Any) -> tuple:
    """Return the factors of a block of columns and its row exchanges."""
    shape, width = typeof(a).shape, typeof(a).shape[-1]
    vector, last = shape[:-1], len(shape) - 2
    rows, columns, places = numbers(a, -2), numbers(a, -1), broadcasted_iota(np.int32, vector, last)

    def step(j: Any, state: tuple) -> tuple:
        a, pivots = state
        size = where(lt(places, j), -1.0, magnitude(column(a, j)))
        pivot = argmax(size, last, np.int32)
        here, there = row(a, j), squeeze(take_rows(a, expand_dims(pivot, (last,))), (last,))
        exchanged = select(eq(rows, over_matrix(pivot, shape)), as_rows(here, shape), a)
        a = select(eq(rows, j), as_rows(there, shape), exchanged)
        divisor = over_matrix(column(there, j), vector)
        current = column(a, j)
        factor = select(eq(divisor, 0), current, div(current, divisor))
        below, after = gt(rows, j), gt(columns, j)
        left, right = as_columns(factor, shape), as_rows(there, shape)
        a = select(bitwise_and(below, after), sub(a, mul(left, right)), a)
        a = select(bitwise_and(below, eq(columns, j)), left, a)
        at = eq(broadcasted_iota(np.int32, typeof(pivots).shape, last), j)
        return a, select(at, over_matrix(pivot, typeof(pivots).shape), pivots)

    return count_up(width, step, (a, full((*shape[:-2], width), 0, np.int32)))


def _eliminate(block: Any, after: Any) -> Any:
    """Return the columns after a block once its rows are subtracted from those below."""
    m, width = typeof(block).shape[-2:]
    if 0 in typeof(after).shape:
        return after
    square = rows_between(block, 0, width)
    top = rows_between(after, 0, width)
    top = triangular_solve(square, top, left_side=True, lower=True, unit_diagonal=True)
    below = sub(rows_between(after, width, m), dot(rows_between(block, width, m), top))
    return concatenate([top, below], typeof(after).ndim - 2)
