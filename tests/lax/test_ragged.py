"""Products of matrices with ragged groups against a loop over groups; algorithms of products by their dtypes; small compositions."""

import functools
import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RANDOM = np.random.default_rng(3)
LHS, RHS, SIZES = [
    RANDOM.normal(size=shape).astype(np.float32) for shape in ((8, 3), (4, 3, 5))
] + [np.array([2, 0, 3, 1], np.int32)]
GROUP = np.repeat(np.arange(4), SIZES)


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def by_group(lhs=LHS, rhs=RHS, sizes=SIZES):
    out = np.zeros((lhs.shape[0], rhs.shape[-1]), np.float32)
    for row, group in enumerate(np.repeat(np.arange(len(sizes)), sizes)):
        out[row] = lhs[row] @ rhs[group]
    return out


def test_each_group_of_rows_meets_its_matrix():
    close(weft.jit(lax.ragged_dot)(LHS, RHS, SIZES), by_group())
    mesh = weft.make_mesh((2, 2), ("i", "j"))
    spread = [
        weft.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
        for x, spec in ((LHS, "i"), (RHS, (None, None, None)))
    ]
    close(weft.jit(lax.ragged_dot)(*spread, SIZES), by_group())
    sizes = np.stack([SIZES, SIZES[::-1]])
    mapped = weft.vmap(lax.ragged_dot, (None, 0, 0))(LHS, np.stack([RHS, 2 * RHS]), sizes)
    close(mapped, np.stack([by_group(), by_group(LHS, 2 * RHS, SIZES[::-1])]))
    check_grads(lambda x, y: lax.ragged_dot(x, y, SIZES), (LHS, RHS), 1)


def test_contracted_groups_and_batches():
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    other = RANDOM.normal(size=(8, 2)).astype(np.float32)
    expected = [
        sum((np.outer(LHS[k], other[k]) for k in np.flatnonzero(GROUP == g)), np.zeros((3, 2)))
        for g in range(4)
    ]
    close(lax.ragged_dot_general(LHS, other, SIZES, numbers), expected)
    batched = lax.RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (1,))), (1,), (0,))
    lhs, rhs, sizes = (
        np.stack([LHS, -LHS]),
        np.stack([RHS, 3 * RHS], 1),
        np.stack([SIZES, SIZES[::-1]]),
    )
    expected = np.stack([by_group(), by_group(-LHS, 3 * RHS, SIZES[::-1])])
    close(lax.ragged_dot_general(lhs, rhs, sizes, batched), expected)


BY_SUMS = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())


def sums_by_group(lhs, rhs, sizes):
    parts = np.split(np.arange(lhs.shape[0]), np.minimum(np.cumsum(sizes), lhs.shape[0]))[:-1]
    return np.stack([lhs[part].T @ rhs[part] for part in parts])


def rows_by_group(lhs, rhs, sizes):
    group = np.repeat(np.arange(len(sizes) + 1), [*sizes, lhs.shape[0]])[: lhs.shape[0]]
    return np.stack(
        [row @ matrix for row, matrix in zip(lhs, np.concatenate([rhs, 0 * rhs[:1]])[group])]
    )


@pytest.mark.parametrize(
    "dtype",
    [
        np.int8,
        np.uint8,
        np.int16,
        np.int32,
        np.float16,
        ml_dtypes.bfloat16,
        np.float32,
        np.complex64,
    ],
)
@pytest.mark.parametrize(
    "m, k, n, sizes",
    [
        (101, 33, 48, [19, 29, 27, 26]),
        (101, 33, 48, [0, 0, 101, 0]),
        (64, 5, 1, [1, 2, 3]),
        (200, 64, 100, [150, 60, 7]),
        (7, 1, 31, [0]),
        (150, 200, 70, [2, 90, 0, 1, 31]),
    ],
    ids=["all rows", "one group", "a column", "too many", "no rows", "some rows"],
)
def test_groups_of_any_sizes(dtype, m, k, n, sizes):
    integer = np.dtype(dtype).kind in "iu"
    draw = lambda *shape: (
        RANDOM.integers(-9, 9, shape) if integer else RANDOM.normal(size=shape)
    ).astype(dtype)
    wide = np.int64 if integer else np.complex128 if dtype is np.complex64 else np.float64
    lhs, rhs, other, sizes = (
        draw(m, k),
        draw(len(sizes), k, n),
        draw(m, n),
        np.array(sizes, np.int32),
    )
    for got, expected in (
        (
            weft.jit(lax.ragged_dot)(lhs, rhs, sizes),
            rows_by_group(lhs.astype(wide), rhs.astype(wide), sizes),
        ),
        (
            weft.jit(lambda *xs: lax.ragged_dot_general(*xs, BY_SUMS))(lhs, other, sizes),
            sums_by_group(lhs.astype(wide), other.astype(wide), sizes),
        ),
    ):
        assert got.dtype == dtype
        if integer:
            np.testing.assert_array_equal(got, expected.astype(dtype))
        else:
            rounding = 2.0**-8 if got.dtype.itemsize == 2 else 1e-6
            np.testing.assert_allclose(
                np.asarray(got).astype(wide), expected, rtol=2 * rounding, atol=50 * rounding
            )


