"""float32 products by bfloat16 parts in tiles: accuracy, special values, tiny numbers and meshes."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.harness import tile_emulator, tile_machine
from weft import lax
from weft._engine.compiler.rewrite import split_products
from weft._engine.util.config import Override
from weft._engine.verification import tile_errors
from weft.errors import VerificationError
from weft.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.skipif(bool(tile_machine.reason()), reason=tile_machine.reason())

X3, X6, X9 = "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"


@pytest.fixture(autouse=True)
def tiles(monkeypatch):
    tile_machine.use(monkeypatch)


@pytest.fixture
def split_all(monkeypatch):
    """Split small products, too, in programs that are not kept on disk."""
    monkeypatch.setattr(split_products, "_USES_PER_SQUARE", 0)
    with Override(enable_compilation_cache=False):
        yield


def reset_counts():
    """Begin to count instructions, if they are emulated."""
    if not tile_machine.has_tiles():
        tile_emulator.reset()


def multiply(x, y, precision):
    """Return the product, and whether it ran in tiles."""
    reset_counts()
    out = np.asarray(weft.jit(lambda x, y: lax.dot(x, y, precision=precision))(x, y))
    return out, tile_machine.has_tiles() or tile_emulator.counts().get("tdpbf16ps", 0) > 0


def operands(m, k, n, scale=1.0):
    random = np.random.default_rng(m)
    shapes = [(m, k), (k, n)]
    return [(scale * random.normal(size=shape)).astype(np.float32) for shape in shapes]


def largest_error(got, x, y):
    """Return the largest error in units of 2^-24 |x| |y|."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    return np.max(np.abs(got - x @ y) / (2.0**-24 * (np.abs(x) @ np.abs(y))))


@pytest.mark.parametrize("precision, bound", [(X3, 100), (X6, 8), (X9, 8)])
def test_tiles_keep_the_promise(precision, bound, split_all):
    x, y = operands(96, 256, 80)
    got, in_tiles = multiply(x, y, precision)
    assert in_tiles and largest_error(got, x, y) < bound


def test_large_products_run_in_tiles():
    x, y = operands(288, 64, 288)
    got, in_tiles = multiply(x, y, X3)
    assert in_tiles and largest_error(got, x, y) < 100


def test_one_part_is_rounded():
    x, y = operands(96, 256, 80)
    got, in_tiles = multiply(x, y, "BF16_BF16_F32")
    x, y = [a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (x, y)]
    assert in_tiles and largest_error(got, x, y) < 8


@pytest.mark.parametrize("precision", [None, "highest", "high", X6])
def test_other_products_stay_in_float32(precision, monkeypatch):
    x, y = operands(160, 256, 160)
    reset_counts()
    got, _ = multiply(x, y, precision)
    assert tile_machine.has_tiles() or not tile_emulator.counts()
    monkeypatch.delenv("WEFT_CPU_FEATURES")
    np.testing.assert_array_equal(got, multiply(x, y, precision)[0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_convolutions_run_in_tiles(padding, split_all):
    random = np.random.default_rng(4)
    image = random.normal(size=(2, 8, 14, 14)).astype(np.float32)
    kernel = random.normal(size=(24, 8, 3, 3)).astype(np.float32)
    convolve = lambda precision: weft.jit(
        lambda x, y: lax.conv(x, y, (1, 1), padding, precision=precision)
    )
    reset_counts()
    got = convolve(X6)(image, kernel).block_until_ready()
    assert tile_machine.has_tiles() or tile_emulator.counts()["tdpbf16ps"] > 0
    np.testing.assert_allclose(got, convolve(None)(image, kernel), rtol=1e-5, atol=1e-4)


SPECIAL = {
    "infinity times one": (np.inf, 1.0),
    "infinity times a number of several parts": (np.inf, -1 / 3),
    "infinity times zero": (np.inf, 0.0),
    "NaN": (np.nan, 1.0),
    "beyond bfloat16": (3.4e38, 0.5),
    "overflow": (3e38, 2.0),
}


@pytest.mark.parametrize("left, right", SPECIAL.values(), ids=SPECIAL)
def test_special_values_act_as_in_float32(left, right, split_all):
    x, y = operands(64, 64, 64)
    x[5, 7], y[7, :] = left, np.float32(right)
    with np.errstate(all="ignore"):
        want = x @ y
    got, in_tiles = multiply(x, y, X6)
    assert in_tiles
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-5, atol=1e-4)


def test_parts_beyond_the_limits_of_bfloat16(split_all):
    """A first part is rounded up to 2^64, whose square overflows; a denormal number is a zero."""
    x, y = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    x[0, 0] = y[0, 0] = 2.0**64 - 2.0**54
    x[1, 1], y[1, 1] = np.inf, 2.0**-130
    got, in_tiles = multiply(x, y, X3)
    assert in_tiles and got[0, 0] == np.inf and np.isnan(got[1, 1])
    whole, _ = multiply(x, y, None)
    assert np.isfinite(whole[0, 0]) and whole[1, 1] == np.inf


def test_checks_allow_for_flushed_parts(split_all, monkeypatch):
    x, y = operands(64, 64, 64)
    x *= np.float32(2.0**-120)
    with Override(check="values"):
        got, in_tiles = multiply(x, y, X6)
        assert in_tiles and largest_error(got, x, y) > 1000
        monkeypatch.setattr(tile_errors, "_count_products", lambda eqn: 0)
        with pytest.raises(VerificationError, match="differs from op-by-op execution"):
            multiply(x, y, X6)


@pytest.mark.parametrize("spec", [P("x"), P(None, "x")])
def test_a_mesh_gives_the_values_of_one_device(spec, split_all):
    mesh = weft.make_mesh((2,), ("x",))
    x, y = operands(96, 128, 96)
    alone, _ = multiply(x, y, X6)
    sharded, in_tiles = multiply(weft.device_put(x, NamedSharding(mesh, spec)), y, X6)
    assert in_tiles
    np.testing.assert_allclose(sharded, alone, rtol=1e-5, atol=1e-4)
