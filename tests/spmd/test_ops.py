"""Single operations under many layouts: values equal the whole's, and the collectives are the ones that are needed."""

import numpy as np
import pytest

from tests.spmd.harness import P, check, make, random
from weft._engine.ops import (
    arithmetic,
    comparison,
    functions,
    indexing,
    layout,
    prefix_scans,
    reduce,
    slicing,
    sorting,
)
from weft._engine.ops.contraction import dot_general
from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice
from weft._engine.ops.indexing import GatherDimensionNumbers, ScatterDimensionNumbers
from weft._engine.util.config import enable_x64

GRID = make(a=4, b=2)
LINE = make(x=8)
SQUARE = random(16, 16)
TALL = random(64, 6)


def dot(x, y):
    return dot_general(x, y, (((1,), (0,)), ((), ())))


@pytest.mark.parametrize(
    "specs, out, counts",
    [
        ((P("a", "b"), P("a", "b")), P("a", "b"), {}),
        ((P("a"), P(None, "b")), P("a", "b"), {}),
        ((P("a", "b"), P()), P("a", "b"), {}),
        ((P("b"), P("a")), P("a"), {"ppermute": 1, "all_gather": 1, "all_to_all": 1}),
    ],
)
def test_elementwise_keeps_the_sharding(specs, out, counts):
    result = check(
        lambda x, y: [arithmetic.add(functions.sin(x), y)], [SQUARE, SQUARE], GRID, specs
    )
    assert result.out_specs == (out.dims(2),)
    assert set(result.counts) <= set(counts)


@pytest.mark.parametrize(
    "lhs, rhs, out, counts",
    [
        (P("a"), P(None, "b"), P("a", "b"), {}),
        (P("a", "b"), P("b"), P("a"), {"psum": 1}),
        (P(None, "a"), P("a"), P(), {"psum": 1}),
        (P("a"), P("a"), P("a"), {"all_gather": 1}),
        (P(), P(None, ("a", "b")), P(None, ("a", "b")), {}),
        (P("a", "b"), P(None, "b"), P("a", "b"), {"all_gather": 1}),
    ],
)
def test_matmul(lhs, rhs, out, counts):
    result = check(lambda x, y: [dot(x, y)], [SQUARE, SQUARE], GRID, [lhs, rhs])
    assert result.counts == counts
    assert result.out_specs == (out.dims(2),)


@pytest.mark.parametrize(
    "op, counts",
    [
        (reduce.reduce_sum, {"psum": 1}),
        (reduce.reduce_max, {"pmax": 1}),
        (reduce.reduce_min, {"pmin": 1}),
        (reduce.reduce_prod, {"all_to_all": 1}),
    ],
)
def test_reductions(op, counts):
    result = check(lambda x: [op(x, (0,))], [SQUARE], GRID, [P("a")])
    assert result.counts == counts
    assert not check(lambda x: [op(x, (0,))], [SQUARE], GRID, [P(None, "b")]).records


def test_boolean_reductions():
    bools = SQUARE > 0.5
    for op in (reduce.reduce_or, reduce.reduce_and):
        check(lambda x, op=op: [op(x, (0,))], [bools], GRID, [P("a", "b")])
    check(
        lambda x: [reduce.reduce_or(x, (0,))], [(SQUARE * 9).astype(np.int32)], GRID, [P("a", "b")]
    )


@pytest.mark.parametrize(
    "shape, sizes, spec, out",
    [
        ((64,), (4, 16), P("x"), None),
        ((64,), (16, 4), P("x"), P("x")),
        ((8, 8), (64,), P("x"), P("x")),
        ((64, 3), (2, 32, 3), P("x"), None),
        ((4, 16, 3), (64, 3), P(None, "x"), None),
        ((6, 8), (48,), P(None, "x"), None),
    ],
)
def test_reshape(shape, sizes, spec, out):
    result = check(lambda x: [layout.reshape(x, sizes)], [random(*shape)], LINE, [spec])
    if spec[0] is not None:
        assert not result.records
    if out is not None:
        assert result.out_specs == (out.dims(len(sizes)),)


