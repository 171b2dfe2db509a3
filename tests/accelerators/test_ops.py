"""Operations on a plugin give the values of the reference backend, in all dtypes and at special values."""

import itertools

import numpy as np
import pytest

import weft
from tests.explicit.cases import CASES, PARAMS, elementwise_cases, takes
from weft import lax, numpy as wnp
from weft._engine.core.primitive import registry
from weft._engine.util import dtypes

#: computed on the host, by callbacks
HOST = {"eig", "schur"}
ELEMENTWISE = list(elementwise_cases())
OTHERS = [case for case in CASES if registry[case.name].kind != "elementwise"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 88.9, -104.0, 1e-3, np.inf, -np.inf, np.nan]


def compare(devices, run, args, tolerance=200):
    """Compare the plugin and the reference, within `tolerance` units of the dtype's rounding."""
    results = weft.jit(run)(*[weft.device_put(x, devices[1]) for x in args])
    expected = weft.jit(run, backend="reference")(*args)
    for x, y in zip(weft.tree.leaves(results), weft.tree.leaves(expected), strict=True):
        assert x.devices() == {devices[1]} and x.dtype == y.dtype and x.shape == y.shape
        if not dtypes.issubdtype(x.dtype, np.inexact):
            np.testing.assert_array_equal(x, y)
            continue
        wide = np.complex128 if np.iscomplexobj(x) else np.float64
        x, y, eps = (
            np.asarray(x).astype(wide),
            np.asarray(y).astype(wide),
            dtypes.finfo(x.dtype).eps,
        )
        np.testing.assert_allclose(x, y, rtol=tolerance * float(eps), atol=tolerance * float(eps))


@pytest.mark.parametrize("case", OTHERS, ids=str)
@pytest.mark.sampled(3)
def test_operations_equal_the_reference(devices, case):
    if case.name in HOST:
        pytest.skip(f"{case.name} runs on the host")
    compare(devices, case.run, case.args, 2000)


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
@pytest.mark.sampled(4)
def test_elementwise_operations_have_all_float_dtypes(devices, case):
    if case.name == "atan" and devices[0].client.client.library.version == (0, 115):
        pytest.skip("this plugin computes atan2(x, 1) with wrong code for vectors")
    primitive, params = registry[case.name], PARAMS.get(case.name, {})
    sets = [case.args]
    if {x.dtype.name for x in case.args} == {"float32"} and case.name != "bitcast_convert_type":
        sets = [tuple(x.astype(dtypes.as_dtype(name)) for x in case.args) for name in FLOATS]
    with weft.enable_x64(True):
        for args in sets:
            if takes(primitive, args, params):
                compare(devices, case.run, args)


BASIC = {
    "max": lax.max,
    "min": lax.min,
    "clamp": lambda x, y: lax.clamp(x, y, x + 1),
    "add": lax.add,
    "mul": lax.mul,
    "div": lax.div,
    "sign": lambda x, y: lax.sign(x),
    "equal": lambda x, y: (x == y, x < y, x >= y, x != y),
    "select": lambda x, y: wnp.where(x > y, x, y),
    "round": lambda x, y: (wnp.round(x), wnp.floor(y), wnp.ceil(x), wnp.trunc(y)),
    "is_finite": lambda x, y: (lax.is_finite(x), wnp.isnan(y)),
    "logaddexp": wnp.logaddexp,
    "reduce_max": lambda x, y: (wnp.max(x), wnp.min(y), wnp.nanmax(x), wnp.argmax(y)),
    "cummax": lambda x, y: (lax.cummax(x), lax.cummin(y, reverse=True)),
    "sort": lambda x, y: (lax.sort(x), wnp.argsort(y)),
    "scatter_max": lambda x, y: x.at[:5].max(y[:5]),
    "segment_max": lambda x, y: weft.ops.segment_max(x, wnp.arange(x.size) // 7, 20),
    "relu": lambda x, y: (weft.nn.relu(x), weft.nn.softplus(y), weft.nn.relu6(y)),
}


@pytest.mark.parametrize("name", BASIC)
def test_special_values_pass_as_in_the_reference(devices, name):
    pairs = np.array(list(itertools.product(SPECIAL, SPECIAL))).T
    with weft.enable_x64(True):
        for dtype in map(dtypes.as_dtype, FLOATS):
            compare(devices, BASIC[name], pairs.astype(dtype))


COMPLEX = np.array([1 + 2j, 1 - 1j, 3, -0.5j, 2, 2 + 1j, complex(np.nan, 1), 0], np.complex64)


@pytest.mark.parametrize("name", ["max", "min", "scatter_max", "segment_max", "reduce_max", "sort"])
def test_complex_numbers_have_the_order_of_the_reference(devices, name):
    run = BASIC[name]
    if name == "reduce_max":
        run = lambda x, y: (x.max(), y.min())  # noqa: E731
    x = COMPLEX[COMPLEX == COMPLEX] if name != "max" else COMPLEX
    compare(devices, run, (np.repeat(x, len(x)), np.tile(x, len(x))))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays_pass(devices, shape):
    x, at = np.zeros(shape, np.float32), np.zeros((0, 2), np.int32)

    def run(x, at):
        rows = x[wnp.arange(0)]
        return rows, rows[:, None], x.sum(), x.at[at[:, 0]].set(1.0), wnp.sort(x), wnp.append(x, x)

    compare(devices, run, (x, at))


def test_reads_of_empty_arrays_are_empty(devices):
    def run(x, at):
        return weft.vmap(lambda x, i: x[i])(x, at), weft.vmap(wnp.take, (None, 0))(
            x[:, 0], at[:3, :0]
        )

    compare(devices, run, (np.zeros((0, 5), np.float32), np.zeros((0, 2), np.int32)))


def test_tangents_of_integers_are_arguments_and_results(devices):
    tangent = np.zeros((2, 3), weft.float0)
    x = weft.device_put(np.arange(6).reshape(2, 3), devices[1])
    value, slope = weft.jit(lambda x, t: weft.jvp(lambda x: x * 2, (x,), (t,)))(x, tangent)
    assert value.devices() == {devices[1]} and slope.dtype == weft.float0 and slope.shape == (2, 3)
    assert np.array_equal(value, 2 * np.arange(6).reshape(2, 3))
