"""Vector loops that read or write every n-th element, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft

DTYPES = ["bool", "int8", "int16", "int32", "float32", "float64", "float16", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_loads(dtype):
    cut = weft.jit(lambda x, start, step: x[:, start::step] + x[:, start::step], static_argnums=(1, 2))
    for step, start, n in [(2, 0, 64), (2, 1, 65), (3, 2, 200), (4, 3, 131), (5, 0, 81), (7, 6, 450), (8, 0, 1025), (9, 1, 300)]:
        x = np.arange(3 * n).reshape(3, n).astype(dtype)
        want = x[:, start::step] + x[:, start::step]
        np.testing.assert_array_equal(np.asarray(cut(x, start, step)), want, err_msg=f"{step} {start} {n}")


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 33])
def test_gather_of_short_rows(width):
    x = np.arange(50 * width, dtype=np.float32).reshape(50, width)
    rows = np.arange(700) * 7 % 50
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda x, i: x[i])(x, rows.astype(np.int32))), x[rows])
