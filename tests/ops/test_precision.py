"""Floats rounded to smaller formats, against NumPy's small dtypes, compiled and not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.config import Override

rng = np.random.default_rng(0)
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e20,
    -1e20,
    65519.0,
    65520.0,
    2049.0,
    2051.0,
    3e-5,
    -1e-30,
]
VALUES = np.concatenate([rng.normal(size=200) * 10.0 ** rng.integers(-6, 7, 200), EDGES]).astype(
    np.float32
)


@pytest.mark.parametrize(
    "exponent, mantissa, small", [(5, 10, np.float16), (8, 7, ml_dtypes.bfloat16)]
)
def test_matches_the_small_format(exponent, mantissa, small):
    with np.errstate(over="ignore"):
        want = VALUES.astype(small).astype(np.float32)
    want = np.where(
        np.abs(want) < float(ml_dtypes.finfo(small).smallest_normal), np.copysign(0, want), want
    ).astype(np.float32)
    reduce = lambda x: lax.reduce_precision(x, exponent, mantissa)
    with Override(backend="reference"):
        by_reference = reduce(VALUES)
    for result in (weft.jit(reduce)(VALUES), by_reference):
        np.testing.assert_array_equal(np.asarray(result).view(np.uint32), want.view(np.uint32))


def test_other_dtypes_derivatives_and_errors():
    halves = weft.jit(lambda x: lax.reduce_precision(x, 4, 3))(
        wnp.array([1.2345, 300.0, 1e-3], "bfloat16")
    )
    np.testing.assert_array_equal(np.asarray(halves, np.float32), [1.25, np.inf, 0.0])
    with weft.enable_x64(True):
        result = weft.jit(lambda x: lax.reduce_precision(x, 8, 23))(np.array([0.1, 1e300]))
        np.testing.assert_array_equal(result, np.array([np.float32(0.1), np.inf]))
    assert weft.grad(lambda x: lax.reduce_precision(1.1 * x, 5, 2))(1.0) == np.float32(1.1)
    np.testing.assert_array_equal(
        weft.vmap(lambda x: lax.reduce_precision(x, 5, 2))(VALUES[:3]),
        lax.reduce_precision(VALUES[:3], 5, 2),
    )
    with pytest.raises(ValueError, match="at least 1"):
        lax.reduce_precision(1.0, 0, 3)
    for widths in ((5.5, 2), (5, 2.0)):
        with pytest.raises(TypeError, match="integer"):
            lax.reduce_precision(1.0, *widths)
    with pytest.raises(TypeError, match="does not accept dtype int32"):
        lax.reduce_precision(np.arange(3), 5, 5)
