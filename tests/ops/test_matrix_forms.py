"""Hessenberg, tridiagonal and Schur forms, reflectors, tridiagonal systems, general eigenvalues:
their properties, compiled, on the reference backend, batched, sharded."""

from functools import partial

import numpy as np
import pytest

import weft
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RANDOM = np.random.default_rng(7)


def matrices(dtype, *shape, random=RANDOM):
    x = random.normal(size=shape) + 1j * random.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def adjoint(x):
    return np.asarray(x).conj().swapaxes(-1, -2)


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@pytest.fixture(params=[np.float32, np.complex64], ids=["real", "complex"])
def a(request):
    return matrices(
        request.param, 2, 5, 5, random=np.random.default_rng(0)
    )  # LAPACK keeps the signs of its eigenvectors nearby


def everywhere(f, *args):
    """Return the results of a compiled function after comparing them with the reference backend,
    single matrices, and sharded arguments."""
    out = weft.jit(f)(*args)
    other = [weft.jit(f, backend="reference")(*args), weft.vmap(f)(*args)]
    spread = NamedSharding(weft.make_mesh((2,), ("i",)), PartitionSpec("i"))
    sharded = weft.jit(f)(*[weft.device_put(x, spread) for x in args])
    assert {x.sharding.is_equivalent_to(spread, x.ndim) for x in weft.tree.leaves(sharded)} == {
        True
    }
    for result in (*other, sharded):
        weft.tree.map(close, result, out)
    return weft.tree.map(np.asarray, out)


@pytest.mark.parametrize("rows", [3, 5, 0])
def test_factors_of_qr_as_reflectors(a, rows):
    x = a[:, :rows]
    packed, taus = everywhere(lambda x: weft.numpy.linalg.qr(x, mode="raw"), x)
    for k in range(2):
        for result, known in zip((packed[k], taus[k]), np.linalg.qr(x[k], mode="raw")):
            close(result, known)
    turned = np.asarray(packed).swapaxes(-1, -2)
    if rows == 5:
        close(np.triu(turned), lax.linalg.ormqr(turned, taus, x, transpose=True))
    with pytest.raises(ValueError, match="'raw'"):
        weft.numpy.linalg.qr(x, mode="cooked")


def test_hessenberg_form_and_its_reflectors(a):
    packed, taus = everywhere(lax.linalg.hessenberg, a)
    q = np.zeros_like(a)
    q[..., 0, 0] = 1
    q[..., 1:, 1:] = lax.linalg.householder_product(packed[..., 1:, :-1], taus)
    close(q @ adjoint(q), np.broadcast_to(np.eye(5), a.shape))
    close(q @ np.triu(packed, -1) @ adjoint(q), a)


@pytest.mark.parametrize("lower", [True, False])
def test_tridiagonal_form(a, lower):
    symmetric = a + adjoint(a)
    _, d, e, taus = everywhere(lambda x: lax.linalg.tridiagonal(x, lower=lower), symmetric)
    form = np.stack([np.diag(d[k]) + np.diag(e[k], 1) + np.diag(e[k], -1) for k in range(2)])
    close(np.linalg.eigvalsh(form), np.linalg.eigvalsh(symmetric))
    assert taus.dtype == a.dtype


def test_schur_form(a):
    t, q = everywhere(lax.linalg.schur, a)
    close(q @ t @ adjoint(q), a)
    close(q @ adjoint(q), np.broadcast_to(np.eye(5), a.shape))
    assert not np.tril(t, -1 if np.iscomplexobj(a) else -2).any()
    a[1, 0, 0] = np.nan
    assert np.isnan(lax.linalg.schur(a, compute_schur_vectors=False)[0][1]).all()
    with pytest.raises(NotImplementedError, match="sorted"):
        lax.linalg.schur(a, sort_eig_vals=True)


def test_products_of_reflectors(a):
    packed, taus = lax.linalg.hessenberg(a)
    v, c = np.asarray(packed)[..., 1:, :-1], a[..., 1:, :3]
    q = everywhere(lax.linalg.householder_product, v, np.asarray(taus))
    close(everywhere(lax.linalg.ormqr, v, np.asarray(taus), c), q @ c)
    close(
        lax.linalg.ormqr(v, taus, adjoint(c), left=False, transpose=True), adjoint(c) @ adjoint(q)
    )
    with pytest.raises(weft.errors.ShapeError, match="taus"):
        lax.linalg.householder_product(v, taus[..., None])


def test_tridiagonal_systems(a):
    dl, d, du, b = a[..., 0], a[..., 1] + 4, a[..., 2], a[..., :2]
    x = everywhere(lax.linalg.tridiagonal_solve, dl, d, du, b)
    whole = np.stack(
        [np.diag(d[k]) + np.diag(dl[k, 1:], -1) + np.diag(du[k, :-1], 1) for k in range(2)]
    )
    close(whole @ x, b)
    assert np.isnan(lax.linalg.tridiagonal_solve(0 * dl, 0 * d, 0 * du, b)).all()
    if not np.iscomplexobj(a):
        check_grads(lax.linalg.tridiagonal_solve, (dl[0], d[0], du[0], b[0]), 1)


