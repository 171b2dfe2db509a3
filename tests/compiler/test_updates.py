"""Gathers, scatters and window updates: values, duplicates, and updates in place."""

import math
import operator

import numpy as np
import pytest

import weft
import weft._engine.ops.elementwise as E
import weft._engine.ops.indexing as I
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
import weft.numpy as wnp
from tests.compiler.machine import check
from tests.compiler.test_fusion import spread
from tests.harness.tuning import tune
from weft._engine.codegen.kernel.kernel_emitter import module_ir
from weft._engine.codegen.toolchain import target
from weft._engine.compiler.kernels import scatters
from weft._engine.compiler.kernels.scatters import SCATTER_OWNERS
from weft._engine.core.stage import stage
from weft._engine.ir.build import LoopsBuilder, _wrap
from weft._engine.ir.loops import Const, ScalarOp
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ir.program import iterate_steps
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.dynamic_slicing import dynamic_slice, dynamic_update_slice
from weft._engine.util.machine_model import machine_model

F32, I32 = np.dtype("f4"), np.dtype("i4")
MODE = I.GatherScatterMode
ROWS = I.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
POINTS = I.ScatterDimensionNumbers(
    update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
BOTH = pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])


def rows(x, at, mode):
    numbers = I.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    return I.gather(x, at, numbers, (1, x.shape[1]), mode=mode)


def run(fn, n, width, count, native, **options):
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal((n, width)),
        rng.integers(-1, n + 1, (count, 1)),
        rng.standard_normal((count, width)),
    ]
    avals = [
        ShapedArray((n, width), F32),
        ShapedArray((count, 1), I32),
        ShapedArray((count, width), F32),
    ]
    return check(stage(lambda *xs: list(fn(*xs)), avals), *args, native=native, **options)


@BOTH
@pytest.mark.parametrize("mode", [MODE.CLIP, MODE.FILL_OR_DROP])
@pytest.mark.parametrize(
    "op",
    [I.scatter, I.scatter_add, I.scatter_mul, I.scatter_min, I.scatter_max],
    ids=["set", "add", "mul", "min", "max"],
)
def test_scatters_with_repeated_and_outside_rows(native, op, mode):
    run(lambda x, at, u: [op(x, at, u, ROWS, mode=mode)], 5, 20, 9, native, rtol=1e-4)


@BOTH
@pytest.mark.parametrize("mode", [MODE.CLIP, MODE.FILL_OR_DROP])
@pytest.mark.parametrize(
    "op",
    [I.scatter, I.scatter_add, I.scatter_mul, I.scatter_min, I.scatter_max],
    ids=["set", "add", "mul", "min", "max"],
)
@pytest.mark.parametrize(
    "dtype", [F32, np.dtype("f2"), I32, np.dtype("c8"), np.dtype(bool)], ids=lambda d: d.name
)
def test_rows_are_written_once(native, op, mode, dtype, monkeypatch):
    if op in (I.scatter_min, I.scatter_max) and dtype.kind == "c":
        pytest.skip("complex numbers have no order")
    tune(monkeypatch, scatter_rows_bytes=0)
    rng, n, width, count = np.random.default_rng(0), 5, 70, 9
    x, u = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((n, width), (count, width)))
    avals = [
        ShapedArray((n, width), dtype),
        ShapedArray((count, 1), I32),
        ShapedArray((count, width), dtype),
    ]
    jaxpr = stage(lambda x, at, u: [op(x, at, u, ROWS, mode=mode)], avals)
    scheduled = check(jaxpr, x, rng.integers(-1, n + 1, (count, 1)), u, native=native)
    assert [type(s).__name__ for s in iterate_steps(scheduled.program.steps)] == [
        "Launch",
        "Launch",
    ]


@BOTH
@pytest.mark.parametrize("along", ["all", "rows", "reversed"])
def test_repeated_or_reversed_updates_write_rows_once(native, along, monkeypatch):
    tune(monkeypatch, scatter_rows_bytes=0)
    rng, n, width, count = np.random.default_rng(0), 5, 70, 9
    shape, dims = {"all": ((), ()), "rows": ((count,), (0,)), "reversed": ((count, width), (0, 1))}[
        along
    ]

    def fn(x, at, u):
        u = L.broadcast_in_dim(u, (count, width), dims)
        return [
            I.scatter_mul(
                x, at, L.rev(u, (1,)) if along == "reversed" else u, ROWS, mode=MODE.FILL_OR_DROP
            )
        ]

    avals = [ShapedArray((n, width), F32), ShapedArray((count, 1), I32), ShapedArray(shape, F32)]
    args = (
        rng.standard_normal((n, width)),
        rng.integers(-1, n + 1, (count, 1)),
        rng.standard_normal(shape),
    )
    check(stage(fn, avals), *args, native=native, rtol=1e-5)


