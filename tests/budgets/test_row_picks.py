"""A selection of one element per row, and its gradient: no scatter remains between kernels."""

import numpy as np
import pytest

import weft
import weft.numpy  # noqa: F401


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
@pytest.mark.parametrize("shape, axis", [((5, 7), 1), ((7, 5), 0), ((3, 4, 6), 1), ((300, 2), 0)])
def test_the_gradient_of_one_element_of_each_row_is_no_scatter(shape, axis, mode):
    rng = np.random.default_rng(3)
    picked = tuple(1 if d == axis else n for d, n in enumerate(shape))
    x, ct = rng.standard_normal(shape).astype("f4"), rng.standard_normal(picked).astype("f4")
    outside = 0 if mode == "promise_in_bounds" else 2
    at = rng.integers(0, shape[axis] + outside, picked).astype("i4")
    pick = lambda x: weft.numpy.take_along_axis(x, at, axis, mode=mode)
    back = lambda ct: weft.vjp(pick, x)[1](ct)[0]
    want = np.zeros(shape, "f4")
    inside = np.minimum(at, shape[axis] - 1) if mode == "clip" else at
    where = np.indices(picked)
    for i in np.ndindex(picked):
        place = [int(where[d][i]) for d in range(len(shape))]
        place[axis] = int(inside[i])
        if place[axis] < shape[axis]:
            want[tuple(place)] += ct[i]
    np.testing.assert_array_equal(back(ct), want)
    assert "scatter" not in str(weft.make_jaxpr(back)(ct))
    small = weft.vmap(pick)(x[None])
    np.testing.assert_array_equal(
        weft.vmap(lambda x, ct: weft.vjp(pick, x)[1](ct)[0])(x[None], ct[None])[0], want
    )
    assert small.shape == (1, *picked)
