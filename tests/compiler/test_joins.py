"""Concatenations of many arrays: copies of arrays in memory, of runs or of interleaved elements,
and none of values that are computed in place."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

RANDOM = np.random.default_rng(5)


def arrays(count, *shape, dtype=np.float32):
    return [(9 * RANDOM.normal(size=shape)).astype(dtype) for _ in range(count)]


def scheduled(f, *args):
    return weft.jit(f).lower(*args).compile().runtime_executable().stages.scheduled


def joins(f, *args):
    return [
        line.split(":")[0].strip()
        for line in scheduled(f, *args).text().splitlines()
        if line.strip().startswith("join")
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.complex64, np.bool_])
@pytest.mark.parametrize(
    "count, shape, dim",
    [
        (12, (9000,), 0),
        (70, (33, 130), 1),
        (70, (33, 130), 0),
        (5, (19, 1000, 1), 2),
        (8, (70000, 1), 1),
        (13, (9001, 1), 1),
        (16, (9001, 1), 1),
        (130, (999, 1), 1),
        (12, (5001, 2), 1),
        (10, (301, 4, 16), 1),
        (9, (2601, 1, 8), 1),
    ],
    ids=str,
)
def test_many_operands(dtype, count, shape, dim):
    xs = arrays(count, *shape, dtype=dtype)
    join = lambda *xs: wnp.concatenate(xs, dim)
    np.testing.assert_array_equal(weft.jit(join)(*xs), np.concatenate(xs, dim))
    assert scheduled(join, *xs).kernel_count <= 1 and len(joins(join, *xs)) == 1


def test_uneven_and_empty_operands():
    xs = [
        RANDOM.normal(size=(64, n)).astype(np.float32)
        for n in (100, 0, 17, 16, 3000, 0, 64, 65, 40, 20, 33, 1999)
    ]
    np.testing.assert_array_equal(
        weft.jit(lambda *xs: wnp.concatenate(xs, 1))(*xs), np.concatenate(xs, 1)
    )
    long = [x.reshape(-1) for x in xs] + [RANDOM.normal(size=200_001).astype(np.float32)]
    np.testing.assert_array_equal(
        weft.jit(lambda *xs: wnp.concatenate(xs))(*long), np.concatenate(long)
    )


def test_what_is_computed_is_made_in_its_place():
    xs = arrays(12, 4096)
    f = lambda *xs: wnp.concatenate([x * k for k, x in enumerate(xs, 2)])
    assert not joins(f, *xs) and scheduled(f, *xs).program.arena_bytes == 0
    np.testing.assert_array_equal(
        weft.jit(f)(*xs), np.concatenate([x * np.float32(k) for k, x in enumerate(xs, 2)])
    )
    twice = lambda *xs: (
        wnp.concatenate(ys := [x + 1 for x in xs]),
        ys[0],
        sum(ys),
    )  # values with other uses
    for got, want in zip(
        weft.jit(twice)(*xs), (np.concatenate(xs) + 1, xs[0] + 1, sum(x + 1 for x in xs))
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
    again = lambda x, *xs: wnp.concatenate([x, x, *xs, x * 2])
    np.testing.assert_array_equal(weft.jit(again)(*xs), np.concatenate([xs[0], *xs, xs[0] * 2]))


def test_joins_inside_of_programs():
    xs = arrays(10, 4096)
    loop = lambda *xs: lax.fori_loop(
        0,
        3,
        lambda i, c: wnp.concatenate([c[4096:8192] + i, *[x * 2 for x in xs[1:]]]),
        wnp.concatenate(xs),
    )
    want = np.concatenate(xs)
    for i in range(3):
        want = np.concatenate([want[4096:8192] + i, *[2 * x for x in xs[1:]]])
    np.testing.assert_allclose(weft.jit(loop)(*xs), want, rtol=1e-6)
    total = lambda *xs: (wnp.stack(xs, -1).reshape(64, -1) @ wnp.ones((640, 3))).sum()
    np.testing.assert_allclose(weft.grad(total)(*xs), np.full(4096, 3.0))
    np.testing.assert_array_equal(
        weft.vmap(lambda *xs: wnp.stack(xs, -1))(*[x.reshape(4, 1024) for x in xs]),
        np.stack([x.reshape(4, 1024) for x in xs], -1),
    )
    assert "concatenate" in weft.jit(lambda *xs: wnp.concatenate(xs)).lower(*xs).compile().as_text()


def test_few_or_small_operands_stay_in_one_kernel():
    assert not joins(lambda *xs: wnp.concatenate(xs), *arrays(9, 40000))
    assert not joins(lambda *xs: wnp.concatenate(xs), *arrays(60, 16))
    assert not joins(lambda *xs: wnp.stack(xs, -1), *arrays(4, 40000))
