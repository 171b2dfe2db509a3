"""LU factorization with partial pivoting, by blocks of columns.

How:  Within a block, each step exchanges two rows and subtracts a rank-1 product. The columns after
      the block receive all of its steps at once, as a triangular solve and a matrix product. One
      loop runs over all full blocks, so that the size of the program does not depend on the
      matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.hlo.factorizations.columns import (
    broadcast_to_matrix,
    column,
    count_up,
    magnitude,
    numbers,
    row,
    where,
)
from weft._engine.ops.arithmetic import add, div, mul, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.comparison import eq, ge, gt, lt, select
from weft._engine.ops.dynamic_slicing import dynamic_slice_in_dim, dynamic_update_slice_in_dim
from weft._engine.ops.families import full
from weft._engine.ops.layout import broadcasted_iota, expand_dims, squeeze
from weft._engine.ops.linalg import triangular_solve
from weft._engine.ops.matrices import as_columns, as_rows, dot, take_rows
from weft._engine.ops.reduce import argmax

#: the number of columns in a block
_BLOCK = 128


def lu(x: Any) -> list:
    """Return the factors in one matrix, the row exchanges, and the resulting permutation."""
    lead, (m, n) = typeof(x).shape[:-2], typeof(x).shape[-2:]
    size = min(m, n)
    blocks, remainder = divmod(size, _BLOCK)
    order = broadcasted_iota(np.int32, (*lead, m), len(lead))
    state = x, full((*lead, size), 0, np.int32), order
    if blocks:
        state = count_up(blocks, lambda i, state: _block(mul(i, _BLOCK), _BLOCK, *state), state)
    if remainder:
        state = _block(size - remainder, remainder, *state)
    return list(state)


def _block(start: Any, width: int, x: Any, pivots: Any, order: Any) -> tuple:
    """Factor the columns from `start` on, and eliminate them from the columns after the block."""
    rows, columns = typeof(x).ndim - 2, typeof(x).ndim - 1
    block = dynamic_slice_in_dim(x, start, width, columns)
    block, exchanges, moved = _factor_block(start, block)
    x = dynamic_update_slice_in_dim(take_rows(x, moved), block, start, columns)
    order = squeeze(take_rows(expand_dims(order, (columns,)), moved), (columns,))
    pivots = dynamic_update_slice_in_dim(pivots, exchanges, start, rows)
    if isinstance(start, int) and start + width == typeof(x).shape[-1]:
        return x, pivots, order
    stop = add(start, width)
    right_part = dynamic_slice_in_dim(x, start, width, rows)
    square = dynamic_slice_in_dim(block, start, width, rows)
    top = triangular_solve(square, right_part, left_side=True, lower=True, unit_diagonal=True)
    top = select(ge(numbers(top, -1), stop), top, right_part)
    x = dynamic_update_slice_in_dim(x, top, start, rows)
    later = bitwise_and(ge(numbers(x, -2), stop), ge(numbers(x, -1), stop))
    return select(later, sub(x, dot(block, top)), x), pivots, order


def _factor_block(start: Any, a: Any) -> tuple:
    """Return the factors of a block of columns, its exchanges, and the new order of rows.

    The diagonal begins at row `start`; the rows before it are unchanged.
    """
    shape, width = typeof(a).shape, typeof(a).shape[-1]
    vector, last = shape[:-1], len(shape) - 2
    rows, columns, places = numbers(a, -2), numbers(a, -1), broadcasted_iota(np.int32, vector, last)

    def step(j: Any, state: tuple) -> tuple:
        a, exchanges, order = state
        top = add(start, j)
        size = where(lt(places, top), -1, magnitude(column(a, j)))
        pivot = argmax(size, last, np.int32)
        here, there = row(a, top), squeeze(take_rows(a, expand_dims(pivot, (last,))), (last,))
        a = select(eq(rows, broadcast_to_matrix(pivot, shape)), as_rows(here, shape), a)
        a = select(eq(rows, top), as_rows(there, shape), a)
        divisor, current = broadcast_to_matrix(column(there, j), vector), column(a, j)
        factor = select(eq(divisor, 0), current, div(current, divisor))
        below, after = gt(rows, top), gt(columns, j)
        left, right = as_columns(factor, shape), as_rows(there, shape)
        a = select(bitwise_and(below, after), sub(a, mul(left, right)), a)
        a = select(bitwise_and(below, eq(columns, j)), left, a)
        at = eq(broadcasted_iota(np.int32, typeof(exchanges).shape, last), j)
        exchanges = select(at, broadcast_to_matrix(pivot, typeof(exchanges).shape), exchanges)
        first, second = column(order, top), _entry(order, pivot)
        order = select(
            eq(places, broadcast_to_matrix(pivot, vector)),
            broadcast_to_matrix(first, vector),
            order,
        )
        order = select(eq(places, top), broadcast_to_matrix(second, vector), order)
        return a, exchanges, order

    return count_up(width, step, (a, full((*shape[:-2], width), 0, np.int32), places))


def _entry(v: Any, at: Any) -> Any:
    """Return one entry of each vector, at a position per vector."""
    last = typeof(v).ndim - 1
    picked = take_rows(expand_dims(v, (last + 1,)), expand_dims(at, (last,)))
    return squeeze(picked, (last, last + 1))
