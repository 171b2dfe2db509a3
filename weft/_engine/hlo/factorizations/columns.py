"""Helpers of all factorizations: columns, rows, scalars per matrix, and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.control.while_loop import while_loop
from weft._engine.core.trace import typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import abs, add, is_complex, mul
from weft._engine.ops.casting import conj, imag, real
from weft._engine.ops.comparison import lt, select
from weft._engine.ops.dynamic_slicing import dynamic_index_in_dim
from weft._engine.ops.families import full
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota
from weft._engine.ops.matrices import matrix_transpose, take_rows
from weft._engine.ops.slicing import slice_in_dim


def count_up(count: int, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """Return the state after `state = step(i, state)` for i from 0 to `count` - 1."""
    more = lambda carry: lt(carry[0], count)
    advance = lambda carry: (add(carry[0], 1), step(*carry))
    return while_loop(more, advance, (np.int32(0), state))[1]


def numbers(x: Any, dim: int) -> Any:
    """Return the position of each element of matrices along `dim`, -2 for rows, -1 for columns."""
    return broadcasted_iota(np.int32, typeof(x).shape, typeof(x).ndim + dim)


def where(mask: Any, x: Any, otherwise: Any) -> Any:
    """Select from `x` and `otherwise`; either may be a number, which takes the other's dtype."""
    dtype = typeof(otherwise if isinstance(x, (int, float)) else x).dtype
    number = lambda v: full(typeof(mask).shape, v, dtype) if isinstance(v, (int, float)) else v
    return select(mask, number(x), number(otherwise))


def column(x: Any, j: Any) -> Any:
    """Return column `j` of each matrix."""
    return dynamic_index_in_dim(
        x, j, typeof(x).ndim - 1, keepdims=False, allow_negative_indices=False
    )


def row(x: Any, i: Any) -> Any:
    """Return row `i` of each matrix."""
    return dynamic_index_in_dim(
        x, i, typeof(x).ndim - 2, keepdims=False, allow_negative_indices=False
    )


def rows_between(x: Any, start: int, stop: int) -> Any:
    """Return the rows from `start` to `stop` of each matrix."""
    return slice_in_dim(x, start, stop, 1, typeof(x).ndim - 2)


def columns_between(x: Any, start: int, stop: int) -> Any:
    """Return the columns from `start` to `stop` of each matrix."""
    return slice_in_dim(x, start, stop, 1, typeof(x).ndim - 1)


def take_columns(x: Any, order: Any) -> Any:
    """Return the columns of each matrix at the indices in the vectors `order`."""
    return matrix_transpose(take_rows(matrix_transpose(x), order))


def broadcast_to_matrix(v: Any, shape: Sequence[int]) -> Any:
    """Broadcast one scalar per matrix to matrices or vectors of `shape`."""
    return broadcast_in_dim(v, tuple(shape), tuple(range(typeof(v).ndim)))


def squares(x: Any) -> Any:
    """Return the squared absolute values."""
    if not is_complex(x):
        return mul(x, x)
    return add(mul(real(x), real(x)), mul(imag(x), imag(x)))


def magnitude(x: Any) -> Any:
    """Return |re| + |im|, the measure that LAPACK uses to select pivots."""
    return add(abs(real(x)), abs(imag(x))) if is_complex(x) else abs(x)


def real_part(x: Any) -> Any:
    """Return the real part; real numbers are unchanged."""
    return real(x) if is_complex(x) else x


def conjugate(x: Any) -> Any:
    """Return the complex conjugate; real numbers are unchanged."""
    return conj(x) if is_complex(x) else x


def like_matrix(x: Any, rows: int, columns: int) -> ShapedArray:
    """Return the type of a batch of other matrices in the dtype of `x`."""
    return ShapedArray((*typeof(x).shape[:-2], rows, columns), np.dtype(typeof(x).dtype))
