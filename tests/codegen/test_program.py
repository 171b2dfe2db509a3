"""Whole programs: launches on the pool, control flow, host calls, and the object caches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import run_native
from weft._engine.codegen.kernel import vectorization_plan
from weft._engine.codegen.kernel.vectorization_plan import BRIEF_ITERATIONS
from weft._engine.codegen.program import program, tiered_compilation
from weft._engine.codegen.program.entry import MAX_STEPS_PER_FUNCTION
from weft._engine.codegen.program.program import compile_program
from weft._engine.codegen.toolchain import objects
from weft._engine.ir.loops import (
    Buf,
    Const,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)
from weft._engine.ir.loops_eval import DTYPES
from weft._engine.ir.program import (
    Branch,
    BufferSlot,
    BufRef,
    Copy,
    HostCallStep,
    Launch,
    Loop,
    ScheduledProgram,
    SlotKind,
    WhileLoop,
)
from weft._engine.util import cache

i, t = Index("i"), Index("t")


def ix(value):
    return Const(value, "i64")


def shift(n: int, by: float, type_: str = "f32") -> LoopsKernel:
    """Return the kernel y = x + by."""
    value = ScalarOp("add", (Load("x", i, type_), Const(by, type_)), type_)
    return LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, n, "out")),
        (For("i", n, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )


def run(prog: ScheduledProgram, *arrays: np.ndarray):
    native = compile_program(prog)
    arena = np.zeros(prog.arena_bytes + 64, np.uint8)
    native([*(array.ctypes.data for array in arrays), arena.ctypes.data])
    return native


def slots(*arrays: np.ndarray, out: int, temps: tuple[int, ...] = ()) -> tuple[BufferSlot, ...]:
    """Return slots for arrays, the last `out` of them outputs, followed by temporaries."""
    kinds = [SlotKind.INPUT] * (len(arrays) - out) + [SlotKind.OUTPUT] * out
    offsets = np.cumsum([0, *temps])
    return (
        *(BufferSlot(kind, array.nbytes) for kind, array in zip(kinds, arrays)),
        *(BufferSlot(SlotKind.TEMP, size, int(at)) for size, at in zip(temps, offsets)),
    )


def test_kernels_in_order_through_a_temp():
    x, y = np.arange(70, dtype=np.float32), np.zeros(70, np.float32)
    one, ten = shift(70, 1.0), shift(70, 10.0)
    steps = (
        Launch(one, (BufRef(0), BufRef(2, 0))),
        Launch(ten, (BufRef(2), BufRef(1))),
        Launch(ten, (BufRef(1), BufRef(2))),
        Launch(one, (BufRef(2), BufRef(1))),
    )
    native = run(ScheduledProgram(slots(x, y, out=1, temps=(280,)), steps, 280), x, y)
    np.testing.assert_array_equal(y, x + 22)
    assert native.kernel_count == 2


@pytest.mark.parametrize(
    "steps", [1, MAX_STEPS_PER_FUNCTION, MAX_STEPS_PER_FUNCTION + 1, 5 * MAX_STEPS_PER_FUNCTION]
)
def test_long_programs_come_in_parts(steps):
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    one = shift(8, 1.0)
    body = (
        Launch(one, (BufRef(0), BufRef(1))),
        *[Launch(one, (BufRef(1), BufRef(1)))] * (steps - 1),
    )
    native = run(ScheduledProgram(slots(x, y, out=1), body, 0), x, y)
    np.testing.assert_array_equal(y, x + steps)
    assert len(native.build_record.entry_texts) == (
        1 if steps <= MAX_STEPS_PER_FUNCTION else 1 + -(-steps // MAX_STEPS_PER_FUNCTION)
    )


def test_parts_know_the_variables_of_the_loops_around_them():
    rows, inner, n = 3, 4, 2
    x, y = np.arange(rows * inner, dtype=np.float32), np.zeros((rows, inner, n), np.float32)
    copy = LoopsKernel(
        (Buf("x", "f32", 1), Buf("y", "f32", 1, "out")),
        (StoreElement("y", ix(0), Load("x", ix(0), "f32")),),
    )
    at = (("r", 4 * inner), ("c", 4))
    place = tuple([(var, n * stride) for var, stride in at])
    once = (Launch(copy, (BufRef(0, 0, at), BufRef(1, 0, place))),)
    many = (Launch(copy, (BufRef(0, 0, at), BufRef(1, 4, place))),) * (2 * MAX_STEPS_PER_FUNCTION)
    native = run(
        ScheduledProgram(
            slots(x, y, out=1), (Loop("r", rows, (Loop("c", inner, once + many),)),), 0
        ),
        x,
        y,
    )
    np.testing.assert_array_equal(y, np.repeat(x, n).reshape(y.shape))
    assert len(native.build_record.entry_texts) > 2


def test_a_part_that_fails_stops_the_program():
    def host(x):
        raise KeyError("no such sample")

    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    one = Launch(shift(8, 1.0), (BufRef(1), BufRef(1)))
    fails = HostCallStep(host, ((BufRef(0), (8,), "float32"),), ())
    native = compile_program(
        ScheduledProgram(
            slots(x, y, out=1),
            (*[one] * MAX_STEPS_PER_FUNCTION, fails, *[one] * MAX_STEPS_PER_FUNCTION),
            0,
        )
    )
    with pytest.raises(KeyError, match="no such sample"):
        native([x.ctypes.data, y.ctypes.data, 0])
    np.testing.assert_array_equal(y, np.full(8, MAX_STEPS_PER_FUNCTION))


def test_parallel_kernel_runs_every_task():
    tasks, n = 37, 1000
    at = ScalarOp("add", (ScalarOp("mul", (t, ix(n)), "i64"), i), "i64")
    body = For("i", n, (StoreElement("y", at, ScalarOp("cast", (at,), "i32")),), LoopKind.VECTOR)
    kernel = LoopsKernel(
        (Buf("y", "i32", tasks * n, "out"),), (For("t", tasks, (body,), LoopKind.PARALLEL),)
    )
    y = np.zeros(tasks * n, np.int32)
    run(ScheduledProgram(slots(y, out=1), (Launch(kernel, (BufRef(0),)),), 0), y)
    np.testing.assert_array_equal(y, np.arange(tasks * n))


@pytest.mark.parametrize("reverse", [False, True])
def test_loop_with_strided_references(reverse):
    rows, cols = 5, 12
    x, y = np.arange(rows * cols, dtype=np.float32), np.zeros(rows * cols, np.float32)
    last = np.zeros(1, np.float32)
    row = (("r", 4 * cols),)
    body = (
        Launch(shift(cols, 1.0), (BufRef(0, 0, row), BufRef(1, 0, row))),
        Copy(BufRef(2), BufRef(1, 0, row), 4),
    )
    run(
        ScheduledProgram(slots(x, y, last, out=2), (Loop("r", rows, body, reverse),), 0), x, y, last
    )
    np.testing.assert_array_equal(y, x + 1)
    assert last[0] == (1 if reverse else (rows - 1) * cols + 1)


def test_nested_loops():
    y = np.zeros(6, np.float32)
    refs = BufRef(0, 0, (("a", 12), ("b", 4)))
    run(
        ScheduledProgram(
            slots(y, out=1),
            (Loop("a", 2, (Loop("b", 3, (Launch(shift(1, 2.0), (refs, refs)),)),)),),
            0,
        ),
        y,
    )
    np.testing.assert_array_equal(y, np.full(6, 2))


def test_while_loop():
    """Double until the sum passes a bound."""
    test = LoopsKernel(
        (Buf("x", "i32", 1), Buf("go", "bool", 1, "out")),
        (
            StoreElement(
                "go", ix(0), ScalarOp("lt", (Load("x", ix(0), "i32"), Const(100, "i32")), "bool")
            ),
        ),
    )
    double = LoopsKernel(
        (Buf("x", "i32", 1, "inout"),),
        (
            StoreElement(
                "x",
                ix(0),
                ScalarOp("add", (Load("x", ix(0), "i32"), Load("x", ix(0), "i32")), "i32"),
            ),
        ),
    )
    x = np.array([3], np.int32)
    prog = ScheduledProgram(
        slots(x, out=1, temps=(64,)),
        (
            WhileLoop(
                (Launch(test, (BufRef(0), BufRef(1))),), BufRef(1), (Launch(double, (BufRef(0),)),)
            ),
        ),
        64,
    )
    run(prog, x)
    assert x[0] == 192
    x[0] = 500
    run(prog, x)
    assert x[0] == 500


@pytest.mark.parametrize("index,expected", [(-4, 1), (0, 1), (1, 10), (2, 100), (9, 100)])
def test_branch_clamps(index, expected):
    k, x, y = np.array([index], np.int32), np.zeros(5, np.float32), np.zeros(5, np.float32)
    arms = tuple((Launch(shift(5, by), (BufRef(1), BufRef(2))),) for by in (1.0, 10.0, 100.0))
    run(ScheduledProgram(slots(k, x, y, out=1), (Branch(BufRef(0), arms),), 0), k, x, y)
    np.testing.assert_array_equal(y, np.full(5, expected))


@pytest.mark.parametrize("nbytes", [0, 5, 4096, (1 << 20) - 1, (3 << 20) + 7])
def test_copies(nbytes):
    x = np.random.default_rng(0).integers(0, 255, nbytes + 8).astype(np.uint8)
    y = np.full(nbytes + 8, 9, np.uint8)
    run(ScheduledProgram(slots(x, y, out=1), (Copy(BufRef(1, 3), BufRef(0, 1), nbytes),), 0), x, y)
    np.testing.assert_array_equal(y[3 : 3 + nbytes], x[1 : 1 + nbytes])
    assert (y[:3] == 9).all() and (y[3 + nbytes :] == 9).all()


def test_host_call_in_a_loop():
    seen = []

    def host(x, y):
        seen.append(x.copy())
        assert not x.flags.writeable
        y[...] = x * 2

    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    row = (("r", 12),)
    step = HostCallStep(
        host, ((BufRef(0, 0, row), (3,), "float32"),), ((BufRef(1, 0, row), (3,), "float32"),)
    )
    run(ScheduledProgram(slots(x, y, out=1), (Loop("r", 2, (step,)),), 0), x, y)
    np.testing.assert_array_equal(y, x * 2)
    assert [list(rows) for rows in seen] == [[0, 1, 2], [3, 4, 5]]


def test_host_call_bfloat16_and_empty():
    shapes = []
    x = np.zeros(4, np.uint16)
    step = HostCallStep(
        lambda a, b: shapes.append((a.dtype.name, a.shape, b.shape)),
        ((BufRef(0), (2, 2), "bfloat16"), (BufRef(0), (0, 3), "int8")),
        (),
    )
    run(ScheduledProgram(slots(x, out=1), (step,), 0), x)
    assert shapes == [("bfloat16", (2, 2), (0, 3))]


def test_host_call_that_raises_stops_the_program():
    def host(x):
        raise KeyError("no such sample")

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    prog = ScheduledProgram(
        slots(x, y, out=1),
        (
            HostCallStep(host, ((BufRef(0), (3,), "float32"),), ()),
            Launch(shift(3, 1.0), (BufRef(0), BufRef(1))),
        ),
        0,
    )
    native = compile_program(prog)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such sample"):
            native([x.ctypes.data, y.ctypes.data, 0])
    np.testing.assert_array_equal(y, np.zeros(3))


def test_dumps_name_everything():
    x = np.zeros(70, np.float32)
    native = run(
        ScheduledProgram(slots(x, out=1), (Launch(shift(70, 4.0), (BufRef(0), BufRef(0))),), 0), x
    )
    assert (
        "define i32 @weft_entry" in native.build_record.ir_text()
        and "fadd" in native.build_record.ir_text()
    )
    assert (
        "ret" in native.build_record.assembly()
        and "vector i in 70" in native.build_record.loops_text()
    )


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    assert tiered_compilation._idle.wait(60)  # what is being optimized would be written here
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(program, "_kernels", {})
    return tmp_path


def test_objects_come_back_from_disk(fresh_cache, monkeypatch):
    x = np.zeros(33, np.float32)
    prog = ScheduledProgram(slots(x, out=1), (Launch(shift(33, 3.0), (BufRef(0), BufRef(0))),), 0)
    assert run(prog, x).from_disk == 0
    cache.flush()
    assert len(list(fresh_cache.glob("*/*.o"))) == 3  # the kernel's key, its object, the entry
    monkeypatch.setattr(program, "_kernels", {})

    def never(*args, **kwargs):
        raise AssertionError("compiled although the object is on disk")

    monkeypatch.setattr(program.target, "emit_object", never)
    monkeypatch.setattr(program.target, "emit_objects", never)
    assert run(prog, x).from_disk == 1
    np.testing.assert_array_equal(x, np.full(33, 6))


def test_damaged_objects_are_compiled_again(fresh_cache, monkeypatch):
    x = np.zeros(34, np.float32)
    prog = ScheduledProgram(slots(x, out=1), (Launch(shift(34, 3.0), (BufRef(0), BufRef(0))),), 0)
    run(prog, x)
    cache.flush()
    for number, file in enumerate(fresh_cache.glob("*/*.o")):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data if number else data[:10])
    monkeypatch.setattr(program, "_kernels", {})
    assert run(prog, x).from_disk == 0
    np.testing.assert_array_equal(x, np.full(34, 6))
    monkeypatch.setattr(program, "_kernels", {})
    assert run(prog, x).from_disk == 1


def test_cache_off_writes_nothing(fresh_cache, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")
    assert cache.directory() is None
    x = np.zeros(35, np.float32)
    run(ScheduledProgram(slots(x, out=1), (Launch(shift(35, 3.0), (BufRef(0), BufRef(0))),), 0), x)
    cache.flush()
    assert not list(fresh_cache.iterdir())


def test_an_unwritable_cache_is_no_error(fresh_cache, monkeypatch):
    (fresh_cache / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(fresh_cache / "file" / "below"))
    x = np.zeros(36, np.float32)
    run(ScheduledProgram(slots(x, out=1), (Launch(shift(36, 3.0), (BufRef(0), BufRef(0))),), 0), x)
    cache.flush()
    np.testing.assert_array_equal(x, np.full(36, 3))


def test_kernels_compiled_together_come_back_one_by_one(fresh_cache, monkeypatch):
    x = np.zeros(21, np.float32)
    several = [shift(21, float(by)) for by in (1, 2, 3)]
    prog = ScheduledProgram(
        slots(x, out=1), tuple(Launch(kernel, (BufRef(0), BufRef(0))) for kernel in several), 0
    )
    assert run(prog, x).kernel_count == 3
    np.testing.assert_array_equal(x, np.full(21, 6))
    monkeypatch.setattr(program, "_kernels", {})
    alone = ScheduledProgram(slots(x, out=1), (Launch(several[1], (BufRef(0), BufRef(0))),), 0)
    assert run(alone, x).from_disk == 1
    native = run(prog, x)
    assert native.from_disk == 3
    np.testing.assert_array_equal(x, np.full(21, 14))


def test_a_kernel_of_a_lost_batch_is_compiled_again(fresh_cache, monkeypatch):
    x = np.zeros(22, np.float32)
    several = tuple(Launch(shift(22, float(by)), (BufRef(0), BufRef(0))) for by in (1, 2))
    run(ScheduledProgram(slots(x, out=1), several, 0), x)
    cache.flush()
    for file in fresh_cache.glob("*/*.o"):
        if file.stat().st_size > 1000:
            file.unlink()
    monkeypatch.setattr(program, "_kernels", {})
    assert run(ScheduledProgram(slots(x, out=1), several, 0), x).from_disk == 0
    np.testing.assert_array_equal(x, np.full(22, 6))


def test_the_cache_on_disk_is_kept_below_its_limit(tmp_path, monkeypatch):
    import os

    from weft._engine.util import cache

    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    names = [f"ab{i:02x}" * 8 for i in range(1, 9)]
    for i, name in enumerate(names):
        cache.write(name, bytes(5000))
        os.utime(cache._file(name), (i, i))
    assert cache.prune(256 << 16) == 0  # a folder has its share of the limit
    assert cache.prune(256 * 40_000) >= 5 * 5000
    assert [cache.has(name) for name in names] == [False] * 5 + [True] * 3
    assert cache.read(names[-1]) == bytes(5000)


def test_writing_keeps_the_cache_below_its_limit(tmp_path, monkeypatch):
    from weft._engine.util import cache

    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "size_limit", lambda: 256 * 20_000)
    names = [
        f"{folder}{i:02x}" * 8 for folder in ("ab", "cd") for i in range(8, -1, -1)
    ]  # "ab00" is the last of its folder
    for name in names[:9]:
        cache.write(name, bytes(5000))
    for name in names[9:-1]:
        cache.write(name, bytes(5000))
    assert sum(map(cache.has, names[:9])) <= 2 and all(map(cache.has, names[9:-1]))


def test_kernels_of_few_iterations_are_not_optimized(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    few, many = shift(16, 0.625), shift(4096, 0.625)
    limit = BRIEF_ITERATIONS
    assert [
        vectorization_plan.is_brief(one)
        for one in (few, many, shift(limit, 1.0), shift(limit + 1, 1.0))
    ] == [True, False, True, False]
    orders = []
    prepare = objects.prepare
    monkeypatch.setattr(
        objects,
        "prepare",
        lambda wanted, *rest: prepare([orders.append(order) or order for order in wanted], *rest),
    )
    x, y = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)
    steps = (Launch(many, (BufRef(0), BufRef(1))), Launch(few, (BufRef(1), BufRef(1))))
    run(ScheduledProgram(slots(x, y, out=1), steps, 0), x, y)
    np.testing.assert_array_equal(y, np.where(np.arange(4096) < 16, x + 1.25, x + 0.625))
    assert [order.quick for order in orders] == [False, True, True]  # large, small, and the entry


def test_loops_of_unknown_length_are_optimized():
    n = Load("n", Const(0, "i64"), "i64")
    body = (StoreElement("y", i, Const(1.0, "f32")),)
    assert not vectorization_plan.is_brief(
        LoopsKernel(
            (Buf("n", "i64", 1), Buf("y", "f32", 8, "out")), (For("i", n, body, LoopKind.VECTOR),)
        )
    )
    nest = For("t", 5, (For("i", 13, (StoreElement("y", i, Const(1.0, "f32")),), LoopKind.VECTOR),))
    assert not vectorization_plan.is_brief(
        LoopsKernel((Buf("y", "f32", 13, "out"),), (nest,))
    )  # 65 iterations


@pytest.mark.parametrize("op", ["sin", "exp", "tanh", "pow", "sqrt"])
@pytest.mark.parametrize("type_", ["f32", "f64", "bf16"])
def test_optimized_and_other_kernels_give_the_same_bits(op, type_):
    def kernel(n):
        x = Load("x", i, type_)
        value = ScalarOp(
            "add",
            (ScalarOp(op, (x, x) if op == "pow" else (x,), type_), ScalarOp("mul", (x, x), type_)),
            type_,
        )
        return LoopsKernel(
            (Buf("x", type_, n), Buf("y", type_, n, "out")),
            (For("i", n, (StoreElement("y", i, value),), LoopKind.VECTOR),),
        )

    x = np.random.default_rng(3).uniform(0.1, 30, 1024).astype(DTYPES[type_])
    few, many = np.zeros(48, x.dtype), np.zeros(1024, x.dtype)
    run_native(kernel(48), x[:48].copy(), few)
    run_native(kernel(1024), x, many)
    np.testing.assert_array_equal(few, many[:48])
