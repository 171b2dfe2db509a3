"""Comparison of results of weft.numpy with NumPy's values, shapes and dtypes."""

from __future__ import annotations

import numpy as np


def compare(result, want, exact_dtype: bool = True):
    if isinstance(want, (tuple, list)):
        assert len(result) == len(want)
        for f, w in zip(result, want):
            compare(f, w, exact_dtype)
        return
    want = np.asarray(want)
    value = np.asarray(result)
    assert value.shape == want.shape
    if exact_dtype and hasattr(result, "dtype"):
        assert value.dtype == canonical(want.dtype)
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=2e-5)
    else:
        np.testing.assert_array_equal(value, want)


def canonical(dtype):
    return {
        "int64": np.dtype("int32"),
        "uint64": np.dtype("uint32"),
        "float64": np.dtype("float32"),
        "complex128": np.dtype("complex64"),
    }.get(dtype.name, dtype)
