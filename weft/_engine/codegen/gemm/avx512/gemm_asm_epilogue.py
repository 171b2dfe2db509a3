"""The `finish` of `gemm_epilogue` and the `end_panel` of `gemm_pack` for AVX-512 in assembly.

LLVM takes 5 ms to compile a `finish` that rounds, and 3 ms for `end_panel`.
"""

from __future__ import annotations

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.gemm.avx512.gemm_asm import mask
from weft._engine.codegen.ir.gemm_types import GemmTypes

#: (type of the sums, type of the result) -> instructions that convert %zmm0, and the store of the
#: elements selected by mask %k1
_BF16 = [
    "vpsrld $16, %zmm0, %zmm1",
    "vpandd %zmm30, %zmm1, %zmm1",
    "vpaddd %zmm31, %zmm1, %zmm1",
    "vpaddd %zmm0, %zmm1, %zmm1",
    "vcmpunordps %zmm0, %zmm0, %k2",
    "vpord %zmm29, %zmm0, %zmm1{%k2}",
    "vpsrld $16, %zmm1, %zmm0",
]
_ENDS = {
    ("f32", "f32"): ([], "vmovups"), ("f64", "f64"): ([], "vmovupd"), ("i32", "i32"): ([], "vmovdqu32"), ("i64", "i64"): ([], "vmovdqu64"),
    ("f32", "bf16"): (_BF16, "vpmovdw"), ("f32", "f16"): (["vcvtps2ph $4, %zmm0, %ymm0"], "vmovdqu16 %y"),
    ("i32", "i16"): ([], "vpmovdw"), ("i32", "u16"): ([], "vpmovdw"), ("i32", "i8"): ([], "vpmovdb"), ("i32", "u8"): ([], "vpmovdb"),
    ("i32", "f32"): (["vcvtdq2ps %zmm0, %zmm0"], "vmovups"),
}  # fmt: skip


def finishes(types: GemmTypes) -> bool:
    """Return whether this module can store the results of a types."""
    is_supported = (types.acc, types.out_type) in _ENDS and (
        types.out_type != "f16" or types.machine.f16
    )
    return (
        assembler_support.has_avx512(types.machine)
        and is_supported
        and not types.is_complex
        and not types.quads
    )


def ends_panels(types: GemmTypes) -> bool:
    """Return whether this module can write the ends of a types's panels."""
    return (
        assembler_support.has_avx512(types.machine)
        and types.flips_signs
        and types.joined_type == types.in_type
    )


def finish(types: GemmTypes) -> str:
    """Return the function `finish`, which stores whole vectors, or scattered elements.

    Its signature is `finish(ptr sums, i64 row_bytes, i64 rows, i64 cols, ptr c, i64 c_row, i64 c_col)`.
    """
    sums, row_bytes, rows, cols, c, c_row = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
    change, store = _ENDS[types.acc, types.out_type]
    load = "vmovups" if types.acc_bytes == 4 else "vmovupd"
    place = store.replace("%y", "%ymm0") if "%y" in store else f"{store} %zmm0"
    constants = [
        line
        for value, register in ((1, 30), (0x7FFF, 31), (0x400000, 29))
        if change is _BF16
        for line in (f"movl ${value}, %eax", f"vpbroadcastd %eax, %zmm{register}")
    ]
    saved_registers = ("%rbx", "%r12", "%r13", "%r14", "%r15")
    return as_module([
        ".p2align 4", ".globl finish", ".type finish,@function", "finish:", *[f"pushq {r}" for r in saved_registers],
        f"testq {rows}, {rows}", "je .Lfinish_end", f"testq {cols}, {cols}", "je .Lfinish_end",
        f"movq {8 * (1 + len(saved_registers))}(%rsp), %r14", *constants,
        f"movl ${types.lanes}, %r11d", "movl $1, %eax", f"cmpq ${types.out_bytes}, %r14", "cmovneq %rax, %r11",
        "imulq %r11, %r14", f"imulq ${types.acc_bytes}, %r11, %r15", *mask("%r11", "%k3"),
        ".Lfinish_row:", f"movq {sums}, %rbx", f"movq {c}, %r12", f"movq {cols}, %r13",
        ".Lfinish_some:", "kmovq %k3, %k1", "cmpq %r11, %r13", "jae .Lfinish_whole", *mask("%r13", "%k1"), ".Lfinish_whole:",
        f"{load} (%rbx), %zmm0{{%k1}}{{z}}", *change, f"{place}, (%r12){{%k1}}",
        "addq %r15, %rbx", "addq %r14, %r12", "subq %r11, %r13", "ja .Lfinish_some",
        f"addq {row_bytes}, {sums}", f"addq {c_row}, {c}", f"decq {rows}", "jne .Lfinish_row",
        ".Lfinish_end:", *[f"popq {r}" for r in reversed(saved_registers)], "vzeroupper", "retq", ".size finish, .-finish",
    ])  # fmt: skip


def end_panel(types: GemmTypes) -> str:
    """Return `end_panel(ptr panel, i64 steps)`.

    It stores the negated surplus of flipped signs in each sum after the panel.
    """
    sums = [f"%zmm{v}" for v in range(types.vectors)]

    def multiply_add(v: int) -> list[str]:
        if types.in_type == "i8":  # (the middle operand of the instruction is unsigned)
            return [f"vpdpbusd {64 * v}(%rdi), %zmm31, {sums[v]}"]
        return [f"vmovdqu32 {64 * v}(%rdi), %zmm30", f"vpdpbusd %zmm31, %zmm30, {sums[v]}"]

    return as_module([
        ".p2align 4", ".globl end_panel", ".type end_panel,@function", "end_panel:", "movl $0x80808080, %eax", "vpbroadcastd %eax, %zmm31",
        *[f"vpxord {s}, {s}, {s}" for s in sums], "vpxord %zmm29, %zmm29, %zmm29", "testq %rsi, %rsi", "je .Lend_panel_write",
        ".Lend_panel_step:", *[line for v in range(types.vectors) for line in multiply_add(v)],
        f"addq ${types.panel_row_bytes}, %rdi", "decq %rsi", "jne .Lend_panel_step",
        ".Lend_panel_write:",
        *[line for v, s in enumerate(sums) for line in (f"vpsubd {s}, %zmm29, {s}", f"vmovdqu32 {s}, {64 * v}(%rdi)")],
        "vzeroupper", "retq", ".size end_panel, .-end_panel",
    ])  # fmt: skip
