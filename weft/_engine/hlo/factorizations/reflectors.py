"""Factorizations by Householder reflectors, packed as in LAPACK.

How:  Each step computes the reflector that zeroes a column below one entry, applies it to the
      following columns, and stores its vector in place of the zeros.
Laws: Reflector j is H = 1 - tau v v^H, where v has zeros before its pivot and a one at the pivot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.hlo.factorizations.columns import (
    broadcast_to_matrix,
    column,
    columns_between,
    conjugate,
    count_up,
    like_matrix,
    numbers,
    real_part,
    rows_between,
    squares,
    take_columns,
    where,
)
from weft._engine.ops.arithmetic import abs, add, div, is_complex, mul, neg, sub
from weft._engine.ops.bitwise import bitwise_and
from weft._engine.ops.casting import imag
from weft._engine.ops.comparison import eq, ge, gt, lt, select
from weft._engine.ops.families import full
from weft._engine.ops.functions import sqrt
from weft._engine.ops.layout import broadcasted_iota, expand_dims, rev, squeeze
from weft._engine.ops.matrices import (
    adjoint,
    as_columns,
    as_rows,
    diagonal_of,
    dot,
    hermitian_of_triangle,
    identity,
    like,
    triu,
)
from weft._engine.ops.matrix_forms import geqrf, householder_product
from weft._engine.ops.reduce import argmax, reduce_max, reduce_sum
from weft._engine.ops.slicing import pad


def qr(x: Any, *, pivoting: bool, full_matrices: bool) -> list:
    """Return Q and R; with `pivoting`, also the permutation of the columns of `x`."""
    m, n = typeof(x).shape[-2:]
    size = m if full_matrices else min(m, n)
    if 0 in (m, n):
        order = broadcasted_iota(np.int32, (*typeof(x).shape[:-2], n), typeof(x).ndim - 2)
        zeros = full((*typeof(x).shape[:-2], size, n), 0, typeof(x).dtype)
        return [identity(like_matrix(x, m, size)), zeros, *([order] if pivoting else [])]
    packed, taus, *order = _pivoted_qr(x) if pivoting else geqrf(x)
    return [_product(packed, taus, size), rows_between(triu(packed), 0, size), *order]


def ormqr(a: Any, taus: Any, c: Any, *, left: bool, transpose: bool) -> Any:
    """Return the product of `c` with the square Q of the reflectors."""
    q = _product(a, taus, typeof(a).shape[-2])
    q = adjoint(q) if transpose else q
    return dot(q, c) if left else dot(c, q)


def hessenberg(x: Any) -> list:
    """Return the Hessenberg form with the reflectors below it, and their scalar factors."""
    n = typeof(x).shape[-1]
    taus = full((*typeof(x).shape[:-2], max(n - 1, 0)), 0, typeof(x).dtype)
    if n < 2:
        return [x, taus]

    def step(j: Any, state: tuple) -> tuple:
        a, taus = state
        v, tau, pivot = _reflector(column(a, j), add(j, 1))
        a = sub(
            a, _outer(mul(_times(a, v), broadcast_to_matrix(tau, typeof(v).shape)), conjugate(v))
        )
        a = _apply_reflector(a, v, tau, j)
        return _store_reflector(a, v, pivot, j, add(j, 1)), _set_entry(taus, tau, j)

    return list(count_up(n - 1, step, (x, taus)))


def tridiagonal(x: Any, *, lower: bool) -> list:
    """Return the Hessenberg form of Hermitian matrices: reflectors, both diagonals, scalar factors.

    An upper triangle is reduced as the lower triangle of the matrix with rows and columns reversed.
    """
    rows, columns = typeof(x).ndim - 2, typeof(x).ndim - 1
    n = typeof(x).shape[-1]
    if not lower:
        turned = tridiagonal(rev(x, (rows, columns)), lower=True)
        return [rev(turned[0], (rows, columns)), *(rev(v, (rows,)) for v in turned[1:])]
    form, taus = hessenberg(hermitian_of_triangle(x, lower=True))
    below = rows_between(columns_between(form, 0, max(n - 1, 0)), min(n, 1), n)
    packed = select(ge(numbers(x, -2), numbers(x, -1)), form, x)
    diagonal = real_part(diagonal_of(form))
    packed = _with_diagonal(packed, diagonal)
    return [packed, diagonal, real_part(diagonal_of(below)), taus]


def _with_diagonal(x: Any, diagonal: Any) -> Any:
    """Return matrices with their diagonals replaced by real ones."""
    at = eq(numbers(x, -2), numbers(x, -1))
    return select(at, as_rows(like(diagonal, x), typeof(x).shape), x)


def _pivoted_qr(x: Any) -> tuple:
    """Return the reflectors of a QR with column pivoting, and the order of the columns."""
    m, n = typeof(x).shape[-2:]
    lead, rows = typeof(x).shape[:-2], typeof(x).ndim - 2
    places = broadcasted_iota(np.int32, (*lead, n), rows)

    def step(j: Any, state: tuple) -> tuple:
        a, taus, order = state
        lengths = reduce_sum(where(ge(numbers(a, -2), j), squares(_scaled_down(a)), 0), (rows,))
        pivot = argmax(where(ge(places, j), lengths, -1), rows, np.int32)
        pivot_at = broadcast_to_matrix(pivot, (*lead, n))
        exchanged = select(
            eq(places, j),
            pivot_at,
            select(eq(places, pivot_at), broadcast_to_matrix(j, (*lead, n)), places),
        )
        a = take_columns(a, exchanged)
        order = squeeze(take_columns(expand_dims(order, (rows,)), exchanged), (rows,))
        v, tau, pivot = _reflector(column(a, j), j)
        return (
            _store_reflector(_apply_reflector(a, v, tau, j), v, pivot, j, j),
            _set_entry(taus, tau, j),
            order,
        )

    taus = full((*lead, min(m, n)), 0, typeof(x).dtype)
    return count_up(min(m, n), step, (x, taus, places))


def _scaled_down(a: Any) -> Any:
    """Return matrices divided by their largest entries, so that squares do not overflow."""
    largest = reduce_max(abs(a), (typeof(a).ndim - 2, typeof(a).ndim - 1))
    return div(a, broadcast_to_matrix(like(where(eq(largest, 0), 1, largest), a), typeof(a).shape))


def _reflector(x: Any, at: Any) -> tuple:
    """Return v, tau and the entry at the pivot `at` of H^H x, which is zero after the pivot."""
    last, shape = typeof(x).ndim - 1, typeof(x).shape
    places = broadcasted_iota(np.int32, shape, last)
    largest = reduce_max(where(ge(places, at), abs(x), 0), (last,))
    scale = like(where(eq(largest, 0), 1, largest), x)
    x = div(x, broadcast_to_matrix(scale, shape))
    pivot = reduce_sum(where(eq(places, at), x, 0), (last,))
    below = where(gt(places, at), x, 0)
    tail = reduce_sum(squares(below), (last,))
    length = sqrt(add(tail, squares(pivot)))
    new_pivot = where(lt(real_part(pivot), 0), length, neg(length))
    needless = eq(tail, 0)
    if is_complex(x):
        needless = bitwise_and(needless, eq(imag(pivot), 0))
    new_pivot = like(new_pivot, x)
    tau = where(needless, 0, div(sub(new_pivot, pivot), where(needless, 1, new_pivot)))
    divisor = where(needless, 1, sub(pivot, new_pivot))
    v = where(eq(places, at), 1, div(below, broadcast_to_matrix(divisor, shape)))
    return v, tau, mul(where(needless, pivot, new_pivot), scale)


def _times(a: Any, v: Any) -> Any:
    """Return the products of matrices and vectors."""
    last = typeof(v).ndim
    return squeeze(dot(a, expand_dims(v, (last,))), (last,))


def _outer(u: Any, v: Any) -> Any:
    """Return u v^T."""
    shape = (*typeof(u).shape, typeof(v).shape[-1])
    return mul(as_columns(u, shape), as_rows(v, shape))


def _apply_reflector(a: Any, v: Any, tau: Any, j: Any) -> Any:
    """Return H^H a in the columns after `j`."""
    weights = _times(adjoint(a), v)
    scaled = mul(v, broadcast_to_matrix(conjugate(tau), typeof(v).shape))
    return select(gt(numbers(a, -1), j), sub(a, _outer(scaled, conjugate(weights))), a)


def _store_reflector(a: Any, v: Any, pivot: Any, j: Any, at: Any) -> Any:
    """Return matrices whose column `j` has `pivot` at row `at` and a reflector below."""
    rows, here = numbers(a, -2), eq(numbers(a, -1), j)
    below, at_pivot = gt(rows, at), eq(rows, at)
    a = select(bitwise_and(here, below), as_columns(v, typeof(a).shape), a)
    return select(bitwise_and(here, at_pivot), broadcast_to_matrix(pivot, typeof(a).shape), a)


def _set_entry(values: Any, value: Any, j: Any) -> Any:
    """Return vectors with `value` at position `j`."""
    at = eq(broadcasted_iota(np.int32, typeof(values).shape, typeof(values).ndim - 1), j)
    return select(at, broadcast_to_matrix(value, typeof(values).shape), values)


def _product(packed: Any, taus: Any, size: int) -> Any:
    """Return the first columns of the Q of reflectors."""
    columns = typeof(packed).shape[-1]
    if columns > size:
        packed = columns_between(packed, 0, size)
    elif columns < size:
        zero = np.zeros((), typeof(packed).dtype)[()]
        dims = [(0, 0, 0)] * (typeof(packed).ndim - 1)
        packed = pad(packed, zero, [*dims, (0, size - columns, 0)])
    return householder_product(packed, taus)
