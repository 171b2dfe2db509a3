"""Derivatives of composed functions: against finite differences, and at the seams of formulas."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.test_util import check_grads

RNG = np.random.RandomState(0)
A = RNG.randn(4, 4)
S = A @ A.T + 4 * np.eye(4)
X = RNG.randn(3, 4)
V = RNG.randn(4)

SMOOTH = {
    "logaddexp": (wnp.logaddexp, (X, V)),
    "hypot": (wnp.hypot, (X, V)),
    "sinc": (wnp.sinc, (X,)),
    "var": (lambda x: wnp.var(x, 0, ddof=1), (X,)),
    "std": (wnp.std, (X,)),
    "logsumexp": (lambda x: weft.nn.logsumexp(x, axis=1), (X,)),
    "softmax": (lambda x: weft.nn.softmax(x, axis=0), (X,)),
    "interp": (lambda x, f: wnp.interp(x, np.linspace(-3, 3, 7), f), (X, RNG.randn(7))),
    "einsum": (lambda x, a: wnp.einsum("ij,jk,lk->il", x, a, x), (X, A)),
    "sort": (lambda x: wnp.sort(x, 1) * np.arange(4.0), (X,)),
    "cumprod": (lambda x: wnp.cumprod(x, 1), (X,)),
    "pad": (lambda x: wnp.pad(x, 1, mode="reflect"), (X,)),
    "take_along_axis": (lambda x: wnp.take_along_axis(x, np.argsort(X, 1), 1), (X,)),
    "quantile": (lambda x: wnp.quantile(x, 0.3, axis=1), (X,)),
    "convolve": (lambda x, y: wnp.convolve(x, y, "same"), (V, V[:3])),
    "solve": (wnp.linalg.solve, (A + 3 * np.eye(4), V)),
    "inv": (wnp.linalg.inv, (A + 3 * np.eye(4),)),
    "det": (wnp.linalg.det, (A,)),
    "slogdet": (lambda a: wnp.linalg.slogdet(a)[1], (A,)),
    "cholesky": (lambda a: wnp.linalg.cholesky(a), (S,)),
    "eigvalsh": (lambda a: wnp.linalg.eigvalsh(a), (S,)),
    "svdvals": (wnp.linalg.svdvals, (X,)),
    "nuclear norm": (lambda a: wnp.linalg.norm(a, "nuc"), (X,)),
    "rfft": (lambda x: wnp.abs(wnp.fft.rfft(x)) ** 2, (X,)),
    "irfft": (lambda x: wnp.fft.irfft(x * (1 + 2j), 7), (X,)),
    "fft2": (lambda x: wnp.real(wnp.fft.fft2(x) * (2 - 1j)), (X,)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_against_finite_differences(name):
    fun, args = SMOOTH[name]
    with weft.enable_x64(True):
        check_grads(fun, args, order=1, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "fun, x, want",
    [
        (lambda x: wnp.logaddexp(x, 0.0), 0.0, 0.5),
        (weft.grad(lambda x: wnp.logaddexp(x, 0.0)), 0.0, 0.25),
        (lambda x: wnp.logaddexp(x, x), 1.0, 1.0),
        (lambda x: wnp.logaddexp(x, -wnp.inf), 2.0, 1.0),
        (lambda x: wnp.sinc(x), 0.0, 0.0),
        (lambda x: wnp.maximum(x, 0.0), 0.0, 0.5),
        (lambda x: wnp.where(x > 0, wnp.sqrt(wnp.where(x > 0, x, 1.0)), 0.0), -1.0, 0.0),
        (lambda x: wnp.power(x, 2), 3.0, 6.0),
        (lambda x: wnp.power(x, 0), 3.0, 0.0),
        (lambda x: wnp.clip(x, 0.0, 1.0), 2.0, 0.0),
        (lambda x: wnp.linalg.norm(wnp.stack([x, 4.0])), 3.0, 0.6),
    ],
)
def test_seams(fun, x, want):
    np.testing.assert_allclose(weft.grad(fun)(x), want, rtol=1e-6)


def test_simple_functions_are_single_operations():
    """The trace contains no conversion or broadcast that NumPy's rules do not need."""
    x = np.ones((3, 4), np.float32)
    for fun in (
        lambda x: x + 1,
        lambda x: 2 * x,
        lambda x: x - x,
        lambda x: x / 3,
        lambda x: -x,
        lambda x: x**2,
        lambda x: x @ x.T,
        lambda x: wnp.exp(x),
        lambda x: x.sum(),
        lambda x: x[0:2],
        lambda x: x.T,
        lambda x: x.astype("int32"),
        lambda x: wnp.maximum(x, 0),
        lambda x: x > 0,
        lambda x: x.reshape(-1),
        lambda x: wnp.where(True, x, 0.0),
    ):
        eqns = weft.make_jaxpr(fun)(x).eqns
        assert len(eqns) == 1 or {e.primitive.name for e in eqns} <= {"transpose", "dot_general"}, (
            eqns
        )
    assert [
        e.primitive.name for e in weft.make_jaxpr(lambda x: wnp.where(x > 0, x, 0))(x).eqns
    ] == ["gt", "select_n"]
    assert [e.primitive.name for e in weft.make_jaxpr(lambda x: x.mean(0))(x).eqns] == [
        "reduce_sum",
        "div",
    ]


