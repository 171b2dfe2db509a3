"""Forms and functions of matrices against SciPy and their defining equations."""

import numpy as np
import pytest
import scipy.linalg

import weft
from weft.scipy import linalg
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RNG = np.random.default_rng(2)
A = RNG.normal(size=(5, 5)).astype(np.float32)
STACK, B, C = A + np.arange(3, dtype=np.float32)[:, None, None], A[:3, :3], A[:, :3]
POSITIVE = A @ A.T + np.eye(5, dtype=np.float32)
CLOSE = {"rtol": 2e-4, "atol": 2e-4}


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("a", [A, STACK, A + 1j * A.T, A[:1, :1]])
def test_forms_make_up_the_matrix(a):
    for output in ("real", "complex"):
        t, z = linalg.schur(a, output)
        np.testing.assert_allclose(z @ t @ adjoint(z), a, **CLOSE)
        np.testing.assert_array_equal(np.tril(t, -1 if np.iscomplexobj(t) else -2), 0)
    h, q = linalg.hessenberg(a, calc_q=True)
    np.testing.assert_allclose(q @ h @ adjoint(q), a, **CLOSE)
    np.testing.assert_array_equal(np.tril(linalg.hessenberg(a), -2), 0)
    t, z = linalg.rsf2csf(*linalg.schur(a))
    np.testing.assert_allclose(z @ t @ adjoint(z), a, **CLOSE)
    np.testing.assert_array_equal(np.tril(t, -1), 0)


@pytest.mark.parametrize(
    "a, side, method",
    [
        (A, "right", "qdwh"),
        (A, "left", "qdwh"),
        (STACK, "right", "qdwh"),
        (A[:, :3], "right", "qdwh"),
        (A[:3], "left", "qdwh"),
        (A[:3], "right", "svd"),
        (STACK, "left", "svd"),
    ],
)
def test_polar(a, side, method):
    for result, expected in zip(
        linalg.polar(a, side, method=method),
        np.vectorize(lambda x: scipy.linalg.polar(x, side), signature="(m,n)->(m,n),(k,k)")(a),
    ):
        np.testing.assert_allclose(result, expected, **CLOSE)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_real_eigenvalues_stay_on_their_side_of_a_branch_cut(n):
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, n)).astype(np.float32)
    a = (
        a @ np.diag(np.arange(-n, 0) + 0.5).astype(np.float32) @ np.linalg.inv(a)
    )  # all eigenvalues are negative
    for name in ("sqrt", "log"):
        result = linalg.funm(a, getattr(weft.numpy, name))
        want = scipy.linalg.funm(
            a.astype(np.float64), lambda x, name=name: getattr(np, name)(x + 0j)
        )
        np.testing.assert_allclose(result, want, rtol=5e-2, atol=5e-2)
    np.testing.assert_allclose(
        linalg.sqrtm(a).imag, scipy.linalg.sqrtm(a.astype(np.float64)).imag, rtol=5e-2, atol=5e-2
    )


@pytest.mark.parametrize(
    "mode, a, c",
    [
        ("right", A[:, :3], A),
        ("left", A[:, :3], B),
        ("left", A[:3], B),
        ("right", A[:, :2], A[0]),
        ("left", A[:, :2], A[0, :2]),
    ],
)
def test_qr_multiply(mode, a, c):
    for pivoting in (False, True):
        for conjugate in (False, True):
            operands = a * (1 + 1j), c
            result = linalg.qr_multiply(*operands, mode, pivoting, conjugate)
            for x, y in zip(
                result, scipy.linalg.qr_multiply(*operands, mode, pivoting, conjugate), strict=True
            ):
                np.testing.assert_allclose(x, y, **CLOSE)


def test_eigh_tridiagonal_reads_complex_superdiagonal():
    d, e = np.array([1.0, 2.0, -1.0], "c8"), np.array([1.0 + 2.0j, 0.5 - 1.0j], "c8")
    values, vectors = linalg.eigh_tridiagonal(d, e)
    whole = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    np.testing.assert_allclose(whole @ vectors, vectors * values, atol=1e-5)


def test_eigh_tridiagonal():
    d, e = A[0], A[1, :4]
    values, vectors = linalg.eigh_tridiagonal(d, e)
    np.testing.assert_allclose(values, scipy.linalg.eigh_tridiagonal(d, e)[0], **CLOSE)
    whole = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    np.testing.assert_allclose(whole @ vectors, vectors * values, **CLOSE)
    some = linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 2))
    np.testing.assert_allclose(some, values[1:3], **CLOSE)
    check_grads(
        lambda d, e: linalg.eigh_tridiagonal(d, e, eigvals_only=True),
        (d, e),
        1,
        atol=2e-2,
        rtol=2e-2,
    )


