"""Updates, products, factorizations and solves of matrices, composed of other operations of
`weft.lax.linalg`.
"""

from __future__ import annotations

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.api.vmap import vmap
from weft._engine.control.scan import scan
from weft._engine.control.while_loop import while_loop
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ops import functions, linalg as la, matrices, matrix_forms
from weft._engine.ops.arithmetic import abs as magnitude, max as larger
from weft._engine.ops.comparison import select
from weft._engine.ops.elementwise import convert_element_type as cast
from weft._engine.ops.layout import broadcasted_iota
from weft._engine.ops.reduce import reduce_and, reduce_max, reduce_sum
from weft._engine.ops.slicing import concatenate, slice_in_dim
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.source import guard_all

__all__ = ["cholesky_update", "qdwh", "symmetric_product", "tridiagonal_solve"]


def _array(x):
    return x if isinstance(x, Tracer) else to_array(x)


def symmetric_product(
    a_matrix, c_matrix, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
):
    """Return `alpha * a @ a.T + beta * c` for stacks of matrices.

    With `symmetrize_output` it is computed from one triangle of `c`.

    Raises ShapeError unless `c` is square with the rows of `a`.

    >>> symmetric_product(np.ones((2, 3), np.float32), np.eye(2, dtype=np.float32), beta=1.0).tolist()
    [[4.0, 3.0], [3.0, 4.0]]
    """
    a, c = _array(a_matrix), _array(c_matrix)
    if a.ndim < 2 or tuple(c.shape) != (*a.shape[:-1], a.shape[-2]):
        raise ShapeError(
            describe(
                "symmetric_product",
                "the shapes do not fit.",
                [("a_matrix", typeof(a)), ("c_matrix", typeof(c))],
                rule="c_matrix is square with the rows of a_matrix, and both have the same batch dims.",
            )
        )
    out = alpha * matrices.dot(a, matrices.matrix_transpose(a)) + beta * c
    if symmetrize_output:
        low = matrices.tril(out)
        out = low + matrices.matrix_transpose(matrices.strict_tril(out))
    return out


def cholesky_update(r_matrix, w_vector):
    """Return the upper triangular R' with R'^T R' = R^T R + w w^T for upper triangular R.

    It applies a plane rotation per row.

    Golub and Van Loan, Matrix Computations, 6.5.4. Raises ShapeError unless R is square and w has as many entries.

    >>> cholesky_update(3 * np.eye(2, dtype=np.float32), np.array([4.0, 0.0], np.float32)).tolist()
    [[5.0, 0.0], [0.0, 3.0]]
    """
    r, w = _array(r_matrix), _array(w_vector)
    if w.ndim != 1 or tuple(r.shape) != (w.size, w.size):
        raise ShapeError(
            describe(
                "cholesky_update",
                "the shapes do not fit.",
                [("r_matrix", typeof(r)), ("w_vector", typeof(w))],
                rule="r_matrix is square, and w_vector has as many entries as it has rows.",
            )
        )
    w = cast(w, r.dtype)

    def rotate(w, row):
        k, old = row
        on_diagonal, above = old[k], w[k]
        scale = larger(magnitude(on_diagonal), magnitude(above))  # squares may overflow
        scale = select(scale == 0, 0 * scale + 1, scale)
        c, s = on_diagonal / scale, above / scale
        length = functions.sqrt(c * c + s * s)
        still = length == 0
        length = select(still, 0 * length + 1, length)
        c, s = select(still, 0 * c + 1, c / length), s / length
        return c * w - s * old, c * old + s * w

    rows = scan(rotate, w, (broadcasted_iota(np.int32, (w.size,), 0), r))[1]
    return matrices.triu(rows)


