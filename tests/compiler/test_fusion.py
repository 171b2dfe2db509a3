"""The kernels that fusion forms, and their results, natively and on NumPy."""

import ml_dtypes
import numpy as np
import pytest

import weft._engine.ops.contraction  # noqa: F401  (defines dot_general)
import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
from tests.compiler.machine import check
from weft._engine.core.primitive import registry
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray

F32, BF16, I32 = np.dtype("f4"), np.dtype(ml_dtypes.bfloat16), np.dtype("i4")


def spread(x, shape, dims):
    return L.broadcast_in_dim(x, shape=shape, broadcast_dimensions=dims)


def dot(a, b, numbers=(((1,), (0,)), ((), ()))):
    return registry["dot_general"].bind(
        a, b, dimension_numbers=numbers, precision=None, preferred_element_type=a.dtype
    )


def chain(x):
    for _ in range(10):
        x = E.add(E.sin(x), 0.5)
    return [x]


def softmax(x):
    e = E.exp(E.sub(x, spread(R.reduce_max(x, axes=(1,)), x.shape, (0,))))
    return [E.div(e, spread(R.reduce_sum(e, axes=(1,)), x.shape, (0,)))]


def layernorm(x, gain, bias):
    n = float(x.shape[1])
    d = E.sub(x, spread(E.div(R.reduce_sum(x, axes=(1,)), n), x.shape, (0,)))
    var = E.div(R.reduce_sum(E.mul(d, d), axes=(1,)), n)
    scaled = E.mul(d, spread(E.rsqrt(E.add(var, 1e-5)), x.shape, (0,)))
    return [E.add(E.mul(scaled, spread(gain, x.shape, (1,))), spread(bias, x.shape, (1,)))]


def layer(x, w, b):
    y = dot(x, w)
    return [E.max(E.add(y, spread(b, y.shape, (1,))), 0.0)]


def across(y):
    return [E.add(y, L.transpose(y, permutation=(1, 0)))]


def less_sums(y):
    return [E.sub(y, spread(R.reduce_sum(y, axes=(1,)), y.shape, (0,)))]


def adam(p, g, m, v, rate):
    m = E.add(E.mul(m, 0.9), E.mul(g, 0.1))
    v = E.add(E.mul(v, 0.999), E.mul(E.mul(g, g), 0.001))
    return [E.sub(p, E.mul(rate, E.div(m, E.add(E.sqrt(E.abs(v)), 1e-8)))), m, v]


def moments(x):
    return [
        R.reduce_sum(x, axes=(0,)),
        R.reduce_max(x, axes=(0,)),
        R.reduce_sum(E.mul(x, x), axes=(0,)),
    ]


def cross_entropy(x, labels):
    """Return the loss of each row and its gradient, with a sum of the labels that only the gradient uses."""
    shifted = E.sub(x, spread(R.reduce_max(x, axes=(1,)), x.shape, (0,)))
    e = E.exp(shifted)
    total = R.reduce_sum(e, axes=(1,))
    mass = R.reduce_sum(labels, axes=(1,))
    loss = E.sub(E.mul(mass, E.log(total)), R.reduce_sum(E.mul(labels, shifted), axes=(1,)))
    return [loss, E.sub(E.mul(e, spread(E.div(mass, total), x.shape, (0,))), labels)]


