"""packbits and unpackbits against NumPy: dtypes, lengths, axes, orders, and sharded arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

SHAPES = [(0,), (1,), (7,), (8,), (333,), (4096,), (3, 5), (16, 24), (2, 9, 17), (0, 3)]


def whole(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros, ones and other numbers."""
    info = np.iinfo(dtype) if dtype != "bool" else None
    values = (
        rng.integers(0, 2, shape)
        if info is None
        else rng.choice([0, 0, 0, 1, info.min, info.max, info.max - 1], shape)
    )
    return values.astype(dtype)


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int32"])
def test_packing(dtype, bitorder):
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x = whole(rng, dtype, shape)
        for axis in (None, *range(-len(shape), len(shape))):
            want = np.packbits(x, axis=axis, bitorder=bitorder)
            for got in (
                wnp.packbits(x, axis, bitorder),
                weft.jit(lambda x, axis=axis: wnp.packbits(x, axis, bitorder))(x),
            ):
                assert got.dtype == np.uint8
                np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("bitorder", ["big", "little"])
def test_unpacking(bitorder):
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        x = rng.integers(0, 256, shape).astype(np.uint8)
        for axis, count in itertools.product(
            (None, *range(-len(shape), len(shape))), (None, 0, 5, 31, -3)
        ):
            have = 8 * (x.size if axis is None else shape[axis])
            if count is not None and (
                count < -have or not x.size
            ):  # NumPy leaves what it adds to nothing undefined
                continue
            want = np.unpackbits(x, axis=axis, count=count, bitorder=bitorder)
            np.testing.assert_array_equal(
                np.asarray(wnp.unpackbits(x, axis, count, bitorder)), want
            )
            compiled = weft.jit(
                lambda x, axis=axis, count=count: wnp.unpackbits(x, axis, count, bitorder)
            )
            np.testing.assert_array_equal(np.asarray(compiled(x)), want)


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("x", "y"), P("y", "x")], ids=str)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_parts_on_devices(spec, axis):
    rng = np.random.default_rng(2)
    mesh = weft.make_mesh((2, 4), ("x", "y"))
    for shape in ((16, 64), (64, 32)):
        x = whole(rng, "uint8", shape)
        placed = weft.device_put(x, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(np.asarray(wnp.packbits(placed, axis)), np.packbits(x, axis))
        np.testing.assert_array_equal(
            np.asarray(weft.jit(lambda x: wnp.packbits(x, axis))(placed)), np.packbits(x, axis)
        )
        np.testing.assert_array_equal(
            np.asarray(weft.jit(lambda x: wnp.unpackbits(x, axis))(placed)), np.unpackbits(x, axis)
        )
