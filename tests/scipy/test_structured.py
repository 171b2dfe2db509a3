"""Special matrices against SciPy, and laws of the matrices that SciPy rounds."""

import numpy as np
import pytest
import scipy.linalg

import weft
from weft.scipy import linalg
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RNG = np.random.default_rng(1)
A, B = RNG.normal(size=5).astype(np.float32), RNG.normal(size=4).astype(np.float32)
VECTORS = [
    ("toeplitz", (A, B)),
    ("toeplitz", (A + 1j,)),
    ("hankel", (A, B)),
    ("hankel", (B,)),
    ("circulant", (A,)),
    ("companion", (A,)),
    ("fiedler", (A,)),
    ("fiedler_companion", (A,)),
    ("fiedler_companion", (B,)),
    ("leslie", (A, B)),
]
MODES = ("full", "same", "valid")


@pytest.mark.parametrize(
    "name, args",
    [
        *VECTORS,
        *[("convolution_matrix", (a, n, mode)) for a, n in ((A, 3), (B, 6)) for mode in MODES],
        *[
            (name, (n,))
            for name in ("hilbert", "invhilbert", "pascal", "invpascal", "dft", "helmert")
            for n in (1, 2, 6)
        ],
        *[(name, (5, kind)) for name in ("pascal", "invpascal") for kind in ("lower", "upper")],
        ("helmert", (4, True)),
        ("hadamard", (8,)),
        ("dft", (5, "n")),
        ("dft", (6, "sqrtn")),
    ],
)
def test_matrices_are_those_of_scipy(name, args):
    result, expected = getattr(linalg, name)(*args), getattr(scipy.linalg, name)(*args)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name, args", [case for i, case in enumerate(VECTORS) if i != 1])
def test_stacks_maps_and_derivatives(name, args):
    f = getattr(linalg, name)
    stacks = [np.stack([x, x[::-1]]) for x in args]
    expected = np.stack([getattr(scipy.linalg, name)(*rows) for rows in zip(*stacks)])
    np.testing.assert_allclose(f(*stacks), expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(weft.vmap(f)(*stacks), expected, rtol=2e-6, atol=1e-6)
    check_grads(f, args, 1, modes=["fwd", "rev"], atol=2e-2, rtol=2e-2)


def test_sharded_vectors():
    mesh = weft.make_mesh((4,), ("i",))
    c = np.arange(8, dtype=np.float32)
    spread = weft.device_put(c, NamedSharding(mesh, PartitionSpec("i")))
    for name in ("toeplitz", "circulant", "hankel", "fiedler"):
        np.testing.assert_array_equal(
            weft.jit(getattr(linalg, name))(spread), getattr(scipy.linalg, name)(c)
        )


def test_integers_stay_exact():
    assert linalg.leslie(np.array([1, 2]), np.array([3])).dtype == np.int32
    result = np.asarray(
        linalg.invhilbert(12), np.float64
    )  # up to 3.8e15, each rounded once to float32
    np.testing.assert_array_equal(
        result, np.float32(scipy.linalg.invhilbert(12, exact=True).astype(np.float64))
    )
    with weft.enable_x64(True):
        np.testing.assert_allclose(linalg.invpascal(8) @ linalg.pascal(8), np.eye(8), atol=1e-6)
        np.testing.assert_allclose(
            linalg.dft(7) @ np.arange(7), np.fft.fft(np.arange(7)), atol=1e-13
        )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: linalg.hankel(1.0), "hankel: c must be at least 1-dimensional"),
        (lambda: linalg.companion(A[:1]), "at least 2"),
        (lambda: linalg.fiedler_companion(A[:0]), "nonzero length"),
        (lambda: linalg.leslie(A, A), "one entry less"),
        (lambda: linalg.leslie(A[:1], A[:0]), "length of f"),
        (lambda: linalg.convolution_matrix(A, 0), "positive integer"),
        (lambda: linalg.convolution_matrix(A[:0], 2), "at least 1"),
        (lambda: linalg.convolution_matrix(A, 2, "x"), "mode must be"),
        (lambda: linalg.hadamard(6), "power of 2"),
        (lambda: linalg.helmert(0), "positive integer"),
        (lambda: linalg.dft(2, "x"), "scale"),
        (lambda: linalg.dft(2, dtype=np.float32), "complex"),
        (lambda: linalg.pascal(2, "x"), "Expected kind"),
        (lambda: linalg.invpascal(2, "x"), "Expected kind"),
    ],
)
def test_what_does_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