SMALL = (24, 20)
# name, function, operand types, kernels, matmuls
CASES = [
    ("chain", chain, [(4, 2, 8, 8)], 1, 0),
    ("softmax", softmax, [SMALL], 1, 0),
    ("layernorm", layernorm, [SMALL, (20,), (20,)], 1, 0),
    ("cross entropy", cross_entropy, [SMALL, SMALL], 1, 0),
    ("layer", layer, [(16, 24), (24, 32), (32,)], 0, 1),
    ("layer, also before", lambda *a: [dot(*a[:2]), *layer(*a)], [(16, 24), (24, 32), (32,)], 0, 1),
    (
        "layer of stacks",
        lambda x, w, b: [
            E.tanh(E.add(dot(x, w, (((2,), (0,)), ((), ()))), spread(b, (3, 5, 40), (2,))))
        ],
        [(3, 5, 20), (20, 40), (40,)],
        0,
        1,
    ),
    (
        "epilogue of a vector",
        lambda x, w, b: [E.tanh(E.add(dot(x, w), b))],
        [(1, 50), (50, 300), (1, 300)],
        0,
        1,
    ),
    (
        "epilogue of a column",
        lambda x, w, b: [E.tanh(E.add(dot(x, w), b))],
        [(300, 50), (50, 1), (300, 1)],
        0,
        1,
    ),
    (
        "epilogue of a transposed",
        lambda x, w, b: [E.add(L.transpose(dot(x, w), permutation=(1, 0)), b)],
        [(9, 50), (50, 33), (33, 9)],
        0,
        1,
    ),
    (
        "epilogue of a reshaped",
        lambda x, w, b: [E.add(L.reshape(dot(x, w), (3, 3, 11, 3)), b)],
        [(9, 50), (50, 33), (3, 3, 11, 3)],
        0,
        1,
    ),
    (
        "epilogue of a batch",
        lambda x, w, b: [
            E.exp(
                E.mul(dot(x, w, (((3,), (2,)), ((0, 1), (0, 1)))), spread(b, (3, 4, 20, 9), (0, 1)))
            )
        ],
        [(3, 4, 20, 30), (3, 4, 30, 9), (3, 4)],
        0,
        1,
    ),
    (
        "rows by columns",
        lambda x, w, b: [E.add(dot(x, w, (((2,), (1,)), ((0,), (0,)))), b)],
        [(3, 1, 37), (3, 37, 1), (3, 1, 1)],
        1,
        0,
    ),
    (
        "rows by rows",
        lambda x, y: [E.exp(dot(E.sin(x), E.add(x, y), (((1,), (1,)), ((0,), (0,)))))],
        [SMALL, SMALL],
        1,
        0,
    ),
    (
        "columns by columns",
        lambda x, y: [dot(x, y, (((0,), (0,)), ((1,), (1,))))],
        [SMALL, SMALL],
        1,
        0,
    ),
    (
        "gate of two matmuls",
        lambda x, w, v: [E.mul(E.logistic(dot(x, w)), dot(x, v))],
        [(9, 20), (20, 33), (20, 33)],
        0,
        2,
    ),
    (
        "two of two matmuls",
        lambda x, w, v: [E.mul(dot(x, w), dot(x, v)), E.add(dot(x, w), dot(x, v))],
        [(9, 20), (20, 33), (20, 33)],
        0,
        2,
    ),
    (
        "chain of epilogues",
        lambda x, w: [E.add(dot(E.tanh(dot(E.tanh(dot(x, w)), w)), w), x)],
        [(9, 20), (20, 20)],
        0,
        3,
    ),
    (
        "a result read across is in memory",
        lambda x, w: across(dot(x, w)),
        [(20, 30), (30, 20)],
        1,
        1,
    ),
    ("a result less its row sums", lambda x, w: less_sums(dot(x, w)), [(20, 30), (30, 9)], 1, 1),
    ("sum of squares", lambda x: [R.reduce_sum(E.mul(x, x), axes=(0, 1))], [SMALL], 1, 0),
    ("adam", adam, [SMALL, SMALL, SMALL, SMALL, ()], 1, 0),
    ("moments", moments, [SMALL], 1, 0),
    ("argmax", lambda x: [R.argmax(x, 1, np.int32), R.argmin(x, 1, np.int32)], [SMALL], 1, 0),
    ("argmax outer", lambda x: [R.argmax(x, 0, np.int32)], [SMALL], 1, 0),
    ("transpose", lambda x: [E.add(L.transpose(x, permutation=(1, 0)), 1.0)], [SMALL], 1, 0),
    ("transpose 3", lambda x: [L.transpose(x, permutation=(2, 0, 1))], [(5, 6, 7)], 1, 0),
    ("middle sum", lambda x: [R.reduce_sum(x, axes=(1,))], [(3, 20, 18)], 1, 0),
    (
        "matmul of a transpose",
        lambda a, b: [dot(L.transpose(a, permutation=(1, 0)), b)],
        [(17, 19), (17, 15)],
        0,
        1,
    ),
    (
        "transpose of a matmul",
        lambda a, b: [L.transpose(dot(a, b), permutation=(1, 0))],
        [(19, 17), (17, 15)],
        0,
        1,
    ),
    (
        "heads back to rows",
        lambda a, b: [
            L.reshape(
                L.transpose(dot(a, b, (((3,), (2,)), ((0, 1), (0, 1)))), permutation=(0, 2, 1, 3)),
                new_sizes=(2, 15, 42),
            )
        ],
        [(2, 3, 15, 16), (2, 3, 16, 14)],
        0,
        1,
    ),
    (
        "channels back to the last dim",
        lambda a, b: [L.transpose(dot(a, b, (((2,), (0,)), ((), ()))), permutation=(0, 1, 3, 2))],
        [(2, 70, 10, 3), (10, 90)],
        1,
        1,
    ),
    (
        "few channels back to the last dim",
        lambda a, b: [L.transpose(dot(a, b, (((2,), (0,)), ((), ()))), permutation=(0, 1, 3, 2))],
        [(2, 7, 10, 3), (10, 90)],
        0,
        1,
    ),
    (
        "batched matmul",
        lambda a, b: [dot(a, b, (((2,), (1,)), ((0,), (0,))))],
        [(3, 19, 17), (3, 17, 15)],
        0,
        1,
    ),
    (
        "matmul of a slice",
        lambda a, b: [dot(S.slice(a, (1, 2), (18, 14)), b)],
        [(19, 17), (12, 15)],
        0,
        1,
    ),
    (
        "sum over devices",
        lambda a, b: [R.reduce_sum(dot(a, b, (((1,), (1,)), ((0,), (0,)))), axes=(0,))],
        [(4, 9, 7), (4, 9, 5)],
        0,
        1,
    ),
    ("inner product", lambda a, b: [dot(a, b, (((0,), (0,)), ((), ())))], [(100,), (100,)], 1, 0),
    ("reshape of an input", lambda x: [L.reshape(x, new_sizes=(40, 12))], [SMALL], 0, 0),
    (
        "running sums",
        lambda x: [R.cumsum(x, axis=0, reverse=False), R.cumsum(x, axis=1, reverse=True)],
        [SMALL],
        2,
        0,
    ),
    ("concatenate", lambda x, y: [S.concatenate([x, y, x], dimension=1)], [(4, 50), (4, 7)], 1, 0),
    ("pad", lambda x: [S.pad(E.neg(x), np.float32(1.5), ((1, 2, 0), (0, 3, 1)))], [(4, 50)], 1, 0),
    ("reverse", lambda x: [L.rev(x, dimensions=(1,)), L.rev(x, dimensions=(0,))], [SMALL], 1, 0),
    (
        "empty",
        lambda x: [R.reduce_sum(x, axes=(0,)), E.sin(x), S.concatenate([x, x], dimension=0)],
        [(0, 4)],
        1,
        0,
    ),
    ("inputs as outputs", lambda x: [x, x, S.slice(x, (1, 0), (3, 20))], [SMALL], 0, 0),
]