@BOTH
@pytest.mark.parametrize("pieces", [1, 3])
def test_rows_of_several_dims_are_written_once(native, pieces, monkeypatch):
    """Indices of two dims, windows of two dims with transposed updates, and batched indices."""
    tune(monkeypatch, scatter_rows_bytes=0)
    tune(monkeypatch, scatter_row_segment=-(-8 * 12 // pieces))
    deep = I.ScatterDimensionNumbers((2, 3), (0, 1), (1, 0))
    batched = I.ScatterDimensionNumbers((2, 3), (1,), (1,), (0,), (0,))

    def fn(x, two, one, u):
        return [
            I.scatter_add(x, two, u, deep, mode=MODE.FILL_OR_DROP),
            I.scatter_add(x, one, E.sin(u), batched, mode=MODE.FILL_OR_DROP),
            I.scatter_mul(
                x,
                two,
                L.transpose(L.transpose(u, (3, 1, 0, 2)), (2, 1, 3, 0)),
                deep,
                mode=MODE.CLIP,
            ),
        ]

    shapes = [((3, 4, 8, 12), F32), ((3, 6, 2), I32), ((3, 6, 1), I32), ((3, 6, 8, 12), F32)]
    rng = np.random.default_rng(0)
    args = [rng.integers(-1, 5, s) if d == I32 else rng.standard_normal(s) for s, d in shapes]
    scheduled = check(
        stage(fn, [ShapedArray(s, d) for s, d in shapes]), *args, native=native, rtol=1e-4
    )
    assert sum(k.name == "sorted_by_row" for k in scheduled.kernels) == 3


def test_donated_rows_are_updated_in_place_unless_most_change(monkeypatch):
    tune(monkeypatch, scatter_rows_bytes=0)

    def fn(x, at, u):
        return [I.scatter_add(x, at, u, ROWS, mode=MODE.CLIP)]

    for count, names in ((9, ["scatter-add"]), (31, ["sorted_by_row", "scatter-add"])):
        scheduled = run(fn, 30, 20, count, True, donated=(0,), rtol=1e-4)
        assert scheduled.aliases == {0: 0} and [k.name for k in scheduled.kernels] == names
    assert len(run(fn, 30, 20, 4, True, rtol=1e-4).kernels) == 2
    assert len(run(fn, 30, 20, 3, True, rtol=1e-4).kernels) == 1


@BOTH
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_one_row_has_no_order(native, lead, monkeypatch):
    tune(monkeypatch, scatter_rows_bytes=0)
    numbers = I.ScatterDimensionNumbers((len(lead),), (0,), (0,))
    shapes = [((2, 64), F32), ((*lead, 1), I32), ((*lead, 64), F32)]
    jaxpr = stage(
        lambda x, at, u: [I.scatter_add(x, at, u, numbers, mode=MODE.FILL_OR_DROP)],
        [ShapedArray(s, d) for s, d in shapes],
    )
    rng = np.random.default_rng(0)
    args = [np.ones(s) if d == I32 else rng.standard_normal(s) for s, d in shapes]
    assert [k.name for k in check(jaxpr, *args, native=native, rtol=1e-5).kernels] == [
        "scatter-add"
    ]


def test_rows_that_are_updates_too_are_not_overwritten(monkeypatch):
    """Updates that read rows of a donated operand, which earlier writes would change."""
    tune(monkeypatch, scatter_rows_bytes=0)
    avals = [ShapedArray((30, 20), F32), ShapedArray((30, 1), I32)]
    rng = np.random.default_rng(0)
    args = rng.standard_normal((30, 20)), rng.integers(0, 30, (30, 1))
    jaxpr = stage(lambda x, at: [I.scatter_add(x, at, x, ROWS, mode=MODE.CLIP)], avals)
    scheduled = check(jaxpr, *args, native=True, donated=(0,), rtol=1e-4)
    assert [k.name for k in scheduled.kernels] == [
        "sorted_by_row",
        "scatter-add",
    ] and not scheduled.aliases


@pytest.mark.parametrize("mode", [MODE.CLIP, MODE.FILL_OR_DROP])
@pytest.mark.parametrize(
    "op", [I.scatter, I.scatter_add, I.scatter_mul, I.scatter_min], ids=["set", "add", "mul", "min"]
)
@pytest.mark.parametrize(
    "shape, dtype",
    [((20001,), "f4"), ((150, 151), "f4"), ((30000,), "f2"), ((30000,), "i8"), ((20001,), "c8")],
)
def test_many_points_have_owners(op, mode, shape, dtype):
    if op is I.scatter_min and dtype == "c8":
        return
    count, dims, dtype = (1 << 15) + 17, tuple(range(len(shape))), np.dtype(dtype)
    numbers, rng = I.ScatterDimensionNumbers((), dims, dims), np.random.default_rng(0)
    x, u = rng.integers(-3, 4, shape).astype(dtype), rng.integers(-1, 3, count).astype(dtype)
    at = np.stack([rng.integers(-5, n + 5, count) for n in shape], 1).astype(np.int32)
    avals = [ShapedArray(a.shape, a.dtype) for a in (x, at, u)]
    scheduled = check(stage(lambda x, at, u: [op(x, at, u, numbers, mode=mode)], avals), x, at, u)
    assert scheduled.kernels[-1].parallel_extent == SCATTER_OWNERS and "pack" in print_kernel(
        scheduled.kernels[-1]
    )


@pytest.mark.parametrize("mode", [MODE.CLIP, MODE.FILL_OR_DROP])
@pytest.mark.parametrize(
    "op", [I.scatter, I.scatter_add, I.scatter_mul, I.scatter_max], ids=["set", "add", "mul", "max"]
)
@pytest.mark.parametrize(
    "window, dtype",
    [
        ((2,), "f8"),
        ((33,), "f4"),
        ((127,), "f4"),
        ((31,), "f2"),
        ((70,), "i1"),
        ((45,), "bool"),
        ((13,), "c8"),
        ((3, 21), "f4"),
        ((5, 1, 7), "i8"),
        ((64, 1), "f4"),
    ],
)
def test_rows_have_owners(op, mode, window, dtype):
    """Neighboring updates have the same row, as in a sum over sorted segments."""
    if op is I.scatter_max and dtype == "c8":
        pytest.skip("complex numbers have no order")
    dtype, rows = np.dtype(dtype), 23
    count = machine_model().parallel_bytes // (math.prod(window) * dtype.itemsize) + 100
    dims, rng = tuple(range(1, 1 + len(window))), np.random.default_rng(0)
    numbers = I.ScatterDimensionNumbers(dims, (0,), (0,))
    x, u = (rng.integers(-1, 2, (n, *window)).astype(dtype) for n in (rows, count))
    at = np.sort(rng.integers(-3, rows + 3, (count, 1)), 0).astype(np.int32)
    avals = [ShapedArray(a.shape, a.dtype) for a in (x, at, u)]
    scheduled = check(stage(lambda x, at, u: [op(x, at, u, numbers, mode=mode)], avals), x, at, u)
    assert scheduled.kernels[-1].parallel_extent == SCATTER_OWNERS and "pack" in print_kernel(
        scheduled.kernels[-1]
    )


def test_windows_that_may_overlap_have_no_owners():
    numbers, rng = I.ScatterDimensionNumbers((1,), (), (0,)), np.random.default_rng(0)
    x, at, u = (
        rng.standard_normal(50),
        rng.integers(0, 35, (3000, 1)),
        rng.standard_normal((3000, 16)),
    )
    avals = [ShapedArray(x.shape, F32), ShapedArray(at.shape, I32), ShapedArray(u.shape, F32)]
    scheduled = check(
        stage(lambda x, at, u: [I.scatter_add(x, at, u, numbers, mode=MODE.CLIP)], avals),
        x,
        at,
        u,
        rtol=1e-3,
    )
    assert scheduled.kernels[-1].parallel_extent == 1


@BOTH
def test_owners_see_their_updates_in_order(native, monkeypatch):
    tune(monkeypatch, scatter_fewest_updates=0)
    tune(monkeypatch, scatter_block=16)
    avals = [ShapedArray((5,), F32), ShapedArray((75, 1), I32), ShapedArray((75,), F32)]
    jaxpr = stage(lambda x, at, u: [I.scatter(x, at, u, POINTS, mode=MODE.FILL_OR_DROP)], avals)
    rng = np.random.default_rng(0)
    check(
        jaxpr,
        rng.standard_normal(5),
        rng.integers(-1, 6, (75, 1)),
        rng.standard_normal(75),
        native=native,
    )


@pytest.mark.parametrize("size", [10, 1 << 31, (1 << 31) + 2, 3_000_000_000, 5_000_000_000])
def test_every_place_has_one_owner(size):
    """Also above 32-bit sizes; indices out of bounds have no owner."""
    b, share = LoopsBuilder(), -(-size // SCATTER_OWNERS)
    first = b.imul(b.index("t", SCATTER_OWNERS, 0), share)
    mine = scatters._is_in_range(
        b, b.cast(b.ref("place", "i32"), "i64"), first, b.imin(b.isub(size, first), share)
    )
    for place in (
        -(1 << 31),
        -(1 << 31) + 7,
        -1,
        0,
        5,
        9,
        10,
        (1 << 30) - 1,
        1 << 30,
        (1 << 31) - 1,
    ):
        owners = [t for t in range(SCATTER_OWNERS) if _value(mine, {"t": t, "place": place})]
        assert owners == ([place // share] if 0 <= place < size else [])


def _value(x, env):
    if isinstance(x, Const):
        return x.value
    if not isinstance(x, ScalarOp):
        return env[x.name]
    args = [_value(a, env) for a in x.args]
    of = {
        "cast": int,
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "min": min,
        "lt": operator.lt,
        "le": operator.le,
        "and": operator.and_,
    }
    return _wrap(int(of[x.op](*args)), x.type)


@BOTH
def test_gathers(native):
    run(
        lambda x, at, u: [rows(x, at, MODE.CLIP), E.sin(rows(E.exp(x), at, MODE.FILL_OR_DROP))],
        5,
        20,
        9,
        native,
    )


@BOTH
def test_gathered_rows_are_concatenated_in_one_kernel(native):
    """Periodic padding, for example, gathers no row separately for two results."""

    def fn(x, at, u):
        gathered = rows(x, at, MODE.CLIP)
        return [
            S.concatenate(
                [
                    S.slice_in_dim(gathered, 18, 20, axis=1),
                    gathered,
                    S.slice_in_dim(gathered, 0, 2, axis=1),
                ],
                1,
            )
        ]

    assert len(run(fn, 5, 20, 9, native).kernels) == 1


@pytest.mark.parametrize("reduce", [False, True], ids=["rows", "sums"])
@pytest.mark.parametrize("n, fetched", [(1 << 15, True), (1 << 14, False)])
def test_rows_of_large_tables_are_fetched_before_their_turn(n, fetched, reduce):
    def fn(x, at, u):
        gathered = rows(x, at, MODE.CLIP)
        return [R.reduce_sum(E.sin(gathered), axes=(1,)) if reduce else gathered]

    (kernel,) = run(fn, n, 64, 3000, True, rtol=1e-4).kernels
    assert ("prefetch x1" in print_kernel(kernel)) is fetched


@pytest.mark.parametrize("n, fetched", [(1 << 15, True), (1 << 14, False)])
def test_update_targets_in_large_tables_are_prefetched(n, fetched):
    kernel = run(
        lambda x, at, u: [I.scatter_add(x, at, u, ROWS, mode=MODE.FILL_OR_DROP)],
        n,
        64,
        300,
        True,
        rtol=1e-4,
    ).kernels[-1]
    assert ("prefetch y0" in print_kernel(kernel)) is fetched


def test_updates_fully_out_of_bounds_are_skipped_without_masks():
    scheduled = run(
        lambda x, at, u: [I.scatter_add(x, at, u, ROWS, mode=MODE.FILL_OR_DROP)],
        50,
        64,
        30,
        True,
        rtol=1e-4,
    )
    text = module_ir([(scheduled.kernels[-1], "k")], target.current())
    assert "fadd" in text and "llvm.masked.store" not in text


@pytest.mark.parametrize("width", [128, 200, 512])
def test_wide_scatters_share_columns_between_tasks(width):
    def fn(x, at, u):
        return [I.scatter_add(x, at, u, ROWS, mode=MODE.FILL_OR_DROP)]

    scheduled = run(fn, 50, width, 400, True, rtol=1e-3)
    assert scheduled.kernels[-1].parallel_extent == -(-width // 64)


@BOTH
def test_scatter_of_points_and_of_integers(native):
    avals = [ShapedArray((5,), I32), ShapedArray((30, 1), I32), ShapedArray((30,), I32)]
    jaxpr = stage(lambda x, at, u: [I.scatter_add(x, at, u, POINTS, mode=MODE.FILL_OR_DROP)], avals)
    rng = np.random.default_rng(0)
    check(
        jaxpr,
        rng.integers(0, 9, 5),
        rng.integers(-1, 6, (30, 1)),
        rng.integers(0, 9, 30),
        native=native,
    )


def test_zeros_are_made_where_the_sum_goes():
    def fn(x, at, u):
        return [I.scatter_add(spread(np.float32(0), x.shape, ()), at, u, ROWS, mode=MODE.CLIP)]

    scheduled = run(fn, 5, 20, 9, True, rtol=1e-4)
    assert [type(s).__name__ for s in iterate_steps(scheduled.program.steps)] == [
        "Launch",
        "Launch",
    ]
    assert scheduled.program.arena_bytes == 0


def test_a_donated_operand_is_updated_in_place():
    def fn(x, at, u):
        return [I.scatter_add(x, at, u, ROWS, mode=MODE.CLIP)]

    scheduled = run(fn, 5, 20, 9, True, donated=(0,), rtol=1e-4)
    assert scheduled.aliases == {0: 0}
    assert [type(s).__name__ for s in iterate_steps(scheduled.program.steps)] == ["Launch"]


@BOTH
@pytest.mark.parametrize("start", [-3, 0, 4, 99])
def test_window_updates_clamp(native, start):
    avals = [ShapedArray((14, 50), F32), ShapedArray((3, 4), F32), ShapedArray((), I32)]

    def fn(x, window, i):
        at = [i, np.int32(2)]
        return [dynamic_update_slice(E.sin(x), window, at), dynamic_slice(x, at, (3, 4))]

    rng = np.random.default_rng(0)
    check(
        stage(fn, avals),
        rng.standard_normal((14, 50)),
        rng.standard_normal((3, 4)),
        np.int32(start),
        native=native,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "float32", "int8"])
@pytest.mark.parametrize("n", [1, 2])
def test_many_updates_of_one_place_each_see_the_one_before(dtype, n):
    """An index that is invariant in the loop over its updates is still reread for each update."""
    updates = np.arange(64).reshape(8, 8) % 5
    run = weft.jit(weft.vmap(lambda x, i, u: x.at[i].add(u, mode="clip")))
    got = run(wnp.zeros((8, n), dtype), wnp.zeros((8, 8), int), wnp.asarray(updates).astype(dtype))
    np.testing.assert_array_equal(np.asarray(got[:, 0].real.astype(int)), updates.sum(1))
    if dtype != "complex64":
        top = weft.jit(weft.vmap(lambda x, i, u: x.at[i].max(u, mode="clip")))
        got = top(
            wnp.zeros((8, n), dtype), wnp.zeros((8, 8), int), wnp.asarray(updates).astype(dtype)
        )
        np.testing.assert_array_equal(np.asarray(got[:, 0].astype(int)), updates.max(1))


@BOTH
@pytest.mark.parametrize("n, count", [(20, 30), (3000, 9000)])
def test_updates_that_are_one_number_are_not_stored(native, n, count):
    """The number is a constant of the kernel for every kind of scatter: it is neither stored in
    memory nor loaded."""
    at = np.random.default_rng(0).integers(-n, n, (count, 1)).astype(I32)

    def program(x, at):
        return [I.scatter_add(x, at, L.broadcast_in_dim(np.float32(2.5), (count, 4), ()), ROWS)]

    x = np.zeros((n, 4), F32)
    jaxpr = stage(program, [ShapedArray(x.shape, F32), ShapedArray(at.shape, I32)])
    assert check(jaxpr, x, at, native=native).program.arena_bytes < count * 16
