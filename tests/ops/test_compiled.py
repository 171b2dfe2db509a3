"""Slicing, indexing, contraction, convolution, linear algebra, collectives: compiled programs against references."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ops import collectives, contraction, convolution, indexing, linalg, slicing
from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice
from weft._engine.util.tree import tree_leaves

rng = np.random.default_rng(0)
f32 = np.dtype(np.float32)
DTYPES = [
    np.dtype(d)
    for d in (f32, "int32", "int8", "uint8", "bool", "float16", ml_dtypes.bfloat16, "complex64")
]


def array(dtype, *shape):
    x = rng.standard_normal(shape) * 4
    if dtype.kind == "b":
        return x > 0
    if dtype.kind == "u":
        return np.abs(x).astype(dtype)
    return (
        (x + 1j * rng.standard_normal(shape)).astype(dtype)
        if dtype.kind == "c"
        else x.astype(dtype)
    )


def compare(fun, *args, tol=1e-4):
    program = stage(lambda *xs: tree_leaves(fun(*xs)), [typeof(a) for a in args])
    wants = run_reference(program, *args)
    gots = [np.asarray(g) for g in tree_leaves(weft.jit(fun)(*args))]
    assert len(gots) == len(wants)
    for got, want in zip(gots, wants):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(
            got.astype(np.complex128), want.astype(np.complex128), rtol=tol, atol=tol
        )


def tolerance(dtype):
    return 3e-2 if dtype.itemsize == 2 else 1e-4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slicing(dtype):
    x, one = array(dtype, 5, 17), np.ones((), dtype)[()]
    compare(lambda x: slicing.slice(x, (1, 3), (5, 17), (2, 3)), x)
    compare(lambda x: slicing.pad(x, one, [(1, 2, 1), (-1, 3, 2)]), x)
    compare(lambda x, y: slicing.concatenate([x, y, x], 1), x, array(dtype, 5, 1))
    compare(lambda x, k: dynamic_slice(x, (k, -3), (2, 3)), x, np.int32(4))
    compare(
        lambda x, u, k: dynamic_update_slice(x, u, (k, 1)),
        x,
        array(dtype, 2, 3),
        np.int32(4),
    )


ROWS = indexing.GatherDimensionNumbers((1,), (0,), (0,))
WINDOWS = indexing.GatherDimensionNumbers((1, 2), (), (0, 1))


def scatters(dtype):
    yield indexing.scatter
    if dtype.kind != "b":
        yield indexing.scatter_add
        yield indexing.scatter_mul
    if dtype.kind not in "bc":
        yield indexing.scatter_min
        yield indexing.scatter_max


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indexing(dtype, mode):
    x, rows = array(dtype, 5, 17), np.array([[3], [0], [9], [0]], np.int32)
    corners = np.array([[3, 2], [-1, 4], [4, 16]], np.int32)
    compare(lambda x, i: indexing.gather(x, i, ROWS, (1, 17), mode=mode), x, rows)
    compare(lambda x, i: indexing.gather(x, i, WINDOWS, (2, 3), mode=mode), x, corners)
    for fun, (numbers, indices, shape) in itertools.product(
        scatters(dtype), [(ROWS, rows, (4, 17)), (WINDOWS, corners, (3, 2, 3))]
    ):
        to = indexing.ScatterDimensionNumbers(*numbers)
        compare(
            lambda x, i, u, fun=fun, to=to: fun(x, i, u, to, mode=mode),
            x,
            indices,
            array(dtype, *shape),
            tol=tolerance(dtype),
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_contraction(dtype):
    tol = 10 * tolerance(dtype)
    small = lambda *shape: (
        array(dtype, *shape) if dtype.kind in "biu" else array(dtype, *shape) / np.asarray(4, dtype)
    )
    compare(contraction.dot, small(5, 17), small(17, 3), tol=tol)
    compare(contraction.dot, small(5, 17), small(17), tol=tol)
    compare(contraction.dot, small(17), small(17), tol=tol)
    compare(
        lambda x, y: contraction.dot_general(x, y, (((), ()), ((), ()))),
        small(3),
        small(4),
        tol=tol,
    )
    numbers = (((0, 2), (1, 2)), ((1,), (0,)))
    compare(
        lambda x, y: contraction.dot_general(x, y, numbers), small(3, 2, 5), small(2, 3, 5), tol=tol
    )
    compare(
        lambda x, y: contraction.dot_general(x, y, numbers),
        small(3, 2, 5),
        small(2, 3, 5, 3),
        tol=tol,
    )
    compare(contraction.batch_matmul, small(2, 3, 5), small(2, 5, 4), tol=tol)


@pytest.mark.parametrize(
    ("dtype", "wide"), [("int8", "int32"), (ml_dtypes.bfloat16, "float32"), ("float16", "float32")]
)
def test_preferred_element_type(dtype, wide):
    x, y = array(np.dtype(dtype), 5, 40), array(np.dtype(dtype), 40, 4)
    compare(lambda x, y: contraction.dot(x, y, preferred_element_type=wide), x, y)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "b"], ids=str)
def test_convolution(dtype):
    fun = lambda a, b: convolution.conv_general_dilated(a, b, (2, 1), "SAME", rhs_dilation=(1, 2))
    scale = np.asarray(1 if dtype.kind in "iu" else 4, dtype)
    a, b = (
        array(dtype, 2, 4, 7, 6) // scale
        if dtype.kind in "iu"
        else array(dtype, 2, 4, 7, 6) / scale,
        array(dtype, 4, 4, 3, 2),
    )
    compare(fun, a, b, tol=20 * tolerance(dtype))


def test_convolution_with_groups_differentiated():
    fun = lambda a, w: (
        convolution.conv_general_dilated(a, w, (2, 1), "SAME", feature_group_count=2) ** 2
    ).sum()
    compare(weft.grad(fun, (0, 1)), array(f32, 2, 4, 7, 6), array(f32, 4, 2, 3, 2), tol=1e-2)


def test_convolution_with_a_large_window():
    compare(
        lambda a, b: convolution.conv_general_dilated(a, b, (1,), "SAME"),
        array(f32, 2, 2, 150),
        array(f32, 3, 2, 80),
        tol=1e-2,
    )


@pytest.mark.parametrize("rows", [0, 1, 7, 33])
@pytest.mark.parametrize("length", [0, 1, 3, 16, 70, 1023])
def test_products_of_rows_with_rows(rows, length):
    x, y = array(f32, rows, length), array(f32, rows, length)
    along = lambda numbers: lambda x, y: contraction.dot_general(x, y, numbers)
    compare(along((((1,), (1,)), ((0,), (0,)))), x, y, tol=1e-3)
    compare(along((((0,), (0,)), ((1,), (1,)))), x, y, tol=1e-3)
    compare(along((((1,), (0,)), ((0,), (1,)))), x, y.T.copy(), tol=1e-3)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 1, 1)], ids=str)
def test_empty_and_single_products(shape):
    m, k, n = shape
    compare(contraction.dot, array(f32, m, k), array(f32, k, n))


def test_empty_slices():
    compare(lambda x: slicing.slice(x, (2, 0), (2, 4)), array(f32, 5, 4))
    compare(lambda x, y: slicing.concatenate([x, y], 0), array(f32, 0, 4), array(f32, 2, 4))
    compare(lambda x: slicing.pad(x, 1.0, [(1, 2, 0)]), array(f32, 0))
    nowhere = np.zeros((0, 1), np.int32)
    compare(lambda x, i: indexing.gather(x, i, ROWS, (1, 4)), array(f32, 5, 4), nowhere)
    to = indexing.ScatterDimensionNumbers(*ROWS)
    compare(
        lambda x, i, u: indexing.scatter_add(x, i, u, to),
        array(f32, 5, 4),
        nowhere,
        array(f32, 0, 4),
    )


def test_a_window_per_example():
    starts = np.array([0, 2, 9], np.int32)
    compare(weft.vmap(lambda x, k: dynamic_slice(x, (k,), (2,))), array(f32, 3, 5), starts)
    compare(
        weft.vmap(lambda x, u, k: dynamic_update_slice(x, u, (k,))),
        array(f32, 3, 5),
        array(f32, 3, 2),
        starts,
    )


LINALG = {
    "cholesky": linalg.cholesky,
    "lu": linalg.lu,
    "qr": linalg.qr,
    "eigh": linalg.eigh,
    "svd": linalg.svd,
    "eig": linalg.eig,
    "triangular_solve": lambda s: linalg.triangular_solve(s, s, lower=True),
    "grad of cholesky": weft.grad(lambda s: linalg.cholesky(s).sum()),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name):
    x = array(f32, 4, 4)
    compare(LINALG[name], x @ x.T + 4 * np.eye(4, dtype=f32), tol=1e-3)


COLLECTIVES = {
    "psum": lambda x: collectives.psum(x, "i"),
    "pmax": lambda x: collectives.pmax(x, "i"),
    "pmean": lambda x: collectives.pmean(x, "i"),
    "all_gather": lambda x: collectives.all_gather(x, "i"),
    "all_gather tiled": lambda x: collectives.all_gather(x, "i", tiled=True),
    "psum_scatter": lambda x: collectives.psum_scatter(x, "i"),
    "all_to_all": lambda x: collectives.all_to_all(x, "i", 0, 1),
    "ppermute": lambda x: collectives.ppermute(x, "i", [(0, 1), (1, 2), (3, 0)]),
    "axis_index": lambda x: x + collectives.axis_index("i"),
    "own_slice": lambda x: collectives.own_slice(x, "i", 0),
    "grad": weft.grad(lambda x: (collectives.psum(x**2, "i") * x).sum()),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_under_vmap(name):
    compare(weft.vmap(COLLECTIVES[name], axis_name="i"), array(f32, 4, 4, 3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_nextafter_steps_in_the_type_itself(dtype):
    x = np.array([0, -0.0, 1, 3e38, np.inf, 2**-14, 6e-8, -1, 1e-7], np.float32).astype(
        weft.numpy.dtype(dtype)
    )
    y = np.roll(x, 2)
    np.testing.assert_array_equal(
        np.asarray(weft.jit(weft.numpy.nextafter)(x, y)), np.nextafter(x, y)
    )


def test_whole_numbers_of_64_bits_near_their_limits():
    """Data are not indices: they may be negative, and their sums wrap."""
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    x = np.array([least, least + 1, -8, -7, -1, 0, 1, 7, greatest - 1, greatest])
    flags = x > 0
    numpy = weft.numpy

    def fun(np, x, flags):
        wrapped = flags.astype("int64") + greatest
        return (
            x % 7,
            x // 7,
            np.fmod(x, 7) < 0,
            wrapped > 0,
            wrapped % 7,
            x + greatest > x,
            x * 2 // 2 == x,
            np.where(x % -7 < 0, x, 7),
        )

    with weft.enable_x64(True), np.errstate(over="ignore"):
        got = weft.jit(lambda x, flags: fun(numpy, x, flags))(x, flags)
        for have, want in zip(got, fun(np, x, flags)):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63 - 9, 2**62, -(2**63), 1 - 2**63])
def test_places_beside_limits_that_are_none(limit):
    """Positions minus a value of the data against the widest window: their difference would wrap."""
    x, at = np.array([-5, 0, 7, 2**60, -(2**60)], np.int64)[:, None], np.arange(40)
    with weft.enable_x64(True):
        for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
            got = weft.jit(
                lambda x, name=name: getattr(weft.numpy, name)(x - weft.numpy.arange(40), limit)
            )(x)
            np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(x - at, limit))
