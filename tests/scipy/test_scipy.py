"""Special functions and linear algebra against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override
from weft.scipy import linalg, special

RNG = np.random.RandomState(0)
X = RNG.randn(20).astype(np.float32)
P = RNG.rand(20).astype(np.float32) * 0.9 + 0.05
Q = RNG.rand(20).astype(np.float32) + 0.1
A = RNG.randn(4, 4).astype(np.float32)
S = A @ A.T + 4 * np.eye(4, dtype=np.float32)
V = RNG.randn(4).astype(np.float32)
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.mark.parametrize(
    "name, args",
    [
        *[(n, (X,)) for n in "erf erfc expit i0 i0e i1 i1e ndtr log_ndtr gammasgn".split()],
        *[(n, (P,)) for n in "erfinv logit entr ndtri".split()],
        *[(n, (Q * 5,)) for n in "gammaln digamma gamma factorial".split()],
        *[(n, (Q, P)) for n in "beta betaln xlogy xlog1py rel_entr kl_div poch".split()],
        ("log_ndtr", (np.array([-40.0, -12.0, 9.0], np.float32),)),
        ("xlogy", (np.zeros(3, np.float32), np.array([0.0, 1.0, 2.0], np.float32))),
        ("softmax", (X,)),
        ("log_softmax", (X,)),
        ("polygamma", (1, Q)),
        ("multigammaln", (Q * 5 + 1, 3)),
    ],
)
def test_special(name, args):
    np.testing.assert_allclose(
        getattr(special, name)(*args), getattr(scipy.special, name)(*args), **CLOSE
    )


def test_derivatives_at_the_edges():
    assert np.isfinite(weft.grad(lambda x: special.log_ndtr(x))(-30.0))
    assert float(weft.grad(lambda x: special.logsumexp(wnp.stack([x, x])))(0.0)) == 1.0


@pytest.mark.parametrize(
    "f, log, zero", [(special.xlogy, np.log, 0.0), (special.xlog1py, np.log1p, -1.0)]
)
def test_slopes_of_products_with_a_logarithm_at_zero(f, log, zero):
    """Those of the limit, though the product is 0 for every y."""
    y = np.array([3.0, 0.5, 20.0], np.float32)
    by_x, by_y = weft.vmap(weft.grad(f, (0, 1)), (None, 0))(0.0, y)
    np.testing.assert_allclose(by_x, log(y), rtol=1e-6)
    np.testing.assert_array_equal(by_y, 0)
    (xx, xy), (yx, yy) = weft.vmap(weft.hessian(f, (0, 1)), (None, 0))(0.0, y)
    np.testing.assert_array_equal([xx, yy], 0)
    np.testing.assert_allclose([xy, yx], [1 / (y - zero)] * 2, rtol=1e-6)
    assert (
        f(0.0, zero) == 0 and weft.grad(f)(0.0, zero) == -np.inf and weft.grad(f, 1)(0.0, zero) == 0
    )
    assert np.isnan(f(0.0, np.nan)) and np.isnan(weft.grad(f)(0.0, np.nan))


def test_the_sign_of_the_gamma_function_where_it_has_none():
    x = np.array(
        [-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 1.0, np.nan, np.inf, -np.inf, -1e10],
        np.float32,
    )
    x = np.concatenate(
        [x, np.nextafter(x, np.float32(np.inf))[:6], np.nextafter(x, np.float32(-np.inf))[:6]]
    )
    np.testing.assert_array_equal(special.gammasgn(x), scipy.special.gammasgn(x))


def test_triangular_and_cholesky():
    lower = np.tril(A) + 3 * np.eye(4, dtype=np.float32)
    for trans in (0, 1):
        want = scipy.linalg.solve_triangular(lower, V, trans=trans, lower=True)
        np.testing.assert_allclose(
            linalg.solve_triangular(lower, V, trans, lower=True), want, **CLOSE
        )
    for low in (False, True):
        np.testing.assert_allclose(
            linalg.cholesky(S, lower=low), scipy.linalg.cholesky(S, lower=low), **CLOSE
        )
        np.testing.assert_allclose(
            linalg.cho_solve(linalg.cho_factor(S, low), V), np.linalg.solve(S, V), **CLOSE
        )
    np.testing.assert_allclose(linalg.solve(S, V, assume_a="pos"), np.linalg.solve(S, V), **CLOSE)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_reads_one_triangle(lower, dtype):
    h = S.astype(dtype) if dtype == np.float32 else (S + 0.1j * (A - A.T)).astype(dtype)
    half = (np.tril if lower else np.triu)(h) + 7 * (np.triu(A, 1) if lower else np.tril(A, -1))
    np.testing.assert_allclose(
        linalg.cholesky(half, lower), scipy.linalg.cholesky(h, lower), **CLOSE
    )
    np.testing.assert_allclose(
        linalg.solve(half, V, lower, assume_a="pos"), scipy.linalg.solve(h, V), rtol=2e-3, atol=1e-3
    )
    gradient = weft.grad(lambda x: wnp.abs(linalg.cholesky(x, lower)).sum())(h)
    whole = weft.grad(lambda x: wnp.abs(wnp.linalg.cholesky(x, upper=not lower)).sum())(h)
    np.testing.assert_allclose((gradient + np.conj(gradient.T)) / 2, whole, **CLOSE)


@pytest.mark.parametrize(
    "shape, b_shape",
    [
        ((3, 4, 4), (3, 4)),
        ((2, 3, 4, 4), (2, 3, 4)),
        ((3, 3, 4, 4), (1, 3, 4)),
        ((4, 4, 4), (4, 4)),
    ],
)
def test_one_vector_for_each_matrix_is_deprecated(shape, b_shape):
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=shape).astype(np.float32), rng.normal(size=b_shape).astype(np.float32)
    a = a @ a.swapaxes(-1, -2) + 4 * np.eye(4, dtype=np.float32)
    want = np.linalg.solve(a, b[..., None])[..., 0]
    for solve in (
        lambda: linalg.cho_solve(linalg.cho_factor(a), b),
        lambda: linalg.lu_solve(linalg.lu_factor(a), b),
        lambda: linalg.solve(a, b, assume_a="pos"),
    ):
        with pytest.warns(FutureWarning, match="one vector for each matrix"):
            np.testing.assert_allclose(solve(), want, **CLOSE)
    with pytest.warns(FutureWarning, match="solve_triangular"):
        solution = linalg.solve_triangular(a, b)
    np.testing.assert_allclose(solution, np.linalg.solve(np.triu(a), b[..., None])[..., 0], **CLOSE)


@pytest.mark.parametrize(
    "shape, b_shape",
    [((4, 4), (3,)), ((3, 4, 4), (3, 2)), ((4, 4), (2, 4)), ((2, 3, 4, 4), (3, 4)), ((3, 5), (3,))],
)
def test_right_sides_of_other_sizes_are_refused(shape, b_shape):
    a, b = np.ones(shape, np.float32), np.ones(b_shape, np.float32)
    for solve in (
        lambda: linalg.cho_solve((a, True), b),
        lambda: linalg.lu_solve((a, np.zeros(shape[:-1], np.int32)), b),
        lambda: linalg.solve_triangular(a, b),
    ):
        with pytest.raises(ValueError, match=r"same number of rows|square"):
            solve()


def test_lu():
    for a in (A, A[:, :3], A[:2]):
        p, lo, up = linalg.lu(a)
        np.testing.assert_allclose(p @ lo @ up, a, **CLOSE)
        for result, want in zip((p, lo, up), scipy.linalg.lu(a)):
            np.testing.assert_allclose(result, want, **CLOSE)
    for trans in (0, 1):
        result = linalg.lu_solve(linalg.lu_factor(A), V, trans)
        np.testing.assert_allclose(
            result, np.linalg.solve(A.T if trans else A, V), rtol=2e-3, atol=1e-4
        )


def test_others():
    np.testing.assert_allclose(linalg.block_diag(A, V, 2.0), scipy.linalg.block_diag(A, V, 2.0))
    np.testing.assert_allclose(linalg.toeplitz(V, V[:3]), scipy.linalg.toeplitz(V, V[:3]))
    np.testing.assert_allclose(
        linalg.eigh(S, eigvals_only=True), scipy.linalg.eigh(S, eigvals_only=True), **CLOSE
    )
    np.testing.assert_allclose(linalg.svd(A, compute_uv=False), scipy.linalg.svdvals(A), **CLOSE)
    np.testing.assert_allclose(
        np.abs(linalg.qr(A, mode="economic")[1]),
        np.abs(scipy.linalg.qr(A, mode="economic")[1]),
        **CLOSE,
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_expm(n, scale):
    a = np.random.default_rng(n).normal(size=(2, n, n)).astype(np.float32) * np.float32(
        scale / np.sqrt(n)
    )
    a[1] *= 0.01  # each matrix of a stack has its own number of squarings
    want = scipy.linalg.expm(a.astype(np.float64))
    for result, exact in zip(linalg.expm(a), want):
        np.testing.assert_allclose(
            result, exact, rtol=1e-3, atol=2e-4 * max(1, np.abs(exact).max())
        )
    for odd in (np.nan, np.inf, 1e8):  # a result does not depend on the other matrices
        beside = np.stack([a[0], np.full_like(a[0], odd)])
        np.testing.assert_array_equal(linalg.expm(beside)[0], linalg.expm(a[:1])[0])
        assert np.isnan(linalg.expm(beside)[1]).all()
    upper = np.triu(a[0])
    np.testing.assert_allclose(
        linalg.expm(upper, upper_triangular=True), linalg.expm(upper), rtol=1e-3, atol=1e-3
    )


def test_expm_of_zeros_is_finite_throughout():
    zeros = np.zeros((2, 3, 3), np.float32)
    weft.config.update("debug_infs", True)
    try:
        np.testing.assert_array_equal(weft.vmap(linalg.expm)(zeros), np.stack([np.eye(3)] * 2))
        np.testing.assert_array_equal(
            weft.jvp(linalg.expm, (zeros[0],), (zeros[0] + 1,))[1], zeros[0] + 1
        )
    finally:
        weft.config.update("debug_infs", False)


def test_expm_in_double_precision_complex_and_out_of_range():
    rng = np.random.default_rng(0)
    with weft.enable_x64(True):
        for a in (
            rng.normal(size=(6, 6)) * 4,
            rng.normal(size=(6, 6)) + 1j * rng.normal(size=(6, 6)),
        ):
            np.testing.assert_allclose(linalg.expm(a), scipy.linalg.expm(a), rtol=1e-11, atol=1e-9)
        a, direction = rng.normal(size=(2, 4, 4))
        want = scipy.linalg.expm_frechet(a * 3, direction)[1]
        np.testing.assert_allclose(
            weft.jvp(linalg.expm, (a * 3,), (direction,))[1], want, rtol=1e-9, atol=1e-9
        )
        adjoint = weft.grad(lambda a: (linalg.expm(a) * direction).sum())(a)
        np.testing.assert_allclose(
            adjoint, scipy.linalg.expm_frechet(a.T, direction)[1], rtol=1e-9, atol=1e-9
        )
    assert np.isnan(linalg.expm(np.eye(2, dtype=np.float32) * 1e6)).all()
    np.testing.assert_array_equal(linalg.expm(np.zeros((3, 3), np.float32)), np.eye(3))
    with pytest.raises(ValueError, match="square"):
        linalg.expm(np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_beta_functions_of_great_arguments_keep_their_digits(dtype):
    """B(a, n) of an integer n is a product of n fractions; gammas of 1e5 have a logarithm of 1e6."""
    with Override(enable_x64=True):
        for a, n in [(235963.5, 3), (1e6, 7), (12.25, 30), (1e5, 1), (10.0, 10), (1e4, 20)]:
            want = math.lgamma(n) - math.fsum(math.log(a + i) for i in range(n))
            got = special.betaln(dtype(a), dtype(n))
            np.testing.assert_allclose(got, want, rtol=40 * np.finfo(dtype).eps)
            slope = weft.grad(special.betaln)(dtype(a), dtype(n))
            np.testing.assert_allclose(
                slope,
                -math.fsum(1 / (a + i) for i in range(n)),
                rtol=1e-3 if dtype == np.float32 else 1e-9,
            )


def test_slopes_at_zero():
    for f in (special.i0, wnp.i0):
        assert [float(weft.grad(f)(x)) for x in (0.0, -0.0)] == [0, 0] and abs(
            float(weft.grad(f)(1e-3)) / 5.0000006e-4 - 1
        ) < 3e-4
        assert abs(float(weft.grad(weft.grad(f))(1.0)) / (1.2660658 - 0.56515910) - 1) < 1e-5
    assert weft.grad(wnp.cbrt)(0.0) == np.inf and weft.grad(wnp.cbrt)(np.inf) == 0
    np.testing.assert_allclose(weft.grad(wnp.cbrt)(-8.0), 1 / 12, rtol=1e-6)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_factors_of_several_matrices_solve_for_several_sides(trans):
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(3, 1, 4, 4)) + 1j * rng.normal(size=(3, 1, 4, 4))).astype(np.complex64)
    turned = (a, a.swapaxes(-1, -2), a.conj().swapaxes(-1, -2))[trans]
    for b in (rng.normal(size=(2, 4, 2)), rng.normal(size=(4, 2)), rng.normal(size=4)):
        got = linalg.lu_solve(linalg.lu_factor(a), b.astype(np.complex64), trans)
        want = np.linalg.solve(turned, b if b.ndim > 1 else b[:, None])
        np.testing.assert_allclose(got, want if b.ndim > 1 else want[..., 0], rtol=2e-4, atol=2e-4)
