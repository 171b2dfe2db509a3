"""The number of points of windows: integers, and floats that are truncated."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export

WINDOWS = {
    "bartlett": wnp.bartlett,
    "blackman": wnp.blackman,
    "hamming": wnp.hamming,
    "hanning": wnp.hanning,
    "kaiser": lambda n: wnp.kaiser(n, 3.0),
}
POINTS = [
    4.0,
    np.float32(4.7),
    wnp.float32(4),
    wnp.asarray(4.2),
    wnp.asarray(4, wnp.bfloat16),
    np.int8(4),
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("points", POINTS, ids=repr)
def test_floats_are_truncated(window, points):
    np.testing.assert_array_equal(WINDOWS[window](points), WINDOWS[window](4))


@pytest.mark.parametrize("window", WINDOWS)
def test_symbolic_numbers_of_points_stay(window):
    (n,) = export.symbolic_shape("n")
    exported = export.export(weft.jit(lambda x: WINDOWS[window](x.shape[0])))(
        weft.ShapeDtypeStruct((n,), "float32")
    )
    np.testing.assert_allclose(exported.call(wnp.ones(5)), WINDOWS[window](5), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("points", [None, "4", (4,), wnp.ones(2)])
def test_other_values_are_refused(points):
    with pytest.raises(TypeError):
        wnp.hanning(points)
