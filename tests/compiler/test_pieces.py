"""Vector loops that are cut where comparisons of their index change: any sizes, any places, any tasks; and where they are cut."""

import re

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from weft import lax
from weft.compiler import nest, pieces
from weft.core.stage import stage
from weft.ir.loops_text import print_kernel
from weft.ir.types import ShapedArray


@pytest.fixture
def small(monkeypatch):
    """Cut even what is short, and share it among tasks."""
    monkeypatch.setattr(pieces, "LONG", 0)
    monkeypatch.setattr(pieces, "PLAIN", 0)
    monkeypatch.setattr(nest, "TASK_BYTES", 256)
    monkeypatch.setattr(nest, "STREAM_BYTES", 0)


def _updated(x, u, at):
    y = np.array(x)
    at = max(0, min(at, x.shape[1] - u.shape[1]))
    y[:, at:at + u.shape[1]] = u
    return y


def _edges(xp, x):
    return x * 4 - xp.roll(x, 1, 0) - xp.roll(x, -1, 0) - xp.roll(x, 1, 1) - xp.roll(x, -1, 1)


def _moved(xp, x, at):
    """Joins, borders, shifts by rows, by columns and through all, edges of a stencil, a place that is looked up."""
    updated = _updated(x, x[:, :5], int(at)) if xp is np else lax.dynamic_update_slice(x, x[:, :5], (0, at))
    return [xp.concatenate([x, x[:, 1:], x[:, :3] + 1], 1), xp.pad(x, ((1, 2), (3, 17)), constant_values=7), xp.roll(x, 5, 1),
            xp.roll(x, -3), xp.roll(x.reshape(-1), 37), _edges(xp, x), updated, xp.concatenate([x[:, ::-1], xp.roll(x, 2, 1)], 1)]


def _compare(shapes, dtype):
    xs = [np.random.default_rng(n).integers(-9, 9, shape).astype(dtype) for n, shape in enumerate(shapes)]
    at = np.array([7 * n % (shape[1] + 1) for n, shape in enumerate(shapes)], "i4")
    made = weft.jit(lambda xs, at: [_moved(wnp, x, at[n]) for n, x in enumerate(xs)])(xs, at)
    for n, x in enumerate(xs):
        for got, want in zip(made[n], _moved(np, x, at[n])):
            assert (np.asarray(got) == want).all(), (x.shape, x.dtype)


@pytest.mark.parametrize("first", range(0, 71, 10))
def test_any_size(small, first):
    _compare([(k, k * 30 % 71) for k in range(first, min(first + 10, 71))], "f4")


@pytest.mark.parametrize("dtype", ["f8", ml_dtypes.bfloat16, "i1", "c8", "f2"], ids=lambda dtype: np.dtype(dtype).name)
def test_types(small, dtype):
    _compare([(3, 200), (1, 1000), (70, 33), (5, 64)], dtype)


def _loops(function, *arrays) -> list[str]:
    """The text of each vector loop of a program."""
    avals = [ShapedArray(x.shape, x.dtype) for x in arrays]
    scheduled = check(stage(lambda *xs: [function(*xs)], avals), *arrays)
    text = "\n".join([print_kernel(kernel) for kernel in scheduled.kernels])
    return re.findall(r"vector [^{]*\{[^}]*\}", text)


X = np.arange(1 << 18, dtype="f4").reshape(256, 1024)


def test_a_join_is_copies():
    loops = _loops(lambda x, y: wnp.concatenate([x, y, x], 1), X, X)
    assert [loop.split("{")[0] for loop in loops] == ["vector j0 in 1024 ", "vector j1 in 1024 ", "vector j2 in 1024 "]
    assert not any("?" in loop or "select" in loop for loop in loops)


def test_guards_stay_in_the_lines_around_a_place():
    loops = _loops(lambda x: wnp.roll(x, 100, 1), X)
    assert [int(loop.split()[3]) for loop in loops] == [96, 16, 912]
    assert ["?" in loop for loop in loops] == [False, True, False]


def test_places_that_move_with_the_row():
    loops = _loops(lambda x: wnp.roll(x, 100), X)
    assert ["?" in loop for loop in loops] == [False, True, False]


def test_what_is_short_is_one_loop():
    assert len(_loops(lambda x, y: wnp.concatenate([x, y], 1), X[:64], X[:64])) == 1
    assert len(_loops(lambda x, y: wnp.concatenate([x, y], 1), X.reshape(-1, 8), X.reshape(-1, 8))) == 1