def test_each_product_is_one_matmul_of_the_rows_that_there_are():
    lhs, rhs, other = [np.ones(shape, np.float32) for shape in ((256, 64), (4, 64, 32), (256, 32))]
    sizes = np.array([100, 0, 120, 36], np.int32)
    step = lambda a, b, s: weft.grad(lambda a, b: (lax.ragged_dot(a, b, s) ** 2).sum(), (0, 1))(
        a, b
    )
    for f, args, kernels, products in (
        (lax.ragged_dot, (lhs, rhs, sizes), 2, 1),
        (step, (lhs, rhs, sizes), 3, 3),
        (lambda *xs: lax.ragged_dot_general(*xs, BY_SUMS), (lhs, other, sizes), 2, 1),
    ):
        scheduled = weft.jit(f).lower(*args).compile().runtime_executable().stages.scheduled
        assert (scheduled.kernel_count, scheduled.gemm_count) == (kernels, products)
        assert (
            scheduled.program.arena_bytes <= lhs.nbytes + 512
        )  # no operand with the rows of all groups


def test_gradients_of_both_forms():
    for sizes in (SIZES, SIZES // 2):
        check_grads(functools.partial(lax.ragged_dot, group_sizes=sizes), (LHS, RHS), 2)
        sums = functools.partial(
            lax.ragged_dot_general, group_sizes=sizes, ragged_dot_dimension_numbers=BY_SUMS
        )
        check_grads(sums, (LHS, RANDOM.normal(size=(8, 5)).astype(np.float32)), 2)
    narrow = [wnp.asarray(x, "bfloat16") for x in (LHS, RHS)]
    total = lambda x, y: lax.ragged_dot(x, y, SIZES, preferred_element_type=np.float32).sum()
    for got, x, want in zip(
        weft.grad(total, (0, 1))(*narrow),
        narrow,
        weft.grad(total, (0, 1))(*[x.astype("float32") for x in narrow]),
    ):
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got.astype("float32"), want, rtol=2.0**-7)


def test_any_operand_may_be_mapped():
    many = (
        RANDOM.normal(size=(3, 8, 3)).astype(np.float32),
        RANDOM.normal(size=(3, 4, 3, 5)).astype(np.float32),
        np.array([[2, 0, 3, 1], [8, 0, 0, 0], [1, 1, 1, 1]], np.int32),
    )
    for axes in itertools.product((None, 0), repeat=3):
        if axes != (None,) * 3:
            args = [x if axis == 0 else x[0] for x, axis in zip(many, axes)]
            expected = [
                rows_by_group(*[x[i] if axis == 0 else x for x, axis in zip(args, axes)])
                for i in range(3)
            ]
            close(weft.jit(weft.vmap(lax.ragged_dot, axes))(*args), np.stack(expected))
    close(
        weft.jit(lambda xs: lax.scan(lambda c, x: (c, lax.ragged_dot(*x)), 0, xs)[1])(many),
        np.stack([rows_by_group(*x) for x in zip(*many)]),
    )


def test_more_dims_of_every_kind():
    lhs, rhs = [
        RANDOM.normal(size=s).astype(np.float32) for s in ((3, 2, 2, 10, 2, 4), (3, 4, 4, 2, 5, 2))
    ]
    numbers = lax.RaggedDotDimensionNumbers((((1, 5), (5, 1)), ((2,), (3,))), (3,), (2,))
    for sizes in (
        SIZES,
        RANDOM.multinomial(9, [0.25] * 4, (2, 3)).astype(np.int32),
    ):  # of batch and free dim, or of none
        got = weft.jit(lambda *xs: lax.ragged_dot_general(*xs, numbers))(lhs, rhs, sizes)
        group = np.broadcast_to(sizes, (2, 3, 4))
        for b, t in np.ndindex(2, 3):
            members = enumerate(np.repeat(np.arange(4), group[b, t]))
            each = [
                np.einsum("kul,nlqk->unq", lhs[t, :, b, i], rhs[:, :, g, b]) for i, g in members
            ]
            close(got[b, t, : len(each)], np.stack(each))
            assert not np.asarray(got[b, t, len(each) :]).any()
    other = RANDOM.normal(size=(3, 10, 2, 2, 5)).astype(np.float32)
    numbers = lax.RaggedDotDimensionNumbers((((1, 3), (3, 1)), ((2,), (2,))), (3,), ())
    for sizes in (
        SIZES,
        RANDOM.multinomial(9, [0.25] * 4, (2, 2)).astype(np.int32),
    ):  # of batch and contracted dim, or of none
        got = weft.jit(lambda *xs: lax.ragged_dot_general(*xs, numbers))(lhs[..., 0], other, sizes)
        expected = np.zeros((4, 2, 3, 2, 3, 5))
        for b, k in np.ndindex(2, 2):
            for i, g in enumerate(np.repeat(np.arange(4), np.broadcast_to(sizes, (2, 2, 4))[b, k])):
                expected[g, b] += np.einsum("tu,nq->tunq", lhs[:, k, b, i, :, 0], other[:, i, b, k])
        close(got, expected)


