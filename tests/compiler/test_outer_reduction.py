"""Reductions over outer dims with adjacent accumulators: one-pass argmax and argmin, and tests of
bools."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from weft._engine.core.stage import stage
from weft._engine.ir.loops import For
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ir.types import ShapedArray

RNG = np.random.default_rng(0)


def numbers(dtype, shape):
    """Return few distinct values, so that ties occur; for floats also columns of -inf, of inf, and
    with two NaNs."""
    x = RNG.integers(-3, 3, shape).astype(dtype)
    if x.dtype.kind == "f":
        rows = x.reshape(shape[0], -1)
        rows[:, 5], rows[:, 6] = -np.inf, np.inf
        rows[[2, shape[0] - 1], 3] = np.nan
    return x


@pytest.mark.parametrize("shape", [(16, 16), (17, 70), (64, 33), (100, 1100), (3, 40, 50)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float16", "bool"])
def test_places_of_extremes(dtype, shape):
    x = numbers(dtype, shape)
    dim = len(shape) - 2
    most, at, least = weft.jit(lambda x: (wnp.max(x, dim), wnp.argmax(x, dim), wnp.argmin(x, dim)))(
        x
    )
    np.testing.assert_array_equal(most, np.max(x, dim))
    np.testing.assert_array_equal(at, np.argmax(x, dim))
    np.testing.assert_array_equal(least, np.argmin(x, dim))


@pytest.mark.parametrize("shape", [(16, 16), (33, 65), (100, 1100)])
def test_all_and_any(shape):
    x = RNG.integers(0, 40, shape)
    everywhere, somewhere, odd = weft.jit(
        lambda x: ((x > 0).all(0), (x > 38).any(0), weft.lax.reduce_xor_p.bind(x > 9, axes=(0,)))
    )(x)
    np.testing.assert_array_equal(everywhere, (x > 0).all(0))
    np.testing.assert_array_equal(somewhere, (x > 38).any(0))
    np.testing.assert_array_equal(odd, np.logical_xor.reduce(x > 9))


def loops(stmts, depth=0):
    for stmt in stmts:
        if isinstance(stmt, For):
            yield depth, stmt
            yield from loops(stmt.body, depth + 1)


def test_an_argmax_goes_over_the_rows_once():
    scheduled = (
        weft.jit(lambda x: wnp.argmax(x, 0))
        .lower(np.zeros((64, 128), np.float32))
        .compile()
        .stages.scheduled
    )
    (launch,) = scheduled.program.steps
    serial = [loop.extent for _, loop in loops(launch.kernel.body) if loop.kind == "serial"]
    assert serial == [64 // 8]


@pytest.mark.parametrize(
    "rows, columns, strips",
    [(4099, 1000, 2), (1009, 301, 2), (2003, 65, 2), (2003, 64, 1), (17, 40, 1), (1031, 2500, 3)],
)
def test_single_pass_strips_suffice_for_several_threads(rows, columns, strips):
    """An argmax is never split along the rows."""
    x = RNG.standard_normal((rows, columns)).astype("f4")
    places = weft.jit(lambda x: x.argmax(0))
    (launch,) = places.lower(x).compile().stages.scheduled.program.steps
    assert (
        math.prod([loop.extent for _, loop in loops(launch.kernel.body) if loop.kind == "parallel"])
        == strips
    )
    np.testing.assert_array_equal(places(x), x.argmax(0))


def normalized(x):
    return (x - x.mean(0)) * weft.lax.rsqrt(x.var(0) + 1e-5)


def spread_of_places(x):
    return wnp.where(wnp.arange(x.shape[0])[:, None] == wnp.argmax(x, 0), x.max(0), x - x.min(0))


@pytest.mark.parametrize("shape", [(40, 256), (67, 300), (16, 1025), (300, 321)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_follows_a_reduction_over_rows_is_in_its_kernel(shape, dtype):
    x = (RNG.standard_normal(shape) * 3).astype(dtype)
    tolerance = {"float32": 2e-5, "float16": 4e-3}[dtype]
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(0))
    kernels = lambda f: weft.jit(f).lower(x).compile().stages.scheduled.kernel_count
    softmax = lambda x: weft.nn.softmax(x, 0)
    assert kernels(softmax) == kernels(spread_of_places) == 1
    np.testing.assert_allclose(
        weft.jit(softmax)(x), powers / powers.sum(0), rtol=tolerance, atol=tolerance
    )
    got = weft.jit(normalized)(x)
    np.testing.assert_allclose(
        got,
        (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5),
        rtol=tolerance,
        atol=20 * tolerance,
    )
    want = np.where(np.arange(shape[0])[:, None] == x.argmax(0), x.max(0), x - x.min(0))
    np.testing.assert_allclose(weft.jit(spread_of_places)(x), want, rtol=tolerance, atol=tolerance)


def plain(x):
    """Softmax without special treatment of an infinite maximum."""
    e = wnp.exp(x - x.max(0))
    return e / e.sum(0), e.sum(0), x.max(0)


def guarded(x):
    most = x.max(0)
    e = wnp.exp(x - wnp.where(wnp.isfinite(most), most, 0))
    return e, e.sum(0)


def test_long_bodies_process_two_rows_and_prefetch_each_pass():
    x = np.zeros((1024, 1024), "f4")
    for function in (plain, lambda x: weft.nn.softmax(x, 0)):
        (kernel,) = weft.jit(function).lower(x).compile().stages.scheduled.kernels
        text = print_kernel(kernel)
        # the sum is computed with the maximum: eight rows, their scale, two rows at a time, the
        # scale of the remainder; then results
        assert (text.count("exp.f32"), text.count("prefetch")) == (1 + 2 + 1 + 1, 2 + 1)
        serial = [
            (depth, loop.extent) for depth, loop in loops(kernel.body) if loop.kind == "serial"
        ]
        assert serial == [(1, 1024 // 8), (2, 8 // 2), (1, 1024)]


@pytest.mark.parametrize("function", [plain, guarded])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("rows", [16, 17, 24, 70, 100])
def test_a_sum_that_rides_on_a_maximum_knows_infinities(rows, dtype, function):
    x = np.random.default_rng(rows).standard_normal((rows, 130)).astype(dtype)
    x[:, 1], x[:, 2], x[:, 3] = -np.inf, np.inf, np.nan
    x[:9, 4:20], x[9:, 20:30], x[8, 30:40], x[rows - 1, 40:50] = -np.inf, -np.inf, np.inf, np.inf
    x[3, 50:60], x[rows - 1, 60:64], x[0, 64:70] = np.nan, np.nan, -np.inf
    with weft.enable_x64(), np.errstate(all="ignore"):
        got = weft.jit(function)(x)
        want = [np.asarray(y) for y in function(wnp.asarray(x.astype(np.float64)))]
    for mine, other in zip(got, want):
        np.testing.assert_allclose(
            mine,
            other.astype(dtype),
            rtol={"float16": 6e-3, "float32": 4e-6, "float64": 1e-13}[dtype],
            atol=1e-7,
        )


@pytest.mark.parametrize("step", [1e-6, 1e-3, 0.02, 1.0, -1e-3])
def test_a_sum_rescaled_at_every_block_is_exact(step):
    x = np.repeat((np.arange(4096) * step).astype(np.float32)[:, None], 128, 1)
    x += np.linspace(0, 1, 128, dtype=np.float32)
    wide = x.astype(np.float64)
    want = np.exp(wide - wide.max(0)).sum(0)
    np.testing.assert_allclose(weft.jit(plain)(x)[1], want, rtol=4e-6)


@pytest.mark.parametrize(
    "shape, tasks", [((16, 70), 1), ((67, 300), 5), ((1025, 1023), 4), ((4096, 2048), 4)]
)
def test_a_log_of_sums_of_exponentials_is_one_kernel_in_strips(shape, tasks):
    """The sum is computed with the maximum, although no value of the rows' shape is read
    afterwards."""
    x = (RNG.standard_normal(shape) * 3).astype("f4")
    function = weft.jit(lambda x: weft.nn.logsumexp(x, 0))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(function(x), np.log(np.exp(wide).sum(0)), rtol=1e-5, atol=1e-6)
    (kernel,) = function.lower(x).compile().stages.scheduled.kernels
    assert kernel.parallel_extent == tasks


PRIMES = [
    ((65537,), 0),
    ((100003,), 0),
    ((3, 33013), 1),
    ((65537, 3), 0),
    ((65537, 3), (0, 1)),
    ((4099, 70), 0),
    ((2, 2053, 19), (1, 2)),
]


@pytest.mark.parametrize("shape, axis", PRIMES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_what_has_no_equal_parts_is_shared_out_all_the_same(shape, axis, dtype):
    x = RNG.integers(-3, 4, shape).astype(dtype)
    x.reshape(-1)[-1] = 9  # in the remainder
    total, most, odd = weft.jit(lambda x: (x.sum(axis), x.max(axis), (x == 9).any(axis)))(x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            total, x.sum(axis, dtype="f4" if dtype == "float16" else None).astype(dtype)
        )
    np.testing.assert_array_equal(most, x.max(axis))
    np.testing.assert_array_equal(odd, (x == 9).any(axis))
    powers = weft.jit(lambda x: wnp.exp(x * 0.5 - 4).sum(axis))
    np.testing.assert_allclose(
        powers(x),
        np.exp(x.astype("f8") * 0.5 - 4).sum(axis),
        rtol=4e-3 if dtype == "float16" else 1e-5,
    )
    kernels = powers.lower(x).compile().stages.scheduled.kernels
    assert max(k.parallel_extent for k in kernels) >= 16


@pytest.mark.parametrize("step", [2, 3, -1])
@pytest.mark.parametrize("size", [65, 1000, 400003])
def test_sums_of_every_other_element_go_along_memory(size, step):
    x = RNG.integers(-9, 10, size).astype("f4")
    function = weft.jit(lambda x: x[::step].sum())
    assert function(x) == x[::step].sum()
    kernels = function.lower(x).compile().stages.scheduled.kernels
    assert size < 400003 or kernels[0].parallel_extent > 8


def test_outer_dims_and_several_reduced_dims():
    x = RNG.standard_normal((3, 5, 7, 200)).astype(np.float32)
    got, flat = weft.jit(lambda x: weft.nn.softmax(x, (1, 2)))(x), np.exp(x.reshape(3, 35, 200))
    np.testing.assert_allclose(
        got, (flat / flat.sum(1, keepdims=True)).reshape(x.shape), rtol=2e-5, atol=1e-7
    )


@pytest.mark.parametrize("dtype", ["int8", "uint16", "complex64"])
def test_types_without_strips(dtype):
    x = RNG.integers(-20 if dtype != "uint16" else 0, 20, (40, 300)).astype(dtype)
    f = (lambda x: x - x.sum(0)) if dtype == "complex64" else (lambda x: x.max(0) - x)
    np.testing.assert_allclose(weft.jit(f)(x), f(x), rtol=1e-6)


def test_the_tallest_rows_are_cut_first():
    """Strips that exceed the caches are not read twice: the sum is split and has its own kernel."""
    x = np.zeros((1 << 16, 256), np.float32)
    assert weft.jit(normalized).lower(x).compile().stages.scheduled.kernel_count > 1


@pytest.mark.parametrize("rows", [16, 23, 70])
@pytest.mark.parametrize("edge", [(0, 1), (1, 0), (0, 5)])
def test_each_pass_knows_where_its_own_rows_end(rows, edge):
    """Passes process one, two or eight rows at a time; reads of the next row stay in bounds in all
    of them."""

    def window(x):
        y = x + wnp.pad(x, (edge, (0, 0)))[edge[1] : edge[1] + rows]
        return [y.sum(0) + y, y.max(0) - y]

    x = RNG.integers(-3, 3, (rows, 257)).astype("f4")
    for native in (True, False):
        check(stage(window, [ShapedArray(x.shape, x.dtype)]), x, native=native)


SHIFTED_SUMS = {
    "logsumexp": lambda z, axis, where: weft.nn.logsumexp(z, axis, where=where),
    "softmax": lambda z, axis, where: weft.nn.softmax(z, axis, where=where),
    "log_softmax": lambda z, axis, where: weft.nn.log_softmax(z, axis, where=where),
    "negative": lambda z, axis, where: (lambda m: wnp.exp(-z - m).sum(axis))(
        wnp.max(-z, axis, keepdims=True)
    ),
    "temperature": lambda z, axis, where: (lambda m: wnp.exp(z * 2 - m * 2).sum(axis))(
        wnp.max(z, axis, keepdims=True)
    ),
    "opposite sign": lambda z, axis, where: (lambda m: wnp.exp(z / 9 + m / 9).sum(axis))(
        wnp.max(z, axis, keepdims=True)
    ),
    "maximum of fewer": lambda z, axis, where: (lambda m: wnp.exp(z - m).sum(axis))(
        wnp.max(wnp.where(z < 0, z, -wnp.inf), axis, keepdims=True)
    ),
    "floor": lambda z, axis, where: (lambda m: wnp.exp(z - m).sum(axis))(
        wnp.maximum(wnp.max(z, axis, keepdims=True), -50)
    ),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 100.0, 300.0])
@pytest.mark.parametrize("name", SHIFTED_SUMS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((31, 35), 0), ((3, 31, 35), 1), ((2, 129, 5, 16), 1), ((64, 700), 0)]
)
def test_online_sum_equals_two_passes(shape, axis, name, scale, masked):
    """Sums of exp(x - max(x)) over outer dims, for values whose range exceeds the range of exp."""
    rng = np.random.default_rng(1)
    g, c = (scale * rng.normal(size=s).astype(np.float32) for s in (shape, shape[axis + 1 :]))
    where = rng.random(shape) < 0.5 if masked else None
    function = SHIFTED_SUMS[name]
    want = function(wnp.asarray(g - c), axis, where)
    got = weft.jit(lambda g, c: function(g - c, axis, where))(g, c)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ends", [[-np.inf], [np.inf], [np.nan], [-np.inf, np.inf]])
def test_online_sum_of_infinities_equals_two_passes(ends):
    rng = np.random.default_rng(2)
    x = (100 * rng.normal(size=(40, 64))).astype(np.float32)
    x[:, 7], x[:3, 9] = -np.inf, -np.inf
    x[rng.integers(0, 40, 60), rng.integers(0, 64, 60)] = rng.choice(np.float32(ends), 60)
    for name in ("logsumexp", "softmax", "log_softmax", "negative"):
        want = SHIFTED_SUMS[name](wnp.asarray(x), 0, None)
        np.testing.assert_allclose(
            weft.jit(lambda x, name=name: SHIFTED_SUMS[name](x + 0, 0, None))(x),
            want,
            rtol=1e-4,
            atol=1e-4,
        )
