"""Scatters of many single elements onto few targets: per-task tables that are combined at the end."""

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
@pytest.mark.parametrize(
    "size, count", [(1, 1 << 15), (33, 40_001), (400, 50_000), (500, 32_775), (1, 32_769)]
)
def test_values(how, size, count):
    """Return numbers with exact sums and products in any order; indices beyond both ends are
    dropped."""
    places = RNG.integers(-3, size + 3, count).astype(np.int32)
    x, u = RNG.choice(np.float32([-1, 1]), size), RNG.choice(np.float32([-1, 1]), count)
    f = lambda x, i, u: getattr(x.at[i], how)(u, mode="drop")
    assert names(f, x, places, u)[-2:] == [
        f"scatter-{'mul' if how == 'multiply' else how}",
        "combined_tables",
    ]
    want, inside = x.copy(), (places >= -size) & (places < size)
    COMBINE[how].at(want, np.where(places < 0, places + size, places)[inside], u[inside])
    np.testing.assert_array_equal(weft.jit(f)(x, places, u), want)


@pytest.mark.parametrize("how", COMBINE)
def test_places_that_no_update_meets_keep_their_bits(how):
    x, i, u = (
        np.float32([-0.0, 0.0, np.nan, -np.inf, 1e-45]),
        np.full(1 << 15, 5, np.int32),
        np.ones(1 << 15, np.float32),
    )
    f = lambda x, i, u: getattr(x.at[i], how)(u, mode="drop")
    assert names(f, x, i, u)[-1] == "combined_tables"
    np.testing.assert_array_equal(np.asarray(weft.jit(f)(x, i, u)).view(np.int32), x.view(np.int32))


def test_counts():
    i = RNG.integers(0, 500, 100_003).astype(np.int32)
    np.testing.assert_array_equal(
        weft.jit(lambda i: wnp.bincount(i, length=512))(i), np.bincount(i, minlength=512)
    )


@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint32])
def test_places_by_several_indices(mode, dtype):
    """Updates of several dims, in their own memory order, onto a table of two dims; an index out of
    bounds in one dim drops the update."""
    out = 0 if mode == "promise_in_bounds" else 2
    i, j = (
        RNG.integers(0, 5 + out, (130, 257)).astype(np.int32),
        RNG.integers(0, 7 + out, (130, 257)).astype(np.int32),
    )
    x, u = RNG.integers(0, 3, (5, 7)).astype(dtype), RNG.integers(0, 3, (130, 257)).astype(dtype)
    f = lambda x, i, j, u: x.at[i, j].add(u, mode=mode)
    assert names(f, x, i, j, u)[-1] == "combined_tables"
    want, inside = x.copy(), (i < 5) & (j < 7) if mode == "drop" else np.ones(i.shape, bool)
    np.add.at(want, (np.minimum(i, 4)[inside], np.minimum(j, 6)[inside]), u[inside])
    np.testing.assert_array_equal(weft.jit(f)(x, i, j, u), want)
    turned = lambda x, i, j, u: x.at[i.T, j.T].add(u.T, mode=mode)
    np.testing.assert_array_equal(weft.jit(turned)(x, i, j, u), want)


def test_a_batch_is_no_table():
    i, u = RNG.integers(0, 8, (2, 1 << 15)).astype(np.int32), np.ones((2, 1 << 15), np.float32)
    f = weft.vmap(lambda i, u: wnp.zeros(8, np.float32).at[i].add(u))
    assert "combined_tables" not in names(f, i, u)
    np.testing.assert_array_equal(weft.jit(f)(i, u), [np.bincount(row, minlength=8) for row in i])


@pytest.mark.parametrize("equal", [True, False])
def test_the_order_of_sums_is_of_the_shape(equal):
    """Tables depend on the shapes only, so float sums do not depend on updates of other targets."""
    u, at = RNG.normal(size=1 << 15).astype(np.float32), np.zeros(1 << 15, np.int32)
    places = np.where(np.arange(1 << 15) % 2 == 0, 3, 3 if equal else 5).astype(np.int32)
    sums = weft.jit(lambda i, u: wnp.zeros(8, np.float32).at[i].add(u))
    want = weft.jit(lambda i, u: wnp.zeros(1, np.float32).at[i].add(u))(
        at, np.where(places == 3, u, 0).astype(np.float32)
    )
    np.testing.assert_array_equal(np.asarray(sums(places, u))[3], np.asarray(want)[0])


@pytest.mark.parametrize(
    "size, count, dtype",
    [(1000, 1 << 15, np.float32), (8, 1000, np.float32), (8, 1 << 16, np.float16)],
)
def test_few_updates_and_narrow_sums_stay_one_after_another(size, count, dtype):
    i, x, u = (
        RNG.integers(0, size, count).astype(np.int32),
        np.zeros(size, dtype),
        np.ones(count, dtype),
    )
    assert "combined_tables" not in names(lambda x, i, u: x.at[i].add(u), x, i, u)


def test_whole_rows_stay():
    i, x, u = (
        RNG.integers(0, 4, 1 << 15).astype(np.int32),
        np.zeros((4, 2), np.float32),
        np.ones((1 << 15, 2), np.float32),
    )
    assert "combined_tables" not in names(lambda x, i, u: x.at[i].add(u), x, i, u)
