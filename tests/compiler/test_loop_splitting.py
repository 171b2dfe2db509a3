"""Vector loops split where comparisons of their index change: any sizes, split points and tasks;
and the choice of split points."""

import re

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from tests.harness.tuning import tune
from weft import lax
from weft._engine.core.stage import stage
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ir.types import ShapedArray


@pytest.fixture
def small(monkeypatch):
    """Split even short loops, and share them among tasks."""
    tune(monkeypatch, split_from_bytes=0, split_segment=0, task_bytes=256, stream_bytes=0)


def _updated(x, u, at):
    y = np.array(x)
    at = max(0, min(at, x.shape[1] - u.shape[1]))
    y[:, at : at + u.shape[1]] = u
    return y


def _edges(xp, x):
    return x * 4 - xp.roll(x, 1, 0) - xp.roll(x, -1, 0) - xp.roll(x, 1, 1) - xp.roll(x, -1, 1)


def _bounced(xp, x):
    """Compute more than is duplicated freely."""
    for _ in range(5):
        x = xp.minimum(xp.maximum(x + 1, -5), 4) * 2
    return x


def _moved(xp, x, at):
    """Concatenate computed and stored values, pad, shift by rows, by columns and by both, read
    edges of a stencil and an offset."""
    updated = (
        _updated(x, x[:, :5], int(at))
        if xp is np
        else lax.dynamic_update_slice(x, x[:, :5], (0, at))
    )
    bounced = _bounced(xp, x)
    computed = (
        xp.concatenate([bounced, _bounced(xp, -x), x[:, :3]], 1),
        xp.pad(bounced, ((0, 0), (3, 70))) + xp.pad(x, ((0, 0), (73, 0))),
    )
    return [
        *computed,
        xp.concatenate([x, x[:, 1:], x[:, :3] + 1], 1),
        xp.pad(x, ((1, 2), (3, 17)), constant_values=7),
        xp.roll(x, 5, 1),
        xp.roll(x, -3),
        xp.roll(x.reshape(-1), 37),
        _edges(xp, x),
        updated,
        xp.concatenate([x[:, ::-1], xp.roll(x, 2, 1)], 1),
    ]


def _compare(shapes, dtype):
    xs = [
        np.random.default_rng(n).integers(-9, 9, shape).astype(dtype)
        for n, shape in enumerate(shapes)
    ]
    at = np.array([7 * n % (shape[1] + 1) for n, shape in enumerate(shapes)], "i4")
    results = weft.jit(lambda xs, at: [_moved(wnp, x, at[n]) for n, x in enumerate(xs)])(xs, at)
    for n, x in enumerate(xs):
        for got, want in zip(results[n], _moved(np, x, at[n])):
            assert (np.asarray(got) == want).all(), (x.shape, x.dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", range(0, 71, 10))
def test_any_size(small, first):
    _compare([(k, k * 30 % 71) for k in range(first, min(first + 10, 71))], "f4")


@pytest.mark.parametrize(
    "dtype", ["f8", ml_dtypes.bfloat16, "i1", "c8", "f2"], ids=lambda dtype: np.dtype(dtype).name
)
def test_types(small, dtype):
    _compare([(3, 200), (1, 1000), (70, 33), (5, 64)], dtype)


def _windows(xp, x):
    """Sum and take maxima of windows over pixels, with strides 1 and 2; and shift by a pixel."""
    if xp is wnp:
        sums = lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        most = lax.reduce_window(
            x, -np.inf, lax.max, (1, 1, 4, 1), (1, 1, 1, 1), [(0, 0), (0, 0), (1, 2), (0, 0)]
        )
        sparse = lax.reduce_window(
            x, 0.0, lax.add, (1, 1, 3, 1), (1, 1, 2, 1), [(0, 0), (0, 0), (1, 1), (0, 0)]
        )
    else:
        h, w = x.shape[1:3]
        wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        sums = sum(wide[:, i : i + h, j : j + w] for i in range(3) for j in range(3))
        low = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 0)), constant_values=-np.inf)
        most = np.max([low[:, :, j : j + w] for j in range(4)], axis=0)
        sparse = sum(wide[:, 1:-1, j : j + w] for j in range(3))[:, :, ::2]
    return [sums, most, sparse, x - xp.roll(x, 1, 2), xp.concatenate([x, x[:, :, :1] + 1], 2)]


@pytest.mark.parametrize("channels", [2, 7, 16, 33, 70])
def test_windows_over_pixels(small, channels):
    xs = [
        np.random.default_rng(w).integers(-9, 9, (2, 3, w, channels)).astype("f4")
        for w in (1, 2, 3, 4, 5, 16, 33, 70)
    ]
    outputs = weft.jit(lambda xs: [_windows(wnp, x) for x in xs])(xs)
    for x, results in zip(xs, outputs):
        for got, want in zip(results, _windows(np, x)):
            assert (np.asarray(got) == want).all(), x.shape


def _loops(function, *arrays) -> list[str]:
    """Return the text of each vector loop of a program."""
    avals = [ShapedArray(x.shape, x.dtype) for x in arrays]
    scheduled = check(stage(lambda *xs: [function(*xs)], avals), *arrays)
    text = "\n".join([print_kernel(kernel) for kernel in scheduled.kernels])
    return re.findall(r"vector [^{]*\{[^}]*\}", text)


X = np.arange(1 << 18, dtype="f4").reshape(256, 1024)


def test_a_join_is_copies():
    loops = _loops(lambda x, y: wnp.concatenate([x, y, x], 1), X, X)
    assert [loop.split("{")[0] for loop in loops] == [
        "vector j0 in 1024 ",
        "vector j1 in 1024 ",
        "vector j2 in 1024 ",
    ]
    assert not any("?" in loop or "select" in loop for loop in loops)


def test_guards_stay_in_the_lines_around_a_place():
    loops = _loops(lambda x: wnp.roll(x, 100, 1), X)
    assert [int(loop.split()[3]) for loop in loops] == [96, 16, 912]
    assert ["?" in loop for loop in loops] == [False, True, False]


def test_places_that_move_with_the_row():
    loops = _loops(lambda x: wnp.roll(x, 100), X)
    assert ["?" in loop for loop in loops] == [False, True, False]


def test_sums_over_what_is_compared(small):
    x = np.random.default_rng(0).integers(-9, 9, (40, 70)).astype("f4")
    got = weft.jit(
        lambda x: (
            wnp.pad(x, ((0, 0), (3, 5))).sum(1),
            wnp.roll(x, 3, 1).sum(0),
            wnp.pad(x, ((2, 1), (0, 0))).max(0),
        )
    )(x)
    for mine, theirs in zip(
        got, (x.sum(1), np.roll(x, 3, 1).sum(0), np.pad(x, ((2, 1), (0, 0))).max(0))
    ):
        assert (np.asarray(mine) == theirs).all()


def test_pixels_of_few_channels_are_one_long_row():
    loops = _loops(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 1), (1, 1, 1, 1), "SAME"),
        X.reshape(16, 32, 16, 32),
    )
    assert [int(loop.split()[3]) for loop in loops] == [32, 14 * 32, 32]
    assert not any("?" in loop for loop in loops)


def test_what_is_short_is_one_loop():
    assert len(_loops(lambda x, y: wnp.concatenate([x, y], 1), X[:64], X[:64])) == 1
    assert (
        len(_loops(lambda x, y: wnp.concatenate([x, y], 1), X.reshape(-1, 8), X.reshape(-1, 8)))
        == 1
    )
