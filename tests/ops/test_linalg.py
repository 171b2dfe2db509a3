"""Factorizations and solves: against NumPy and SciPy, their derivatives against differences and
their identities."""

import numpy as np
import pytest
import scipy.linalg

from tests.harness.rule_checks import (
    check_batch,
    check_factors,
    check_jvp,
    check_transpose,
    check_type,
    close,
)
from weft._engine.core.trace import Zero, typeof
from weft._engine.ops import linalg
from weft._engine.ops.lapack import library_call_p
from weft._engine.util.config import enable_x64
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)
KINDS = [np.float64, np.complex128]


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


def random(*shape, kind=np.float64):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if kind is np.complex128 else x).astype(kind)


def h(x):
    return np.conj(np.swapaxes(x, -1, -2))


def positive(*shape, kind=np.float64):
    x = random(*shape, kind=kind)
    return x @ h(x) + 2 * np.eye(shape[-1])


def hermitian(*shape, kind=np.float64):
    x = random(*shape, kind=kind)
    return x + h(x)


def derivative(primitive, x, t, params):
    outs, t_outs = primitive.jvp((x,), (t,), **params)
    if not primitive.multiple_results:
        outs, t_outs = [outs], [t_outs]
    return [np.asarray(o) for o in outs], [t if type(t) is Zero else np.asarray(t) for t in t_outs]


def against_differences(primitive, x, t, params, tol=1e-6):
    """Compare every inexact result's derivative along `t` with finite differences."""
    eps = 1e-6
    run = lambda v: primitive.reference(v, **params)
    up, down = run(x + eps * t), run(x - eps * t)
    if not primitive.multiple_results:
        up, down = [up], [down]
    _, t_outs = derivative(primitive, x, t, params)
    for a, b, got in zip(up, down, t_outs):
        if np.issubdtype(a.dtype, np.inexact):
            close(got, (a - b) / (2 * eps), tol * max(1, np.abs(a).max(initial=0)))
        else:
            assert type(got) is Zero


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (0, 0), (1, 1)])
def test_cholesky(shape, kind):
    x = positive(*shape, kind=kind)
    out = np.asarray(linalg.cholesky(x))
    close(out @ h(out), x, 1e-10)
    assert not np.triu(out, 1).any()
    check_type(linalg.cholesky_p, [x], {})
    check_factors(linalg.cholesky_p, [x], {})
    check_batch(linalg.cholesky_p, [x], {})
    against_differences(linalg.cholesky_p, x, hermitian(*shape, kind=kind), {})


def test_cholesky_of_what_has_none_is_nan_and_spares_the_others():
    out = np.asarray(linalg.cholesky(np.stack([np.eye(2), -np.eye(2)])))
    assert np.isnan(out[1]).all() and (out[0] == np.eye(2)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("transpose_a", "conjugate_a"), [(False, False), (True, False), (True, True), (False, True)]
)
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_triangular_solve(kind, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    a, b = (
        random(2, 3, 3, kind=kind) + 3 * np.eye(3),
        random(2, *((3, 2) if left_side else (2, 3)), kind=kind),
    )
    options = {
        "left_side": left_side,
        "lower": lower,
        "transpose_a": transpose_a,
        "conjugate_a": conjugate_a,
        "unit_diagonal": unit_diagonal,
    }
    m = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        m = m - m * np.eye(3) + np.eye(3)
    m = np.swapaxes(m, -1, -2) if transpose_a else m
    m = np.conj(m) if conjugate_a else m
    x = np.asarray(linalg.triangular_solve(a, b, **options))
    close(m @ x if left_side else x @ m, b, 1e-10)
    p = linalg.triangular_solve_p
    check_jvp(p, [a, b], options, tol=1e-5)
    check_transpose(p, [a, b], options, (1,))
    check_factors(p, [a, b], options)
    check_batch(p, [a, b], options, limit=6)


def test_triangular_solve_of_a_vector():
    a = np.tril(random(3, 3)) + 3 * np.eye(3)
    b = random(3)
    close(a @ np.asarray(linalg.triangular_solve(a, b, left_side=True, lower=True)), b, 1e-10)
    close(np.asarray(linalg.triangular_solve(a, b, lower=True)) @ a, b, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (5, 3), (3, 5), (0, 2), (2, 0)])
