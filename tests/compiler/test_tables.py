"""Scatters of many single elements onto few places: tables filled apart, then combined."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp

RNG = np.random.default_rng(0)
COMBINE = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def names(f, *args):
    steps = weft.jit(f).lower(*args).compile().stages.scheduled.program.steps
    return [step.kernel.name for step in steps if hasattr(step, "kernel")]


@pytest.mark.parametrize("how", COMBINE)
@pytest.mark.parametrize("size, count", [(1, 1 << 15), (33, 40_001), (400, 50_000)])
def test_values(how, size, count):
    """Numbers whose sums and products are exact in any order; indices beyond both ends are left out."""
    places = RNG.integers(-3, size + 3, count).astype(np.int32)
    x, u = RNG.choice(np.float32([-1, 1]), size), RNG.choice(np.float32([-1, 1]), count)
    f = lambda x, i, u: getattr(x.at[i], how)(u, mode="drop")
    assert names(f, x, places, u)[-2:] == [f"scatter-{'mul' if how == 'multiply' else how}", "combined_tables"]
    want, inside = x.copy(), (places >= -size) & (places < size)
    COMBINE[how].at(want, np.where(places < 0, places + size, places)[inside], u[inside])
    np.testing.assert_array_equal(weft.jit(f)(x, places, u), want)


def test_counts():
    i = RNG.integers(0, 500, 100_003).astype(np.int32)
    np.testing.assert_array_equal(weft.jit(lambda i: wnp.bincount(i, length=512))(i), np.bincount(i, minlength=512))


@pytest.mark.parametrize("size, count, dtype", [(1000, 1 << 15, np.float32), (8, 1000, np.float32), (8, 1 << 16, np.float16)])
def test_few_updates_and_narrow_sums_stay_one_after_another(size, count, dtype):
    i, x, u = RNG.integers(0, size, count).astype(np.int32), np.zeros(size, dtype), np.ones(count, dtype)
    assert "combined_tables" not in names(lambda x, i, u: x.at[i].add(u), x, i, u)


def test_whole_rows_stay():
    i, x, u = RNG.integers(0, 4, 1 << 15).astype(np.int32), np.zeros((4, 2), np.float32), np.ones((1 << 15, 2), np.float32)
    assert "combined_tables" not in names(lambda x, i, u: x.at[i].add(u), x, i, u)
