"""Incomplete beta functions of a plugin, which has no SciPy, against the CPU backend."""

import numpy as np
import pytest

import weft
from weft._engine.ops.functions import incomplete_beta as beta

#: rounding errors allowed, in units of the last place: where fractions are long, doubles lose some
BOUNDS = {np.float32: 2, np.float64: 1e6}
PRIMITIVES = {
    p.name: p
    for p in (
        beta.regularized_incomplete_beta_p,
        beta.betaincc_p,
        beta.beta_density_p,
        beta.log_betainc_p,
        beta.betainc_hazard_p,
    )
}


def arguments(dtype, count: int) -> list[np.ndarray]:
    """Return parameters from 1e-3 to 1e6, with arguments near the mean and everywhere."""
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-7, 14, (2, 2000)))
    mean = a / (a + b)
    width = np.sqrt(mean * (1 - mean) / (a + b + 1))
    near = np.clip(mean + 4 * width * rng.standard_normal(2000), 0, 1)
    x = np.where(rng.random(2000) < 0.6, near, rng.random(2000))
    x[:3] = 0, 1, 0.5
    a, b, x = (v.astype(dtype) for v in (a, b, x))
    return [a, b, x, 1 - x][:count]


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_incomplete_beta_functions_agree_with_scipy(name, dtype, devices):
    primitive = PRIMITIVES[name]
    with weft.enable_x64(True):
        args = arguments(dtype, 4 if name in ("log_betainc", "betainc_hazard") else 3)
        wide = [x.astype(np.float64) for x in args[:3]]
        wide += [1 - wide[2]] * (len(args) - 3)
        exact = primitive.reference(*wide)
        placed = weft.device_put(args, devices[0])
        result = np.asarray(weft.jit(lambda *xs: primitive.bind(*xs))(*placed)).astype(np.float64)
    expected = exact.astype(dtype).astype(np.float64)
    normal = (np.abs(expected) > np.finfo(dtype).tiny * 100) & np.isfinite(expected)
    np.testing.assert_array_equal(result[~np.isfinite(expected)], expected[~np.isfinite(expected)])
    error = np.abs(result[normal] - expected[normal]) / np.abs(expected[normal])
    assert error.max() <= BOUNDS[dtype] * np.finfo(dtype).eps


@pytest.mark.parametrize("a", [-1.0, 0.0, 2.0, np.nan])
def test_arguments_outside_the_domain(a, devices):
    x = np.float32([-0.5, 0, 0.25, 1, 1.5, np.nan])
    args = np.full(6, a, np.float32), np.full(6, 3, np.float32), x
    placed = weft.device_put(args, devices[0])
    for name in ("beta_density", "regularized_incomplete_beta"):
        result = np.asarray(weft.jit(lambda *xs, p=PRIMITIVES[name]: p.bind(*xs))(*placed))
        if not a > 0:
            assert np.isnan(result).all()
        else:
            expected = PRIMITIVES[name].reference(*args)
            np.testing.assert_allclose(result, expected, rtol=1e-6)