@pytest.mark.parametrize(
    "lhs, rhs",
    [
        (("i",), ()),
        ((None, "i"), (None, "i")),
        ((), (None, None, "i")),
        ((), ("i",)),
        (("i",), ("j",)),
        ((("i", "j"),), (None, None, None)),
        (("i", "j"), ("i", "j")),
        ((None, "j"), ("i",)),
    ],
    ids=str,
)
@pytest.mark.parametrize("m, groups", [(16, 4), (15, 3)], ids=["even", "uneven"])
def test_split_operands_give_what_whole_ones_do(lhs, rhs, m, groups):
    mesh = weft.make_mesh((2, 2), ("i", "j"), axis_types=(weft.sharding.AxisType.Auto,) * 2)
    a, b, ct = [
        RANDOM.normal(size=shape).astype(np.float32) for shape in ((m, 8), (groups, 8, 12), (m, 12))
    ]
    sizes = RANDOM.multinomial(m - 2, [1 / groups] * groups).astype(np.int32)

    def step(a, b, sizes, ct):
        out, back = weft.vjp(lambda a, b: lax.ragged_dot(a, b, sizes), a, b)
        return out, *back(ct)

    def split(a, b, sizes, ct):
        put = lambda x, spec: lax.with_sharding_constraint(
            x, NamedSharding(mesh, PartitionSpec(*spec))
        )
        return step(put(a, lhs), put(b, rhs), sizes, ct)

    a_, b_ = [weft.device_put(x, NamedSharding(mesh, PartitionSpec())) for x in (a, b)]
    expected = (
        rows_by_group(a, b, sizes),
        rows_by_group(ct, b.swapaxes(1, 2), sizes),
        sums_by_group(a, ct, sizes),
    )
    for got, want in zip(weft.jit(split)(a_, b_, sizes, ct), expected):
        close(got, want)


@pytest.mark.parametrize(
    "sizes, ragged, group, message",
    [
        (SIZES[:2], (0,), (0,), "group dimension size"),
        (SIZES, (0, 1), (0,), "exactly one lhs ragged"),
        (SIZES, (0,), (1,), "distinct"),
        (SIZES, (1,), (0,), "zero group dimensions"),
        (SIZES[None], (0,), (0,), "expected group_sizes to have shape"),
        (SIZES, (2,), (0,), "number of axes"),
    ],
)
def test_shapes_that_do_not_fit(sizes, ragged, group, message):
    with pytest.raises(TypeError, match=message):
        lax.ragged_dot_general(
            LHS, RHS, sizes, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), ragged, group)
        )


def test_algorithms_of_products():
    x, presets = RANDOM.normal(size=(4, 4)).astype(np.float32), lax.DotAlgorithmPreset
    narrow = np.asarray(lax.convert_element_type(x, "bfloat16"), np.float32)
    close(lax.dot(x, x, precision=presets.BF16_BF16_F32), narrow @ narrow)
    close(lax.dot(x, x, precision="F32_F32_F32"), x @ x)
    close(
        lax.dot(x, x, precision=lax.DotAlgorithm(np.float16, np.float16, np.float32)),
        x.astype(np.float16).astype(np.float32) @ x.astype(np.float16).astype(np.float32),
    )
    assert (
        lax.dot(x.astype(np.float16), x.astype(np.float16), precision=presets.F32_F32_F32).dtype
        == np.float16
    )
    assert (
        lax.dot(x, x, precision=presets.F16_F16_F16, preferred_element_type=np.float16).dtype
        == np.float16
    )
    with pytest.raises(ValueError, match="The dot algorithm"):
        lax.dot(x, x, precision=presets.ANY_F8_ANY_F8_F32)


def test_small_compositions():
    x = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(
        lax.index_take(x, (np.array([0, 1]), np.array([2, 3])), (0, 2)), x[[0, 1], :, [2, 3]]
    )
    assert lax.broadcast_like(x[0, 0], x).shape == x.shape
    with pytest.raises(TypeError, match="broadcast_like"):
        lax.broadcast_like(x, x[0])
    for dtype in (np.int8, np.uint32, np.int32):
        limits = np.iinfo(dtype)
        a, b = RANDOM.integers(limits.min, limits.max, (2, 50), dtype, endpoint=True)
        a[:2], b[:2] = limits.min, (limits.min, limits.max)
        exact = [int(i) * int(j) >> 8 * a.itemsize for i, j in zip(a, b)]
        assert lax.mulhi(a, b).tolist() == exact
    cube = lax.composite(lambda x, *, power: x**power, "test.cube")
    assert float(weft.grad(lambda x: cube(x, power=3))(2.0)) == 12.0
    assert "test.cube" in weft.jit(lambda x: cube(x, power=3)).lower(x).as_text()
    with pytest.raises(TypeError, match="attribute power"):
        cube(x, power=wnp.ones(2))
    loop = weft.jit(lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x, unroll=0)[0])
    assert float(loop(np.arange(4.0, dtype=np.float32))) == 6.0
