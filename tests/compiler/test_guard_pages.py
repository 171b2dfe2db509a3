"""Steps other than Loops kernels, each run with all of its buffers between guard pages."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.codegen.harness import Fenced
from weft import lax
from weft._engine.codegen.program.program import compile_program
from weft._engine.compiler.schedule.memory_check import check_memory
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir import program as P

RNG = np.random.default_rng(0)


def conv(x, k, **options):
    return lax.conv_general_dilated(
        x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


def rand(*shape, dtype="f4"):
    return (10 * RNG.normal(size=shape)).astype(dtype)


#: programs with steps other than Loops kernels: function, arguments, the required kinds of steps
FENCED = {
    "matmul": (lambda x, y: x @ y, [rand(37, 65), rand(65, 41)], {"Gemm"}),
    "matmul of halves": (
        lambda x, y: x @ y,
        [rand(37, 65, dtype="f2"), rand(65, 41, dtype="f2")],
        {"Gemm"},
    ),
    "matmul of doubles": (lambda x, y: x @ y, [rand(5, 300).astype("f4"), rand(300, 7)], {"Gemm"}),
    "matmul of integers": (
        lambda x, y: x @ y,
        [rand(33, 65, dtype="i4"), rand(65, 47, dtype="i4")],
        {"Gemm"},
    ),
    "matmul of complex numbers": (
        lambda x, y: x @ y,
        [rand(9, 31, dtype="c8"), rand(31, 13, dtype="c8")],
        {"Gemm"},
    ),
    "batched matmul": (
        lambda x, y: wnp.einsum("bij,bkj->bki", x, y),
        [rand(3, 17, 33), rand(3, 19, 33)],
        {"Gemm"},
    ),
    "matvec": (lambda x, y: x @ y, [rand(257, 129), rand(129)], set()),
    "epilogue": (lambda x, y: wnp.tanh(x @ y + 1) * 2, [rand(67, 65), rand(65, 93)], {"Gemm"}),
    "convolution": (conv, [rand(2, 9, 11, 5), rand(3, 3, 5, 17)], {"Gemm"}),
    "grouped convolution": (
        lambda x, k: conv(x, k, feature_group_count=2),
        [rand(2, 9, 11, 8), rand(3, 3, 4, 34)],
        {"Gemm"},
    ),
    "ragged product": (
        lambda x, y, s: lax.ragged_dot(x, y, s),
        [rand(40, 33), rand(3, 33, 17), np.array([7, 0, 33], "i4")],
        {"Gemm"},
    ),
    "sort": (lambda x: wnp.sort(x, 1), [rand(7, 1001)], {"Sort"}),
    "argsort": (lambda x: wnp.argsort(x, 1), [rand(7, 301)], {"Sort"}),
    "top_k": (lambda x: lax.top_k(x, 5), [rand(7, 301)], {"Sort"}),
    "fft": (lambda x: wnp.fft.fft(x), [rand(5, 120, dtype="c8")], {"Fft"}),
    "rfft": (lambda x: wnp.fft.rfft(x), [rand(5, 96)], {"Fft"}),
    "irfft": (lambda x: wnp.fft.irfft(x), [rand(5, 49, dtype="c8")], {"Fft"}),
    "fft of a prime": (lambda x: wnp.fft.fft(x), [rand(3, 1009, dtype="c8")], {"Fft"}),
    "fft2": (lambda x: wnp.fft.fft2(x), [rand(48, 64, dtype="c8")], {"Fft"}),
    "long fft": (lambda x: wnp.fft.fft(x), [rand(1 << 15, dtype="c8")], {"Fft"}),
    "pad": (lambda x: wnp.pad(x, ((1, 2), (3, 4))), [rand(50, 401)], {"Pad"}),
    "join": (lambda *xs: wnp.concatenate(xs, 1), [rand(64, 67) for _ in range(40)], {"JoinStep"}),
    "cholesky": (
        lambda x: wnp.linalg.cholesky(x @ x.T + 999 * wnp.eye(21)),
        [rand(21, 21)],
        {"LibraryCall"},
    ),
    "solve": (
        lambda x, y: wnp.linalg.solve(x + 99 * wnp.eye(21), y),
        [rand(3, 21, 21), rand(3, 21, 5)],
        {"LibraryCall"},
    ),
    "qr": (lambda x: wnp.linalg.qr(x), [rand(2, 23, 11)], {"LibraryCall"}),
    "svd": (lambda x: wnp.linalg.svd(x), [rand(13, 11)], {"LibraryCall"}),
    "eigh": (lambda x: wnp.linalg.eigh(x + x.T), [rand(17, 17)], {"LibraryCall"}),
    "carries copied": (
        lambda x: lax.fori_loop(0, 5, lambda i, c: (c[1], wnp.sort(c[0])), (x, x + 1)),
        [rand(5001)],
        {"Copy", "Sort"},
    ),
}


def expose(planned: P.ScheduledProgram) -> P.ScheduledProgram:
    """Return the program with its temporaries as outputs, except the memory of parallel tasks."""
    order = {"in": 0, "out": 1, "temp": 1, "const": 2}
    ranks = [3 if slot.own else order[slot.kind] for slot in planned.slots]
    positions = sorted(range(len(planned.slots)), key=ranks.__getitem__)
    numbers = {old: new for new, old in enumerate(positions)}
    slots = []
    for old in positions:
        slot = planned.slots[old]
        slots.append(
            P.BufferSlot(P.SlotKind.OUTPUT, slot.nbytes) if slot.is_temp and not slot.own else slot
        )

    def moved(part):
        if type(part) is P.BufRef:
            return P.BufRef(numbers[part.slot], part.offset, part.strides)
        if type(part) is tuple:
            return tuple(map(moved, part))
        if type(part) in P._FIELDS_WITH_REFS:
            return type(part)(**{name: moved(getattr(part, name)) for name in type(part).__slots__})
        return part

    return P.ScheduledProgram(tuple(slots), moved(planned.steps), 0, planned.name)


def run_fenced(name: str, at_end: bool) -> None:
    """Run a program between guard pages, and compare its results. An access outside a buffer ends
    the process."""
    function, args, kinds = FENCED[name]
    planned = schedule(
        stage(lambda *xs: weft.tree.leaves(function(*xs)), [typeof(x) for x in args])
    )
    for maker in planned.const_makers:
        maker.finish()
    exposed = expose(planned.program)
    check_memory(exposed)
    missing = kinds - {type(step).__name__ for step in walk(exposed.steps)}
    assert not missing, f"no step of {missing}"
    contents = {"in": iter([*map(np.ascontiguousarray, args)]), "const": iter(planned.consts)}
    memories = []
    for slot in exposed.slots:
        memory = Fenced(slot.nbytes, at_end)
        if slot.kind in contents:
            array = next(contents[slot.kind])
            if slot.nbytes:
                memory.view(np.uint8)[:] = array.reshape(-1).view(np.uint8)
        memories.append(memory)
    compile_program(exposed)([*[memory.ptr for memory in memories], Fenced(64, at_end).ptr])
    results = [memory for memory, slot in zip(memories, exposed.slots) if slot.kind == "out"]
    for memory, want in zip(
        results, [np.asarray(x) for x in weft.tree.leaves(function(*map(wnp.asarray, args)))]
    ):
        got = memory.view(np.uint8)[: want.nbytes].view(want.dtype).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=0.1)


def walk(steps):
    for step in steps:
        yield step
        yield from walk(getattr(step, "body", ()))


@pytest.mark.parametrize("at_end", [True, False])
def test_steps_stay_between_guard_pages(at_end):
    """Runs in a separate process, which prints the name of each program before running it."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(int(at_end))],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "WEFT_CPU_FEATURES": os.environ.get("WEFT_CPU_FEATURES", "")},
    )
    names = done.stdout.split("\n")
    assert not done.returncode, (
        f"{names[-2]!r} ended the process: {done.returncode}\n{done.stderr[-2000:]}"
    )
    assert names[:-1] == [*FENCED]


if __name__ == "__main__":
    for name in FENCED:
        print(name, flush=True)
        run_fenced(name, bool(int(sys.argv[1])))
