"""Reductions over outer dims, whose accumulators lie side by side: positions of extremes found in one pass, tests of bools."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.ir.loops import For

RNG = np.random.default_rng(0)


def numbers(dtype, shape):
    """Few different values, so that the first of equals counts; in floats also columns of -inf, of inf, and with two NaNs."""
    x = RNG.integers(-3, 3, shape).astype(dtype)
    if x.dtype.kind == "f":
        rows = x.reshape(shape[0], -1)
        rows[:, 5], rows[:, 6] = -np.inf, np.inf
        rows[[2, shape[0] - 1], 3] = np.nan
    return x


@pytest.mark.parametrize("shape", [(16, 16), (17, 70), (64, 33), (100, 1100), (3, 40, 50)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float16", "bool"])
def test_places_of_extremes(dtype, shape):
    x = numbers(dtype, shape)
    dim = len(shape) - 2
    most, at, least = weft.jit(lambda x: (wnp.max(x, dim), wnp.argmax(x, dim), wnp.argmin(x, dim)))(x)
    np.testing.assert_array_equal(most, np.max(x, dim))
    np.testing.assert_array_equal(at, np.argmax(x, dim))
    np.testing.assert_array_equal(least, np.argmin(x, dim))


@pytest.mark.parametrize("shape", [(16, 16), (33, 65), (100, 1100)])
def test_all_and_any(shape):
    x = RNG.integers(0, 40, shape)
    everywhere, somewhere, odd = weft.jit(lambda x: ((x > 0).all(0), (x > 38).any(0), weft.lax.reduce_xor_p.bind(x > 9, axes=(0,))))(x)
    np.testing.assert_array_equal(everywhere, (x > 0).all(0))
    np.testing.assert_array_equal(somewhere, (x > 38).any(0))
    np.testing.assert_array_equal(odd, np.logical_xor.reduce(x > 9))


def loops(stmts, depth=0):
    for stmt in stmts:
        if isinstance(stmt, For):
            yield depth, stmt
            yield from loops(stmt.body, depth + 1)


def test_an_argmax_goes_over_the_rows_once():
    scheduled = weft.jit(lambda x: wnp.argmax(x, 0)).lower(np.zeros((64, 128), np.float32)).compile().stages.scheduled
    (launch,) = scheduled.program.steps
    serial = [loop.extent for _, loop in loops(launch.kernel.body) if loop.kind == "serial"]
    assert serial == [64 // 8]
