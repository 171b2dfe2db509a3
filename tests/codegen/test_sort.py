"""Native sorts of rows against their references: all element types, lengths around every change of
algorithm, special values."""

import ml_dtypes
import numpy as np
import pytest

import weft
from weft._engine.codegen.library.sort import SORT_INSERTION, SORT_LONG
from weft._engine.core.primitive import registry
from weft._engine.ops.sorting import leading_p, row_order_p, sorted_rows_p

TYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
SHORT, LONG = SORT_INSERTION, SORT_LONG
LENGTHS = [1, 2, SHORT, SHORT + 1, 70, LONG - 1, LONG + 3]


@pytest.fixture(autouse=True)
def wide():
    with weft.enable_x64(True):
        yield


def rows(dtype: str, n: int, seed: int = 0) -> np.ndarray:
    """Return three rows with many equal elements and, for floats, zeros of both signs, infinities
    and NaN."""
    rng = np.random.default_rng([seed, n])
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind == np.bool_:
        return rng.integers(0, 2, (3, n)).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (3, n), dtype=kind, endpoint=True)
        return np.where(rng.random((3, n)) < 0.3, x[:, :1], x)
    x = rng.standard_normal((3, n)).round(1)
    for value in (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf):
        x = np.where(rng.random((3, n)) < 0.08, value, x)
    return x.astype(kind)


def assert_same(got, want) -> None:
    """Assert that elements are equal, zeros by their sign, with any NaN equal to any NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind not in "biu":
        got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(want)[want == 0])
    np.testing.assert_array_equal(got, want)


def reference(name, *xs, **params):
    return registry[name].reference(*xs, **params)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_values(dtype, n):
    x = rows(dtype, n)
    assert_same(weft.jit(sorted_rows_p.bind)(x), reference("sorted_rows", x))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", TYPES)
def test_orders_are_stable(dtype, n, descending):
    x = rows(dtype, n)
    assert_same(
        weft.jit(lambda x: row_order_p.bind(x, descending=descending))(x),
        reference("row_order", x, descending=descending),
    )


@pytest.mark.parametrize("n", [5, 100, LONG + 3])
def test_an_order_refines_the_previous_one(n):
    minor, major = rows("float32", n), rows("int8", n, 1)

    def order(minor, major):
        return row_order_p.bind(major, row_order_p.bind(minor, descending=False), descending=False)

    want = np.stack([np.lexsort((a + 0, b)) for a, b in zip(minor, major)])
    assert_same(weft.jit(order)(minor, major), want.astype(np.int32))


@pytest.mark.parametrize("n", [8, 65, 300, 5000])
@pytest.mark.parametrize("dtype", TYPES[1:])
def test_the_leading_elements(dtype, n):
    x = rows(dtype, n)
    for k in (1, 8, n // 8 or 1):
        for got, want in zip(
            weft.jit(lambda x, k=k: leading_p.bind(x, k=k))(x), reference("leading", x, k=k)
        ):
            assert_same(got, want)


@pytest.mark.parametrize("dims", [(0, 5), (5, 0), (1, 1)])
def test_empty_and_single_rows(dims):
    x = np.zeros(dims, np.float32)
    assert weft.jit(weft.numpy.sort)(x).shape == dims
    assert weft.jit(weft.numpy.argsort)(x).shape == dims
    values, places = weft.jit(lambda x: weft.lax.top_k(x, 0))(x)
    assert values.shape == places.shape == (dims[0], 0)


def test_sorts_count_as_kernels_and_call_no_python():
    compiled = weft.jit(weft.numpy.sort).lower(np.zeros((4, 100), np.float32)).compile()
    assert compiled.runtime_executable().kernel_count == 1
    assert not compiled.runtime_executable().loaded.native.may_take_long