def test_square_roots():
    np.testing.assert_allclose(linalg.sqrtm(POSITIVE), scipy.linalg.sqrtm(POSITIVE), **CLOSE)
    root = linalg.sqrtm(STACK)
    np.testing.assert_allclose(root @ root, STACK, rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(linalg.sqrtm(np.diag([0.0, 9, 0, 4])), np.diag([0, 3, 0, 2]))
    assert np.isnan(linalg.sqrtm(np.array([[0.0, 1.0], [0.0, 0.0]]))).any()
    mesh = weft.make_mesh((3,), ("i",))
    spread = weft.device_put(STACK, NamedSharding(mesh, PartitionSpec("i")))
    np.testing.assert_allclose(weft.jit(linalg.sqrtm)(spread), root, rtol=1e-3, atol=1e-3)


def test_functions_of_matrices():
    f = lambda x: 1 / (x * x + 9)
    result, error = linalg.funm(A, f, disp=False)
    np.testing.assert_allclose(result, np.linalg.inv(A @ A + 9 * np.eye(5)), **CLOSE)
    assert 0 < error < 1e-3
    derivative = linalg.expm_frechet(A, A.T, compute_expm=False)
    np.testing.assert_allclose(
        derivative, scipy.linalg.expm_frechet(A, A.T, compute_expm=False), rtol=2e-4, atol=1e-3
    )


@pytest.mark.parametrize("method", ["schur", "eigen"])
def test_sylvester(method):
    a, b = A + 5 * np.eye(5, dtype=np.float32), B + 5 * np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(
        linalg.solve_sylvester(a, b, C, method=method),
        scipy.linalg.solve_sylvester(a, b, C),
        **CLOSE,
    )
    x = linalg.solve_sylvester(np.stack([a, 2 * a]), b, C + 1j, method=method)
    np.testing.assert_allclose(np.stack([a, 2 * a]) @ x + x @ b, np.stack([C + 1j] * 2), **CLOSE)
    assert np.isnan(linalg.solve_sylvester(np.eye(2), -np.eye(2), np.eye(2), method=method)).all()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: linalg.schur(A, "x"), ValueError, "output"),
        (lambda: linalg.hessenberg(C), ValueError, "square"),
        (lambda: linalg.rsf2csf(A, B), ValueError, "one size"),
        (lambda: linalg.polar(A, "x"), ValueError, "side"),
        (lambda: linalg.polar(A[:3]), NotImplementedError, "svd"),
        (lambda: linalg.polar(A, method="x"), ValueError, "method"),
        (lambda: linalg.qr_multiply(A, C), ValueError, "5 columns of c"),
        (lambda: linalg.sqrtm(A, 2), NotImplementedError, "blocksize"),
        (lambda: linalg.funm(STACK, np.exp), ValueError, "square"),
        (lambda: linalg.solve_sylvester(A, B, A), ValueError, "Incompatible"),
        (lambda: linalg.expm_frechet(A, B), ValueError, "one shape"),
        (lambda: linalg.solve_sylvester(A, B, C, method="x"), ValueError, "method"),
        (lambda: linalg.eigh_tridiagonal(A[0], A[0]), TypeError, "shorter"),
        (
            lambda: linalg.eigh_tridiagonal(A[0], A[0, :4], select="v"),
            NotImplementedError,
            "select",
        ),
        (
            lambda: linalg.eigh_tridiagonal(A[0], A[0, :4], select="i", select_range=(2, 5)),
            ValueError,
            "up to 4",
        ),
    ],
)
def test_what_does_not_fit(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_matrices_as_lists():
    rows, right = [[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0]
    a, linalg = np.array(rows), weft.scipy.linalg
    np.testing.assert_allclose(linalg.cholesky(rows), np.linalg.cholesky(a).T, rtol=1e-6)
    np.testing.assert_allclose(
        linalg.cho_solve((linalg.cholesky(rows).tolist(), False), right),
        np.linalg.solve(a, right),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        linalg.solve_triangular(rows, right, lower=True),
        np.linalg.solve(np.tril(a), right),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        linalg.eigh(rows, eigvals_only=True), np.linalg.eigvalsh(a), rtol=1e-6
    )
    np.testing.assert_allclose(linalg.svd(rows, compute_uv=False), np.linalg.svd(a)[1], rtol=1e-6)
    assert np.allclose(
        linalg.lu(rows)[0] @ linalg.lu(rows)[1] @ linalg.lu(rows)[2], a
    ) and linalg.qr(rows)[0].shape == (2, 2)
    with pytest.raises(TypeError, match="list"):
        linalg.det(rows)
