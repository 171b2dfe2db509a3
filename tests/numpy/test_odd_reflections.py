"""Odd reflections: `pad` continues a dim by twice its edge minus the elements mirrored there."""

import numpy as np
import pytest

import weft.numpy as wnp

WIDTHS = [(0, 1), (1, 0), (3, 7), (9, 2), (2, 30)]


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "complex64"])
def test_odd_reflections_equal_numpy(mode, dtype):
    rng = np.random.default_rng(0)
    for n in range(1, 6):
        x = (rng.normal(size=n) * 9 + (1j if dtype == "complex64" else 0)).astype(dtype)
        for width in WIDTHS:
            result, expected = [m.pad(x, width, mode=mode, reflect_type="odd") for m in (wnp, np)]
            np.testing.assert_allclose(result, expected, rtol=1e-2 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("edge", [np.inf, np.nan])
def test_values_without_a_finite_edge_stay(edge):
    x = np.array([edge, 1.0, -0.0, 3.0], np.float32)
    result = wnp.pad(x, (1, 2), mode="reflect", reflect_type="odd")
    np.testing.assert_array_equal(result, np.pad(x, (1, 2), mode="reflect", reflect_type="odd"))
    assert np.signbit(result[3])


@pytest.mark.parametrize("values", [[1e38, 2.0, 3e38], [np.inf, 1.0, 2.0], [1.0, 2.0, np.inf]])
def test_first_reflections_have_no_intermediate_overflow(values):
    x = np.array(values, np.float32)
    result = wnp.pad(x, 2, mode="reflect", reflect_type="odd")
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.pad(x, 2, mode="reflect", reflect_type="odd")
    np.testing.assert_array_equal(result, expected)
