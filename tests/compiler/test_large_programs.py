"""Programs and arrays so large that a quadratic search would not end."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.fusion import groups
from weft._engine.compiler.fusion.classify import MOST_JOINED
from weft._engine.compiler.loops.loop_levels import segment_length
from weft._engine.ir.loops_text import print_kernel


def searched(extent: int, segments: int) -> int:
    """Return the result of `segment_length` by trying all lengths."""
    want = -(-extent // segments)
    chunk = 64 * -(-want // 64)
    return next(
        (n for n in range(chunk, min(2 * chunk, extent) + 1, 64) if extent % n == 0),
        min(chunk, extent),
    )


def test_segments_are_those_that_a_search_finds():
    for extent in (
        *range(1, 300),
        *range(320, 64 * 130, 64),
        64 * 1009,
        4096 * 15,
        10**6,
        10**6 + 7,
    ):
        for segments in (1, 2, 3, 7, 16, 64, 100):
            assert segment_length(extent, segments) == searched(extent, segments)
    assert (
        segment_length(2**62, 24) == 2**62 // 16 and segment_length(10**18 + 9, 16) < 10**18 // 15
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: wnp.repeat(wnp.arange(3.0), 10**17),
        lambda: wnp.zeros((10, 100000000003)),
        lambda: weft.jit(lambda: wnp.ones(10**17))(),
    ],
)
def test_what_has_no_room_is_a_memory_error_at_once(make):
    with pytest.raises(MemoryError, match="cannot allocate"):
        make()


@pytest.mark.parametrize(
    ("work", "most"),
    [(lambda x: x * 2, 0), (lambda x: x.sum(0), 2), (lambda x: (x * 2, x.sum(0)), 4)],
)
def test_kernels_look_at_those_that_share_an_argument_only(work, most, monkeypatch):
    looks, look = [], groups._domain_for
    monkeypatch.setattr(groups, "_domain_for", lambda *args: looks.append(1) or look(*args))
    arguments = [np.full((20, 30), i, np.float32) for i in range(60)]
    got = weft.jit(lambda xs: [work(x) for x in xs])(arguments)
    assert len(looks) <= most * len(arguments)
    for x, y in zip(arguments, got):
        for want, have in zip(weft.tree.leaves(work(x)), weft.tree.leaves(y), strict=True):
            assert np.array_equal(want, have)


def test_a_thousand_donated_arguments():
    arguments = [wnp.full(8, float(i)) for i in range(1000)]
    got = weft.jit(lambda xs: [x * 0.5 for x in xs], donate_argnums=0)(arguments)
    assert all(x.is_deleted() for x in arguments) and [float(y[0]) for y in got] == [
        i / 2 for i in range(1000)
    ]


def test_many_operands_are_joined_by_parts():
    xs = [np.full(2, i, np.int32) for i in range(400)]
    join = weft.jit(lambda *xs: wnp.concatenate(xs))
    np.testing.assert_array_equal(join(*xs), np.repeat(np.arange(400), 2))
    np.testing.assert_array_equal(wnp.stack(xs[:150]), np.stack(xs[:150]))
    kernels = join.lower(*xs).compile().stages.scheduled.kernels
    assert max(print_kernel(k).partition("{")[0].count("in x") for k in kernels) <= MOST_JOINED
