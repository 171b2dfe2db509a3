"""Checks of the memory of scheduled programs: correct programs pass, planted faults are detected."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.schedule import arena, buffer_assignment, memory_check
from weft._engine.compiler.schedule.memory_check import MemoryPlanError, check_memory
from weft._engine.ir import program as P
from weft._engine.ir.loops import Buf, Const, LoopsKernel, StoreElement


def kernel(*bufs):
    return LoopsKernel(
        bufs, (StoreElement(bufs[-1].name, Const(0, "i64"), Const(0.0, "f32")),), name="test"
    )


ADD = kernel(Buf("x0", "f32", 4), Buf("x1", "f32", 4), Buf("y0", "f32", 4, "out"))
IN_PLACE = kernel(Buf("x0", "f32", 4), Buf("y0", "f32", 4, "out", "x0"))


def program(*steps, temps=((16, 0), (16, 64))):
    slots = (
        P.BufferSlot(P.SlotKind.INPUT, 16),
        P.BufferSlot(P.SlotKind.OUTPUT, 16),
        P.BufferSlot(P.SlotKind.CONSTANT, 16),
        *[P.BufferSlot(P.SlotKind.TEMP, n, at) for n, at in temps],
    )
    return P.ScheduledProgram(slots, steps, 1024)


def copy(target, source, nbytes=16):
    refs = [x if isinstance(x, P.BufRef) else P.BufRef(x) for x in (target, source)]
    return P.Copy(*refs, nbytes)


def launch(k, *slots):
    return P.Launch(k, tuple(map(P.BufRef, slots)))


CORRECT = {
    "temp written and read": program(copy(3, 0), copy(1, 3)),
    "constant read": program(copy(1, 2)),
    "memory reused": program(copy(3, 0), copy(4, 3), copy(1, 4), temps=((16, 0), (16, 16))),
    "in place": program(copy(3, 0), launch(IN_PLACE, 3, 4), copy(1, 4), temps=((16, 0), (16, 0))),
    "written in halves": program(copy(3, 0, 8), copy(P.BufRef(3, 8), 0, 8), copy(1, 3)),
    "written in a loop": program(
        P.Loop("i", 4, (copy(P.BufRef(3, 0, (("i", 4),)), 0, 4),)), copy(1, 3)
    ),
    "carried by a loop": program(copy(3, 0), P.Loop("i", 3, (copy(4, 3), copy(3, 4))), copy(1, 3)),
    "written by all branches": program(
        P.Branch(P.BufRef(0), ((copy(3, 0),), (copy(3, 2),))), copy(1, 3)
    ),
    "joined": program(
        P.JoinStep(P.BufRef(3), 2, 8, ((P.BufRef(0), 4, 0), (P.BufRef(2), 4, 4))), copy(1, 3)
    ),
}

FAULTS = {
    "never written": (program(copy(1, 3)), "nothing has written"),
    "written in part": (
        program(copy(3, 0, 8), copy(1, 3)),
        "nothing has written its bytes 8 to 16",
    ),
    "overwritten": (
        program(copy(3, 0), copy(4, 2), copy(1, 3), temps=((16, 0), (16, 8))),
        "s4 .* has overwritten its bytes 8 to 16",
    ),
    "read past the end": (program(copy(1, P.BufRef(0, 4))), r"reads bytes 4 to 20 of s0 \(in\)"),
    "written past the end": (
        program(copy(P.BufRef(1, 8), 0)),
        r"writes bytes 8 to 24 of s1 \(out\)",
    ),
    "before the start": (program(copy(1, P.BufRef(0, -4))), "bytes -4 to 12"),
    "stride of a loop": (
        program(P.Loop("i", 5, (copy(P.BufRef(1, 0, (("i", 4),)), 0, 4),))),
        "bytes 0 to 20",
    ),
    "variable of no loop": (
        program(copy(P.BufRef(1, 0, (("i", 4),)), 0, 4)),
        "outside of its loop",
    ),
    "input changed": (program(copy(0, 2), copy(1, 2)), r"writes s0 \(in\)"),
    "constant changed": (program(copy(2, 0), copy(1, 2)), r"writes s2 \(const\)"),
    "operands overlap": (
        program(copy(3, 0), launch(ADD, 3, 0, 4), copy(1, 4), temps=((16, 0), (16, 8))),
        "overlaps",
    ),
    "alias not declared": (
        program(copy(3, 0), launch(ADD, 3, 0, 4), copy(1, 4), temps=((16, 0), (16, 0))),
        "overlaps",
    ),
    "only in one branch": (
        program(P.Branch(P.BufRef(0), ((copy(3, 0),), ())), copy(1, 3)),
        "nothing has written",
    ),
    "in a loop's second iteration": (
        program(copy(3, 0), P.Loop("i", 2, (copy(1, 3), copy(4, 2))), temps=((16, 0), (16, 8))),
        "has overwritten",
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_program_passes(name):
    check_memory(CORRECT[name])


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named(name):
    planted, message = FAULTS[name]
    with pytest.raises(MemoryPlanError, match=message):
        check_memory(planted)


def test_donated_input_becomes_the_output():
    check_memory(program(launch(IN_PLACE, 0, 1)), {0: 0})
    with pytest.raises(MemoryPlanError, match="has overwritten"):
        check_memory(program(copy(1, 2), copy(3, 0), copy(1, 3)), {0: 0})


def test_every_compilation_is_checked(monkeypatch):
    checked = []
    original = memory_check._ByteOwners.follow
    monkeypatch.setattr(
        memory_check._ByteOwners, "follow", lambda *args: (checked.append(1), original(*args))[1]
    )
    weft.jit(lambda x: x * 3 + 17)(np.ones((3, 5), np.float32))
    assert checked


def chain(x):
    y = wnp.sort(x, 0)
    return wnp.cumsum(wnp.sort(y * 2, 1), 0) @ y.T, wnp.sort(y.T, 0)


def test_short_lifetimes_are_found(monkeypatch):
    """Arena allocation that frees memory one step early."""
    original = arena.assign_offsets

    def early(buffers):
        buffers = [*buffers]
        for buffer in buffers:
            buffer.last -= buffer.kind == "temp" and buffer.last > buffer.first
        return original(buffers)

    monkeypatch.setattr("weft._engine.compiler.schedule.schedule.assign_offsets", early)
    with pytest.raises(MemoryPlanError):
        weft.jit(chain)(np.ones((33, 35), np.float32))


def test_targets_of_live_operands_are_found(monkeypatch):
    """An update in place of an operand that is read later."""

    def overwritten(self, eqn):
        self.env[eqn.outvars[0]] = source = self.ref(eqn.invars[0])
        return source

    monkeypatch.setattr(buffer_assignment.BufferAssignment, "overwritten", overwritten)
    with pytest.raises(MemoryPlanError):
        weft.jit(lambda x: x.at[wnp.array([1, 2])].set(3.0))(np.ones((33, 35), np.float32))
