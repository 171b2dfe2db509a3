"""Discrete cosine transforms against SciPy's."""

import numpy as np
import pytest
import scipy.fft

import weft
import weft.numpy as wnp
from weft.scipy import fft

X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


@pytest.mark.parametrize("name", ["dct", "idct"])
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"norm": "ortho"}, {"axis": 0}, {"n": 9}, {"n": 3, "axis": 0, "norm": "ortho"}],
    ids=str,
)
def test_one_axis(name, kwargs):
    ours = weft.jit(lambda x: getattr(fft, name)(x, **kwargs))(X)
    np.testing.assert_allclose(ours, getattr(scipy.fft, name)(X, **kwargs), atol=2e-5)


@pytest.mark.parametrize("kwargs", [{}, {"s": (3, 8)}, {"axes": (1,), "norm": "ortho"}], ids=str)
def test_several_axes_and_back(kwargs):
    np.testing.assert_allclose(fft.dctn(X, **kwargs), scipy.fft.dctn(X, **kwargs), atol=2e-5)
    np.testing.assert_allclose(fft.idctn(X, **kwargs), scipy.fft.idctn(X, **kwargs), atol=2e-5)
    np.testing.assert_allclose(fft.idctn(fft.dctn(X)), X, atol=2e-6)


def test_misuse_and_slopes():
    with pytest.raises(NotImplementedError, match="type 3"):
        fft.dct(X, type=3)
    with pytest.raises(ValueError, match="'forward' is not implemented"):
        fft.dct(X, norm="forward")
    for name in ("dct", "idct", "dctn"):
        z = X + 1j * X[::-1]
        np.testing.assert_allclose(
            getattr(fft, name)(z, norm="backward"),
            getattr(scipy.fft, name)(z, norm="backward"),
            atol=2e-5,
        )
    with weft.numpy_dtype_promotion("strict"):
        np.testing.assert_allclose(fft.idct(X), scipy.fft.idct(X), atol=2e-5)
    slope = weft.grad(lambda x: (fft.dct(x, norm="ortho") ** 2).sum())(
        X
    )  # orthogonal: the norm is kept
    np.testing.assert_allclose(slope, 2 * X, atol=1e-5)


@pytest.mark.parametrize(
    "transform", [fft.dctn, fft.idctn, wnp.fft.fftn, wnp.fft.ifftn, wnp.fft.rfftn]
)
def test_more_lengths_than_dims(transform):
    with pytest.raises(ValueError, match=r"at most a length for each of the 2 dims.*got 3 lengths"):
        transform(np.ones((2, 3), np.float32), s=(2, 3, 4))
