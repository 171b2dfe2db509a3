"""LLVM IR of the kernels and of the one native entry."""

from tests.harness.golden import f32, program


@program(f32(64), f32(64))
def add(x, y):
    # CHECK: define
    # CHECK: fadd
    # CHECK: @weft_entry(ptr %slots)
    # CHECK-NOT: fmul
    return x + y
