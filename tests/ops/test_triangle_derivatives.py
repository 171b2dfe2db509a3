"""Functions that read one triangle of a matrix: values and derivatives follow that triangle, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft.scipy import linalg as slinalg

RNG = np.random.default_rng(7)
SIZE = 4


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if dtype is complex else x


def _hermitian(x: np.ndarray, lower: bool) -> np.ndarray:
    part = np.tril(x, -1) if lower else np.triu(x, 1)
    return part + _adjoint(part) + np.eye(SIZE) * x.real


def _mean(x: np.ndarray, _lower: bool) -> np.ndarray:
    return (x + _adjoint(x)) / 2


def _moduli(pair) -> tuple:
    """Return the eigenvalues, and the moduli of the eigenvectors, which do not depend on their
    phases."""
    values, vectors = pair
    return values, abs(vectors)


RIGHT = RNG.normal(size=(SIZE, 2))

#: name -> the function of a matrix and `lower`, the same in NumPy of a Hermitian matrix, the
#: triangle of NumPy's matrix
FUNCTIONS = {
    "numpy-cholesky-symmetrized": (lambda a, lower: wnp.linalg.cholesky(a, upper=not lower),
                                   lambda h, lower: np.linalg.cholesky(h) if lower else _adjoint(np.linalg.cholesky(h)), _mean),
    "numpy-cholesky": (lambda a, lower: wnp.linalg.cholesky(a, upper=not lower, symmetrize_input=False),
                       lambda h, lower: np.linalg.cholesky(h) if lower else _adjoint(np.linalg.cholesky(h)),
                       lambda a, lower: _hermitian(a, True)),
    "lax-cholesky": (lambda a, lower: lax.linalg.cholesky(a, symmetrize_input=False), lambda h, lower: np.linalg.cholesky(h),
                     lambda a, lower: _hermitian(a, True)),
    "scipy-cholesky": (lambda a, lower: slinalg.cholesky(a, lower=lower),
                       lambda h, lower: np.linalg.cholesky(h) if lower else _adjoint(np.linalg.cholesky(h)), _hermitian),
    "cho-solve": (lambda a, lower: slinalg.cho_solve((a, lower), wnp.broadcast_to(RIGHT.astype(a.dtype), (*a.shape[:-1], 2))),
                  lambda t, lower: np.linalg.solve(t @ _adjoint(t) if lower else _adjoint(t) @ t,
                                                   np.broadcast_to(RIGHT, (*t.shape[:-1], 2))),
                  lambda a, lower: np.tril(a) if lower else np.triu(a)),
    "cho-factor-solve": (lambda a, lower: slinalg.cho_solve(slinalg.cho_factor(a, lower), wnp.ones((*a.shape[:-1], 1), a.dtype)),
                         lambda h, lower: np.linalg.solve(h, np.ones((*h.shape[:-1], 1))), _hermitian),
    "solve-pos": (lambda a, lower: slinalg.solve(a, wnp.ones((*a.shape[:-1], 1), a.dtype), lower=lower, assume_a="pos"),
                  lambda h, lower: np.linalg.solve(h, np.ones((*h.shape[:-1], 1))), _hermitian),
    "numpy-eigh-symmetrized": (lambda a, lower: _moduli(wnp.linalg.eigh(a, "L" if lower else "U")),
                               lambda h, lower: _moduli(np.linalg.eigh(h)), _mean),
    "numpy-eigh": (lambda a, lower: _moduli(wnp.linalg.eigh(a, "L" if lower else "U", symmetrize_input=False)),
                   lambda h, lower: _moduli(np.linalg.eigh(h)), _hermitian),
    "lax-eigh": (lambda a, lower: _moduli(lax.linalg.eigh(a, lower=lower, symmetrize_input=False)[::-1]),
                 lambda h, lower: _moduli(np.linalg.eigh(h)), _hermitian),
    "eigvalsh": (lambda a, lower: wnp.linalg.eigvalsh(a, "L" if lower else "U", symmetrize_input=False),
                 lambda h, lower: np.linalg.eigvalsh(h), _hermitian),
}  # fmt: skip


def _flat(x, module):
    parts = x if isinstance(x, tuple) else (x,)
    return module.concatenate([module.reshape(part, (-1,)) for part in parts])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["single", "batched"])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_follow_the_triangle_read(name, lower, dtype, batch):
    function, closed, read = FUNCTIONS[name]
    shape = (*batch, SIZE, SIZE)
    rng = np.random.default_rng(7)  # the data of a case depend on no other case
    x = _normal(rng, shape, dtype)
    a = (
        x @ _adjoint(x) + np.diag([3.0, 4, 6, 9]) + 0.1 * _normal(rng, shape, dtype)
    )  # not Hermitian: the triangles differ
    s, t = _normal(rng, shape, dtype), _normal(rng, shape, dtype)

    def exact(u: float, v: float) -> np.ndarray:
        return _flat(closed(read(a + u * s + v * t, lower), lower), np)

    with weft.enable_x64(True):
        compiled = weft.jit(lambda a: _flat(function(a, lower), wnp))

        def directional(a, t):
            return weft.jvp(compiled, (a,), (t,))[1]

        out, slope = weft.jvp(compiled, (a,), (s,))
        bend = weft.jvp(lambda a: directional(a, s), (a,), (t,))[1]
        weights = wnp.cos(wnp.arange(out.size, dtype=float)).astype(out.dtype)
        (ct,) = weft.vjp(compiled, a)[1](weights)
        mapped = weft.vmap(directional)(wnp.stack([a, a]), wnp.stack([s, t])) if not batch else None
        np.testing.assert_allclose(out, exact(0, 0), 1e-9, 1e-10)
        h = 1e-5
        np.testing.assert_allclose(slope, (exact(h, 0) - exact(-h, 0)) / (2 * h), 1e-5, 1e-6)
        h = 3e-5  # small: moduli have kinks, and the error grows with h * h
        corners = exact(h, h) - exact(h, -h) - exact(-h, h) + exact(-h, -h)
        np.testing.assert_allclose(bend, corners / (4 * h * h), 1e-3, 1e-3)
        np.testing.assert_allclose(
            np.real(np.sum(np.asarray(ct) * s)),
            np.real(np.sum(np.asarray(weights) * np.asarray(slope))),
            1e-9,
        )
        if mapped is not None:
            np.testing.assert_allclose(mapped[0], slope, 1e-9, 1e-12)


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("name", ["scipy-cholesky", "solve-pos", "numpy-eigh", "lax-eigh"])
def test_gradient_is_zero_in_the_triangle_not_read(name, lower):
    function = FUNCTIONS[name][0]
    x = np.random.default_rng(7).normal(size=(SIZE, SIZE))
    a = (x @ x.T + 3 * np.eye(SIZE)).astype(np.float32)
    grad = np.asarray(weft.grad(lambda a: wnp.sum(wnp.sin(_flat(function(a, lower), wnp))))(a))
    unread = np.triu_indices(SIZE, 1) if lower else np.tril_indices(SIZE, -1)
    assert np.abs(grad).max() > 0
    assert not grad[unread].any()
