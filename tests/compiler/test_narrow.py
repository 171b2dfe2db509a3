"""Dtypes without kernels, 8-bit floats and 4-bit integers: results equal the reference on the host."""

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp

TYPES = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4", "uint4"]
X = np.arange(8)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: wnp.where(x > x[2], x, x[1]),
        lambda x: x.reshape(2, 4).T,
        lambda x: wnp.concatenate([x, x[::-1]]),
        lambda x: x[np.array([3, 1])],
        lambda x: x.at[0].set(x[3]),
        lambda x: x.max(),
        lambda x: wnp.sort(x)[::-1],
        lambda x: x.astype(np.float32) * 1.5,
        lambda x: (x.astype(np.float32) * 0.3).astype(x.dtype),
    ],
    ids=[
        "add",
        "where",
        "transpose",
        "concatenate",
        "take",
        "set",
        "max",
        "sort",
        "widen",
        "round",
    ],
)
def test_as_computed_in_float32_and_rounded(dtype, function):
    kind = getattr(ml_dtypes, dtype)
    narrow = weft.jit(function)(X.astype(kind))
    wide = weft.jit(function)(X.astype(kind).astype(np.float32))
    want = np.asarray(wide).astype(kind).astype(np.float32) if narrow.dtype == kind else wide
    np.testing.assert_array_equal(np.asarray(narrow).astype(np.float32), want)


@pytest.mark.parametrize("dtype", TYPES[:3])
def test_products_accumulate_in_float32(dtype):
    kind = getattr(ml_dtypes, dtype)
    a, b = X.reshape(2, 4).astype(kind), X.reshape(4, 2).astype(kind)
    got = weft.jit(lambda a, b: wnp.dot(a, b, preferred_element_type=wnp.float32))(a, b)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32))
