"""Compiled running reductions: every remainder, every type, blocks of long dims, both directions."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax
from weft._engine.ir.loops_text import print_kernel

RUNNING = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def check(name: str, x: np.ndarray, axis: int, reverse: bool, rtol: float = 0) -> None:
    got = np.asarray(weft.jit(lambda v: getattr(lax, name)(v, axis, reverse=reverse))(x))
    wide = x.astype(np.float64) if x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16 else x
    wide = np.flip(wide, axis) if reverse else wide
    want = RUNNING[name].accumulate(wide, axis, dtype=wide.dtype)
    want = np.flip(want, axis) if reverse else want
    assert got.dtype == x.dtype
    np.testing.assert_allclose(
        got.astype(wide.dtype), want, rtol=rtol, atol=rtol * max(1, float(np.abs(want).max()))
    )


def numbers(dtype, *shape: int) -> np.ndarray:
    x = np.random.default_rng(shape[0]).integers(0, 3, shape)
    return x > 1 if dtype == "bool" else x.astype(dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70])
@pytest.mark.parametrize("reverse", [False, True])
def test_tails(size, reverse):
    check("cumsum", numbers(np.float32, 3, size), 1, reverse)
    check("cumsum", numbers(np.float32, size, 5), 0, reverse)
    check("cummin", numbers(np.int32, 5, size), 0, reverse)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", ml_dtypes.bfloat16, "int8", "uint16", "int32", "complex64", "bool"],
)
@pytest.mark.parametrize("shape, axis", [((5, 37), 1), ((2, 9, 33), 1), ((4, 3, 5), 1)])
def test_types(dtype, shape, axis):
    x = numbers(dtype, *shape)
    sums = "cummax" if dtype == "bool" else "cumsum"
    check(sums, x, axis, False)
    if dtype != "complex64":
        check("cummin", x, axis, True)


@pytest.mark.parametrize("name, of_two", [("cummax", max), ("cummin", min)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, axis", [((11,), 0), ((3, 8), 1), ((5, 2), 0), ((1,), 0)])
def test_complex_extrema_are_by_real_parts_first(name, of_two, shape, axis, reverse):
    rng = np.random.default_rng(len(shape))
    x = (rng.integers(-2, 3, shape) + 1j * rng.integers(-2, 3, shape)).astype(np.complex64)
    got = np.moveaxis(
        np.asarray(weft.jit(lambda x: getattr(lax, name)(x, axis, reverse=reverse))(x)), axis, 0
    )
    rows = np.moveaxis(x, axis, 0)
    if reverse:
        got, rows = got[::-1], rows[::-1]
    for at in np.ndindex(rows.shape[1:]):
        best = lambda a, b: of_two(a, b, key=lambda z: (z.real, z.imag))
        np.testing.assert_array_equal(
            got[(slice(None), *at)], list(itertools.accumulate(rows[(slice(None), *at)], best))
        )


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((300_001,), 0),
        ((90_000, 3), 0),
        ((2, 20_000, 17), 1),
        ((3, 100_000), 1),
        ((2_100_001,), 0),
        ((1 << 20,), 0),
        ((40_000, 33), 0),
        ((400_000, 5), 0),
        ((2, 700_000), 1),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_blocks_of_long_dims(shape, axis, reverse):
    """Integers, whose sums are exact in any grouping."""
    check("cumsum", numbers(np.int32, *shape), axis, reverse)
    check(
        "cummax",
        np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(np.float32),
        axis,
        reverse,
    )


def test_long_sums_are_at_least_as_exact_as_numpys():
    x = np.random.default_rng(0).standard_normal(400_000).astype(np.float32)
    true = np.cumsum(x, dtype=np.float64)
    error = np.abs(np.asarray(weft.jit(lax.cumsum)(x)) - true).max()
    assert error <= np.abs(np.cumsum(x) - true).max()


def test_nan_wins_from_where_it_stands():
    x = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    x[1, 50] = np.nan
    check("cummax", x, 1, False)
    check("cummin", x, 0, True)


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32", "complex64", "bool"])
def test_totals_of_blocks_by_type(dtype):
    for name in (
        ("cummax", "cummin")
        if dtype == "bool"
        else ("cumsum",)
        if dtype == "complex64"
        else ("cumsum", "cummax", "cumprod")
    ):
        x = numbers(dtype, 300_007)
        if dtype == "float16" and name == "cumsum":
            x = np.where(np.arange(x.size) % 1000 == 0, x, 0).astype(
                dtype
            )  # whole numbers that float16 holds
        check(name, x, 0, False)


def test_nan_goes_on_into_later_blocks():
    x = np.random.default_rng(0).standard_normal(300_001).astype(np.float32)
    x[70_000] = np.nan
    for name in ("cummax", "cummin"):
        check(name, x, 0, False)
        check(name, x, 0, True)


def test_totals_are_summed_out_of_order():
    """The totals of blocks need no prefixes: they are a plain sum, separate from the scans of a
    block and of the earlier totals."""

    def scans(function, x):
        kernels = weft.jit(function).lower(x).compile().stages.scheduled.kernels
        return [print_kernel(kernel).count("scan ") for kernel in kernels]

    x = np.zeros(1 << 19, np.float32)
    assert scans(lax.cumsum, x) == [2]
    assert scans(lambda x: lax.associative_scan(lambda a, b: a + b * 2, x), x) == [3]