def test_transpose_moves_the_sharding():
    result = check(lambda x: [layout.transpose(x, (1, 0))], [SQUARE], GRID, [P("a", "b")])
    assert not result.records and result.out_specs == (P("b", "a").dims(2),)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", [reduce.cumsum, reduce.cumprod, reduce.cummax, reduce.cummin])
def test_running_reductions_along_the_split_dim(op, reverse):
    result = check(lambda x: [op(x, 0, reverse)], [TALL], LINE, [P("x")], tolerance=1e-4)
    (record,) = result.records
    assert record.kind == "all_gather" and record.shape == (1, 6)
    assert result.out_specs == (P("x").dims(2),)


@pytest.mark.parametrize("op", [reduce.argmax, reduce.argmin])
def test_position_of_an_extremum(op):
    x = TALL.copy()
    x[13, 0] = x[50, 0] = np.nan
    x[:, 1] = 1
    x[[40, 20], 2] = 50
    x[[41, 21], 2] = -50
    result = check(lambda x: [op(x, 0, np.int32)], [x], LINE, [P("x")])
    assert all(r.shape == (6,) for r in result.records)
    check(lambda x: [op(x, 0, np.int32)], [(x > 0)], LINE, [P("x")])


@pytest.mark.parametrize("k", [3, 20])
def test_top_k_along_the_split_dim(k):
    x = TALL.copy()
    x[5] = x[60]
    x[:, 3] = 1
    result = check(lambda x: list(sorting.top_k(x, k, axis=0)), [x], LINE, [P("x")])
    assert all(r.shape[0] <= k for r in result.records)


def test_sort_along_the_split_dim_moves_the_split():
    sort = lambda x: list(sorting.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1))
    assert check(sort, [random(64, 16)], LINE, [P("x")]).counts == {"all_to_all": 1}
    check(sort, [random(64)], LINE, [P("x")])


def test_slices():
    few = check(lambda x: [slicing.slice(x, (3, 0), (14, 6))], [TALL], LINE, [P("x")])
    assert few.counts == {"psum": 1} and few.records[0].shape == (11, 6)
    check(lambda x: [slicing.slice(x, (3, 1), (50, 3), (5, 1))], [TALL], LINE, [P("x")])
    check(lambda x: [slicing.slice(x, (0, 0), (32, 6))], [TALL], LINE, [P("x")], [P("x")])
    check(lambda x: [slicing.slice(x, (0, 2), (64, 4))], [TALL], LINE, [P("x")], [P("x")])
    check(lambda x: [slicing.slice(x, (3,), (50,))], [np.arange(64) % 3 == 0], LINE, [P("x")])
    check(lambda x: [slicing.slice(x, (3, 3), (9, 9))], [SQUARE], GRID, [P("a", "b")])


@pytest.mark.parametrize(
    "start, step, size",
    [
        (0, 1, 32),
        (5, 1, 32),
        (32, 1, 32),
        (0, 2, 32),
        (1, 2, 32),
        (3, 3, 16),
        (0, 4, 16),
        (7, 1, 40),
        (17, 1, 8),
        (24, 1, 40),
        (0, 1, 56),
        (8, 1, 56),
    ],
)
def test_a_part_of_a_split_dim_is_cut_into_blocks_by_exchange(start, step, size):
    cut = lambda x: [slicing.slice(x, (start, 0), (start + (size - 1) * step + 1, 6), (step, 1))]
    result = check(cut, [TALL], LINE, [P("x")], [P("x")])
    sent = sum(r.bytes_per_device for r in result.records)
    assert (
        set(result.counts) <= {"ppermute", "reduce_scatter", "all_gather"} and sent <= 8 * 6 * 4 * 7
    )
    if (start, step) == (0, 2):
        assert not result.records
    check(cut, [TALL > 0], LINE, [P("x")], [P("x")])
    check(
        lambda x: [slicing.slice(x, (2, 1), (14, 9))], [SQUARE], GRID, [P("b", "a")], [P("b", "a")]
    )