def staged(fn, shapes, dtype=F32):
    return stage(lambda *xs: list(fn(*xs)), [ShapedArray(s, dtype) for s in shapes])


def values(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype("f4") for s in shapes]


@pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])
@pytest.mark.parametrize("name, fn, shapes, kernels, gemms", CASES, ids=[c[0] for c in CASES])
def test_values_and_counts(name, fn, shapes, kernels, gemms, native):
    scheduled = check(staged(fn, shapes), *values(shapes), native=native, rtol=1e-4)
    assert (scheduled.kernel_count, scheduled.gemm_count) == (kernels, gemms)


LARGE = [
    ("sum all", lambda x: [R.reduce_sum(x, axes=(0, 1))], [(700, 513)], 3),
    ("sum outer", lambda x: [R.reduce_sum(x, axes=(0,))], [(1024, 1100)], 2),
    ("sum inner", lambda x: [R.reduce_sum(x, axes=(1,))], [(300, 1001)], 1),
    (
        "long rows",
        lambda x: [R.reduce_sum(x, axes=(1,)), R.reduce_max(x, axes=(1,))],
        [(40, 20011)],
        1,
    ),
    ("prime", lambda x: [R.reduce_sum(x, axes=(0,))], [(100003,)], 2),
    ("channels", lambda x: [R.reduce_sum(x, axes=(0, 2))], [(64, 30, 101)], 3),
    ("transpose", lambda x: [E.add(L.transpose(x, permutation=(1, 0)), 1.0)], [(515, 333)], 1),
    ("softmax", softmax, [(300, 501)], 1),
    ("layernorm", layernorm, [(300, 501), (501,), (501,)], 1),
    ("chain", chain, [(30, 40, 50)], 1),
    ("normalised", lambda x: [E.div(x, R.reduce_max(E.abs(x), axes=(0, 1)))], [(256, 512)], 3),
    (
        "running sums of other types",
        lambda x: [
            R.cumsum(E.convert_element_type(x, BF16), axis=1, reverse=False),
            R.cummax(x, axis=0, reverse=False),
            R.cumsum(E.convert_element_type(E.gt(x, 0.0), I32), axis=1, reverse=True),
        ],
        [(3, 40, 5)],
        8,
    ),
    ("running sum", lambda x: [R.cumsum(x, axis=0, reverse=True)], [(300, 1500)], 1),
]


