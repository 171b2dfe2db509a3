"""Iterative solvers of linear systems: conjugate gradients, BiCGSTAB and GMRES.

In:   a linear operator (a function on trees, or a matrix) and a right side.
Out:  the solution and None; solvers end at the tolerance or after `maxiter` steps, whichever comes first.
Laws: vectors are trees of arrays of any shape. A solution is differentiated by the implicit function theorem
      (`lax.custom_linear_solve`), with the same solver, as if it were exact. Operators are only called, so that shards stay where they are.
Source: M. R. Hestenes and E. Stiefel (1952); H. A. van der Vorst, "Bi-CGSTAB", SIAM Journal on Scientific and Statistical Computing 13
(1992); Y. Saad and M. H. Schultz, "GMRES", SIAM Journal on Scientific and Statistical Computing 7 (1986).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.core.trace import typeof
from weft._engine.numpy.products import precise_matmul
from weft._engine.numpy.promote import concrete, inexact, is_arraylike
from weft._engine.ops.elementwise import convert_element_type
from weft._engine.util import dtypes, tree
from weft._engine.util.source import guard_all

__all__ = ["bicgstab", "cg", "gmres"]


def _map(fun: Callable, *trees: Any) -> Any:
    return tree.tree_map(fun, *trees)


def _cast(x: Any, like: Any) -> Any:
    """Return `x` in the dtype of another value, which may be the weak dtype of a Python number."""
    weak = typeof(like).weak_type
    return (
        x
        if x.dtype == like.dtype and typeof(x).weak_type == weak
        else convert_element_type(x, like.dtype, weak_type=weak)
    )


def _dot(x: Any, y: Any) -> Any:
    """Return the sum of conj(x) y over all leaves."""
    return sum(
        wnp.vdot(a, b, precision=lax.Precision.HIGHEST) if a.ndim else wnp.conj(a) * b
        for a, b in zip(tree.tree_leaves(x), tree.tree_leaves(y))
    )


def _square(x: Any) -> Any:
    return wnp.real(_dot(x, x))


def _move(x: Any, step: Any, towards: Any) -> Any:
    """Return x + step * towards, in the dtype of x."""
    return _map(lambda a, b: _cast(a + step * b, a), x, towards)


def _less(x: Any, y: Any) -> Any:
    return _map(lambda a, b: a - b, x, y)


def _operator(name: str, a: Any, what: str = "linear operator") -> Callable:
    """Return the operator as a function on trees."""
    if callable(a):
        return a
    if is_arraylike(a) or hasattr(a, "__matmul__"):
        shape = tuple(np.shape(a)) if is_arraylike(a) else tuple(a.shape)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(
                f"{name}: the linear operator must be a square matrix, got shape {shape}."
            )
        matrix = wnp.asarray(a) if is_arraylike(a) else a
        return lambda x: _map(lambda v: matrix @ v, x)
    raise TypeError(f"{name}: {what} must be either a function or ndarray, got {type(a).__name__}.")


def _solve(
    name: str,
    method: Callable,
    a: Any,
    b: Any,
    x0: Any,
    maxiter: int | None,
    preconditioner: Any,
    symmetric: bool,
) -> tuple:
    """Validate arguments, and solve with derivatives. `method(a, b, x0, m, maxiter)` is a solver on trees."""
    b = _map(lambda v: concrete(inexact(name, v)), b)
    x0 = _map(wnp.zeros_like, b) if x0 is None else _map(lambda v: concrete(inexact(name, v)), x0)
    leaves, structure = tree.tree_flatten(b)
    guess, guess_structure = tree.tree_flatten(x0)
    if len(leaves) != len(guess) or structure != guess_structure:
        raise ValueError(
            f"{name}: x0 and b must have matching tree structure: {guess_structure} vs {structure}."
            f"{tree.describe_difference(guess_structure, structure, 'x0', 'b')}"
        )
    if [tuple(v.shape) for v in leaves] != [tuple(v.shape) for v in guess]:
        raise ValueError(
            f"{name}: x0 and b must have matching shape: {[tuple(v.shape) for v in guess]} vs "
            f"{[tuple(v.shape) for v in leaves]}."
        )
    apply = _operator(name, a)
    prepare = (
        (lambda x: x)
        if preconditioner is None
        else _operator(name, preconditioner, "preconditioner")
    )
    most = 10 * sum(int(np.prod(v.shape)) for v in leaves) if maxiter is None else maxiter
    real = not any(dtypes.issubdtype(v.dtype, np.complexfloating) for v in leaves)

    def solve(operator, right):
        return method(operator, right, x0, prepare, most)

    x = lax.custom_linear_solve(
        apply, b, solve=solve, transpose_solve=solve, symmetric=symmetric and real
    )
    return x, None


def _target(b: Any, tol: float, atol: float):
    """Return the squared residual norm at which the iteration ends."""
    return wnp.maximum(tol * tol * _square(b), atol * atol)


def _like(x: Any, y: Any) -> Any:
    """Return `x` with the dtypes of `y`, as loop carries require."""
    return _map(lambda a, b: _cast(wnp.asarray(a), b), x, y)


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple:  # noqa: N803
    """Solve `A x = b` by conjugate gradients, for a Hermitian positive definite operator.

    `A` is a matrix or a function on trees of the structure of `b`; `M` is an approximate inverse of `A`. The iteration ends
    if the residual norm is at most the larger of `tol` times the norm of `b` and `atol`, or after `maxiter` steps (by
    default 10 times the size). The second result is None.
    Raises TypeError for an invalid operator, ValueError for invalid shapes and structures.

    >>> x, _ = cg(wnp.array([[4.0, 1.0], [1.0, 3.0]]), wnp.array([1.0, 2.0]))
    >>> x.round(4).tolist() == (wnp.linalg.solve(wnp.array([[4.0, 1.0], [1.0, 3.0]]), wnp.array([1.0, 2.0]))).round(4).tolist()
    True
    """

    def method(apply, b, x0, prepare, most):
        target = _target(b, tol, atol)

        def going(state):
            r, k = state[1], state[-1]
            return (_square(r) > target) & (k < most)

        def step(state):
            x, r, gamma, p, k = state
            ap = apply(p)
            alpha = gamma / _dot(p, ap)
            x, r = _move(x, alpha, p), _move(r, -alpha, ap)
            z = prepare(r)
            new = _dot(r, z)
            return x, r, new, _move(_like(z, p), new / gamma, p), k + 1

        r = _like(_less(b, apply(x0)), b)
        p = _like(prepare(r), b)
        return lax.while_loop(going, step, (_like(x0, b), r, _dot(r, p), p, np.int32(0)))[0]

    return _solve("cg", method, A, b, x0, maxiter, M, True)


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple:  # noqa: N803
    """Solve `A x = b` by stabilized biconjugate gradients, for any operator; arguments and results are as for `cg`.

    >>> x, _ = bicgstab(wnp.array([[2.0, 1.0], [0.0, 1.0]]), wnp.array([3.0, 1.0]))
    >>> x.round(3).tolist()
    [1.0, 1.0]
    """

    def method(apply, b, x0, prepare, most):
        target = _target(b, tol, atol)

        def going(state):
            r, k = state[1], state[-1]
            return (_square(r) > target) & (k < most) & (k >= 0)

        def step(state):
            x, r, shadow, alpha, omega, rho, p, v, k = state
            new = _dot(shadow, r)
            beta = new / rho * (alpha / omega)
            p = _move(r, beta, _move(p, -omega, v))
            phat = prepare(p)
            v = _like(apply(phat), v)
            alpha = new / _dot(shadow, v)
            s = _move(r, -alpha, v)
            early = _square(s) < target
            shat = prepare(s)
            t = _like(apply(shat), s)
            tt = _square(t)
            omega = wnp.where(early | (tt == 0), 0, _dot(t, s) / wnp.where(tt == 0, 1, tt))
            x = _move(_move(x, alpha, phat), omega, shat)
            r = _move(s, -omega, t)
            broken = (omega == 0) & ~early | (alpha == 0) | (new == 0)
            return (
                x,
                r,
                shadow,
                alpha,
                omega,
                new,
                p,
                v,
                wnp.where(broken, -11, k + 1).astype(np.int32),
            )

        r = _like(_less(b, apply(x0)), b)
        one = wnp.ones_like(_dot(b, r))
        return lax.while_loop(going, step, (_like(x0, b), r, r, one, one, one, r, r, np.int32(0)))[
            0
        ]

    return _solve("bicgstab", method, A, b, x0, maxiter, M, False)


def _along(columns: Any, k: int, v: Any) -> Any:
    """Return the columns, stacked along the first dim of each leaf, with `v` at index `k`."""
    return _map(lambda q, x: q.at[k].set(x.astype(q.dtype)), columns, v)


def _products(columns: Any, v: Any):
    """Return the inner product of each column with `v`."""
    return sum(
        precise_matmul(wnp.conj(wnp.reshape(q, (q.shape[0], -1))), wnp.reshape(x, (-1,)))
        for q, x in zip(tree.tree_leaves(columns), tree.tree_leaves(v))
    )


def _combine(columns: Any, weights: Any) -> Any:
    def combine(q: Any) -> Any:
        return wnp.tensordot(weights.astype(q.dtype), q, 1, precision=lax.Precision.HIGHEST)

    return _map(combine, columns)


def _orthogonal(columns: Any, v: Any) -> tuple:
    """Return `v` orthogonalized against the columns, by Gram-Schmidt applied twice, and the coefficients."""
    total = 0
    for _ in range(2):
        share = _products(columns, v)
        v = _map(lambda a, b: a - b.astype(a.dtype), v, _combine(columns, share))
        total = total + share
    return v, total


def _normalize(v: Any) -> tuple:
    size = wnp.sqrt(_square(v))
    safe = wnp.where(size > np.finfo(size.dtype).eps, size, 1)
    return _map(lambda a: (a / safe.astype(a.dtype)).astype(a.dtype), v), size


def _krylov(apply: Callable, prepare: Callable, residual: Any, size, restart: int, enough) -> tuple:
    """Return an orthonormal basis of the Krylov space of the preconditioned operator, and its matrix in it, [restart, restart + 1]."""
    q0 = _map(
        lambda a: (a / wnp.where(size == 0, 1, size).astype(a.dtype)).astype(a.dtype), residual
    )
    columns = _map(lambda a: wnp.zeros((restart + 1, *a.shape), a.dtype).at[0].set(a), q0)
    kind = typeof(_dot(residual, residual)).dtype
    h = wnp.eye(restart, restart + 1, dtype=kind)

    def step(state):
        columns, h, k, _ = state
        q = _map(lambda a: a[k], columns)
        v, share = _orthogonal(columns, _like(prepare(apply(q)), q))
        # treat the rounding error of a vector inside the space as zero
        largest = wnp.sqrt(wnp.sum(wnp.abs(share) ** 2))
        unit, length = _normalize(v)
        length = wnp.where(length > 10 * np.finfo(length.dtype).eps * largest, length, 0)
        unit = _map(lambda a: wnp.where(length == 0, 0, a), unit)
        row = share.astype(kind) + wnp.where(wnp.arange(restart + 1) == k + 1, length, 0).astype(
            kind
        )
        return _along(columns, k + 1, unit), h.at[k].set(row), k + 1, length == 0

    def going(state):
        return (state[2] < restart) & ~state[3] & enough

    columns, h, *_ = lax.while_loop(going, step, (columns, h, np.int32(0), wnp.array(False)))
    return columns, h


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple:  # noqa: N803
    """Solve `A x = b` by generalized minimal residuals, for any operator; arguments and results are as for `cg`.

    The Krylov space grows to `restart` vectors; its smallest residual is a least-squares problem. Then the method restarts,
    at most `maxiter` times. `solve_method` 'batched' and 'incremental' are equal here: one problem for each space.

    >>> x, _ = gmres(wnp.array([[2.0, 1.0], [0.0, 1.0]]), wnp.array([3.0, 1.0]))
    >>> x.round(3).tolist()
    [1.0, 1.0]
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(
            f"gmres: solve_method must be 'batched' or 'incremental', got {solve_method!r}."
        )
    size = sum(int(np.prod(np.shape(v))) for v in tree.tree_leaves(b))
    count = min(restart, size)

    def method(apply, b, x0, prepare, most):
        # the tolerance applies to the residual before preconditioning
        target = wnp.sqrt(_target(b, tol, atol))

        def rest(x):
            r = _like(_less(b, apply(x)), b)
            return r, wnp.sqrt(_square(r))

        def step(state):
            x, r, _, k = state
            prepared = _like(prepare(r), r)
            length = wnp.sqrt(_square(prepared))
            columns, h = _krylov(apply, prepare, prepared, length, count, length > 0)
            right = wnp.zeros(count + 1, h.dtype).at[0].set(length.astype(h.dtype))
            y = wnp.linalg.lstsq(h.T, right)[0]
            x = _map(lambda a, d: _cast(a + d, a), x, _combine(_map(lambda q: q[:-1], columns), y))
            return x, *rest(x), k + 1

        x0 = _like(x0, b)
        return lax.while_loop(
            lambda s: (s[2] > target) & (s[3] < most), step, (x0, *rest(x0), np.int32(0))
        )[0]

    return _solve("gmres", method, A, b, x0, maxiter, M, False)


guard_all(globals())