def test_tridiagonal_systems_with_perturbed_pivots(a):
    solve = partial(lax.linalg.tridiagonal_solve, perturb_singular=True)
    dl, d, du, b = (
        a[..., 0],
        a[..., 1],
        a[..., 2],
        a[..., :2],
    )  # not dominated by the diagonal: rows are exchanged
    close(everywhere(solve, dl, d, du, b), np.asarray(lax.linalg.tridiagonal_solve(dl, d, du, b)))
    if not np.iscomplexobj(a):
        check_grads(solve, (dl[0], d[0] + 4, du[0], b[0]), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(
    "diagonals",
    [
        ([0, 0, 0], [0, 0, 0], [0, 0, 0]),
        ([0, 1], [1, 3], [3, 0]),
        ([9, 1, 1], [1, 1, 0], [0, 0, 9]),
    ],
)
def test_solutions_of_singular_tridiagonal_systems(diagonals, dtype):
    """The residual of such a solution is a rounding error times the solution, although the matrix
    is singular."""
    with weft.enable_x64(dtype == np.float64):
        dl, d, du = (np.asarray(x, dtype) for x in diagonals)
        n = len(d)
        b = np.arange(1, n + 1, dtype=dtype)[:, None]
        x = np.asarray(lax.linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=True))
        assert np.isfinite(x).all() and np.abs(x).max() > 0.05 / np.finfo(dtype).eps
        whole = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
        assert np.abs(whole @ x - b).max() <= 4 * np.finfo(dtype).eps * np.abs(x).max() * max(
            1, np.abs(whole).max()
        )


def test_general_eigenvalues(a):
    w, left, right = everywhere(lax.linalg.eig, a)
    close(a @ right, right * w[:, None, :])
    close(adjoint(left) @ a, w[:, :, None] * adjoint(left))
    close(np.linalg.norm(right, axis=1), 1)
    values = lambda x: lax.linalg.eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True)
    step = np.float32(1e-2) * a[::-1]
    (w, right), tangents = weft.jvp(values, (a,), (step,))

    def near(a):
        """Return the values and vectors of `a` in the order and with the signs of nearby ones,
        which LAPACK may change."""
        eigenvalues, vectors = map(np.asarray, values(a))
        order = np.abs(eigenvalues[:, None, :] - np.asarray(w)[:, :, None]).argmin(-1)
        vectors = np.take_along_axis(vectors, order[:, None, :], -1)
        return np.take_along_axis(eigenvalues, order, -1), vectors * np.sign(
            (np.conj(right) * vectors).sum(1, keepdims=True).real
        )

    for t, above, below in zip(tangents, near(a + 0.1 * step), near(a - 0.1 * step)):
        np.testing.assert_allclose(t, (above - below) / 0.2, atol=2e-3)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs"):
        weft.jvp(lax.linalg.eig, (a,), (a,))


def test_choices_of_algorithms(a):
    algorithms = lax.linalg.SvdAlgorithm
    for full in (True, False):
        u, s, vh = lax.linalg.svd(a[..., :3], algorithm=algorithms.QR, full_matrices=full)
        close(np.asarray(u)[..., :3] * np.asarray(s)[:, None] @ vh, a[..., :3])
    for svd in (lax.linalg.svd, weft.numpy.linalg.svd):
        np.testing.assert_allclose(
            svd(a, full_matrices=False, subset_by_index=(1, 3))[1],
            svd(a, compute_uv=False)[..., 1:3],
            rtol=1e-5,
        )
        with pytest.raises(ValueError, match="full_matrices and subset_by_index"):
            svd(a, subset_by_index=(1, 3))
    u, s, vh = lax.linalg.svd(a, full_matrices=False, subset_by_index=(1, 3))
    assert (u.shape, s.shape, vh.shape) == ((2, 5, 2), (2, 2), (2, 2, 5))
    v, w = lax.linalg.eigh(
        a + adjoint(a), subset_by_index=(0, 2), implementation=lax.linalg.EighImplementation.QR
    )
    close((a + adjoint(a)) @ np.asarray(v), np.asarray(v) * np.asarray(w)[:, None])
    with pytest.raises(NotImplementedError, match="JACOBI"):
        lax.linalg.svd(a, algorithm=algorithms.JACOBI)
    with pytest.raises(ValueError, match="subset_by_index"):
        lax.linalg.eigh(a, subset_by_index=(0, 9))


def test_updates_products_and_the_polar_decomposition(a):
    u, h, steps, converged = lax.linalg.qdwh(a[0, :, :3])
    close(np.asarray(u) @ np.asarray(h), a[0, :, :3])
    close(adjoint(u) @ np.asarray(u), np.eye(3))
    assert converged and steps <= 7 and np.linalg.eigvalsh(h).min() > 0
    x = a.real
    r = np.linalg.cholesky(x[0] @ x[0].T).T
    new = np.asarray(lax.linalg.cholesky_update(r, x[1, 0]))
    close(new.T @ new, r.T @ r + np.outer(x[1, 0], x[1, 0]))
    assert not np.tril(new, -1).any()
    close(
        lax.linalg.symmetric_product(x[..., :2], x, alpha=2.0, beta=-1.0),
        2 * x[..., :2] @ adjoint(x[..., :2]) - x,
    )
