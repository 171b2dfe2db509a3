"""What packs operands that need no conversion, for AVX-512, in assembler: lines of memory copied, or transposed.

`copy_lines(ptr dst, i64 dst_step, ptr src, i64 src_step, i64 lines, i64 bytes)` copies lines of so many bytes;
`transpose_lines(ptr dst, i64 dst_step, ptr src, i64 src_step, i64 lines, i64 elements)` makes element i of line j element j of line i,
of 4 bytes each. Steps are in bytes; nothing beyond the elements is read or written. LLVM takes 4 and 8 ms for the like of each.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.codegen import gemm_asm
from weft.codegen.gemm_types import Recipe

_DST, _DST_STEP, _SRC, _SRC_STEP, _LINES, _LENGTH = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
#: lines that are asked for before their turn: they lie far apart, and each is too short for the hardware to find the next in time
_LINES_AHEAD = 16


def function(recipe: Recipe, way: str) -> str | None:
    """Return the name of the function that packs a recipe's operands this way ("copy" or "transpose"), if it is one of these."""
    if not gemm_asm.suits(recipe.machine) or not recipe.unpacked_b_ok:
        return None
    return {"copy": "copy_lines", "transpose": "transpose_lines" if recipe.acc_bytes == 4 else None}.get(way)


def text(names: Collection[str]) -> str:
    """Return the functions that are named, for a module."""
    lines = [*(_copy() if "copy_lines" in names else ()), *(_transpose() if "transpose_lines" in names else ())]
    return gemm_asm.as_module(lines)


def _mask(count: str, register: str) -> list[str]:
    """Have the first so many bits set, less than 64 of them; this takes %rax."""
    return ["xorl %eax, %eax", f"btsq {count}, %rax", "decq %rax", f"kmovq %rax, {register}"]


def _function(name: str, body: list[str]) -> list[str]:
    kept = ("%rbx", "%r12", "%r13", "%r14")
    return [".p2align 4", f".type {name},@function", f"{name}:", *[f"pushq {r}" for r in kept], *body, f".L{name}_end:",
            *[f"popq {r}" for r in reversed(kept)], "vzeroupper", "retq", f".size {name}, .-{name}"]


def _copy() -> list[str]:
    four = [(64 * v, f"%zmm{v}") for v in range(4)]
    return _function("copy_lines", [
        f"testq {_LINES}, {_LINES}", "je .Lcopy_lines_end",
        f"movq {_LENGTH}, %r10", "andq $-64, %r10", f"andq $63, {_LENGTH}", *_mask(_LENGTH, "%k1"),
        ".Lcopy_line:", f"imulq ${_LINES_AHEAD}, {_SRC_STEP}, %r11", f"addq {_SRC}, %r11", "xorl %eax, %eax",
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
    """Squares of 16 lines and 16 elements, of which some may not be there."""
    at_most_16 = lambda whole, part: ["movl $16, %eax", f"cmpq %rax, {whole}", f"cmovbq {whole}, %rax", f"movq %rax, {part}"]
    registers = [f"%zmm{i}" for i in range(16)]
    lines, left, src, dst = "%r12", "%r13", "%r10", "%r11"
    square, made = _turned(registers)
    return _function("transpose_lines", [
        f"testq {_LENGTH}, {_LENGTH}", "je .Ltranspose_lines_end",
        ".Lturn_lines:", f"testq {_LINES}, {_LINES}", "je .Ltranspose_lines_end",
        *at_most_16(_LINES, lines), *_mask(lines, "%k1"), f"movq {_SRC}, {src}", f"movq {_DST}, {dst}", f"movq {_LENGTH}, {left}",
        ".Lturn_square:", *at_most_16(left, "%rbx"), *_mask("%rbx", "%k2"),
        f"imulq ${_LINES_AHEAD}, {_SRC_STEP}, %r14", f"movq {src}, %rax",
        *_until(".Lturn_loaded", lines, [[f"vmovups (%rax), {z}{{%k2}}{{z}}", "prefetcht1 (%rax,%r14)", f"addq {_SRC_STEP}, %rax"]
                                         for z in registers]),
        *square,
        *_until(".Lturn_stored", "%rbx", [[f"vmovups {z}, ({dst}){{%k1}}", f"addq {_DST_STEP}, {dst}"] for z in made]),
        f"addq $64, {src}", f"subq %rbx, {left}", "jne .Lturn_square",
        f"addq %r14, {_SRC}", f"addq $64, {_DST}", f"subq {lines}, {_LINES}", "jmp .Lturn_lines",
    ])  # fmt: skip


def _until(label: str, count: str, pieces: list[list[str]]) -> list[str]:
    """The first so many pieces, at least one."""
    out = list(pieces[0])
    for number, piece in enumerate(pieces[1:], 1):
        out += [f"cmpq ${number}, {count}", f"je {label}", *piece]
    return [*out, f"{label}:"]


def _turned(rows: list[str]) -> tuple[list[str], list[str]]:
    """Transpose 16 vectors of 16 elements, with as many registers beside them; what does it, and where the result is."""
    other = [f"%zmm{i + 16}" for i in range(16)]
    out = []
    for i in range(0, 16, 2):       # pairs of elements, then fours, inside of quarters of registers
        out += [f"vunpck{half}ps {rows[i + 1]}, {rows[i]}, {other[i + j]}" for j, half in enumerate("lh")]
    for i in range(0, 16, 4):
        out += [f"vunpck{half}pd {other[i + 2 + j]}, {other[i + j]}, {rows[i + 2 * j + h]}" for j in (0, 1) for h, half in enumerate("lh")]
    for i in (0, 8):                # even quarters and odd ones, twice
        for c in range(4):
            for odd, pick in enumerate((0x88, 0xDD)):
                out.append(f"vshuff32x4 ${pick}, {rows[i + 4 + c]}, {rows[i + c]}, {other[i + 4 * odd + c]}")
    for c in range(4):
        for odd in (0, 1):
            a, b = other[4 * odd + c], other[8 + 4 * odd + c]
            out += [f"vshuff32x4 ${pick}, {b}, {a}, {rows[8 * high + 4 * odd + c]}" for high, pick in enumerate((0x88, 0xDD))]
    return out, rows
