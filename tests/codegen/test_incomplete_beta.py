"""The incomplete beta function in compiled programs: a formula for moderate parameters, SciPy
elsewhere, both accurate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import weft
import weft.scipy.special as special
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.program import HostCallStep, Launch


def arguments(low: float, high: float, dtype, count: int = 4000) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.uniform(np.log(low), np.log(high), (2, count)))
    x = np.select(
        [rng.random(count) < 0.3, rng.random(count) < 0.5],
        [rng.random(count), np.exp(-rng.uniform(0, 80, count))],
        np.clip(a / (a + b) * (1 + 0.1 * rng.normal(size=count)), 0, 1),
    )
    return [v.astype(dtype) for v in (a, b, x)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, weft.numpy.bfloat16])
@pytest.mark.parametrize(
    ("low", "high"), [(1e-3, 2), (1e-5, 10), (0.1, 100), (1, 4096), (1e-3, 6e4)]
)
def test_results_are_rounded_as_they_should_be(low, high, dtype):
    args = arguments(low, high, dtype)
    want = scipy.special.betainc(*[v.astype(float) for v in args])
    about = weft.numpy.finfo(dtype)
    ulp = np.maximum(
        2.0 ** np.floor(np.log2(np.maximum(want, float(about.tiny)))) * float(about.eps),
        float(about.smallest_subnormal),
    )
    got = np.asarray(weft.jit(special.betainc)(*args)).astype(float)
    assert (np.abs(got - want) / ulp).max() <= 0.51


def test_ends_and_what_is_outside():
    inf, nan = np.inf, np.nan
    args = np.array(
        [
            (1, 1, 0),
            (1, 1, 1),
            (0, 1, 0.5),
            (1, 0, 0.5),
            (inf, 1, 0.5),
            (1, inf, 0.5),
            (-1, 1, 0.5),
            (1, 1, -0.1),
            (1, 1, 1.1),
            (nan, 1, 0.5),
            (1, nan, 0.5),
            (1, 1, nan),
            (1e-40, 1, 0.5),
            (2, 3, 1e-45),
            (5000, 2, 0.99),
            (0, 0, 0),
        ],
        np.float32,
    ).T
    want = scipy.special.betainc(*args.astype(float)).astype(np.float32)
    np.testing.assert_array_equal(weft.jit(special.betainc)(*args), want)
    np.testing.assert_array_equal(special.betainc(*args), want)


def test_doubles_are_those_of_scipy():
    with weft.enable_x64(True):
        args = arguments(1e-3, 1e6, np.float64)
        np.testing.assert_array_equal(
            weft.jit(special.betainc)(*args), scipy.special.betainc(*args)
        )


def test_one_kernel_before_the_host_and_one_after_it():
    x = np.linspace(0.1, 0.9, 64, dtype=np.float32)
    steps = schedule(stage(lambda x: [special.betainc(x + 1, x + 2, x)], [typeof(x)])).program.steps
    assert [type(step) for step in steps] == [Launch, HostCallStep, Launch]


def test_sharded_and_whole():
    args = arguments(1e-2, 1e5, np.float32, 64)
    mesh = weft.make_mesh((8,), ("beta_parts",))
    placed = [weft.device_put(v, weft.NamedSharding(mesh, weft.P("beta_parts"))) for v in args]
    np.testing.assert_array_equal(
        weft.jit(special.betainc)(*placed), weft.jit(special.betainc)(*args)
    )