def test_lu(shape, kind):
    x = random(*shape, kind=kind)
    packed, pivots, order = map(np.asarray, linalg.lu(x))
    m, n = shape[-2:]
    k = min(m, n)
    low = np.tril(packed[..., :, :k], -1) + np.eye(m, k)
    close(low @ np.triu(packed[..., :k, :]), np.take_along_axis(x, order[..., None], -2), 1e-10)
    np.testing.assert_array_equal(linalg.lu_pivots_to_permutation(pivots, m), order)
    check_type(linalg.lu_p, [x], {})
    check_factors(linalg.lu_p, [x], {})
    check_batch(linalg.lu_p, [x], {})
    if k:
        against_differences(linalg.lu_p, x, random(*shape, kind=kind), {}, tol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "full"),
    [((4, 3), False), ((3, 3), True), ((2, 5, 2), False), ((3, 4), False), ((4, 2), True)],
)
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr(shape, full, kind, pivoting):
    x = random(*shape, kind=kind)
    params = {"pivoting": pivoting, "full_matrices": full}
    q, r, *order = map(np.asarray, linalg.qr(x, **params))
    permuted = np.take_along_axis(x, order[0][..., None, :], -1) if pivoting else x
    close(q @ r, permuted, 1e-10)
    close(
        h(q) @ q,
        np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)).astype(kind),
        1e-10,
    )
    check_type(linalg.qr_p, [x], params)
    check_factors(linalg.qr_p, [x], params)
    check_batch(linalg.qr_p, [x], params)
    t = random(*shape, kind=kind)
    if not full or shape[-2] <= shape[-1]:
        return against_differences(linalg.qr_p, x, t, params, tol=1e-5)
    # the columns of Q beyond the columns of the matrix are determined up to a rotation: Q stays
    # orthonormal, and Q R
    _, (t_q, t_r, *_) = derivative(linalg.qr_p, x, t, params)
    permuted = np.take_along_axis(t, order[0][..., None, :], -1) if pivoting else t
    close(t_q @ r + q @ t_r, permuted, 1e-9)
    close(h(q) @ t_q + h(t_q) @ q, np.zeros_like(q), 1e-9)
    assert not np.tril(np.asarray(t_r), -1).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (1, 1)])
@pytest.mark.parametrize("lower", [True, False])
def test_eigh(shape, kind, lower):
    x = hermitian(*shape, kind=kind)
    params = {"lower": lower, "sort_eigenvalues": True}
    v, w = map(np.asarray, linalg.eigh(x, lower=lower))
    close(v * w[..., None, :] @ h(v), x, 1e-10)
    assert (np.diff(w) >= 0).all()
    check_type(linalg.eigh_p, [x], params)
    check_factors(linalg.eigh_p, [x], params)
    t = hermitian(*shape, kind=kind)
    _, (t_v, t_w) = derivative(linalg.eigh_p, x, t, params)
    close(
        t_v * w[..., None, :] @ h(v) + v * t_w[..., None, :] @ h(v) + v * w[..., None, :] @ h(t_v),
        t,
        1e-9,
    )
    close(h(v) @ t_v + h(t_v) @ v, np.zeros_like(t), 1e-9)
    up, down = (np.linalg.eigvalsh(x + s * 1e-6 * t) for s in (1, -1))
    close(t_w, (up - down) / 2e-6, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 4), (1, 3)])
def test_svd(shape, kind):
    x, t = random(*shape, kind=kind), random(*shape, kind=kind)
    u, s, vh = map(np.asarray, linalg.svd(x, full_matrices=False))
    close(u * s[..., None, :] @ vh, x, 1e-10)
    close(linalg.svd(x, compute_uv=False), s, 1e-10)
    full_u, _, full_vh = map(np.asarray, linalg.svd(x))
    assert full_u.shape[-1] == shape[-2] and full_vh.shape[-2] == shape[-1]
    thin = {"full_matrices": False, "compute_uv": True}
    for params in (
        thin,
        {"full_matrices": True, "compute_uv": True},
        {"full_matrices": True, "compute_uv": False},
    ):
        check_type(linalg.svd_p, [x], params)
        check_factors(linalg.svd_p, [x], params)
    _, (t_s, t_u, t_vh) = derivative(linalg.svd_p, x, t, thin)
    rebuilt = t_u * s[..., None, :] @ vh + u * t_s[..., None, :] @ vh + u * s[..., None, :] @ t_vh
    close(rebuilt, t, 1e-8)
    close(h(u) @ t_u + h(t_u) @ u, np.zeros_like(h(u) @ u), 1e-8)
    close(t_vh @ h(vh) + vh @ h(t_vh), np.zeros_like(vh @ h(vh)), 1e-8)
    against_differences(linalg.svd_p, x, t, {"full_matrices": False, "compute_uv": False}, tol=1e-5)
    if kind is np.float64:
        against_differences(linalg.svd_p, x, t, thin, tol=1e-5)
    if shape[-1] != shape[-2]:
        with pytest.raises(NotImplementedError, match="full_matrices"):
            derivative(linalg.svd_p, x, t, {"full_matrices": True, "compute_uv": True})


