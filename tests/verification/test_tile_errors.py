"""The tolerance of products on a tile unit: flushed numbers and omitted products of parts are no errors."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine import hooks
from weft._engine.compiler.rewrite import split_products
from weft._engine.compiler.rewrite.split_products import part_pairs
from weft._engine.util.config import Override
from weft._engine.verification import tile_errors
from weft._engine.verification.evaluation import op_by_op
from weft._engine.verification.tolerance import ResultTolerance, difference, precisions
from weft.errors import VerificationError

UNIT, NO_UNIT = [SimpleNamespace(tile_speeds=speeds) for speeds in ({"bf16": 16}, {})]
#: units in vector registers, four times as fast as float32
VECTORS = SimpleNamespace(tile_speeds={"bf16": 4})
RANDOM = np.random.default_rng(8)
BFLOAT16 = ml_dtypes.bfloat16
#: the least normal number of bfloat16 and float32
LEAST = 2.0**-126


@pytest.fixture
def tile_unit(monkeypatch):
    monkeypatch.setattr(tile_errors, "machine", lambda: UNIT)


@pytest.fixture
def split(monkeypatch):
    monkeypatch.setattr(hooks, "vector_unit", lambda: UNIT)
    monkeypatch.setattr(split_products, "_USES_PER_SQUARE", 0)
    with Override(enable_compilation_cache=False):
        yield


def by_parts(precision):
    return lambda x, y: lax.dot(x, y, precision=precision)


def wide_dot(x, y):
    return lax.dot(x, y, preferred_element_type=np.float32)


X6 = by_parts("BF16_BF16_F32_X6")


def flush(x):
    return np.where(np.abs(x) < LEAST, np.zeros_like(x), x)


def multiply_flushing(a, b):
    """Return the product by a unit that takes operands, products and sums below 2^-126 as zero."""
    a, b = flush(a), flush(b)
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out = flush(out + flush(np.outer(a[:, k], b[k])))
    return out


def parts_of(x):
    """Return three float32 numbers that bfloat16 represents, for each element."""
    parts = []
    for _ in range(3):
        parts.append(x.astype(BFLOAT16).astype(np.float32))
        x = x - parts[-1]
    return parts


def multiply_parts_flushing(a, b):
    a, b = parts_of(a), parts_of(b)
    pairs = part_pairs(6)
    return multiply_flushing(
        np.concatenate([a[i] for i, _ in pairs], 1), np.concatenate([b[j] for _, j in pairs], 0)
    )


def mismatch(f, args, got):
    """Return the first difference of `got` from the results of f, op by op."""
    program = weft.make_jaxpr(f)(*args)
    want = op_by_op(program, args)
    repeat = lambda k: op_by_op(program, args, noise=k)
    return difference([got], want, ResultTolerance(want, precisions(program), repeat))


def operands(left, right, terms=64):
    scaled = [left * RANDOM.normal(size=(8, terms)), right * RANDOM.normal(size=(terms, 8))]
    return [x.astype(np.float32) for x in scaled]


FLUSHED = {
    "parts": (2.0**-120, 2.0**20),
    "operands": (2.0**-128, 2.0**20),
    "products of parts": (2.0**-60, 2.0**-60),
    "products": (2.0**-66, 2.0**-60),
}


@pytest.mark.parametrize("left, right", FLUSHED.values(), ids=FLUSHED)
def test_flushed_numbers_are_no_errors(left, right, tile_unit, monkeypatch):
    args = operands(left, right)
    got = multiply_parts_flushing(*args)
    assert mismatch(X6, args, got) is None
    monkeypatch.setattr(tile_errors, "machine", lambda: NO_UNIT)
    assert mismatch(X6, args, got) is not None


def test_flushed_numbers_of_one_sign_are_no_errors(tile_unit):
    args = [np.abs(x) for x in operands(2.0**-120, 2.0**20, terms=4096)]
    assert mismatch(X6, args, multiply_parts_flushing(*args)) is None


def test_flushed_numbers_reach_later_results(tile_unit):
    args = operands(2.0**-120, 2.0**20)
    scale = np.float32(2.0**90)
    f = lambda x, y: X6(x, y) * scale
    assert mismatch(f, args, multiply_parts_flushing(*args) * scale) is None


def test_errors_are_found_with_a_tile_unit(tile_unit):
    args = operands(1.0, 1.0)
    (want,) = op_by_op(weft.make_jaxpr(X6)(*args), args)
    assert mismatch(X6, args, want) is None
    assert mismatch(X6, args, want + np.float32(1e-2)) is not None


BOUNDED = {
    "bfloat16": (wide_dot, BFLOAT16, True),
    "float32": (wide_dot, np.float32, False),
    "highest": (by_parts("highest"), np.float32, False),
    "parts": (X6, np.float32, True),
    "integers": (X6, np.int32, False),
    "no product": (lambda x, y: x + y, BFLOAT16, False),
}


@pytest.mark.parametrize("f, dtype, is_bounded", BOUNDED.values(), ids=BOUNDED)
def test_only_products_on_the_unit_have_a_bound(f, dtype, is_bounded, tile_unit):
    x = np.ones((4, 4), dtype)
    (eqn,) = weft.make_jaxpr(f)(x, x).eqns
    assert (tile_errors.tile_error_bound(eqn, [x, x]) is not None) == is_bounded


@pytest.mark.parametrize(
    "products, is_bounded", [("BF16_BF16_F32_X3", True), ("BF16_BF16_F32_X6", False)]
)
def test_only_parts_that_are_faster_have_a_bound(products, is_bounded, monkeypatch):
    monkeypatch.setattr(tile_errors, "machine", lambda: VECTORS)
    x = np.ones((4, 4), np.float32)
    (eqn,) = weft.make_jaxpr(by_parts(products))(x, x).eqns
    assert (tile_errors.tile_error_bound(eqn, [x, x]) is not None) == is_bounded


def test_infinities_have_no_bound(tile_unit):
    x = np.full((4, 4), np.inf, BFLOAT16)
    (eqn,) = weft.make_jaxpr(wide_dot)(x, x).eqns
    assert not tile_errors.tile_error_bound(eqn, [x, x]).any()


def test_omitted_products_of_parts_are_no_errors(tile_unit, split, monkeypatch):
    # The second parts of all elements have one sign, and the products of the first parts cancel.
    x = np.full((32, 4096), 1 + 2.0**-8 - 2.0**-16, np.float32)
    x[:, ::2] = 1
    y = np.ascontiguousarray(x.T)
    y[::2] = -1
    multiply = by_parts("BF16_BF16_F32_X3")
    with Override(check="values"):
        weft.jit(lambda x, y: multiply(x, y))(x, y)
        monkeypatch.setattr(tile_errors, "machine", lambda: NO_UNIT)
        with pytest.raises(VerificationError, match="differs from op-by-op execution"):
            weft.jit(lambda x, y: multiply(x, y))(x, y)


@pytest.mark.parametrize("check", ["stages", "maps", "memory"])
def test_checks_run_on_products_by_parts(check, tile_unit, split):
    x = RANDOM.normal(size=(48, 48)).astype(np.float32)
    with Override(check=check):
        np.testing.assert_allclose(
            weft.jit(lambda x: wnp.tanh(X6(x, x)))(x), np.tanh(x @ x), rtol=1e-4, atol=1e-5
        )
