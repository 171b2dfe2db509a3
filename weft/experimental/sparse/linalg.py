"""Linear systems and eigenvalues of sparse matrices.

In:   a matrix of compressed rows, or a function that multiplies by a symmetric matrix.
Out:  the solution of a system; the largest eigenvalues with their eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.lazy import scipy_module
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all
from weft.experimental.sparse.bcsr import row_numbers


def spsolve(
    data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1
) -> Any:
    """Return the solution x of A x = b for a square matrix A of compressed rows, by SciPy's sparse LU on the host.

    `tol` and `reorder` are options of GPU solvers without effect here. Derivatives with respect to `data` and `b` are exact.
    ValueError for inconsistent shapes, and if `reorder` is not an integer from 0 to 3.

    >>> from weft.experimental.sparse.linalg import spsolve
    >>> spsolve(wnp.array([2., 4.]), wnp.array([0, 1]), wnp.array([0, 1, 2]), wnp.array([2., 2.])).tolist()
    [1.0, 0.5]
    """
    data, indices, indptr, b = map(wnp.asarray, (data, indices, indptr, b))
    if (
        data.ndim != 1
        or indices.shape != data.shape
        or b.ndim != 1
        or indptr.shape != (b.shape[0] + 1,)
    ):
        raise ValueError(
            f"spsolve: data {data.shape}, indices {indices.shape}, indptr {indptr.shape} and b {b.shape} do not make a system:"
            " they are [nse], [nse], [n + 1] and [n]."
        )
    if reorder not in range(4):
        raise ValueError(
            f"spsolve: reorder={reorder!r} is not valid; it must be 0 (none), 1 (symrcm), 2 (symamd) or 3 (csrmetisnd)."
        )
    dtype = wnp.result_type(data.dtype, b.dtype)
    data, b = data.astype(dtype), b.astype(dtype)
    rows = row_numbers(indptr, data.shape[0])

    def product(x: Any) -> Any:
        none: Any = wnp.zeros_like(b)
        return none.at[rows].add(data * x[indices], mode="drop")

    def solve(transposed: bool) -> Callable:
        return lambda _, right: _call(transposed, lax.stop_gradient(data), indices, indptr, right)

    return lax.custom_linear_solve(product, b, solve(False), solve(True))


def _on_host(transposed: bool) -> Callable:
    def solve(data: Any, indices: Any, indptr: Any, b: Any) -> Any:
        sparse = scipy_module("sparse")
        specified = slice(0, int(np.asarray(indptr)[-1]))
        arrays = tuple(np.asarray(each) for each in (data, indices, indptr))
        n = len(b)
        matrix = (sparse.csc_matrix if transposed else sparse.csr_matrix)(
            (arrays[0][specified], arrays[1][specified], arrays[2]), shape=(n, n)
        )
        factorization = scipy_module("sparse.linalg").splu(matrix.tocsc())
        return factorization.solve(np.asarray(b)).astype(arrays[0].dtype)

    return solve


def _call(transposed: bool, data: Any, indices: Any, indptr: Any, b: Any) -> Any:
    shape = weft.ShapeDtypeStruct(b.shape, b.dtype)
    return weft.pure_callback(
        _on_host(transposed), shape, data, indices, indptr, b, vmap_method="sequential"
    )


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: float | None = None) -> tuple[Any, Any, Any]:
    """Return the k largest eigenvalues of a symmetric matrix, their eigenvectors, and the number of iterations, by locally
    optimal block preconditioned conjugate gradients (Knyazev, 2001).

    `A` is a matrix or a function X -> A X; `X` [n, k] is an initial guess with independent columns. ValueError unless
    5 k < n, and for invalid shapes and dtypes.

    >>> from weft.experimental.sparse.linalg import lobpcg_standard
    >>> values, vectors, _ = lobpcg_standard(wnp.diag(wnp.arange(1., 21.)), weft.random.normal(weft.random.key(0), (20, 2)))
    >>> [round(float(v), 3) for v in values]
    [20.0, 19.0]
    """
    X = wnp.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"lobpcg_standard: X must be a matrix [n, k], got shape {X.shape}.")
    n, k = X.shape
    if k < 1:
        raise ValueError(f"lobpcg_standard: needs search dim > 0, and X has no columns: {X.shape}.")
    if k * 5 >= n:
        raise ValueError(
            f"lobpcg_standard: needs search dim * 5 < matrix dim, and X has {quantity(k, 'column')} and {quantity(n, 'row')}."
        )
    if not callable(A) and np.shape(A) != (n, n):
        raise ValueError(
            f"lobpcg_standard: A must be {n, n} as X has {quantity(n, 'row')}, got {np.shape(A)}."
        )
    apply: Callable[[Any], Any] = A if callable(A) else lambda X: A @ X
    image = weft.eval_shape(apply, X)
    if image.dtype != X.dtype:
        raise ValueError(
            f"lobpcg_standard: A, X must have same dtypes, and A X is {image.dtype.name} for X of {X.dtype.name}."
        )
    if image.shape != X.shape:
        raise ValueError(
            f"lobpcg_standard: A must map shape {X.shape} to itself, and A X has shape {image.shape}."
        )
    tol = float(wnp.finfo(X.dtype).eps) if tol is None else tol
    X = wnp.linalg.qr(X)[0]
    start = (wnp.array(0), X, wnp.zeros_like(X), *_ritz(apply, X, k), wnp.array(True))

    def more(state: tuple) -> Any:
        return (state[0] < m) & state[-1]

    def step(state: tuple) -> tuple:
        count, X, P, values, _, _ = state
        residual = apply(X) - X * values
        basis = _basis(X, [residual, P])
        values, mixed = _ritz(apply, basis, k)
        new = wnp.linalg.qr(basis @ mixed)[0]
        direction = new - X @ (X.T @ new)
        error = wnp.linalg.norm(apply(new) - new * values, axis=0)
        scale = wnp.linalg.norm(apply(new), axis=0) + wnp.abs(values)
        return (
            count + 1,
            new,
            direction,
            values,
            mixed[:k, :k],
            wnp.any(error > tol * 10 * n * scale),
        )

    count, X, _, values, _, _ = lax.while_loop(
        more, step, (*start[:4], wnp.eye(k, dtype=X.dtype), start[-1])
    )
    values, mixed = _ritz(apply, X, k)
    return values, X @ mixed, count


def _ritz(apply: Callable, basis: Any, k: int) -> tuple[Any, Any]:
    """Return the k largest eigenvalues on an orthonormal basis (some columns may be 0), and the eigenvectors' coordinates in it."""
    product = basis.T @ apply(basis)
    is_independent = wnp.sum(basis * basis, axis=0) > 0.5
    low = wnp.where(is_independent, 0.0, -wnp.inf)
    product = (product + product.T) / 2
    bound = wnp.max(wnp.sum(wnp.abs(product), axis=0)) + 1
    values, vectors = wnp.linalg.eigh(
        product + wnp.diag(wnp.astype(wnp.where(wnp.isinf(low), -2 * bound, 0.0), product.dtype))
    )
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def _basis(X: Any, blocks: list) -> Any:
    """Return an orthonormal basis of X and the blocks; dependent columns become 0."""
    basis = X
    for block in blocks:
        norms = wnp.linalg.norm(block, axis=0)
        block = block / wnp.where(norms > 0, norms, 1)
        for _ in range(2):
            block = block - basis @ (basis.T @ block)
        u, s, _ = wnp.linalg.svd(block, full_matrices=False)
        u = wnp.astype(wnp.where(s > float(wnp.finfo(X.dtype).eps) * X.shape[0], u, 0.0), X.dtype)
        u = u - basis @ (basis.T @ u)
        norms = wnp.linalg.norm(u, axis=0)
        u = wnp.astype(wnp.where(norms > 0.5, u / wnp.where(norms > 0.5, norms, 1), 0.0), X.dtype)
        basis = wnp.concatenate([basis, u], axis=1)
    return basis


guard_all(globals())