@pytest.mark.parametrize("kind", KINDS)
def test_eig(kind):
    x = random(2, 3, 3, kind=kind)
    w, left, right = map(np.asarray, linalg.eig(x))
    assert w.dtype == left.dtype == right.dtype == np.complex128
    close(x @ right, right * w[..., None, :], 1e-10)
    close(h(left) @ x, w[..., :, None] * h(left), 1e-10)
    params = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
    check_type(linalg.eig_p, [x], params)
    check_factors(linalg.eig_p, [x], params)
    t = random(2, 3, 3, kind=kind)
    _, (t_w,) = derivative(linalg.eig_p, x, t, params)
    # the sum and the sum of squares do not depend on the order
    trace = np.trace(t, axis1=-2, axis2=-1)
    close(t_w.sum(-1), trace.astype(np.complex128), 1e-8)
    close(
        2 * (t_w * w).sum(-1), 2 * np.trace(x @ t, axis1=-2, axis2=-1).astype(np.complex128), 1e-8
    )
    with pytest.raises(NotImplementedError, match="eigenvalues alone"):
        derivative(
            linalg.eig_p,
            x,
            t,
            {"compute_left_eigenvectors": True, "compute_right_eigenvectors": False},
        )


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays(dtype):
    x = positive(3, 3).astype(dtype)
    assert linalg.cholesky(x).dtype == dtype and linalg.lu(x)[0].dtype == dtype
    q, r = linalg.qr(x)
    v, w = linalg.eigh(x)
    u, s, _ = linalg.svd(x)
    assert q.dtype == r.dtype == v.dtype == u.dtype == dtype and w.dtype == s.dtype == np.float32
    assert linalg.triangular_solve(x, x, lower=True).dtype == dtype
    assert np.asarray(scipy.linalg.cholesky(x, lower=True)).dtype == dtype


def test_errors():
    square = lambda f, *shape: f.abstract([typeof(np.zeros(shape))], {})
    with pytest.raises(ShapeError, match="square"):
        square(linalg.cholesky_p, 3, 2)
    with pytest.raises(TypeError, match="takes float32"):
        linalg.cholesky_p.abstract([typeof(np.zeros((2, 2), np.int32))], {})
    with pytest.raises(ShapeError, match="do not fit"):
        linalg.triangular_solve(np.eye(3), np.zeros((2, 2)), left_side=True)
    with pytest.raises(ShapeError, match="at most 1"):
        linalg.lu_pivots_to_permutation(np.zeros(2, np.int32), 1)
    with pytest.raises(ValueError, match="subset_by_index"):
        linalg.eigh(np.eye(2), subset_by_index=(0, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_eig_have_derivatives(kind):
    x, t = random(4, 4, kind=kind), random(4, 4, kind=kind)
    params = {
        "compute_left_eigenvectors": True,
        "compute_right_eigenvectors": True,
        "enable_eigvec_derivs": True,
    }
    (w, left, right), (t_w, t_left, t_right) = derivative(linalg.eig_p, x, t, params)
    close(t @ right + x @ t_right, t_right * w + right * t_w, 1e-8)  # of A v = v w
    close(
        h(t) @ left + h(x) @ t_left, t_left * w.conj() + left * t_w.conj(), 1e-8
    )  # of A^H u = u conj(w)
    for v, t_v in ((left, t_left), (right, t_right)):
        close((v.conj() * t_v).sum(0).real, np.zeros(4), 1e-9)  # lengths stay 1
        largest = np.abs(v).argmax(0)
        close(t_v[largest, range(4)].imag, np.zeros(4), 1e-9)  # and the largest entries real


def test_library_calls_take_operands_in_any_memory_order():
    """The reference of a routine copies its operand in row-major order, even a transposed view."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, 4)).astype(np.float32)
    params = {
        "routine": "sgetrf",
        "arguments": (4, 4, "y0", 4, "y1", "y2"),
        "results": (((4,), "int32"), ((), "int32")),
    }
    reference = library_call_p.reference
    for got, want in zip(
        reference(a.transpose(0, 2, 1), **params), reference(a.transpose(0, 2, 1).copy(), **params)
    ):
        np.testing.assert_array_equal(got, want)
