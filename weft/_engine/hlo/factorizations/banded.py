"""Tridiagonal systems by elimination with exchanges of neighboring rows.

How:  The updated current row is compared with the next row; the one with the larger pivot becomes a
      row of the triangular system, which has two diagonals above the main one. The other one is
      updated.
"""

from __future__ import annotations

from typing import Any

from weft._engine.control.scan import scan
from weft._engine.core.trace import typeof
from weft._engine.hlo.factorizations.columns import broadcast_to_matrix, magnitude, where
from weft._engine.ops.arithmetic import div, mul, neg, sub
from weft._engine.ops.comparison import eq, ge, select
from weft._engine.ops.families import full, move_dim
from weft._engine.ops.layout import expand_dims
from weft._engine.ops.reduce import reduce_or
from weft._engine.ops.slicing import concatenate, index_in_dim, slice_in_dim


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any) -> Any:
    """Return the solutions of tridiagonal systems; NaN for singular systems."""
    n = typeof(d).shape[-1]
    if 0 in typeof(b).shape:
        return b
    rows = typeof(d).ndim - 1
    matrix = [move_dim(x, rows, 0) for x in (dl, d, du)]
    right = move_dim(b, rows, 0)
    first = [index_in_dim(x, 0, 0, keepdims=False) for x in (*matrix[1:], right)]
    later = [slice_in_dim(x, 1, n) for x in (*matrix, right)]
    last, upper = scan(_eliminate, tuple(first), tuple(later))
    zero = full(typeof(last[0]).shape, 0, typeof(d).dtype)
    ending = (last[0], zero, zero, last[2])
    upper = [concatenate([x, expand_dims(y, (0,))], 0) for x, y in zip(upper, ending)]
    nothing = full(typeof(first[2]).shape, 0, typeof(b).dtype)
    _, x = scan(_substitute, (nothing, nothing), tuple(upper), reverse=True)
    singular = reduce_or(eq(upper[0], 0), (0,))
    x = move_dim(x, 0, rows)
    return where(broadcast_to_matrix(singular, typeof(x).shape), float("nan"), x)


def _broadcast_to_rows(v: Any, b: Any) -> Any:
    return broadcast_to_matrix(v, typeof(b).shape)


def _eliminate(state: tuple, row: tuple) -> tuple:
    """Eliminate between two rows; return the updated row and the row of the triangular system."""
    pivot, above, right = state
    before, here, after, next_right = row
    stays = ge(magnitude(pivot), magnitude(before))
    zero = full(typeof(pivot).shape, 0, typeof(pivot).dtype)
    one = where(eq(pivot, 0), 1, pivot)
    factor = select(stays, div(before, one), div(pivot, where(stays, 1, before)))
    row_factors = _broadcast_to_rows(factor, right)
    swapped = _broadcast_to_rows(stays, right)
    updated = select(stays, sub(here, mul(factor, above)), sub(above, mul(factor, here)))
    kept_above = select(stays, after, neg(mul(factor, after)))
    first, second = select(swapped, right, next_right), select(swapped, next_right, right)
    kept_right = sub(second, mul(row_factors, first))
    finished = (
        select(stays, pivot, before),
        select(stays, above, here),
        select(stays, zero, after),
        first,
    )
    return (updated, kept_above, kept_right), finished


def _substitute(state: tuple, row: tuple) -> tuple:
    """Return the solution at a row, given the solutions at the next two rows."""
    following, second = state
    pivot, above, far, right = row
    x = sub(right, mul(_broadcast_to_rows(above, right), following))
    x = sub(x, mul(_broadcast_to_rows(far, right), second))
    x = div(x, _broadcast_to_rows(where(eq(pivot, 0), 1, pivot), right))
    return (x, following), x
