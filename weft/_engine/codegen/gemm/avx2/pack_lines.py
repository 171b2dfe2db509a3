"""Packing functions for AVX2 in assembly, for operands with dense packed rows or dense columns.

All are `void(ptr dst, i64 dst_step, ptr src, i64 src_step, i64 lines, i64 length)`, with steps in
bytes:
- `copy_lines` copies lines of `length` bytes, a multiple of 4;
- `widen_*_lines` converts lines of `length` elements to float32;
- `extend_*_lines` converts lines to 16-bit integers and appends a zero to lines of odd length;
- `join_*_lines` converts two neighboring lines to 16-bit integers and interleaves them; the partner
  of a single last line is zeros;
- `transpose_lines` transposes elements of 4 bytes.

No other memory is read or written. LLVM takes 40 ms to compile the masked byte loads of an
equivalent of `join_i8_lines`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import GEMM_PACK_PREFETCH_ROWS

_DST, _DST_STEP, _SRC, _SRC_STEP, _LINES, _LENGTH = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"


def function(types: GemmTypes, packing: str, operand: str) -> str | None:
    """Return the name of the function for a packing of an operand; None if this module has none."""
    if types.is_complex:
        return None
    if types.joined_type:
        return (
            f"{'extend' if operand == 'a' else 'join'}_{types.in_type}_lines"
            if packing == "copy"
            else None
        )
    if types.can_read_b_in_place:
        return {
            "copy": "copy_lines",
            "transpose": "transpose_lines" if types.acc_bytes == 4 else None,
        }.get(packing)
    widens = types.acc == "f32" and types.in_type in ("bf16", "f16" if types.machine.f16 else "")
    return f"widen_{types.in_type}_lines" if widens and packing == "copy" else None


def lines(name: str) -> list[str]:
    """Return the lines of the named function."""
    return _WRITE[name]()


def _copy() -> list[str]:
    """Copy two vectors at a time, then one, then the rest of a vector; prefetch later lines."""
    prefetched, at, whole, pairs = "%r11", "%rax", "%r10", "%rbx"
    return [*assembler_support.function("copy_lines", [
        f"testq {_LINES}, {_LINES}", "je .Lcopy_lines_end",
        f"movq {_LENGTH}, {whole}", f"andq $-32, {whole}", f"movq {_LENGTH}, {pairs}", f"andq $-64, {pairs}", f"andq $31, {_LENGTH}",
        "leaq .Lcopy_bytes(%rip), %rax", f"subq {_LENGTH}, %rax", "vmovups 32(%rax), %ymm2",
        ".Lcopy_line:", f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, {prefetched}", f"addq {_SRC}, {prefetched}",
        "xorl %eax, %eax",
        ".Lcopy_two:", f"cmpq {pairs}, {at}", "jae .Lcopy_one",
        f"vmovups ({_SRC},{at}), %ymm0", f"vmovups 32({_SRC},{at}), %ymm1", f"prefetcht1 ({prefetched},{at})",
        f"vmovups %ymm0, ({_DST},{at})", f"vmovups %ymm1, 32({_DST},{at})", f"addq $64, {at}", "jmp .Lcopy_two",
        ".Lcopy_one:", f"cmpq {whole}, {at}", "jae .Lcopy_rest",
        f"vmovups ({_SRC},{at}), %ymm0", f"prefetcht1 ({prefetched},{at})", f"vmovups %ymm0, ({_DST},{at})", f"addq $32, {at}",
        ".Lcopy_rest:", f"testq {_LENGTH}, {_LENGTH}", "je .Lcopy_next",
        f"vmaskmovps ({_SRC},{at}), %ymm2, %ymm0", f"prefetcht1 ({prefetched},{at})", f"vmaskmovps %ymm0, %ymm2, ({_DST},{at})",
        ".Lcopy_next:", f"addq {_SRC_STEP}, {_SRC}", f"addq {_DST_STEP}, {_DST}", f"decq {_LINES}", "jne .Lcopy_line",
    ], ("%rbx",)), ".p2align 5", ".Lcopy_bytes:", ".fill 32, 1, 0xff", ".fill 32, 1, 0"]  # fmt: skip


def _transpose() -> list[str]:
    """Transpose squares of 8 lines by 8 elements; incomplete squares element by element."""
    lines, lines_left, src, dst, step3, prefetched = "%r12", "%r13", "%r10", "%r11", "%rbx", "%r14"
    rows = [f"%ymm{i}" for i in range(8)]
    there = lambda base, step, step3: [
        f"({base})",
        f"({base},{step})",
        f"({base},{step},2)",
        f"({base},{step3})",
    ]
    at_most_8 = lambda whole, part: [
        "movl $8, %eax",
        f"cmpq %rax, {whole}",
        f"cmovbq {whole}, %rax",
        f"movq %rax, {part}",
    ]
    upper, lower = there(src, _SRC_STEP, step3), there("%rax", _SRC_STEP, step3)
    load = [
        f"leaq ({_SRC_STEP},{_SRC_STEP},2), {step3}",
        f"leaq ({src},{_SRC_STEP},4), %rax",
        f"leaq (%rax,{_SRC_STEP},4), {prefetched}",
    ]
    for i in range(4):  # the first halves of lines i and i + 4, then their second halves
        load += [f"vmovups {half}{upper[i]}, %xmm{i + half // 4}" for half in (0, 16)]
        load += [
            f"vinsertf128 $1, {half}{lower[i]}, {rows[i + half // 4]}, {rows[i + half // 4]}"
            for half in (0, 16)
        ]
    square, transposed = _transpose_squares(rows)
    far = [
        f"prefetcht1 {address}"
        for base in (prefetched, "%rax")
        for address in there(base, _SRC_STEP, step3)
    ]
    fetch = [*far[:4], f"leaq ({prefetched},{_SRC_STEP},4), %rax", *far[4:]]
    store = [f"leaq ({_DST_STEP},{_DST_STEP},2), {step3}", f"leaq ({dst},{_DST_STEP},4), %rax"]
    store += [
        f"vmovups {row}, {address}"
        for row, address in zip(
            transposed, [*there(dst, _DST_STEP, step3), *there("%rax", _DST_STEP, step3)]
        )
    ]
    return assembler_support.function("transpose_lines", [
        f"testq {_LENGTH}, {_LENGTH}", "je .Ltranspose_lines_end",
        ".Lturn_lines:", f"testq {_LINES}, {_LINES}", "je .Ltranspose_lines_end",
        *at_most_8(_LINES, lines), f"movq {_SRC}, {src}", f"movq {_DST}, {dst}", f"movq {_LENGTH}, {lines_left}",
        ".Lturn_square:", f"cmpq $8, {lines_left}", "jb .Lturn_column", f"cmpq $8, {lines}", "jb .Lturn_column",
        *load, *fetch, *square, *store, f"addq $32, {src}", f"leaq ({dst},{_DST_STEP},8), {dst}", f"subq $8, {lines_left}", "jne .Lturn_square",
        "jmp .Lturn_next",
        ".Lturn_column:", f"movq {src}, {prefetched}", "xorl %eax, %eax",
        ".Lturn_element:", f"movl ({prefetched}), %ebx", f"movl %ebx, ({dst},%rax,4)", f"addq {_SRC_STEP}, {prefetched}", "incq %rax",
        f"cmpq {lines}, %rax", "jb .Lturn_element",
        f"addq $4, {src}", f"addq {_DST_STEP}, {dst}", f"decq {lines_left}", "jne .Lturn_square",
        ".Lturn_next:", f"leaq ({_SRC},{_SRC_STEP},8), {_SRC}", f"addq $32, {_DST}", f"subq {lines}, {_LINES}", "jmp .Lturn_lines",
    ], ("%rbx", "%r12", "%r13", "%r14"))  # fmt: skip


def _transpose_squares(rows: list[str]) -> tuple[list[str], list[str]]:
    """Transpose 4 by 4 squares in each half of the registers.

    The first four registers get 4 columns of all lines, the others the next 4.
    """
    other, out = [f"%ymm{i + 8}" for i in range(8)], []
    for i in (0, 4):
        for j in (
            0,
            2,
        ):
            # interleave the low elements of two lines, then the high elements
            out += [
                f"vunpck{half}ps {rows[i + j + 1]}, {rows[i + j]}, {other[i + j + h]}"
                for h, half in enumerate("lh")
            ]
        for j in (0, 1):
            out += [
                f"vunpck{half}pd {other[i + 2 + j]}, {other[i + j]}, {rows[i + 2 * j + h]}"
                for h, half in enumerate("lh")
            ]
    return out, rows


def _widen(name: str, in_type: str) -> list[str]:
    """Widen 16-bit floats to 32 bits: eight at a time, then one."""
    shift = ["vpslld $16, %ymm0, %ymm0"] if in_type == "bf16" else []
    load = "vpmovzxwd" if in_type == "bf16" else "vcvtph2ps"
    single = (
        ["shll $16, %ebx", "vmovd %ebx, %xmm0"]
        if in_type == "bf16"
        else ["vmovd %ebx, %xmm0", "vcvtph2ps %xmm0, %xmm0"]
    )
    return assembler_support.function(name, [
        f"testq {_LINES}, {_LINES}", f"je .L{name}_end", f"movq {_LENGTH}, %r10", "andq $-8, %r10",
        f".L{name}_line:", f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, %r11", f"addq {_SRC}, %r11", "xorl %eax, %eax",
        f".L{name}_eight:", "cmpq %r10, %rax", f"jae .L{name}_one",
        f"{load} ({_SRC},%rax,2), %ymm0", "prefetcht1 (%r11,%rax,2)", *shift, f"vmovups %ymm0, ({_DST},%rax,4)", "addq $8, %rax",
        f"jmp .L{name}_eight",
        f".L{name}_one:", f"cmpq {_LENGTH}, %rax", f"jae .L{name}_next",
        f"movzwl ({_SRC},%rax,2), %ebx", *single, f"vmovss %xmm0, ({_DST},%rax,4)", "incq %rax", f"jmp .L{name}_one",
        f".L{name}_next:", f"addq {_SRC_STEP}, {_SRC}", f"addq {_DST_STEP}, {_DST}", f"decq {_LINES}", f"jne .L{name}_line",
    ], ("%rbx",))  # fmt: skip


#: type -> (instruction to extend to 16 bits, to 32 bits, to load one element; bytes of an element)
_EXTEND = {"i8": ("vpmovsxbw", "vpmovsxbd", "movsbl", 1), "u8": ("vpmovzxbw", "vpmovzxbd", "movzbl", 1),
           "i16": ("vmovups", "vpmovzxwd", "movzwl", 2)}  # fmt: skip


def _extend(name: str, in_type: str) -> list[str]:
    """Extend sixteen elements, then one each, then append a zero to an odd number of elements."""
    extend, _, single, size = _EXTEND[in_type]
    return assembler_support.function(name, [
        f"testq {_LINES}, {_LINES}", f"je .L{name}_end", f"movq {_LENGTH}, %r10", "andq $-16, %r10",
        f".L{name}_line:", "xorl %eax, %eax",
        f".L{name}_many:", "cmpq %r10, %rax", f"jae .L{name}_one",
        f"{extend} ({_SRC},%rax,{size}), %ymm0", f"vmovups %ymm0, ({_DST},%rax,2)", "addq $16, %rax", f"jmp .L{name}_many",
        f".L{name}_one:", f"cmpq {_LENGTH}, %rax", f"jae .L{name}_next",
        f"{single} ({_SRC},%rax,{size}), %ebx", f"movw %bx, ({_DST},%rax,2)", "incq %rax", f"jmp .L{name}_one",
        f".L{name}_next:", "testl $1, %eax", f"je .L{name}_even", f"movw $0, ({_DST},%rax,2)",
        f".L{name}_even:", f"addq {_SRC_STEP}, {_SRC}", f"addq {_DST_STEP}, {_DST}", f"decq {_LINES}", f"jne .L{name}_line",
    ], ("%rbx",))  # fmt: skip


def _join(name: str, in_type: str) -> list[str]:
    """Join two lines, eight elements at a time, then one; join a single last line with zeros."""
    _, extend, single, size = _EXTEND[in_type]
    second, prefetched = "%r11", "%r12"

    def line(there: int) -> list[str]:
        label = f".L{name}_{there}"
        many = [f"{extend} ({_SRC},%rax,{size}), %ymm0", "vpxor %xmm1, %xmm1, %xmm1"]
        one = [f"{single} ({_SRC},%rax,{size}), %ebx", "movzwl %bx, %ebx"]
        if there == 2:
            many[1:] = [f"{extend} ({second},%rax,{size}), %ymm1", "vpslld $16, %ymm1, %ymm1"]
            one += [f"{single} ({second},%rax,{size}), %r13d", "shll $16, %r13d", "orl %r13d, %ebx"]
        return ["xorl %eax, %eax", f"{label}_many:", "cmpq %r10, %rax", f"jae {label}_one",
                *many, "vpblendw $0xaa, %ymm1, %ymm0, %ymm0", f"vmovups %ymm0, ({_DST},%rax,4)", "addq $8, %rax", f"jmp {label}_many",
                f"{label}_one:", f"cmpq {_LENGTH}, %rax", f"jae {label}_next",
                *one, f"movl %ebx, ({_DST},%rax,4)", "incq %rax", f"jmp {label}_one", f"{label}_next:"]  # fmt: skip

    return assembler_support.function(name, [
        f"testq {_LINES}, {_LINES}", f"je .L{name}_end", f"movq {_LENGTH}, %r10", "andq $-8, %r10",
        f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, {prefetched}",
        f".L{name}_lines:", f"cmpq $1, {_LINES}", f"je .L{name}_last", f"leaq ({_SRC},{_SRC_STEP}), {second}",
        f"prefetcht1 ({_SRC},{prefetched})", f"prefetcht1 ({second},{prefetched})", *line(2),
        f"leaq ({_SRC},{_SRC_STEP},2), {_SRC}", f"addq {_DST_STEP}, {_DST}", f"subq $2, {_LINES}", f"jne .L{name}_lines",
        f"jmp .L{name}_end", f".L{name}_last:", *line(1),
    ], ("%rbx", "%r12", "%r13"))  # fmt: skip


_WRITE: dict[str, Callable[[], list[str]]] = {
    "copy_lines": _copy, "transpose_lines": _transpose,
    **{f"{kind}_{type}_lines": functools.partial(write, f"{kind}_{type}_lines", type)
       for kind, write in (("extend", _extend), ("join", _join)) for type in _EXTEND},
    "widen_f16_lines": lambda: _widen("widen_f16_lines", "f16"), "widen_bf16_lines": lambda: _widen("widen_bf16_lines", "bf16"),
}  # fmt: skip
