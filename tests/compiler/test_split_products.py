"""float32 products by bfloat16 parts: accuracy, infinities and NaN, and the processors that split.

The products of parts run on the vector unit here: the same sums of exact products as on a tile unit,
but for flushed numbers and the order of terms.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft import lax
from weft._engine import hooks
from weft._engine.compiler.rewrite import split_products
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.compiler.rewrite.split_products import part_pairs
from weft._engine.util.config import Override

X3, X6, X9 = "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"
MATMUL = (((1,), (0,)), ((), ()))


def use_tiles(monkeypatch, speed=16):
    unit = SimpleNamespace(tile_speeds={"bf16": speed})
    monkeypatch.setattr(hooks, "vector_unit", lambda: unit)


@pytest.fixture
def tile_unit(monkeypatch):
    """Split all products, in programs that are not kept on disk."""
    use_tiles(monkeypatch)
    monkeypatch.setattr(split_products, "_USES_PER_SQUARE", 0)
    with Override(enable_compilation_cache=False):
        yield


def product(precision, numbers=MATMUL):
    return weft.jit(lambda x, y: lax.dot_general(x, y, numbers, precision))


def contracted(f, *args):
    """Return the operand dtype and the number of terms of each matmul that the compiler plans."""
    eqns = expand(weft.make_jaxpr(f)(*args)).eqns
    dots = [eqn for eqn in eqns if "dimension_numbers" in eqn.params]
    operands = [(dot.invars[0].aval, dot.params["dimension_numbers"][0][0]) for dot in dots]
    return [(x.dtype.name, math.prod(x.shape[d] for d in dims)) for x, dims in operands]


def operands(n, exponents=0):
    random = np.random.default_rng(n)
    pair = [random.normal(size=(n, n)) for _ in range(2)]
    scale = [2.0 ** random.integers(-exponents, exponents + 1, size=(n, n)) for _ in range(2)]
    return [(x * s).astype(np.float32) for x, s in zip(pair, scale)]


def errors(precision, a, b):
    """Return the mean and the largest error in units of 2^-24 |a| |b|."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    units = np.abs(np.asarray(product(precision)(a, b)) - wide_a @ wide_b)
    units /= 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b))
    return units.mean(), units.max()


#: size, range of exponents -> precision -> bounds of the mean and the largest error. Half as large
#: again as the figures of docs/accuracy.md
BOUNDS = {
    (256, 0): {None: (0.5, 7), X3: (9, 54), X6: (0.5, 7), X9: (0.5, 7)},
    (256, 30): {None: (1.5, 18), X3: (64, 600), X6: (1.5, 18), X9: (1.5, 18)},
    (768, 0): {None: (0.4, 6), X3: (5.5, 36), X6: (0.4, 6), X9: (0.4, 6)},
    (768, 30): {None: (1.5, 20), X3: (55, 600), X6: (1.5, 20), X9: (1.5, 20)},
}
CASES = [(*data, precision, *bounds) for data, row in BOUNDS.items() for precision, bounds in row.items()]  # fmt: skip


@pytest.mark.parametrize("n, exponents, precision, mean, largest", CASES)
def test_error_is_within_the_promise(n, exponents, precision, mean, largest, tile_unit):
    measured_mean, measured_largest = errors(precision, *operands(n, exponents))
    assert measured_mean <= mean and measured_largest <= largest
    if precision == X3:
        assert measured_largest > 2 * BOUNDS[n, exponents][X6][1], "the product was not split"


@pytest.mark.parametrize("precision", [None, "highest", "high", "default", "F32_F32_F32"])
def test_other_precisions_stay_whole(precision, tile_unit):
    assert contracted(product(precision), *operands(64)) == [("float32", 64)]


@pytest.mark.parametrize("precision, terms", [(X3, 3), (X6, 6), (X9, 9)])
def test_parts_form_one_product(precision, terms, tile_unit):
    assert contracted(product(precision), *operands(96)) == [("bfloat16", terms * 96)]
    assert part_pairs(terms)[-1] == (0, 0) and len(set(part_pairs(terms))) == terms


@pytest.mark.parametrize("precision, side", [(X3, 288), (X6, 1152), (X9, 2592)])
def test_small_products_stay_whole(precision, side, monkeypatch):
    use_tiles(monkeypatch)
    for n, dtype in ((side - 1, "float32"), (side, "bfloat16")):
        x, y = np.zeros((side, 64), np.float32), np.zeros((64, n), np.float32)
        assert contracted(product(precision), x, y)[0][0] == dtype