def qdwh(
    x,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple:
    """Return the polar decomposition x = U H of a matrix with at least as many rows as columns.

    The algorithm is Halley's iteration with dynamic weights (QDWH).

    U has orthonormal columns, H is Hermitian and positive semidefinite. The other results are the
    number of iterations and whether they converged. Nakatsukasa, Bai and Gygi, SIAM J. Matrix Anal.
    Appl. 31 (2010). Raises ShapeError for wide matrices, ValueError for an `eps` that is not
    positive, NotImplementedError for `dynamic_shape`.

    >>> u, h, steps, converged = qdwh(np.array([[0.0, -2.0], [2.0, 0.0]], np.float32))
    >>> np.abs(np.asarray(h)).round(5).tolist(), bool(converged)
    ([[2.0, 0.0], [0.0, 2.0]], True)
    """
    x = _array(x)
    if dynamic_shape is not None:
        raise NotImplementedError(
            "qdwh: dynamic_shape is not supported. Give the matrix without its padding."
        )
    if x.ndim != 2 or x.shape[0] < x.shape[1]:
        raise ShapeError(
            describe(
                "qdwh", "takes a matrix with at least as many rows as columns.", [("x", typeof(x))]
            )
        )
    if eps is not None and eps <= 0:
        raise ValueError(f"qdwh: eps must be positive, got {eps}.")
    real = (
        np.dtype(dtypes.to_real_dtype(x.dtype))
        if dtypes.issubdtype(x.dtype, np.complexfloating)
        else np.dtype(x.dtype)
    )
    eps = float(dtypes.finfo(x.dtype).eps) if eps is None else float(eps)
    limit = 20 if max_iterations is None else int(max_iterations)
    m, n = x.shape
    # the largest singular value is at most the root of the product of the row-sum and column-sum
    # norms
    bound = functions.sqrt(
        reduce_max(reduce_sum(magnitude(x), (0,)), (0,))
        * reduce_max(reduce_sum(magnitude(x), (1,)), (0,))
    )
    first = x / cast(select(bound == 0, 0 * bound + 1, bound), x.dtype)
    identity = cast(np.eye(n, dtype=np.float32), x.dtype)

    def unfinished(state):
        _, lower, step, change = state
        return ((magnitude(1 - lower) > 5 * eps) | (change > (5 * eps) ** (1 / 3))) & (step < limit)

    def improve(state):
        u, lower, step, _ = state
        squared = lower * lower
        d = functions.cbrt(4 * (1 - squared) / (squared * squared))
        root = functions.sqrt(1 + d)
        inner = 8 - 4 * d + 8 * (2 - squared) / (squared * root)
        a = root + 0.5 * functions.sqrt(larger(inner, 0 * inner))
        b = 0.25 * (a - 1) * (a - 1)
        c = a + b - 1
        q = la.qr(
            concatenate([cast(functions.sqrt(c), u.dtype) * u, identity], 0), full_matrices=False
        )[0]
        upper, under = slice_in_dim(q, 0, m, 1, 0), slice_in_dim(q, m, m + n, 1, 0)
        correction = cast((a - b / c) / functions.sqrt(c), u.dtype)
        new = cast(b / c, u.dtype) * u + correction * matrices.dot(upper, matrices.adjoint(under))
        lower = lower * (a + b * squared) / (1 + c * squared)
        change = magnitude(new - u)
        return (
            new,
            select(lower > 1, 0 * lower + 1, lower),
            step + 1,
            functions.sqrt(reduce_sum(change * change, (0, 1))),
        )

    start = (first, np.asarray(eps, real)[()], np.int32(0), np.asarray(np.inf, real)[()])
    u, lower, steps, _ = while_loop(unfinished, improve, start)
    # one Newton-Schulz step restores orthogonality
    u = 1.5 * u - 0.5 * matrices.dot(u, matrices.dot(matrices.adjoint(u), u))
    h = matrices.dot(matrices.adjoint(u), x)
    h = 0.5 * (h + matrices.adjoint(h))
    return (
        u,
        h,
        steps,
        (magnitude(1 - lower) <= 5 * eps) & reduce_and(functions.is_finite(magnitude(u)), (0, 1)),
    )


def tridiagonal_solve(dl, d, du, b, *, perturb_singular: bool = False):
    """Return the x with A x = b for tridiagonal A.

    A has the diagonal `d`, the subdiagonal `dl` and the superdiagonal `du`.

    The first entry of `dl` and the last entry of `du` are not read.

    `b` has the right-hand sides as columns. The function is linear in `b` and has derivatives in
    all operands. A singular A gives NaN; with `perturb_singular`, a pivot that would make x
    overflow is moved away from zero by the unit roundoff times the largest entry of the triangular
    factor (as LAPACK's `lagts` does): inverse iteration needs such solutions. Raises TypeError for
    different dtypes, ShapeError for shapes that do not fit.

    >>> d, ones = np.full(3, 2.0, np.float32), np.ones(3, np.float32)
    >>> np.asarray(tridiagonal_solve(ones, d, 0 * ones, ones[:, None])).ravel().tolist()
    [0.5, 0.25, 0.375]
    """
    if not perturb_singular:
        return matrix_forms.tridiagonal_solve_p.bind(dl, d, du, b)
    dl, d, du, b = (_array(x) for x in (dl, d, du, b))
    matrix_forms.tridiagonal_solve_p.abstract([typeof(x) for x in (dl, d, du, b)], {})
    solve = _solve_perturbed
    for _ in b.shape[:-2]:
        solve = vmap(solve)
    return b if 0 in b.shape[-2:] else solve(dl, d, du, b)


def _solve_perturbed(dl, d, du, b):
    """Solve for one matrix, by elimination with pivoting between neighboring rows.

    Small pivots are perturbed.
    """
    info, n = dtypes.finfo(b.dtype), d.shape[0]
    greatest, eps = (np.asarray(x, info.dtype)[()] for x in (1 / info.tiny, info.eps))
    du = select(broadcasted_iota(np.int32, (n,), 0) == n - 1, 0 * du, du)

    def eliminate(row, below):
        """Eliminate between two rows.

        Return the row of the triangular factor (three entries) and the updated other row.
        """
        (pivot, after, right), (under, on, beyond, right_below) = row, below
        swap = magnitude(under) > magnitude(pivot)
        pivot, under = select(swap, under, pivot), select(swap, pivot, under)
        after, on = select(swap, on, after), select(swap, after, on)
        third, beyond = select(swap, beyond, 0 * beyond), select(swap, 0 * beyond, beyond)
        right, right_below = select(swap, right_below, right), select(swap, right, right_below)
        factor = under / select(pivot == 0, 0 * pivot + 1, pivot)
        return (on - factor * after, beyond - factor * third, right_below - factor * right), (
            pivot,
            after,
            third,
            right,
        )

    last, above = scan(eliminate, (d[0], du[0], b[0]), (dl[1:], d[1:], du[1:], b[1:]))
    rows = [concatenate([x, y[None]], 0) for x, y in zip(above, (*last[:2], 0 * last[1], last[2]))]
    size = reduce_max(magnitude(concatenate(rows[:3], 0)), (0,))
    size = eps * select(size == 0, 0 * size + 1, size)

    def substitute(below, row):
        (x1, x2), (pivot, first, second, right) = below, row
        value, of_pivot = right - first * x1 - second * x2, magnitude(pivot)
        # the magnitude that a pivot needs for a finite quotient
        needed = magnitude(value) / greatest
        way = pivot / cast(select(of_pivot == 0, 0 * of_pivot + 1, of_pivot), pivot.dtype)
        way = select(of_pivot == 0, 0 * way + 1, way)
        moved = pivot + way * cast(larger(0 * needed + size, needed), pivot.dtype)
        small = (of_pivot == 0) | (of_pivot < needed)
        x = value / select(small, moved, 0 * moved + pivot)
        return (x, x1), x

    return scan(substitute, (0 * b[0], 0 * b[0]), rows, reverse=True)[1]


guard_all(globals())
