"""Data movement: tiles transposed in registers, gathered rows, borders read from inside."""

import re

import ml_dtypes
import numpy as np
import pytest

import weft
import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft.numpy as wnp
from tests.compiler.machine import check
from tests.harness.tuning import tune
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ir.types import ShapedArray

BF16 = ml_dtypes.bfloat16
PERMUTED = [
    ((300, 1100), (1, 0)),
    ((33, 2065), (1, 0)),
    ((2065, 16), (1, 0)),
    ((17, 70, 130), (2, 0, 1)),
    ((17, 70, 130), (2, 1, 0)),
    ((40, 3, 33, 65), (0, 3, 1, 2)),
    ((1 << 21, 3), (1, 0)),
    ((67, 37, 5), (2, 1, 0)),
    ((33, 9, 2, 3), (2, 3, 1, 0)),
    ((70, 5, 17, 3), (3, 1, 2, 0)),
]


def numbers(shape, dtype, low=-100, high=100) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "c8", BF16, "f2", "i1", "?"], ids=lambda dtype: np.dtype(dtype).name
)
@pytest.mark.parametrize("shape, order", PERMUTED, ids=str)
def test_transposes(shape, order, dtype):
    x = numbers(shape, dtype, 0 if dtype == "?" else -100, 2 if dtype == "?" else 100)
    assert (
        np.asarray(weft.jit(lambda x: wnp.copy(x.transpose(order)))(x)) == x.transpose(order)
    ).all()