@pytest.mark.parametrize("start", [1, 7, 8, 20, 63])
def test_rotation_sends_what_crosses_a_border(start):
    tail, head = (
        lambda x: slicing.slice(x, (start, 0), (64, 6)),
        lambda x: slicing.slice(x, (0, 0), (start, 6)),
    )
    roll = lambda x: [slicing.concatenate([tail(x), head(x)], 0)]
    result = check(roll, [TALL], LINE, [P("x")])
    assert result.out_specs == (P("x").dims(2),) and set(result.counts) == {"ppermute"}
    if start in (1, 63):
        assert [r.shape for r in result.records] == [(1, 6)]
    check(roll, [TALL], GRID, [P("b", None)])
    check(roll, [TALL], GRID, [P()])


@pytest.mark.parametrize("start", [-5, 0, 7, 30, 62])
def test_dynamic_slices(start):
    at = np.int32(start)
    result = check(lambda x, i: [dynamic_slice(x, (i, 0), (5, 6))], [TALL, at], LINE, [P("x"), P()])
    assert result.counts == {"psum": 1}
    update = random(11, 3)
    result = check(
        lambda x, u, i: [dynamic_update_slice(x, u, (i, 1))],
        [TALL, update, at],
        LINE,
        [P("x"), P(), P()],
    )
    assert not result.records
    check(
        lambda x, u, i: [dynamic_update_slice(x, u, (i, i))],
        [SQUARE, random(3, 3), at],
        GRID,
        [P("a", "b"), P(), P()],
    )


FAR = {
    "int64": [(1 << 32) + 5, 7 - (1 << 32), (1 << 63) - 1, -(1 << 63), -5],
    "uint32": [(1 << 32) - 1, 1 << 31, 3],
    "uint64": [(1 << 64) - 1, 1 << 63, (1 << 32) + 5, 1 << 31, 3],
}


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("dtype", FAR)
def test_positions_that_int32_does_not_hold_are_outside(dtype, mode):
    at, one = np.array(FAR[dtype], dtype)[:, None], np.ones((len(FAR[dtype]), 6), np.float32)
    with enable_x64(True):
        check(
            lambda x, i: [
                indexing.gather(x, i, GatherDimensionNumbers((1,), (0,), (0,)), (1, 6), mode=mode)
            ],
            [TALL, at],
            LINE,
            [P("x"), P()],
        )
        check(
            lambda x, i: [
                indexing.scatter_add(
                    x, i, one, ScatterDimensionNumbers((1,), (0,), (0,)), mode=mode
                )
            ],
            [TALL, at],
            LINE,
            [P("x"), P()],
        )


@pytest.mark.parametrize("dtype", FAR)
def test_starts_that_int32_does_not_hold_are_outside(dtype):
    one = np.ones((2, 3), np.float32)
    with enable_x64(True):
        for start in np.array(FAR[dtype], dtype):
            check(
                lambda x, i: [
                    dynamic_slice(x, (i, np.zeros((), dtype)), (5, 6)),
                    dynamic_update_slice(x, one, (i, np.ones((), dtype))),
                ],
                [TALL, start],
                LINE,
                [P("x"), P()],
            )


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: slicing.concatenate([x, x], 0),
        lambda x: slicing.concatenate([x, x], 1),
        lambda x: slicing.pad(x, np.float32(2), ((1, 1, 0), (0, 2, 1))),
        lambda x: layout.rev(x, (0,)),
        lambda x: layout.rev(x, (1,)),
        lambda x: prefix_scans.cumlogsumexp(x, 0),
        lambda x: arithmetic.add(x, layout.broadcasted_iota(np.float32, (16, 16), 0)),
        lambda x: arithmetic.mul(x, layout.full((16, 16), 2.0, np.float32)),
        lambda x: comparison.select_n(comparison.gt(x, np.float32(0)), x, arithmetic.neg(x)),
        lambda x: layout.broadcast_in_dim(x, (3, 16, 16), (1, 2)),
        lambda x: layout.squeeze(layout.broadcast_in_dim(x, (1, 16, 16), (1, 2)), (0,)),
    ],
)
@pytest.mark.parametrize("spec", [P("a", "b"), P(("a", "b")), P("b"), P(None, "a")])
def test_other_ops_stay_right(fun, spec):
    check(lambda x: [fun(x)], [SQUARE], GRID, [spec])


