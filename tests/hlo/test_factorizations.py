"""Factorizations in plain operations, against NumPy: residuals, orthogonality, LAPACK's forms."""

import numpy as np
import pytest

import weft
from weft import lax
from weft._engine.hlo.factorizations import banded, jacobi, lu, reflectors
from weft._engine.ops import matrix_forms

DTYPES = ("float32", "float64", "complex64", "complex128")
SQUARE = ((1, 1), (3, 3), (2, 4, 4), (17, 17))
SHAPES = (*SQUARE, (5, 8), (8, 5), (1, 3), (3, 1), (2, 3, 4, 6))
EMPTY = ((0, 0), (0, 3), (3, 0), (0, 2, 2))
#: rounding errors are bounded by these multiples of the machine epsilon, times the norm
BOUND = 60


@pytest.fixture(autouse=True)
def _doubles():
    with weft.enable_x64(True):
        yield


def matrix(shape, dtype, seed=0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def adjoint(x):
    return np.swapaxes(x, -1, -2).conj()


def run(fn, *args, **params) -> list:
    outs = weft.jit(lambda *xs: fn(*xs, **params))(*args)
    return [np.asarray(y) for y in (outs if isinstance(outs, (list, tuple)) else [outs])]


def assert_close(x, y, like, scale=1.0) -> None:
    eps = np.finfo(like.dtype).eps
    size = max(1.0, float(np.abs(y).max(initial=0)))
    assert np.abs(x - y).max(initial=0) <= BOUND * eps * size * scale


def assert_orthonormal(q) -> None:
    assert_close(
        adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *q.shape[-1:] * 2)), q
    )


def assert_types_of(primitive, outs, x, **params) -> None:
    """Assert that the results have the types of the primitive's type rule."""
    promised = weft.eval_shape(lambda x: primitive.bind(x, **params), x)
    assert [(y.shape, y.dtype) for y in outs] == [(a.shape, a.dtype) for a in promised]


# --- LU ---------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", (*SHAPES, *EMPTY, (130, 140), (140, 130), (256, 256)), ids=str)
def test_lu_exchanges_rows_as_lapack_does(shape, dtype):
    x = matrix(shape, dtype)
    packed, pivots, order = outs = run(lu.lu, x)
    assert_types_of(lax.linalg.lu_p, outs, x)
    m, n = shape[-2:]
    k = min(m, n)
    lower = np.tril(packed, -1)[..., :k] + np.eye(m, k)
    permuted = np.take_along_axis(x, order[..., None].astype(int), -2)
    assert_close(lower @ np.triu(packed)[..., :k, :], permuted, x, scale=max(m, n) ** 0.5)
    assert np.abs(lower).max(initial=0) <= 1.5
    _, expected, _ = lax.linalg.lu(x)
    np.testing.assert_array_equal(pivots, expected)


def test_lu_of_singular_matrices_is_finite():
    x = np.zeros((2, 4, 4), np.float32)
    x[1, 0, 1] = x[1, 2, 2] = 3
    packed, _, order = run(lu.lu, x)
    assert np.isfinite(packed).all()
    np.testing.assert_array_equal(np.sort(order, -1), [[0, 1, 2, 3]] * 2)


# --- SVD --------------------------------------------------------------------------------------------------------------

KINDS = {
    "random": lambda x: x,
    "low rank": lambda x: x[..., :1] @ x[..., :1, :],
    "zero": np.zeros_like,
    "huge": lambda x: (x * x.real.dtype.type(np.finfo(x.dtype).max / 100)).astype(x.dtype),
    "tiny": lambda x: (x * x.real.dtype.type(np.finfo(x.dtype).tiny * 100)).astype(x.dtype),
    "repeated": lambda x: np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape).copy(),
    "graded": lambda x: (x * np.logspace(0, -20, x.shape[-1])).astype(x.dtype),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(3, 3), (1, 1), (8, 5), (5, 8), (2, 3, 4, 6), (1, 4), (33, 20)], ids=str
)
def test_svd_is_accurate_to_a_few_ulps_of_the_norm(shape, dtype, kind):
    x = KINDS[kind](matrix(shape, dtype))
    wide = x.astype(np.complex128 if dtype[0] == "c" else np.float64)
    expected = np.linalg.svd(wide, compute_uv=False)
    norm = max(float(expected.max()), float(np.finfo(x.dtype).tiny))
    for full in (True, False):
        s, u, vh = outs = run(jacobi.svd, x, full_matrices=full, compute_uv=True)
        assert_types_of(lax.linalg.svd_p, outs, x, full_matrices=full, compute_uv=True)
        assert_orthonormal(u)
        assert_orthonormal(adjoint(vh))
        assert np.all(np.diff(s, axis=-1) <= 0) and np.all(s >= 0)
        k = s.shape[-1]
        again = (u[..., :k].astype(wide.dtype) * (s[..., None, :].astype(float) / norm)) @ vh[
            ..., :k, :
        ]
        assert_close(again, wide / norm, x)
        assert_close(s / norm, expected / norm, x)
    (values,) = run(jacobi.svd, x, full_matrices=True, compute_uv=False)
    assert_close(values / norm, expected / norm, x)


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("full", [True, False])
def test_svd_of_empty_matrices(shape, full):
    x = np.zeros(shape, np.float32)
    outs = run(jacobi.svd, x, full_matrices=full, compute_uv=True)
    assert_types_of(lax.linalg.svd_p, outs, x, full_matrices=full, compute_uv=True)
    expected = np.linalg.svd(x, full_matrices=full)
    np.testing.assert_array_equal(outs[1], expected[0])
    np.testing.assert_array_equal(outs[2], expected[2])


