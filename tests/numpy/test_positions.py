"""Positions: `digitize`, `nonzero` with a given size, arrays without dims."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 50])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_digitize_on_edges_of_rising_and_falling_bins(dtype, count, right):
    rng = np.random.default_rng(count)
    edges = np.sort(rng.integers(-20, 20, count)).astype(dtype)
    for size in (0, 1, 7, 70):
        x = rng.integers(-25, 26, size).astype(dtype)
        for bins in (edges, edges[::-1]):
            got = weft.jit(lambda x, bins: wnp.digitize(x, bins, right))(x, bins)
            np.testing.assert_array_equal(got, np.digitize(x, bins, right))


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 4), (70,), (2, 3, 4), (400, 257)])
@pytest.mark.parametrize("size", [0, 1, 3, 200, 70_000])
@pytest.mark.parametrize("fill", [None, -5, 7])
def test_positions_of_a_given_number(shape, size, fill):
    x = np.random.default_rng(1).random(shape) > 0.5
    positions = weft.jit(lambda x: wnp.nonzero(x, size=size, fill_value=fill))(x)
    for got, where in zip(positions, np.nonzero(x)):
        want = np.full(size, 0 if fill is None else fill, np.int32)
        want[: len(where)] = where[:size]
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.int32


def test_an_array_of_no_dims_has_no_positions():
    for call in (
        lambda x: wnp.nonzero(x),
        lambda x: x.nonzero(),
        lambda x: wnp.where(x),
        lambda x: wnp.nonzero(x, size=2),
    ):
        with pytest.raises(ValueError, match="no dims has no positions"):
            call(wnp.array(3))
    assert (
        wnp.flatnonzero(3).tolist() == [0]
        and wnp.argwhere(3).shape == (1, 0)
        and wnp.argwhere(0).shape == (0, 0)
    )