@pytest.mark.parametrize(
    "speed, precision, dtype",
    [(4, X3, "bfloat16"), (4, X6, "float32"), (9, X9, "float32"), (10, X9, "bfloat16")],
)
def test_parts_are_fewer_than_the_speed(speed, precision, dtype, tile_unit, monkeypatch):
    use_tiles(monkeypatch, speed)
    assert contracted(product(precision), *operands(96))[0][0] == dtype


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_other_dtypes_stay_whole(dtype, tile_unit):
    with weft.enable_x64(True):
        x = lax.convert_element_type(np.ones((64, 64)), dtype)
        assert contracted(product(X6), x, x) == [(dtype, 64)]


def test_no_product_is_split_without_a_tile_unit():
    a, b = operands(320)
    texts = {
        product(precision).lower(a, b).compile().runtime_executable().stages.scheduled.text()
        for precision in (None, X3, X6, X9)
    }
    assert len(texts) == 1 and contracted(product(X3), a, b) == [("float32", 320)]


DIMENSIONS = {
    "rows of both": ((96, 64), (80, 64), (((1,), (1,)), ((), ()))),
    "columns of both": ((64, 96), (64, 80), (((0,), (0,)), ((), ()))),
    "batch": ((3, 32, 40), (3, 40, 48), (((2,), (1,)), ((0,), (0,)))),
    "two contracted dims": ((40, 5, 32), (32, 5, 48), (((1, 2), (1, 0)), ((), ()))),
}


@pytest.mark.parametrize("left, right, numbers", DIMENSIONS.values(), ids=DIMENSIONS)
def test_dimension_numbers(left, right, numbers, tile_unit):
    random = np.random.default_rng(1)
    x, y = [random.normal(size=shape).astype(np.float32) for shape in (left, right)]
    got = product(X6, numbers)(x, y)
    want = lax.dot_general(x.astype(np.float64), y.astype(np.float64), numbers)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


def convolution(precision, groups=1):
    return lambda image, kernel: lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", precision=precision, feature_group_count=groups
    )


def test_convolutions_and_gradients(tile_unit):
    image, kernel = images(2, 16, 12), images(16, 16, 3)
    loss = lambda precision: lambda k: (convolution(precision)(image, k) ** 2).sum()
    gradient = weft.jit(weft.grad(loss(X6)))
    assert {dtype for dtype, _ in contracted(weft.grad(loss(X6)), kernel)} == {"bfloat16"}
    np.testing.assert_allclose(
        gradient(kernel), weft.grad(loss(None))(kernel), rtol=1e-4, atol=1e-2
    )


def images(*sizes):
    shape = (*sizes, sizes[-1])
    return np.random.default_rng(len(sizes)).normal(size=shape).astype(np.float32)


CONVOLUTIONS = {
    "parts of features": (X3, 1, (4, 8, 16), (64, 8, 3), [("bfloat16", 3 * 8 * 9)]),
    "few uses": (X3, 1, (4, 8, 16), (16, 8, 3), [("float32", 8 * 9)]),
    "few places": (X3, 1, (1, 8, 16), (64, 8, 3), [("float32", 8 * 9)]),
    "groups": (X3, 2, (4, 16, 16), (64, 8, 3), [("float32", 8 * 9)]),
    "whole": (None, 1, (4, 8, 16), (64, 8, 3), [("float32", 8 * 9)]),
}


@pytest.mark.parametrize(
    "precision, groups, image, kernel, products", CONVOLUTIONS.values(), ids=CONVOLUTIONS
)
def test_convolutions_split_images(precision, groups, image, kernel, products, monkeypatch):
    use_tiles(monkeypatch)
    operands = images(*image), images(*kernel)
    assert contracted(convolution(precision, groups), *operands) == products


SPECIAL = {
    "infinity times one": (np.inf, 1.0),
    "infinity times a number of several parts": (np.inf, -1 / 3),
    "infinity times zero": (np.inf, 0.0),
    "infinity times infinity": (-np.inf, np.inf),
    "NaN": (np.nan, 1.0),
    "beyond bfloat16": (3.4e38, 0.5),
    "overflow": (3e38, 2.0),
}


@pytest.mark.parametrize("precision", [X3, X6, X9])
@pytest.mark.parametrize("left, right", SPECIAL.values(), ids=SPECIAL)
def test_special_values_act_as_in_float32(left, right, precision, tile_unit):
    a, b = operands(64)
    a[5, 7], b[7, :] = left, np.float32(right)
    b[7, 9] = 0.25
    with np.errstate(all="ignore"):
        want = a @ b
    got = np.asarray(product(precision)(a, b))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=2e-3, atol=1e-2)