def test_svd_of_nan_is_nan():
    x = np.full((3, 3), np.nan, np.float32)
    assert all(np.isnan(y).all() for y in run(jacobi.svd, x, full_matrices=True, compute_uv=True))


# --- eigenvalues ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["random", "low rank", "zero", "repeated", "huge"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SQUARE, (40, 40)], ids=str)
@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(shape, dtype, kind, lower):
    x = KINDS[kind](matrix(shape, dtype))
    h = x / 2 + adjoint(x) / 2
    other = matrix(shape, dtype, seed=1) * np.abs(x).max()
    stored = np.tril(h) + np.triu(other, 1) if lower else np.triu(h) + np.tril(other, -1)
    v, w = outs = run(jacobi.eigh, stored.astype(dtype), lower=lower, sort_eigenvalues=True)
    assert_types_of(lax.linalg.eigh_p, outs, x, lower=lower, sort_eigenvalues=True)
    norm = max(float(np.abs(w).max()), float(np.finfo(x.dtype).tiny))
    wide = h.astype(np.complex128 if dtype[0] == "c" else np.float64)
    assert_orthonormal(v)
    assert np.all(np.diff(w, axis=-1) >= 0)
    assert_close(wide / norm @ v, v * (w[..., None, :] / norm), x)
    assert_close(w / norm, np.linalg.eigvalsh(wide) / norm, x)


def test_eigh_separates_eigenvalues_of_opposite_signs():
    q = np.linalg.qr(matrix((20, 20), "float64"))[0]
    signs = np.where(np.arange(20) % 2, 1.0, -1.0)
    x = (q * signs) @ q.T
    v, w = run(jacobi.eigh, x, lower=True)
    np.testing.assert_allclose(w, np.sort(signs), rtol=1e-14)
    np.testing.assert_allclose(x @ v, v * w, atol=1e-14)


# --- reflectors -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pivoting", [True, False])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY, (33, 20)], ids=str)
def test_qr_has_lapacks_factors(shape, dtype, full, pivoting):
    x = matrix(shape, dtype)
    outs = run(reflectors.qr, x, pivoting=pivoting, full_matrices=full)
    expected = lax.linalg.qr(x, pivoting=pivoting, full_matrices=full)
    for mine, other in zip(outs, expected, strict=True):
        other = np.asarray(other)
        assert mine.shape == other.shape and mine.dtype == other.dtype
        assert_close(mine, other, x, scale=10)


def test_pivoted_qr_orders_columns_by_their_remaining_lengths():
    x = np.diag(np.float32([1, 1e20, 3, 0]))
    _, r, order = run(reflectors.qr, x, pivoting=True, full_matrices=True)
    assert order.tolist() == [1, 2, 0, 3]
    np.testing.assert_allclose(np.abs(np.diag(r)), [1e20, 3, 1, 0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SQUARE, (0, 0), (2, 2), (2, 0, 0)], ids=str)
def test_hessenberg_and_tridiagonal_are_packed_as_by_lapack(shape, dtype):
    x = matrix(shape, dtype)
    pairs = [(run(reflectors.hessenberg, x), lax.linalg.hessenberg(x))]
    for lower in (True, False):
        pairs.append(
            (run(reflectors.tridiagonal, x, lower=lower), lax.linalg.tridiagonal(x, lower=lower))
        )
    for mine, expected in pairs:
        for y, z in zip(mine, expected, strict=True):
            z = np.asarray(z)
            assert y.shape == z.shape and y.dtype == z.dtype
            assert_close(y, z, x, scale=10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_ormqr_multiplies_by_the_square_q(dtype, left, transpose):
    packed, taus = matrix_forms.geqrf(matrix((2, 5, 3), dtype))
    c = matrix((2, 5, 4) if left else (2, 4, 5), dtype)
    (out,) = run(reflectors.ormqr, packed, taus, c, left=left, transpose=transpose)
    assert_close(
        out, np.asarray(matrix_forms.ormqr(packed, taus, c, left=left, transpose=transpose)), c
    )


# --- tridiagonal systems ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lead", "n", "columns"),
    [((), 1, 2), ((), 2, 1), ((3,), 6, 2), ((), 30, 1), ((2,), 0, 1), ((), 4, 0)],
)
def test_tridiagonal_systems_with_small_pivots(dtype, lead, n, columns):
    dl, d, du = (matrix((*lead, n), dtype, seed) for seed in (1, 2, 3))
    d[..., ::2] *= 1e-30
    b = matrix((*lead, n, columns), dtype)
    (x,) = run(banded.tridiagonal_solve, dl, d, du, b)
    expected = np.asarray(lax.linalg.tridiagonal_solve(dl, d, du, b))
    assert x.shape == expected.shape and x.dtype == expected.dtype
    assert_close(x, expected, b, scale=20)


def test_singular_tridiagonal_systems_are_nan():
    zero, one = np.zeros((2, 3), np.float32), np.ones((2, 3, 1), np.float32)
    d = np.stack([np.ones(3, np.float32), zero[0]])
    (x,) = run(banded.tridiagonal_solve, zero, d, zero, one)
    np.testing.assert_array_equal(x[0], one[0])
    assert np.isnan(x[1]).all()
