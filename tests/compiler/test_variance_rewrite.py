"""Variances over dims too long for the caches: one pass for mean and deviations, as accurate as two
passes."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax


def scheduled(function, *args):
    return weft.jit(function).lower(*args).compile().runtime_executable().stages.scheduled


def reads(function, x):
    """Return the number of kernels that split the reading of `x` among tasks (one task reads the
    remainder)."""
    return sum(
        k.parallel_extent > 1 and any(b.mode == "in" and b.size == x.size for b in k.bufs)
        for k in scheduled(function, x).kernels
    )


def batch_norm(x):
    return (x - x.mean(0)) * lax.rsqrt(x.var(0) + 1e-5)


CASES = [
    ("columns", (1 << 13, 160), 0, 1),
    ("several dims", (24, 33, 32, 65), (0, 1, 2), 1),
    ("inner of three", (3, 1 << 13, 65), 1, 1),
    ("all", (1111, 1024), None, 1),
    ("one dim", (1 << 21,), 0, 1),
    ("rows", (64, 1 << 14), 1, 1),
    ("indivisible", (104729, 16), 0, 2),
]


@pytest.mark.parametrize("name, shape, axis, passes", CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("offset", [0, 100])
def test_variances_read_once(name, shape, axis, passes, offset):
    x = (np.random.default_rng(len(shape)).standard_normal(shape) * 0.1 + offset).astype("f4")
    function = lambda x: (x.mean(axis), x.var(axis, keepdims=True))
    mean, var = weft.jit(function)(x)
    exact = x.astype("f8")
    np.testing.assert_allclose(mean, exact.mean(axis), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(var, exact.var(axis, keepdims=True), rtol=3e-5)
    assert reads(function, x) == passes


def test_batch_norm_reads_twice_and_agrees_with_numpy():
    x = (np.random.default_rng(0).standard_normal((1 << 13, 160)) + 3).astype("f4")
    exact = x.astype("f8")
    np.testing.assert_allclose(
        weft.jit(batch_norm)(x), (exact - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-5), atol=1e-5
    )
    assert reads(batch_norm, x) == 2


def test_deviations_from_anything_made_of_the_sum():
    """The center need not be the mean, and the parts' means need not be exact."""
    x = (np.random.default_rng(1).standard_normal((1 << 13, 160)) + 5).astype("f4")
    function = lambda x: ((x - wnp.sin(x.sum(0) * 1e-3)) ** 2).sum(0)
    exact = x.astype("f8")
    np.testing.assert_allclose(
        weft.jit(function)(x), ((exact - np.sin(exact.sum(0) * 1e-3)) ** 2).sum(0), rtol=1e-5
    )
    assert reads(function, x) == 1


def test_what_is_not_finite_shows():
    x = np.ones((1 << 13, 160), "f4")
    x[77, 3], x[5000, 4] = np.inf, np.nan
    var = np.asarray(weft.jit(lambda x: x.var(0))(x))
    assert np.isnan(var[3:5]).all() and np.count_nonzero(var[:3]) == 0
