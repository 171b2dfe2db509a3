"""Singular values and eigenvalues by one-sided Jacobi rotations.

How:  A rotation of two columns makes them orthogonal; a sweep rotates all pairs, half of the
      columns against the other half at a time, as in the rounds of a tournament. Sweeps converge
      quadratically. The singular values of a matrix with orthogonal columns are the lengths of its
      columns.
Laws: The rotations give one unitary factor. The other factor is the Q of the rotated matrix, which
      is orthonormal even where columns vanish. Matrices are scaled to entries of at most 1.
Source: Demmel and Veselic 1992, for the accuracy; Brent and Luk 1985, for the tournament.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from weft._engine.control.while_loop import while_loop
from weft._engine.core.trace import typeof
from weft._engine.hlo.factorizations.columns import (
    broadcast_to_matrix,
    columns_between,
    conjugate,
    count_up,
    like_matrix,
    real_part,
    rows_between,
    squares,
    take_columns,
    where,
)
from weft._engine.ops.arithmetic import abs, add, div, max, mul, neg, reciprocal, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.comparison import eq, gt, lt, select
from weft._engine.ops.families import full
from weft._engine.ops.functions import sqrt
from weft._engine.ops.layout import broadcasted_iota
from weft._engine.ops.linalg import qr
from weft._engine.ops.matrices import (
    adjoint,
    as_rows,
    diagonal_of,
    dot,
    hermitian_of_triangle,
    identity,
    like,
)
from weft._engine.ops.reduce import reduce_max, reduce_sum
from weft._engine.ops.slicing import concatenate, pad
from weft._engine.ops.sorting import sort
from weft._engine.util import dtypes

#: the maximal number of sweeps; 6 to 10 are typical
_MOST_SWEEPS = 30


def svd(x: Any, *, full_matrices: bool, compute_uv: bool, steps_of_qr: bool = False) -> list:
    """Return the singular values, descending, and U and V^H unless `compute_uv` is False."""
    m, n = typeof(x).shape[-2:]
    if m < n:
        s, *vectors = svd(adjoint(x), full_matrices=full_matrices, compute_uv=compute_uv)
        return [s, *map(adjoint, reversed(vectors))]
    if n == 0:
        left = identity(like_matrix(x, m, m if full_matrices else 0))
        right = identity(like_matrix(x, 0, 0))
        empty = full((*typeof(x).shape[:-2], 0), 0, dtypes.to_real_dtype(typeof(x).dtype))
        return [empty, left, right] if compute_uv else [empty]
    x, scale = _scale(x)
    q, r = qr(x, full_matrices=full_matrices and compute_uv)
    rotated, left = _orthogonal_columns(adjoint(rows_between(r, 0, n)))
    s = sqrt(reduce_sum(squares(rotated), (typeof(x).ndim - 2,)))
    s, order = _sort(s, descending=True)
    values = mul(s, broadcast_to_matrix(scale, typeof(s).shape))
    if not compute_uv:
        return [values]
    right, diagonal = qr(take_columns(rotated, order), full_matrices=False)
    right = mul(right, as_rows(_phases(diagonal_of(diagonal)), typeof(right).shape))
    inside = dot(columns_between(q, 0, n), take_columns(left, order))
    outside = columns_between(q, n, typeof(q).shape[-1])
    return [values, concatenate([inside, outside], typeof(x).ndim - 1), adjoint(right)]


def eigh(x: Any, *, lower: bool, sort_eigenvalues: bool = True) -> list:
    """Return the eigenvectors of Hermitian matrices and their eigenvalues, ascending.

    A multiple of the identity is added to make the matrix positive definite, so that its singular
    vectors are its eigenvectors.
    """
    n, rows = typeof(x).shape[-1], typeof(x).ndim - 2
    if n == 0:
        empty = full(typeof(x).shape[:-1], 0, dtypes.to_real_dtype(typeof(x).dtype))
        return [x, empty]
    x, scale = _scale(hermitian_of_triangle(x, lower))
    bound = reduce_max(reduce_sum(abs(x), (rows,)), (rows,))
    shift = mul(identity(typeof(x)), broadcast_to_matrix(like(bound, x), typeof(x).shape))
    _, v = _orthogonal_columns(add(x, shift))
    w = reduce_sum(real_part(mul(conjugate(v), dot(x, v))), (rows,))
    w, order = _sort(w, descending=False)
    return [take_columns(v, order), mul(w, broadcast_to_matrix(scale, typeof(w).shape))]


def _scale(x: Any) -> tuple:
    """Return matrices divided by their largest entries, and the divisors; 1 for zero matrices."""
    dims = (typeof(x).ndim - 2, typeof(x).ndim - 1)
    largest = reduce_max(abs(x), dims)
    largest = where(eq(largest, 0), 1, largest)
    return div(x, broadcast_to_matrix(like(largest, x), typeof(x).shape)), largest


def _sort(values: Any, descending: bool) -> tuple:
    """Return sorted vectors, and the original positions of their entries."""
    last = typeof(values).ndim - 1
    places = broadcasted_iota(np.int32, typeof(values).shape, last)
    keys, order = sort((neg(values) if descending else values, places), num_keys=1)
    return neg(keys) if descending else keys, order


def _phases(x: Any) -> Any:
    """Return `x` / |x|, and 1 for zeros."""
    size = abs(x)
    return where(eq(size, 0), 1, div(x, like(where(eq(size, 0), 1, size), x)))


def _orthogonal_columns(x: Any) -> tuple:
    """Return W = x V with orthogonal columns, and the unitary V."""
    m, n = typeof(x).shape[-2:]
    rows, last = typeof(x).ndim - 2, typeof(x).ndim - 1
    both = concatenate([x, identity(like_matrix(x, n, n))], rows)
    if n % 2:
        zero = np.zeros((), typeof(x).dtype)[()]
        both = pad(both, zero, [(0, 0, 0)] * last + [(0, 1, 0)])
    count = n + n % 2
    left, right = columns_between(both, 0, count // 2), columns_between(both, count // 2, count)
    real_dtype = dtypes.to_real_dtype(typeof(x).dtype)
    tolerance = np.asarray(np.finfo(real_dtype).eps * np.sqrt(builtins.max(m, 16)), real_dtype)[()]

    def sweep(state: tuple) -> tuple:
        swept, _, left, right = state
        step = lambda _, state: _round(m, *state)
        worst = np.zeros((), real_dtype)[()]
        worst, left, right = count_up(count - 1, step, (worst, left, right))
        return add(swept, 1), worst, left, right

    go = lambda state: bitwise_and(lt(state[0], _MOST_SWEEPS), gt(state[1], tolerance))
    start = (np.int32(0), np.ones((), real_dtype)[()], left, right)
    _, _, left, right = while_loop(go, sweep, start)
    both = columns_between(concatenate([left, right], last), 0, n)
    return rows_between(both, 0, m), rows_between(both, m, m + n)


def _round(m: int, worst: Any, left: Any, right: Any) -> tuple:
    """Rotate each column of `left` with its partner in `right`; exchange partners.

    The first `m` rows become orthogonal. `worst` is the largest cosine so far.
    """
    rows = typeof(left).ndim - 2
    u, v = rows_between(left, 0, m), rows_between(right, 0, m)
    norms = [reduce_sum(squares(x), (rows,)) for x in (u, v)]
    product = reduce_sum(mul(conjugate(u), v), (rows,))
    size = abs(product)
    turned = gt(size, 0)
    safe = where(turned, size, 1)
    cosine = div(safe, mul(sqrt(norms[0]), sqrt(norms[1])))
    worst = max(worst, reduce_max(where(turned, cosine, 0), tuple(range(typeof(size).ndim))))
    ratio = div(mul(sub(norms[1], norms[0]), 0.5), safe)
    tangent = reciprocal(add(abs(ratio), sqrt(add(mul(ratio, ratio), 1))))
    tangent = where(turned, select(lt(ratio, 0), neg(tangent), tangent), 0)
    c = reciprocal(sqrt(add(mul(tangent, tangent), 1)))
    sine = mul(c, tangent)
    one_minus_c = mul(sine, div(sine, add(c, 1)))  # 1 - c
    s = mul(like(sine, product), div(product, like(safe, product)))
    spread = lambda x: as_rows(like(x, left), typeof(left).shape)
    turned_left = sub(left, add(mul(spread(conjugate(s)), right), mul(spread(one_minus_c), left)))
    turned_right = add(right, sub(mul(spread(s), left), mul(spread(one_minus_c), right)))
    return worst, *_next_partners(turned_left, turned_right)


def _next_partners(left: Any, right: Any) -> tuple:
    """Return the columns in the order of the next round: all but the first one move on."""
    half, last = typeof(left).shape[-1], typeof(left).ndim - 1
    if half == 1:
        return left, right
    new_left = [
        columns_between(left, 0, 1),
        columns_between(right, 0, 1),
        columns_between(left, 1, half - 1),
    ]
    new_right = [columns_between(right, 1, half), columns_between(left, half - 1, half)]
    return concatenate(new_left, last), concatenate(new_right, last)
