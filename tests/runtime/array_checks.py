"""Comparison of arrays with expected values, and addresses of their blocks."""

import numpy as np

import weft


def same(got, want) -> None:
    """Assert equal value and dtype; `got` is an Array."""
    assert type(got) is weft.Array
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), want)


def blocks(a):
    """Return the memory of `a`."""
    return a._spec.backend.get_blocks(a._live(), a._spec)
