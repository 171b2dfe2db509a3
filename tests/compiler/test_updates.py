"""Gathers, scatters and window updates: values, duplicates, and updates in place."""

import numpy as np
import pytest

import weft.ops.elementwise as E
import weft.ops.indexing as I
import weft.ops.reduce as R
import weft.ops.slicing as S
from tests.compiler.machine import check
from tests.compiler.test_fusion import spread
from weft.compiler.schedule import walk
from weft.core.stage import stage
from weft.ir.loops_text import print_kernel
from weft.ir.types import ShapedArray

F32, I32 = np.dtype("f4"), np.dtype("i4")
MODE = I.GatherScatterMode
ROWS = I.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
POINTS = I.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
BOTH = pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])


def rows(x, at, mode):
    numbers = I.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return I.gather(x, at, numbers, (1, x.shape[1]), mode=mode)


def run(fn, n, width, count, native, **options):
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((n, width)), rng.integers(-1, n + 1, (count, 1)), rng.standard_normal((count, width))]
    avals = [ShapedArray((n, width), F32), ShapedArray((count, 1), I32), ShapedArray((count, width), F32)]
    return check(stage(lambda *xs: list(fn(*xs)), avals), *args, native=native, **options)


@BOTH
@pytest.mark.parametrize("mode", [MODE.CLIP, MODE.FILL_OR_DROP])
@pytest.mark.parametrize("op", [I.scatter, I.scatter_add, I.scatter_mul, I.scatter_min, I.scatter_max],
                         ids=["set", "add", "mul", "min", "max"])
def test_scatters_with_repeated_and_outside_rows(native, op, mode):
    run(lambda x, at, u: [op(x, at, u, ROWS, mode=mode)], 5, 20, 9, native, rtol=1e-4)


@BOTH
def test_gathers(native):
    run(lambda x, at, u: [rows(x, at, MODE.CLIP), E.sin(rows(E.exp(x), at, MODE.FILL_OR_DROP))], 5, 20, 9, native)


@pytest.mark.parametrize("reduce", [False, True], ids=["rows", "sums"])
@pytest.mark.parametrize("n, fetched", [(1 << 15, True), (1 << 14, False)])
def test_rows_of_large_tables_are_fetched_before_their_turn(n, fetched, reduce):
    def fn(x, at, u):
        found = rows(x, at, MODE.CLIP)
        return [R.reduce_sum(E.sin(found), axes=(1,)) if reduce else found]

    (kernel,) = run(fn, n, 64, 3000, True, rtol=1e-4).kernels
    assert ("prefetch x1" in print_kernel(kernel)) is fetched


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
    check(jaxpr, rng.integers(0, 9, 5), rng.integers(-1, 6, (30, 1)), rng.integers(0, 9, 30), native=native)


def test_zeros_are_made_where_the_sum_goes():
    def fn(x, at, u):
        return [I.scatter_add(spread(np.float32(0), x.shape, ()), at, u, ROWS, mode=MODE.CLIP)]

    scheduled = run(fn, 5, 20, 9, True, rtol=1e-4)
    assert [type(s).__name__ for s in walk(scheduled.program.steps)] == ["Launch", "Launch"]
    assert scheduled.program.arena_bytes == 0


def test_a_donated_operand_is_updated_in_place():
    def fn(x, at, u):
        return [I.scatter_add(x, at, u, ROWS, mode=MODE.CLIP)]

    scheduled = run(fn, 5, 20, 9, True, donated=(0,), rtol=1e-4)
    assert scheduled.aliases == {0: 0}
    assert [type(s).__name__ for s in walk(scheduled.program.steps)] == ["Launch"]


@BOTH
@pytest.mark.parametrize("start", [-3, 0, 4, 99])
def test_window_updates_clamp(native, start):
    avals = [ShapedArray((14, 50), F32), ShapedArray((3, 4), F32), ShapedArray((), I32)]

    def fn(x, window, i):
        at = [i, np.int32(2)]
        return [S.dynamic_update_slice(E.sin(x), window, at), S.dynamic_slice(x, at, (3, 4))]

    rng = np.random.default_rng(0)
    check(stage(fn, avals), rng.standard_normal((14, 50)), rng.standard_normal((3, 4)), np.int32(start), native=native)