INDEX = np.array([[3], [63], [0], [-1], [64], [17], [17]], np.int32)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gather_along_the_split_dim(mode):
    rows = GatherDimensionNumbers((1,), (0,), (0,))
    take = lambda x, i: [indexing.gather(x, i, rows, (1, 6), mode=mode)]
    result = check(take, [TALL, INDEX], LINE, [P("x"), P()])
    assert result.counts == {"psum": 1} and result.records[0].shape == (7, 6)
    check(take, [(TALL * 9).astype(np.int32), INDEX], LINE, [P("x"), P()])
    check(take, [TALL > 0, INDEX], LINE, [P("x"), P()])
    windows = GatherDimensionNumbers((1, 2), (), (0,))
    check(
        lambda x, i: [indexing.gather(x, i, windows, (3, 6), mode=mode)],
        [TALL, INDEX[:2]],
        LINE,
        [P("x"), P()],
    )
    many = np.random.default_rng(0).integers(0, 64, (32, 1)).astype(np.int32)
    assert not check(take, [TALL, many], LINE, [P(), P("x")]).records


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize(
    "op",
    [
        indexing.scatter,
        indexing.scatter_add,
        indexing.scatter_mul,
        indexing.scatter_min,
        indexing.scatter_max,
    ],
)
def test_scatter_along_the_split_dim_communicates_nothing(op, mode):
    rows = ScatterDimensionNumbers((1,), (0,), (0,))
    result = check(
        lambda x, i, u: [op(x, i, u, rows, mode=mode)],
        [TALL, INDEX, random(7, 6)],
        LINE,
        [P("x"), P(), P()],
    )
    assert not result.records and result.out_specs == (P("x").dims(2),)
    windows = ScatterDimensionNumbers((1, 2), (), (0,))
    result = check(
        lambda x, i, u: [op(x, i, u, windows, mode=mode)],
        [TALL, INDEX[:5], random(5, 4, 6)],
        LINE,
        [P("x"), P(), P()],
    )
    assert not result.records


def test_first_rows_set_in_place():
    rows = ScatterDimensionNumbers((0, 1), (), (0,))
    result = check(
        lambda x, u: [indexing.scatter(x, np.zeros((1,), np.int32), u, rows)],
        [TALL, random(3, 6)],
        LINE,
        [P("x"), P()],
    )
    assert not result.records


def test_split_updates_are_summed_once():
    rows = ScatterDimensionNumbers((1,), (0,), (0,))
    many = np.random.default_rng(0).integers(0, 8, (512, 1)).astype(np.int32)
    result = check(
        lambda x, i, u: [indexing.scatter_add(x, i, u, rows)],
        [random(8, 6), many, random(512, 6)],
        LINE,
        [P(), P("x"), P("x")],
    )
    assert result.counts == {"psum": 1} and result.records[0].shape == (8, 6)


def test_a_dim_that_does_not_divide_is_left_whole():
    result = check(
        lambda x: [slicing.pad(x, np.float32(0), ((0, 1, 0), (0, 0, 0)))], [TALL], LINE, [P("x")]
    )
    assert result.out_specs == (P().dims(2),)
    with pytest.raises(ValueError, match="dim 0 has size 6"):
        check(lambda x: [x], [random(6)], LINE, [P("x")])


def test_a_pending_sum_is_done_before_a_fill_value_enters():
    rows = GatherDimensionNumbers((1,), (0,), (0,))
    take = lambda x, y, i: [
        indexing.gather(dot(x, y), i, rows, (1, 16), mode="fill", fill_value=0.5)
    ]
    check(take, [SQUARE, SQUARE, INDEX], LINE, [P(None, "x"), P("x"), P()])
