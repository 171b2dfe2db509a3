"""Options of operations: accuracies, dtypes of products, padding of transposed convolutions; functions applied at scattered places."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

Z = (np.random.RandomState(0).randn(64) * 3 + 1j * np.random.RandomState(1).randn(64) * 3).astype(
    np.complex64
)
INVERSE = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": np.exp2,
}


@pytest.mark.parametrize("name", INVERSE)
def test_functions_of_complex_numbers(name):
    op, reference = getattr(lax, name), INVERSE[name]
    np.testing.assert_allclose(op(Z), reference(Z.astype(np.complex128)), rtol=2e-6)
    assert [e.primitive.name for e in weft.make_jaxpr(op)(Z).eqns] == [name]
    z, step = complex(Z[3]), 1e-6
    slope = (reference(z + step) - reference(z - step)) / (2 * step)
    np.testing.assert_allclose(weft.grad(op, holomorphic=True)(Z[3]), slope, rtol=1e-4)


@pytest.mark.parametrize(
    "accuracy",
    [
        lax.AccuracyMode.HIGHEST,
        lax.AccuracyMode.DEFAULT,
        lax.Tolerance(ulps=4),
        lax.Tolerance(rtol=1e-5),
    ],
)
def test_accuracies(accuracy):
    x = np.linspace(0.1, 2, 9, dtype=np.float32)
    np.testing.assert_array_equal(lax.exp(x, accuracy=accuracy), lax.exp(x))
    np.testing.assert_allclose(
        weft.grad(lambda v: lax.tanh(v, accuracy=accuracy))(0.5), 1 - np.tanh(0.5) ** 2, rtol=1e-5
    )


def test_accuracies_that_no_function_has():
    with pytest.raises(ValueError, match="non-negative"):
        lax.Tolerance(atol=-1.0)
    with pytest.raises(ValueError, match="does not permit"):
        lax.exp(1.0, accuracy=lax.Tolerance(rtol=1e-12))
    with pytest.raises(ValueError, match="at least one"):
        lax.sin(1.0, accuracy=lax.Tolerance())
    with pytest.raises(TypeError, match="AccuracyMode"):
        lax.log(1.0, accuracy="high")


@pytest.mark.parametrize(
    "dtype, wide", [(np.int8, np.int32), (np.float16, np.float32), (np.int32, np.float32)]
)
def test_products_in_another_dtype(dtype, wide):
    x, y = np.array([100, 3, -7], dtype), np.array([100, 5, 2], dtype)
    product = lax.mul(x, y, out_dtype=wide)
    assert product.dtype == wide
    np.testing.assert_array_equal(product, x.astype(wide) * y.astype(wide))


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 2), (0, 1)), "SAME", "VALID"])
def test_transposed_convolutions_with_forward_padding(strides, padding):
    rng = np.random.RandomState(0)
    image, kernel = (
        rng.randn(2, 5, 6, 3).astype(np.float32),
        rng.randn(3, 4, 3, 2).astype(np.float32),
    )
    numbers = ("NHWC", "HWIO", "NHWC")
    got = lax.conv_transpose(
        image, kernel, strides, padding, dimension_numbers=numbers, use_consistent_padding=True
    )
    flipped = np.swapaxes(kernel[::-1, ::-1], 2, 3)
    forward = lambda x: lax.conv_general_dilated(
        x, flipped, strides, padding, dimension_numbers=numbers
    )
    y, pull = weft.vjp(forward, np.zeros(got.shape, np.float32))
    assert y.shape == image.shape
    np.testing.assert_allclose(got, pull(image)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("places", [[0, 2], [1, 1, 1], [4, 0, 4, 3]])
@pytest.mark.parametrize("run", [lambda f: f, weft.jit])
def test_a_function_is_applied_as_often_as_places_are_named(places, run):
    x = np.arange(1, 6, dtype=np.float32)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    apply = run(
        lambda x, i: lax.scatter_apply(
            x, i, lambda v: 2 * v + 1, numbers, update_shape=(len(places),)
        )
    )
    expected = x.copy()
    for i in places:
        expected[i] = 2 * expected[i] + 1
    np.testing.assert_array_equal(apply(x, np.array(places)[:, None]), expected)


@pytest.mark.parametrize(
    "numbers, reason",
    [
        (lax.GatherDimensionNumbers((1, 0), (), (0,)), "offset_dims in gather op must be sorted"),
        (
            lax.GatherDimensionNumbers((1,), (0, 0), (0,)),
            "collapsed_slice_dims in gather op must not repeat",
        ),
        (lax.GatherDimensionNumbers((1,), (0,), (7,)), "Invalid start_index_map set in gather op"),
        (lax.GatherDimensionNumbers((1,), (0,), (0,), (0,), (0,)), "must be disjoint"),
    ],
)
def test_dims_of_gathers_are_named(numbers, reason):
    with pytest.raises(TypeError, match=reason):
        lax.gather(np.ones((4, 5)), np.zeros((2, 1), int), numbers, (1, 5))


@pytest.mark.parametrize(
    "call",
    [
        lambda: lax.pad(np.zeros(2), np.zeros(2), [(0, 0, 0)]),
        lambda: lax.pad(np.zeros(2), 0.0, [(0, 1, 0)] * 2),
        lambda: lax.pad(np.zeros(2), 0.0, [(0, 1, -1)]),
        lambda: lax.pad(np.zeros(2), 0.0, [(-3, 0, 0)]),
        lambda: lax.argmax(np.ones((2, 3)), axis=-1, index_dtype=np.int32),
        lambda: lax.reduce({"x": np.ones(5)}, {"y": 0.0}, lambda x, y: x, [0]),
        lambda: lax.reduce({"x": np.ones(5)}, {"x": np.ones(5)}, lambda x, y: x, [0]),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(ValueError, match=r".{20}"):
        call()


def test_start_indices_have_one_dtype():
    with pytest.raises(TypeError, match="integers of the same type"):
        lax.dynamic_slice(np.ones((3, 4)), (np.int32(1), np.int16(2)), (2, 2))


def test_conjugates_of_numbers_stay_weak():
    assert lax.conj(1.0).weak_type and not lax.conj(wnp.float32(1)).weak_type


def test_complex_numbers_are_ordered_by_real_parts_first():
    z = np.array([[2 + 1j, 1 + 3j], [1 - 2j, 3 - 1j], [1 - 2j, 3 + 4j]], np.complex64)
    assert (
        lax.reduce_max(z, (0,)).tolist() == [2 + 1j, 3 + 4j]
        and complex(lax.reduce_min(z, (0, 1))) == 1 - 2j
    )
    for running, choose in ((lax.cummax, np.maximum), (lax.cummin, np.minimum)):
        np.testing.assert_array_equal(running(z, 0), choose.accumulate(z, 0))
        np.testing.assert_array_equal(
            running(z, 1, reverse=True), choose.accumulate(z[:, ::-1], 1)[:, ::-1]
        )
    np.testing.assert_array_equal(
        lax.clamp(z[0, 1], z, z[1, 1]), np.minimum(np.maximum(z[0, 1], z), z[1, 1])
    )
    np.testing.assert_array_equal(
        weft.jit(lambda z: lax.reduce(z, -np.inf, lax.max, (1,)))(z), z.max(1)
    )


def test_what_a_sink_reads_is_computed():
    def f(x):
        lax.dce_sink({"unused": wnp.sin(x)}, prevent_mlir_dce=True)
        return 2 * x

    x = wnp.arange(3.0)
    names = [eqn.primitive.name for eqn in weft.make_jaxpr(f)(x).eqns]
    assert "sin" in names and "sine" in weft.jit(f).lower(x).as_text()
    np.testing.assert_array_equal(weft.jit(f)(x), 2 * x)
    np.testing.assert_array_equal(weft.vmap(f)(x), 2 * x)
    np.testing.assert_array_equal(weft.grad(lambda x: f(x).sum())(x), [2, 2, 2])
    assert lax.dce_sink(x) is None


def test_a_sink_in_rules_of_derivatives():
    @weft.custom_vjp
    def f(x):
        lax.dce_sink(x)
        return 3 * x

    f.defvjp(lambda x: (f(x), lax.dce_sink(x)), lambda _, ct: (lax.dce_sink(ct), (5 * ct,))[1])
    assert weft.jit(weft.grad(f))(1.0) == 5


def test_python_integers_wrap_around_in_a_narrow_dtype():
    assert (
        lax.convert_element_type(2**32 + 5, np.int32) == 5
        and lax.convert_element_type(-(2**40) - 3, np.uint8) == 253
    )
    assert weft.jit(lambda: lax.convert_element_type(2**31, np.int32))() == -(2**31)
    assert lax.convert_element_type(2**33, np.float32) == 2.0**33
    with pytest.raises(OverflowError):
        lax.convert_element_type(2**70, np.int32)


def test_filled_arrays_stay_on_the_device_of_their_model():
    x, device = wnp.arange(3), weft.devices()[-1]
    assert not lax.full_like(x, 1.5).committed
    y = lax.full_like(weft.device_put(x, device), 1.5)
    assert y.committed and y.devices() == {device} and y.dtype == np.int32


def _peers_number_of_candidates() -> list:
    """Return sizes of JAX 0.10.2: shape, k, recall_target, reduction_input_size_override, size of the result."""
    return [
        ((127,), 2, 0.5, -1, 127),
        ((1025,), 1, 0.5, 4100, 1024),
        ((2048,), 2, 0.5, -1, 1024),
        ((3000,), 2, 0.5, 12000, 2048),
        ((4096,), 4, 0.95, -1, 1024),
        ((4096,), 4, 1.0, -1, 4096),
        ((10000,), 2, 0.5, -1, 2048),
        ((10000,), 2, 0.5, 40000, 1024),
        ((100000,), 100, 0.95, -1, 4096),
        ((2, 200), 2, 0.5, -1, 200),
        ((2, 300), 2, 0.5, -1, 256),
        ((2, 1000), 2, 0.5, 4000, 128),
        ((2, 4096), 4, 0.5, -1, 128),
        ((2, 5000), 2, 0.5, -1, 256),
    ]


@pytest.mark.parametrize("shape, k, recall_target, whole, size", _peers_number_of_candidates())
def test_candidates_of_approximate_extremes(shape, k, recall_target, whole, size):
    x = np.random.RandomState(0).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    options = {
        "recall_target": recall_target,
        "reduction_input_size_override": whole,
        "aggregate_to_topk": False,
    }
    values, at = lax.approx_max_k(x, k, **options)
    np.testing.assert_array_equal(values, -np.sort(-x, -1)[..., :size])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(at), -1), values)
    np.testing.assert_array_equal(
        lax.approx_min_k(x.T, k, 0, **options)[0], np.sort(x, -1)[..., :size].T
    )
    assert lax.approx_max_k(x, k, recall_target=recall_target, reduction_input_size_override=whole)[
        0
    ].shape == (*shape[:-1], k)