@pytest.mark.parametrize(
    "function, shape",
    [
        (lambda x: wnp.sort(x, axis=0), (0, 3)),
        (lambda x: wnp.sort(x, axis=1), (0, 3)),
        (lambda x: wnp.sort(x, axis=1), (3, 0)),
        (wnp.linalg.inv, (0, 0)),
        (wnp.linalg.inv, (0, 3, 3)),
        (lambda x: wnp.linalg.solve(x, x), (0, 0)),
        (wnp.linalg.det, (0, 3, 3)),
    ],
)
def test_gradients_without_elements(function, shape):
    value, back = weft.vjp(function, wnp.zeros(shape))
    assert back(value)[0].shape == shape
    assert weft.jvp(function, (wnp.zeros(shape),), (wnp.zeros(shape),))[1].shape == value.shape


@pytest.mark.parametrize("rank", [0, 2, 3, 4])
def test_determinants_of_singular_matrices_have_derivatives(rank):
    rng = np.random.default_rng(rank)
    a = rng.normal(size=(2, 4, rank)) @ rng.normal(size=(2, rank, 4))
    grads = np.asarray(weft.grad(lambda x: wnp.linalg.det(x).sum())(a.astype(np.float32)))
    for i in np.ndindex(4, 4):
        minor = np.delete(np.delete(a, i[0], 1), i[1], 2)
        cofactor = (-1) ** sum(i) * np.linalg.det(minor)
        np.testing.assert_allclose(grads[(slice(None), *i)], cofactor, rtol=2e-4, atol=2e-4)


def test_second_derivatives_of_determinants():
    a = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    check_grads(wnp.linalg.det, (a,), 2, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 5, 3), (0, 2), (2, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_pinv(shape, dtype):
    rng = np.random.default_rng(5)
    a = (
        rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype == np.complex64 else 0)
    ).astype(dtype)
    check_grads(wnp.linalg.pinv, (a,), 2, rtol=0.05, atol=0.05)
    if shape == (3, 3):
        check_grads(
            lambda x: wnp.linalg.pinv(x, hermitian=True), (a + a.conj().T,), 1, rtol=0.02, atol=0.02
        )


def test_pinv_of_equal_singular_values_and_of_a_lower_rank():
    slope = weft.jacobian(wnp.linalg.pinv)(np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(slope, -np.einsum("ik,lj->ijkl", np.eye(2), np.eye(2)), atol=1e-6)

    def rank_one(p):
        return wnp.linalg.pinv(wnp.array([[0.0, 0.0], [-p, 1.0]]) / (1 + p**2))

    np.testing.assert_allclose(weft.jacobian(rank_one)(2.0), [[0.0, -1.0], [0.0, 0.0]], atol=1e-6)


def test_pinv_of_many_rows_needs_no_square_of_them():
    tall = np.ones((200000, 2), np.float32)
    tall[::2, 1] = -1  # orthogonal columns: the pseudoinverse is the transpose over 200000
    for a, e in ((tall, 0), (tall.T, 1)):
        slope = weft.grad(lambda x, e=e: wnp.sum(wnp.take(wnp.linalg.pinv(x), 0, e)))(a)  # noqa: B023
        np.testing.assert_allclose(slope.sum(), -1.0, atol=1e-3)


@pytest.mark.parametrize("pow_", [weft.lax.pow, wnp.power])
def test_second_derivatives_of_powers(pow_):
    """Where the exponent is 0, the mixed derivatives are 1
    x; x^0 is constant at 0, too.
    """
    for x, y in ((4.0, 0.0), (0.5, 0.0), (2.0, 3.0)):
        (xx, xy), (yx, yy) = weft.hessian(pow_, (0, 1))(x, y)
        mixed = x ** (y - 1) * (1 + y * np.log(x))
        np.testing.assert_allclose(
            [xx, xy, yx, yy],
            [y * (y - 1) * x ** (y - 2), mixed, mixed, x**y * np.log(x) ** 2],
            rtol=1e-5,
        )
    assert (
        weft.grad(pow_)(0.0, 0.0) == 0
        and weft.grad(pow_)(np.inf, 0.0) == 0
        and weft.grad(pow_)(0.0, 1.0) == 1
    )
    assert weft.grad(weft.grad(pow_))(0.0, 0) == 0 and weft.grad(weft.grad(pow_))(0.0, 2) == 2
