"""Buffers: reuse, results in place, donation."""

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
from tests.compiler.machine import check
from tests.compiler.test_fusion import adam, dot, staged, values
from weft._engine.compiler.schedule.arena import ArenaBuffer, assign_offsets
from weft._engine.util.machine_model import machine_model


def life(nbytes, first, last):
    buffer = ArenaBuffer(nbytes)
    buffer.first, buffer.last = first, last
    return buffer


def test_buffers_that_never_live_together_share():
    a, b, c = life(640, 0, 1), life(640, 1, 2), life(640, 2, 3)
    assert assign_offsets([a, b, c]) == 1280
    assert a.offset == c.offset != b.offset


def test_a_hole_is_used_and_offsets_are_aligned():
    a, b, c = life(100, 0, 0), life(100, 0, 5), life(90, 1, 5)
    assert assign_offsets([a, b, c]) == 256
    assert c.offset == a.offset and all(x.offset % 64 == 0 for x in (a, b, c))


def test_large_buffers_begin_at_huge_pages():
    a, b = life(100, 0, 3), life(machine_model().huge_page, 1, 3)
    assign_offsets([a, b])
    assert b.offset == machine_model().huge_page


@pytest.mark.parametrize("seed", range(5))
def test_random_lives_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    buffers = []
    for _ in range(60):
        first = int(rng.integers(0, 50))
        buffers.append(life(int(rng.integers(1, 2000)), first, first + int(rng.integers(0, 10))))
    top = assign_offsets(buffers)
    for i, a in enumerate(buffers):
        assert a.offset + a.nbytes <= top
        for b in buffers[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_a_chain_of_matmuls_needs_two_buffers():
    def fn(x):
        for _ in range(6):
            x = dot(x, x)
        return [x]

    scheduled = check(staged(fn, [(16, 16)]), values([(16, 16)])[0] * 0.1)
    assert scheduled.program.arena_bytes == 2 * 16 * 16 * 4


def test_large_elementwise_temporaries_are_overwritten():
    def fn(x):
        running = R.cumsum(x, axis=0, reverse=False)
        return [dot(E.sin(running), x)]

    x = values([(160, 160)])[0] * 0.01
    scheduled = check(staged(fn, [x.shape]), x, rtol=1e-3)
    assert scheduled.program.arena_bytes <= x.nbytes
    assert any(b.alias for k in scheduled.kernels for b in k.bufs)


def test_donated_inputs_of_an_update_are_written_in_place():
    shapes = [(24, 20)] * 4 + [()]
    scheduled = check(staged(adam, shapes), *values(shapes), donated=(0, 2, 3), rtol=1e-3)
    assert scheduled.aliases == {0: 0, 1: 2, 2: 3}
    assert scheduled.program.arena_bytes == 0


def test_epilogues_write_donated_inputs_in_place():
    shapes = [(20, 24), (24, 20), (20, 20)]
    fn = lambda x, y, p: [E.sub(p, dot(x, y))]
    scheduled = check(staged(fn, shapes), *values(shapes), donated=(0, 1, 2), rtol=1e-4)
    assert (scheduled.kernel_count, scheduled.aliases) == (0, {0: 2})
    assert any(b.alias for epilogue in scheduled.epilogues for b in epilogue.bufs)
    fn = lambda x, y: [E.sub(x, dot(x, y))]
    scheduled = check(staged(fn, [(20, 20)] * 2), *values([(20, 20)] * 2), donated=(0,), rtol=1e-4)
    assert (scheduled.kernel_count, scheduled.aliases) == (0, {})


def test_an_input_that_is_read_elsewhere_is_not_overwritten():
    def fn(x):
        return [E.add(L.transpose(x, permutation=(1, 0)), x), R.reduce_sum(x, axes=(0,))]

    scheduled = check(staged(fn, [(20, 20)]), *values([(20, 20)]), donated=(0,))
    assert 0 not in scheduled.aliases


@pytest.mark.parametrize("native", [False, True], ids=["slow", "native"])
@pytest.mark.parametrize("first", [lambda y: y, lambda y: dot(y, y)], ids=["kernel", "epilogue"])
def test_all_results_are_read_before_one_overwrites_an_operand(first, native):
    fn = lambda x, y: [E.mul(first(y), 3.0), E.add(first(y), x)]
    shapes = [(20, 20)] * 2
    check(staged(fn, shapes), *values(shapes), donated=(0,), rtol=1e-4, native=native)


def test_a_donated_input_returned_as_it_is():
    scheduled = check(staged(lambda x: [x], [(20,)]), *values([(20,)]), donated=(0,))
    assert scheduled.aliases == {0: 0} and scheduled.program.steps == ()


def test_peak_counts_inputs_outputs_and_arena():
    scheduled = check(staged(lambda x: [E.sin(x)], [(32,)]), *values([(32,)]))
    assert scheduled.peak_bytes == 2 * 32 * 4
