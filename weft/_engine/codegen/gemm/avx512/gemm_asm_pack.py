"""Packing functions for AVX-512 in assembly, for operands with dense packed rows or dense columns.

All are `void(ptr dst, i64 dst_step, ptr src, i64 src_step, i64 lines, i64 length)`, with steps in
bytes:
- `copy_lines` copies lines of `length` bytes;
- `pad_lines` also fills the last vector of each line with zeros;
- `flip_lines` also flips the sign bits of all bytes;
- `widen_*_lines` converts lines of `length` elements to float32;
- `interleave_*_lines` interleaves the elements of two or four lines, as many as fit in 4 bytes;
- `transpose_lines` transposes elements of 4 bytes.

No other memory is read or (except padding) written. LLVM takes 4 to 12 ms to compile an equivalent
of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.avx512.gemm_asm import mask
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import GEMM_PACK_PREFETCH_ROWS

_DST, _DST_STEP, _SRC, _SRC_STEP, _LINES, _LENGTH = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"


def function(types: GemmTypes, packing: str, operand: str) -> str | None:
    """Return the name of the function for a packing of an operand; None if this module has none."""
    if types.is_complex or types.quads:
        return None
    if types.can_read_b_in_place:
        return {
            "copy": "copy_lines",
            "transpose": "transpose_lines" if types.acc_bytes == 4 else None,
        }.get(packing)
    if packing != "copy":
        return None
    if types.joined_type == types.in_type:
        in_rows = "flip_lines" if types.flips_signs else "pad_lines"
        return in_rows if operand == "a" else f"interleave_{types.k_per_step}_lines"
    widens = (
        types.acc == "f32"
        and not types.joined_type
        and types.in_type in ("bf16", "f16" if types.machine.f16 else "")
    )
    return f"widen_{types.in_type}_lines" if widens else None


def lines(name: str) -> list[str]:
    """Return the lines of the named function."""
    return _WRITE[name]()


def _function(name: str, body: list[str]) -> list[str]:
    return assembler_support.function(name, body, ("%rbx", "%r12", "%r13", "%r14"))


def _copy() -> list[str]:
    four = [(64 * v, f"%zmm{v}") for v in range(4)]
    return _function("copy_lines", [
        f"testq {_LINES}, {_LINES}", "je .Lcopy_lines_end",
        f"movq {_LENGTH}, %r10", "andq $-64, %r10", f"andq $63, {_LENGTH}", *mask(_LENGTH, "%k1"),
        ".Lcopy_line:", f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, %r11", f"addq {_SRC}, %r11", "xorl %eax, %eax",
        ".Lcopy_four:", "leaq 256(%rax), %rbx", "cmpq %r10, %rbx", "ja .Lcopy_one",
        *[f"vmovups {at}({_SRC},%rax), {z}" for at, z in four], *[f"prefetcht1 {at}(%r11,%rax)" for at, _ in four],
        *[f"vmovups {z}, {at}({_DST},%rax)" for at, z in four], "movq %rbx, %rax", "jmp .Lcopy_four",
        ".Lcopy_one:", "cmpq %r10, %rax", "jae .Lcopy_rest",
        f"vmovups ({_SRC},%rax), %zmm0", "prefetcht1 (%r11,%rax)", f"vmovups %zmm0, ({_DST},%rax)", "addq $64, %rax", "jmp .Lcopy_one",
        ".Lcopy_rest:", f"testq {_LENGTH}, {_LENGTH}", "je .Lcopy_next",
        f"vmovdqu8 ({_SRC},%rax), %zmm0{{%k1}}{{z}}", "prefetcht1 (%r11,%rax)", f"vmovdqu8 %zmm0, ({_DST},%rax){{%k1}}",
        ".Lcopy_next:", f"addq {_SRC_STEP}, {_SRC}", f"addq {_DST_STEP}, {_DST}", f"decq {_LINES}", "jne .Lcopy_line",
    ])  # fmt: skip


def _transpose() -> list[str]:
    """Transpose squares of 16 lines by 16 elements, which may be incomplete."""
    at_most_16 = lambda whole, part: [
        "movl $16, %eax",
        f"cmpq %rax, {whole}",
        f"cmovbq {whole}, %rax",
        f"movq %rax, {part}",
    ]
    registers = [f"%zmm{i}" for i in range(16)]
    lines, lines_left, src, dst = "%r12", "%r13", "%r10", "%r11"
    square, transposed = _transpose_squares(registers)
    return _function("transpose_lines", [
        f"testq {_LENGTH}, {_LENGTH}", "je .Ltranspose_lines_end",
        ".Lturn_lines:", f"testq {_LINES}, {_LINES}", "je .Ltranspose_lines_end",
        *at_most_16(_LINES, lines), *mask(lines, "%k1"), f"movq {_SRC}, {src}", f"movq {_DST}, {dst}", f"movq {_LENGTH}, {lines_left}",
        ".Lturn_square:", *at_most_16(lines_left, "%rbx"), *mask("%rbx", "%k2"),
        f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, %r14", f"movq {src}, %rax",
        *_until(".Lturn_loaded", lines, [[f"vmovups (%rax), {z}{{%k2}}{{z}}", "prefetcht1 (%rax,%r14)", f"addq {_SRC_STEP}, %rax"]
                                         for z in registers]),
        *square,
        *_until(".Lturn_stored", "%rbx", [[f"vmovups {z}, ({dst}){{%k1}}", f"addq {_DST_STEP}, {dst}"] for z in transposed]),
        f"addq $64, {src}", f"subq %rbx, {lines_left}", "jne .Lturn_square",
        f"addq %r14, {_SRC}", f"addq $64, {_DST}", f"subq {lines}, {_LINES}", "jmp .Lturn_lines",
    ])  # fmt: skip


def _until(label: str, count: str, features: list[list[str]]) -> list[str]:
    """Emit the first `count` items of `features`, at least one."""
    out = list(features[0])
    for number, feature in enumerate(features[1:], 1):
        out += [f"cmpq ${number}, {count}", f"je {label}", *feature]
    return [*out, f"{label}:"]


def _transpose_squares(rows: list[str]) -> tuple[list[str], list[str]]:
    """Return instructions that transpose 16 vectors of 16 elements, and the registers of the result.

    They use 16 other registers.
    """
    other = [f"%zmm{i + 16}" for i in range(16)]
    out = []
    for i in range(0, 16, 2):
        # pairs of elements, then groups of four, within quarters of registers
        out += [
            f"vunpck{half}ps {rows[i + 1]}, {rows[i]}, {other[i + j]}"
            for j, half in enumerate("lh")
        ]
    for i in range(0, 16, 4):
        out += [
            f"vunpck{half}pd {other[i + 2 + j]}, {other[i + j]}, {rows[i + 2 * j + h]}"
            for j in (0, 1)
            for h, half in enumerate("lh")
        ]
    for i in (0, 8):  # even and odd quarters, twice
        for c in range(4):
            for odd, pick in enumerate((0x88, 0xDD)):
                out.append(
                    f"vshuff32x4 ${pick}, {rows[i + 4 + c]}, {rows[i + c]}, {other[i + 4 * odd + c]}"
                )
    for c in range(4):
        for odd in (0, 1):
            a, b = other[4 * odd + c], other[8 + 4 * odd + c]
            out += [
                f"vshuff32x4 ${pick}, {b}, {a}, {rows[8 * high + 4 * odd + c]}"
                for high, pick in enumerate((0x88, 0xDD))
            ]
    return out, rows


def _pad(name: str, flips: bool) -> list[str]:
    """Copy lines as whole vectors, padded with zeros."""
    flip = ["vpxord %zmm1, %zmm0, %zmm0"] if flips else []
    return _function(name, [
        f"testq {_LINES}, {_LINES}", f"je .L{name}_end", "movl $0x80808080, %eax", "vpbroadcastd %eax, %zmm1",
        f"movq {_LENGTH}, %r10", "andq $-64, %r10", f"andq $63, {_LENGTH}", *mask(_LENGTH, "%k1"),
        f".L{name}_line:", "xorl %eax, %eax",
        f".L{name}_one:", "cmpq %r10, %rax", f"jae .L{name}_rest",
        f"vmovdqu64 ({_SRC},%rax), %zmm0", *flip, f"vmovdqu64 %zmm0, ({_DST},%rax)", "addq $64, %rax", f"jmp .L{name}_one",
        f".L{name}_rest:", f"testq {_LENGTH}, {_LENGTH}", f"je .L{name}_next",
        f"vmovdqu8 ({_SRC},%rax), %zmm0{{%k1}}{{z}}", *flip, f"vmovdqu64 %zmm0, ({_DST},%rax)",
        f".L{name}_next:", f"addq {_SRC_STEP}, {_SRC}", f"addq {_DST_STEP}, {_DST}", f"decq {_LINES}", f"jne .L{name}_line",
    ])  # fmt: skip


def _columns(label: str, take: Callable[[str], list[str]]) -> list[str]:
    """Process a line 16 elements at a time: `take(mask)` loads them to %zmm0. %rax counts elements;
    %r10 is their number in whole vectors."""
    return [
        "xorl %eax, %eax",
        "testq %r10, %r10",
        f"je {label}_rest",
        f"{label}_one:",
        *take(""),
        f"vmovups %zmm0, ({_DST},%rax,4)",
        "addq $16, %rax",
        "cmpq %r10, %rax",
        f"jb {label}_one",
        f"{label}_rest:",
        f"testq {_LENGTH}, {_LENGTH}",
        f"je {label}_next",
        *take("{%k1}{z}"),
        f"vmovups %zmm0, ({_DST},%rax,4){{%k1}}",
        f"{label}_next:",
        f"addq {_DST_STEP}, {_DST}",
    ]


def _by_columns(name: str, body: list[str]) -> list[str]:
    """Return a function that processes lines one after the other, 16 elements at a time."""
    return _function(
        name,
        [
            f"testq {_LINES}, {_LINES}",
            f"je .L{name}_end",
            f"movq {_LENGTH}, %r10",
            "andq $-16, %r10",
            f"andq $15, {_LENGTH}",
            *mask(_LENGTH, "%k1"),
            *body,
        ],
    )


def _widen(name: str, in_type: str) -> list[str]:
    """Widen 16-bit floats to 32 bits."""

    def take(left: str) -> list[str]:
        prefetch = ["prefetcht1 (%r11,%rax,2)"]
        if in_type == "f16":
            return [f"vcvtph2ps ({_SRC},%rax,2), %zmm0{left}", *prefetch]
        return [f"vpmovzxwd ({_SRC},%rax,2), %zmm0{left}", *prefetch, "vpslld $16, %zmm0, %zmm0"]

    return _by_columns(name, [
        f".L{name}_line:", f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, %r11", f"addq {_SRC}, %r11", *_columns(f".L{name}", take),
        f"addq {_SRC_STEP}, {_SRC}", f"decq {_LINES}", f"jne .L{name}_line",
    ])  # fmt: skip


def _interleave(name: str, count: int) -> list[str]:
    """Interleave `count` lines, as many as fit elements in 4 bytes; missing lines are zeros."""
    size, rows = 4 // count, [_SRC, "%rbx", "%r12", "%r13"][:count]
    load = {1: "vpmovzxbd", 2: "vpmovzxwd"}[size]

    def take(there: int) -> Callable[[str], list[str]]:
        def lines(left: str) -> list[str]:
            out = []
            for h, row in enumerate(rows[:there]):
                out.append(f"{load} ({row},%rax,{size}), %zmm{h}{left}")
                out += (
                    [f"vpslld ${8 * size * h}, %zmm{h}, %zmm{h}", f"vpord %zmm{h}, %zmm0, %zmm0"]
                    if h
                    else []
                )
            return out

        return lines

    prefetch = [
        line
        for row in rows
        for line in (
            f"prefetcht1 ({row},%r14)",
            *([f"prefetcht1 64({row},%r14)"] if size == 2 else ()),
        )
    ]
    body = [
        f"imulq ${GEMM_PACK_PREFETCH_ROWS}, {_SRC_STEP}, %r14",
        f".L{name}_rows:",
        *[f"leaq ({row},{_SRC_STEP}), {after}" for row, after in itertools.pairwise(rows)],
        *prefetch,
    ]
    for there in range(1, count):
        body += [f"cmpq ${there}, {_LINES}", f"je .L{name}_{there}"]
    body += [
        *_columns(f".L{name}_{count}", take(count)),
        f"leaq ({_SRC},{_SRC_STEP},{count}), {_SRC}",
        f"subq ${count}, {_LINES}",
        f"jne .L{name}_rows",
        f"jmp .L{name}_end",
    ]
    for there in range(1, count):
        body += [
            f".L{name}_{there}:",
            *_columns(f".L{name}_{there}", take(there)),
            f"jmp .L{name}_end",
        ]
    return _by_columns(name, body)


_WRITE: dict[str, Callable[[], list[str]]] = {
    "copy_lines": _copy, "transpose_lines": _transpose,
    "pad_lines": lambda: _pad("pad_lines", False), "flip_lines": lambda: _pad("flip_lines", True),
    "widen_f16_lines": lambda: _widen("widen_f16_lines", "f16"), "widen_bf16_lines": lambda: _widen("widen_bf16_lines", "bf16"),
    "interleave_2_lines": lambda: _interleave("interleave_2_lines", 2),
    "interleave_4_lines": lambda: _interleave("interleave_4_lines", 4),
}  # fmt: skip
