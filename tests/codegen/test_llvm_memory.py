"""The C library memory that LLVM retains, by that library's own count: nothing per module, and one
set of tables per machine."""

import ctypes

import pytest

from weft._engine.codegen.program.build_record import kernel_ir
from weft._engine.codegen.toolchain import llvm_c, target
from weft._engine.ir.loops import (
    Buf,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)

PLAIN = "define i32 @add(i32 %x, i32 %y) nounwind {\n  %sum = add i32 %x, %y\n  ret i32 %sum\n}"
_C = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(
    not hasattr(_C, "mallinfo2"), reason="a C library that does not count for us"
)


class _Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def used() -> int:
    """Return the bytes allocated in arenas and in separate mappings."""
    _C.mallinfo2.restype = _Counts
    counts = _C.mallinfo2()
    return counts.uordblks + counts.hblkhd


def exponential(number: int) -> str:
    i, size = Index("i"), 1000
    value = ScalarOp("exp", (Load("x", i, "f32"),), "f32")
    kernel = LoopsKernel(
        (Buf("x", "f32", size), Buf("y", "f32", size, "out")),
        (For("i", size, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )
    return kernel_ir(kernel, f"kernel{number}")


def machine() -> llvm_c.LLVMTargetMachine:
    return llvm_c.LLVMTargetMachine(target.current().cpu, target.current().features, 1)


def test_modules_are_gone_once_they_are_compiled():
    texts, one = [exponential(number) for number in range(40)], machine()
    llvm_c.emit(texts[0], one)
    before = used()
    for text in texts:
        assert len(llvm_c.emit(text, one)) > 1000
    assert used() - before < 200_000, "its context goes with each"


def test_a_machine_that_is_disposed_of_leaves_nothing():
    target.emit_in_background(PLAIN)
    before = used()
    for _ in range(8):
        target.emit_in_background(PLAIN)
    assert used() - before < 200_000, "the tables of each are 700 KiB"


def test_kernels_and_plain_functions_share_one_set_of_tables():
    llvm_c.emit(exponential(0), machine())
    one = machine()
    before = used()
    llvm_c.emit(PLAIN, one)
    tables = used() - before
    llvm_c.emit(exponential(0), one)
    assert tables > 300_000
    assert used() - before < 1.3 * tables, (
        "words of a function that its machine does not have make a second set"
    )