@pytest.mark.parametrize("dtype", ["f4", BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("shape, order", [*PERMUTED[:5], *PERMUTED[-3:]], ids=str)
def test_transposes_within_kernels(shape, order, dtype):
    x = numbers(shape, dtype)
    y = np.ascontiguousarray(x.transpose(order))
    got = weft.jit(
        lambda x, y: (x.transpose(order) * 2 - y, wnp.maximum(y, x.transpose(order)[:1]))
    )(x, y)
    assert (np.asarray(got[0]) == y).all()
    assert (np.asarray(got[1]) == np.maximum(y, y[:1])).all()


@pytest.mark.parametrize(
    "dtype, size", [("f8", 8), ("f4", 16), (BF16, 32), ("i1", 64)], ids=["8", "4", "2", "1"]
)
def test_a_tile_is_a_cache_line_wide(dtype, size):
    x = numbers((260, 192), dtype)
    scheduled = check(
        stage(
            lambda x: [L.transpose(x, permutation=(1, 0))], [ShapedArray(x.shape, np.dtype(dtype))]
        ),
        x,
    )
    assert [buf.size for kernel in scheduled.kernels for buf in kernel.scratch] == [size * size]


@pytest.mark.parametrize("shape, order", PERMUTED[-3:], ids=str)
def test_short_dims_make_one_line_for_tiles(shape, order):
    x = numbers(shape, "f4")
    (kernel,) = check(
        stage(lambda x: [L.transpose(x, permutation=order)], [ShapedArray(x.shape, x.dtype)]), x
    ).kernels
    assert [buf.size for buf in kernel.scratch] == [256] and "interleave" in print_kernel(kernel)


def turned(*xs) -> list:
    return [L.transpose(x, permutation=(1, 0)) for x in xs]


def _kernel(shape, dtype="f4"):
    """Return the kernel of a transpose."""
    (kernel,) = schedule(stage(turned, [ShapedArray(shape, np.dtype(dtype))])).kernels
    return kernel


def _side_by_side(shape, dtype="f4") -> int:
    """Return the number of adjacent rows of tiles that a transpose kernel processes together."""
    return int(re.search(r"serial h in (\d+)", print_kernel(_kernel(shape, dtype)))[1])


def test_tiles_are_transposed_in_blocks_at_page_strides():
    blocks = [_kernel((1024, 1024), dtype).scratch[0] for dtype in ("f8", "f4", BF16, "i1")]
    assert [(buf.size * size) for buf, size in zip(blocks, (8, 4, 2, 1))] == [1 << 15] * 4
    assert _kernel((1000, 1024)).scratch[0].size == 256  # closer together


def test_adjacent_tiles_for_streamed_results_fit_the_cache():
    assert [_side_by_side((rows, 4096)) for rows in (4096, 4032)] == [2, 2]
    assert [_side_by_side((rows, 4000)) for rows in (4096, 4032)] == [4, 4]
    assert [_side_by_side((8192, 4096), dtype) for dtype in (BF16, "i1")] == [2, 2]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f8", "f4", BF16], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("past", [False, True], ids=["cached", "past"])
@pytest.mark.parametrize("first", range(16, 71, 11))
def test_any_number_of_rows_side_by_side(first, past, dtype, monkeypatch):
    tune(
        monkeypatch,
        tile_conflict_bytes=1,
        tile_short_line=0,
        tile_run=64,
        tile_rows_skewed=2,
        tile_rows=2,
    )
    if past:
        tune(monkeypatch, tile_stream_bytes=1)
    xs = [numbers((k, k * 30 % 71 + 16), dtype) for k in range(first, min(first + 11, 71))]
    check(stage(turned, [ShapedArray(x.shape, x.dtype) for x in xs]), *xs)


@pytest.mark.parametrize(
    "shape, order",
    [
        ((203, 131), (1, 0)),
        ((3, 203, 131), (2, 0, 1)),
        ((3, 203, 131), (0, 2, 1)),
        ((129, 7, 70), (2, 1, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["f4", BF16, "i1"], ids=lambda dtype: np.dtype(dtype).name)
def test_rows_that_begin_between_lines(shape, order, dtype, monkeypatch):
    tune(monkeypatch, tile_stream_bytes=1)
    x = numbers(shape, dtype)
    y = numbers([shape[k] for k in order], dtype)
    both = lambda x, y: [E.add(L.transpose(x, permutation=order), y)]
    (kernel,) = check(
        stage(both, [ShapedArray(x.shape, x.dtype), ShapedArray(y.shape, y.dtype)]), x, y
    ).kernels
    assert "serial p" in print_kernel(kernel)


def test_what_is_computed_twice_is_not_overwritten():
    x, y = numbers((300, 170), "f4"), numbers((170, 300), "f4")
    donated = wnp.array(y)
    assert (
        np.asarray(weft.jit(lambda x, y: x.T + y, donate_argnums=1)(x, donated)) == x.T + y
    ).all()
    x, y = (
        numbers((1024, 4352), "i1", -50, 50),
        numbers((4352, 1024), "i1", -50, 50),
    )  # two runs of eight and a half blocks
    donated = wnp.array(y)
    assert (
        np.asarray(weft.jit(lambda x, y: x.T + y, donate_argnums=1)(x, donated)) == x.T + y
    ).all()


def test_halves_turn_as_they_lie_in_memory():
    x = np.arange(1 << 16, dtype="u2").reshape(256, 256)
    for dtype in (BF16, "f2"):
        turned = np.asarray(weft.jit(lambda x: wnp.copy(x.T))(x.view(dtype)))
        assert (turned.view("u2") == x.T).all()


@pytest.mark.parametrize(
    "dtype", ["f4", BF16, "f8", "i1", "c8"], ids=lambda dtype: np.dtype(dtype).name
)
@pytest.mark.parametrize("rows, columns", [(70, 33), (5, 100), (600, 2051)], ids=str)
def test_columns_by_index(rows, columns, dtype):
    x = numbers((rows, columns), dtype)
    i = numbers(columns + 7, "i4", -columns, columns)
    far = np.array([-(2**31), 2**31 - 1, 0, 4, columns], "i4")
    inside = (far >= 0) & (far < columns)

    def columns_of(x, i, far):
        return (
            x[:, i],
            wnp.take(x, far, axis=1, mode="clip"),
            x.at[:, far].get(mode="fill", fill_value=7),
            x[::-1, ::9],
        )

    got = map(np.asarray, weft.jit(columns_of)(x, i, far))
    clipped = x[:, np.clip(far, 0, columns - 1)]
    for mine, theirs in zip(
        got, (x[:, i], clipped, np.where(inside, clipped, np.asarray(7, dtype)), x[::-1, ::9])
    ):
        assert (mine == theirs).all()


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize(
    "shape, widths",
    [
        ((5, 7), ((2, 3), (1, 4))),
        ((70, 33), ((8, 8), (8, 8))),
        ((9,), ((20, 3),)),
        ((4, 5, 6), ((1, 1), (0, 0), (5, 2))),
        ((3, 1), ((0, 0), (3, 2))),
    ],
    ids=str,
)
def test_borders(shape, widths, mode):
    x = numbers(shape, "f4")
    assert (
        np.asarray(weft.jit(lambda x: wnp.pad(x, widths, mode=mode))(x))
        == np.pad(x, widths, mode=mode)
    ).all()
