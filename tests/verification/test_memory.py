"""The check `memory`: the error names the kernel that wrote outside of its buffers."""

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.verification import faults
from tests.verification.programs import PROGRAMS, normal
from weft._engine.compiler.schedule.arena import GUARD, ArenaBuffer, assign_offsets
from weft._engine.util.config import Override
from weft._engine.verification import stages
from weft.errors import VerificationError


@pytest.fixture(autouse=True)
def checked():
    with Override(check="memory"):
        yield


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_correct_programs_pass(program, monkeypatch):
    runs = []
    inner = stages.StepwiseRun.first_overrun
    monkeypatch.setattr(
        stages.StepwiseRun, "first_overrun", lambda self: (runs.append(self), inner(self))[1]
    )
    program()
    assert runs


def test_buffers_have_guards_and_memory_of_their_own():
    buffers = [
        ArenaBuffer(100, first=0, last=1),
        ArenaBuffer(5000, first=1, last=2),
        ArenaBuffer(64, first=3, last=4),
    ]
    arena = assign_offsets(buffers)
    spans = sorted((b.offset, b.offset + b.nbytes) for b in buffers)
    assert (
        spans[0][0] >= GUARD
        and all(b[0] - a[1] >= GUARD for a, b in itertools.pairwise(spans))
        and arena - spans[-1][1] >= GUARD
    )
    with Override(check=""):
        assert assign_offsets(buffers) < GUARD + 5000


def test_a_kernel_that_writes_after_a_result_is_named(monkeypatch):
    x = normal(17)
    faults.in_bounds(monkeypatch)
    with pytest.raises(VerificationError) as info:
        weft.jit(lambda x: wnp.exp(x) - 3)(x)
    text = str(info.value)
    assert (
        "kernel fused_sub wrote outside of its buffers: 4 bytes after result 0 of 68 bytes, the first 0 bytes from it"
        in text
    )
    assert "sub at test_memory.py" in text and info.value.stage == "memory: kernel fused_sub"


def test_writes_between_arena_buffers_name_the_kernel(monkeypatch):
    x = normal(16)
    faults.in_bounds(monkeypatch)
    with pytest.raises(
        VerificationError,
        match=r"wrote outside of its buffers: 4 bytes after buffer s\d+ of 64 bytes in the arena",
    ):
        weft.jit(lambda x: wnp.sort(wnp.exp(x) - 3) * 2)(x)


def test_writes_before_a_buffer_are_found(monkeypatch):
    x = normal(16)
    faults.in_bounds(monkeypatch, -1)
    with pytest.raises(
        VerificationError, match=r"4 bytes before result 0 of 64 bytes, the first 4 bytes from it"
    ):
        weft.jit(lambda x: wnp.exp(x) - 3)(x)


def test_callbacks_run_once_and_every_call_is_checked(monkeypatch):
    called = []
    f = weft.jit(
        lambda x: (
            weft.pure_callback(
                lambda x: (called.append(1), x * 2)[1], weft.ShapeDtypeStruct((3,), np.float32), x
            )
            + 1
        )
    )
    for i in range(3):
        assert f(wnp.ones(3)).tolist() == [3, 3, 3] and len(called) == i + 1


def test_memory_and_values_together():
    with Override(check="memory,values,stages"):
        x = normal(64, 64) + 0
        got = weft.jit(lambda x: x * 2, donate_argnums=0)(x)
        assert got.shape == (64, 64) and x.is_deleted()
