"""`insert` at traced positions: results equal NumPy's for the same concrete positions."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CASES = {
    "one": ([1], 0),
    "several": ([0, 2, 1], 0),
    "equal": ([1, 1, 1], 0),
    "at the end": ([3, 0], 0),
    "negative": ([-1, 0, -3], 0),
    "columns": ([4, 0, 2, 2], 1),
    "last axis": ([0, -1], -1),
    "flat": ([0, 12, 5, 5], None),
    "none": ([], 0),
}


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int16"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_inserted_as_numpy_inserts_them(name, dtype):
    positions, axis = CASES[name]
    if dtype == "uint8":
        positions = [abs(p) for p in positions]
    positions = np.array(positions, dtype)
    count = len(positions)
    shape = (count,) if axis is None else (count, 4) if axis == 0 else (3, count)
    for values in (7, -np.arange(np.prod(shape), dtype=np.float32).reshape(shape)):
        expected = np.insert(X, positions.astype(int), values, axis=axis)
        insert = lambda x, at, values=values: wnp.insert(x, at, values, axis=axis)
        np.testing.assert_array_equal(weft.jit(insert)(X, positions), expected)
        np.testing.assert_array_equal(insert(wnp.asarray(X), wnp.asarray(positions)), expected)
        several = weft.vmap(insert, (None, 0))(X, np.stack([positions, positions]))
        np.testing.assert_array_equal(several, np.stack([expected, expected]))


def test_positions_may_be_a_list_of_traced_numbers():
    got = weft.jit(lambda x, i, j: wnp.insert(x, [i, j], 7.0))(X[0], 1, 3)
    np.testing.assert_array_equal(got, np.insert(X[0], [1, 3], 7))


def test_positions_outside_are_moved_inside():
    got = weft.jit(lambda x, at: wnp.insert(x, at, 7.0))(X[0], np.array([9, -9]))
    np.testing.assert_array_equal(got, [7, *X[0], 7])


def test_gradients_reach_the_array_and_the_values():
    loss = lambda x, v, at: (wnp.insert(x, at, v) * np.arange(6.0, dtype=np.float32)).sum()
    slopes = weft.jit(weft.grad(loss, (0, 1)))(X[0], np.ones(2, np.float32), np.array([3, 0]))
    np.testing.assert_array_equal(slopes[0], [1, 2, 3, 5])
    np.testing.assert_array_equal(slopes[1], [4, 0])


def test_with_64_bits():
    with weft.enable_x64():
        got = weft.jit(lambda x, at: wnp.insert(x, at, 7))(np.arange(5), np.array([0, 5, 2]))
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, np.insert(np.arange(5), [0, 5, 2], 7))