@pytest.mark.parametrize("name, fn, shapes, most", LARGE, ids=[c[0] for c in LARGE])
def test_large(name, fn, shapes, most):
    assert check(staged(fn, shapes), *values(shapes), rtol=1e-3).kernel_count <= most


def test_sums_are_as_accurate_as_pairwise():
    x = (np.random.default_rng(0).random(1 << 20) + 1).astype("f4")
    scheduled = check(staged(lambda x: [R.reduce_sum(x, axes=(0,))], [x.shape]), x, rtol=3e-7)
    assert scheduled.kernel_count == 2


@pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])
def test_half_floats_round_where_they_are_stored(native):
    def fn(x, y):
        return [
            E.mul(E.exp(x), y),
            R.reduce_sum(x, axes=(1,)),
            E.convert_element_type(E.add(x, y), F32),
        ]

    shapes = [(6, 50), (6, 50)]
    scheduled = check(
        staged(fn, shapes, BF16),
        *[v.astype(BF16) for v in values(shapes)],
        native=native,
        rtol=2e-2,
    )
    assert scheduled.kernel_count == 1


def test_integers_bools_and_complex():
    def fn(x, y):
        z = registry["complex"].bind(E.convert_element_type(x, F32), E.convert_element_type(y, F32))
        return [
            E.gt(x, y),
            R.reduce_or(E.gt(x, y), axes=(1,)),
            E.rem(x, E.max(y, 1)),
            dot(x, L.transpose(y, permutation=(1, 0))),
            E.mul(z, z),
            R.reduce_sum(z, axes=(0,)),
            E.abs(z),
            R.reduce_max(x, axes=(0,)),
        ]

    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, (7, 12)).astype("i4") for _ in range(2)]
    check(staged(fn, [(7, 12), (7, 12)], I32), *args)
    check(staged(fn, [(7, 12), (7, 12)], I32), *args, native=False)


def test_nan_and_first_position_in_argmax():
    x = np.array([[1, 3, 3, 2], [1, np.nan, 5, np.nan]], "f4")
    check(staged(lambda x: [R.argmax(x, 1, np.int32), R.argmin(x, 1, np.int32)], [x.shape]), x)


def test_contiguous_programs_have_one_flat_loop():
    kernel = check(staged(chain, [(4, 2, 8, 8)]), *values([(4, 2, 8, 8)])).kernels[0]
    (loop,) = kernel.body
    assert (loop.kind, loop.extent) == ("vector", 512)


def test_costly_values_of_a_row_are_computed_once():
    kernel = check(staged(softmax, [(64, 128)]), *values([(64, 128)])).kernels[0]
    assert len(kernel.scratch) == 1 and kernel.scratch[0].size == 128


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: [
            L.transpose(S.slice(R.reduce_sum(x, axes=(1,)), (0, 0), (32, 4)), permutation=(1, 0))
        ],
        lambda x: [S.slice(R.reduce_sum(x, axes=(1,)), (0, 0), (32, 4))],
        lambda x: [S.slice(R.reduce_sum(x, axes=(1,)), (0, 2), (32, 8))],
        lambda x: [S.slice(R.reduce_max(x, axes=(2,)), (0, 0), (5, 4))],
    ],
    ids=["transposed", "beginning", "end", "rows"],
)
def test_a_part_of_a_reduction_is_not_written_as_the_whole(fn):
    check(staged(fn, [(32, 4, 8)]), *values([(32, 4, 8)]))


def test_epilogues_that_store_the_product_lower_for_each_dtype():
    """Sums of bf16 and f32 are equal, so these epilogues differ only in the type of the product."""
    a, b = np.arange(40.0).reshape(5, 8) % 7 - 3, np.arange(24.0).reshape(8, 3) % 5
    for dtype in (ml_dtypes.bfloat16, np.float32, np.float16):
        product, square = weft.jit(lambda x, y: ((z := x @ y), z * z))(
            a.astype(dtype), b.astype(dtype)
        )
        np.testing.assert_array_equal(
            np.asarray(product, np.float64), (a @ b).astype(product.dtype).astype(np.float64)
        )
        np.testing.assert_allclose(np.asarray(square, np.float64), (a @ b) ** 2, rtol=2e-2)
