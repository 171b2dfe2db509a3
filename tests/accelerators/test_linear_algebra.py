"""Linear algebra of a plugin, which has no LAPACK: results that multiply to the matrix."""

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp


def matrix(shape, dtype) -> np.ndarray:
    rng = np.random.default_rng([*shape, 1])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def adjoint(x):
    return np.swapaxes(x, -1, -2).conj()


@pytest.fixture
def run(devices):
    """Return a function that runs another one on the first device of the plugin."""

    def run_on_plugin(fn, *args):
        with weft.enable_x64(True):
            return [
                np.asarray(y)
                for y in weft.tree.leaves(weft.jit(fn)(*weft.device_put(args, devices[0])))
            ]

    return run_on_plugin


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [(5, 5), (2, 6, 3), (3, 6), (0, 3)], ids=str)
def test_factors_multiply_to_the_matrix(shape, dtype, run):
    x = matrix(shape, dtype)
    tolerance = 100 * np.finfo(dtype).eps
    close = lambda y, z: np.testing.assert_allclose(y, z, rtol=0, atol=tolerance)
    k = min(shape[-2:])
    k, eye = min(shape[-2:]), lambda n: np.broadcast_to(np.eye(n), (*shape[:-2], n, n))

    def factors(x):
        unpivoted = [lax.linalg.qr(x, full_matrices=full) for full in (True, False)]
        svds = [lax.linalg.svd(x, full_matrices=full) for full in (True, False)]
        return lax.linalg.lu(x), lax.linalg.qr(x, pivoting=True), *unpivoted, *svds

    (packed, _, rows, q, r, columns), others = (
        (factors_of_x := run(factors, x))[:6],
        factors_of_x[6:],
    )
    lower = np.tril(packed, -1)[..., :k] + np.eye(shape[-2], k)
    permuted = np.take_along_axis(x, rows[..., None].astype(int), -2)
    close(lower @ np.triu(packed)[..., :k, :], permuted)
    close(q @ r, np.take_along_axis(x, columns[..., None, :].astype(int), -1))
    for q, r in (others[:2], others[2:4]):
        close(q @ r, x)
        close(adjoint(q) @ q, eye(q.shape[-1]))
    for u, s, vh in (others[4:7], others[7:]):
        close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x)
        close(adjoint(u) @ u, eye(u.shape[-1]))
        close(vh @ adjoint(vh), eye(vh.shape[-2]))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("n", [1, 5])
def test_functions_of_square_matrices(n, dtype, run):
    x = matrix((n, n), dtype)
    h = x + adjoint(x)
    tolerance = 200 * np.finfo(dtype).eps * n
    close = lambda y, z: np.testing.assert_allclose(y, z, rtol=tolerance, atol=tolerance)
    v, w = run(lambda h: lax.linalg.eigh(h), h)
    close(h @ v, v * w)
    (c,) = run(lax.linalg.cholesky, h @ h + np.eye(n, dtype=dtype))
    close(c @ adjoint(c), h @ h + np.eye(n))
    shifted = x + 3 * n * np.eye(n, dtype=dtype)
    close(*run(lambda a, b: (a @ wnp.linalg.solve(a, b), b), shifted, x))
    (det,) = run(wnp.linalg.det, shifted)
    np.testing.assert_allclose(det, np.linalg.det(shifted), rtol=tolerance)
    diagonals = x[0], shifted.diagonal().copy(), x[-1]
    (y,) = run(lambda *args: lax.linalg.tridiagonal_solve(*args), *diagonals, x)
    dense = np.diag(diagonals[1]) + np.diag(x[0, 1:], -1) + np.diag(x[-1, :-1], 1)
    close(dense @ y, x)


def test_a_matrix_that_is_not_positive_has_no_cholesky_factor(run):
    (c,) = run(lax.linalg.cholesky, np.diag(np.float32([1, -1])))
    assert np.isnan(c).any()


def test_derivatives_agree_with_the_cpu(run):
    x = matrix((4, 4), "float64")

    def fn(x):
        w, v = wnp.linalg.eigh(x + x.T)
        return (
            w.sum()
            + abs(v).sum()
            + wnp.linalg.svd(x, compute_uv=False)[0]
            + wnp.linalg.slogdet(x)[1]
        )

    (gradient,) = run(weft.grad(fn), x)
    with weft.enable_x64(True):
        expected = np.asarray(weft.jit(weft.grad(fn), backend="cpu")(x))
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-9)
