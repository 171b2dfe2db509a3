"""The function of `skinny_gemm` for AVX-512 in assembly.

LLVM takes over 10 ms to compile it, half a millisecond to assemble it."""

from __future__ import annotations

import itertools

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.gemm.avx512 import gemm_asm
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import GEMM_ALONG_STREAMS

A, AS, _ROWS, B, BS, STEPS = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
_BS3, COLS, _BS5, _BS7, _COUNT, _SUMS_ROW = _KEPT = (
    "%rbx",
    "%rbp",
    "%r12",
    "%r13",
    "%r14",
    "%r15",
)
_A_ROW, PLACE, SUMS = "%rax", "%r10", "%r11"
#: arguments on the stack
STACK = {name: f"{8 * (len(_KEPT) + 1 + i)}(%rsp)" for i, name in enumerate(("cols", "sums", "ss"))}
#: index expressions of the rows of B, relative to the first row
INDEX = ("", f",{BS}", f",{BS},2", f",{_BS3}", f",{BS},4", f",{_BS5}", f",{_BS3},2", f",{_BS7}")
#: first registers of the parts of B to interleave, of the surplus of flipped sign bits, and of the
#: sums; B has the first 16, or 8 if interleaved
_PARTS, _SIGN_CORRECTION, _OF_SUMS = 16, 16, 24
_OF_A, _PRODUCT, _ORDER, _SIGNS = "%zmm28", "%zmm29", "%zmm30", "%zmm31"
_ROW_MASK = "{%k7}{z}"
#: instructions that load and convert
_LOADS = {"f16": "vcvtph2ps", "bf16": "vpmovzxwd"}


def suits(types: GemmTypes) -> bool:
    """Return whether this module has a function for a types."""
    if not assembler_support.has_avx512(types.machine):
        return False
    converts = types.acc == "f32" and types.in_type in _LOADS
    return types.joined_type == types.in_type or (
        not types.joined_type and (types.can_read_b_in_place or converts)
    )


def text(types: GemmTypes, name: str) -> str:
    """Return a module with `along` or `along_row`."""
    return as_module(AlongFunction(types, name).lines())


class AlongFunction:
    """The function under construction."""

    def __init__(self, types: GemmTypes, name: str) -> None:
        self.name, self.single = name, name == "along_row"
        self.types, self.per, self.vectors, self.wide = (
            types,
            types.k_per_step,
            types.vectors_along_b_row,
            types.cols_along_b_row,
        )
        self.move = "vmovups" if types.joined_type or types.acc_bytes == 4 else "vmovupd"
        self.broadcast = f"vbroadcasts{self.move[-1]}"
        self.labels = itertools.count()

    def lines(self) -> list[str]:
        count = GEMM_ALONG_STREAMS // self.per
        iterations, remainder, end = self.label(), self.label(), self.label()
        out = self.enter()
        out += (
            ["movl $0x80808080, %eax", f"vpbroadcastd %eax, {_SIGNS}"]
            if self.types.flips_signs
            else []
        )
        out += [
            f"{iterations}:",
            f"cmpq ${count}, {STEPS}",
            f"jb {remainder}",
            *self.steps(count),
            f"jmp {iterations}",
        ]
        out += [
            f"{remainder}:",
            f"testq {STEPS}, {STEPS}",
            f"je {end}",
            *self.steps(1),
            f"jmp {remainder}",
        ]
        out += [f"{end}:", *self.leave()]
        return [*out, *(self.order() if self.types.joined_type else ())]

    def enter(self) -> list[str]:
        """Return the function's label, and the code that saves and sets up registers."""
        out = [".p2align 4", f".globl {self.name}", f".type {self.name},@function", f"{self.name}:"]
        out += [*[f"pushq {register}" for register in _KEPT],
               f"leaq ({BS},{BS},2), {_BS3}", f"leaq ({BS},{BS},4), {_BS5}", f"leaq ({_BS3},{BS},4), {_BS7}"]  # fmt: skip
        order = [f"vmovups .L{self.name}_order(%rip), {_ORDER}"]
        return out + (order if self.types.joined_type else [])

    def leave(self) -> list[str]:
        """Return the code that restores registers and returns."""
        return [
            *[f"popq {register}" for register in reversed(_KEPT)],
            "vzeroupper",
            "retq",
            f".size {self.name}, .-{self.name}",
        ]

    def label(self) -> str:
        return f".L{self.name}_{next(self.labels)}"

    def steps(self, count: int) -> list[str]:
        """Return `count` steps of all columns, then the advance to the next steps."""
        stretch, remainder, end = self.label(), self.label(), self.label()
        out = [
            f"movq {STACK['cols']}, {COLS}",
            f"movq {B}, {PLACE}",
            f"movq {STACK['sums']}, {SUMS}",
        ]
        of_a = (
            [f"%zmm{(8 if self.types.joined_type else 16) + s}" for s in range(count)]
            if self.single
            else []
        )
        out += [
            f"{self.broadcast} {s * self.types.step_bytes}({A}), {x}" for s, x in enumerate(of_a)
        ]
        out += [
            f"{stretch}:",
            f"cmpq ${self.wide}, {COLS}",
            f"jb {remainder}",
            *(self.fetch() if count > 1 else ()),
        ]
        out += [
            *self.stretch(count, of_a, False),
            f"addq ${self.wide * self.types.in_bytes}, {PLACE}",
            f"addq ${self.wide * self.types.acc_bytes}, {SUMS}",
            f"subq ${self.wide}, {COLS}",
            f"jmp {stretch}",
        ]
        out += [f"{remainder}:", f"testq {COLS}, {COLS}", f"je {end}"]
        out += ["xorl %eax, %eax", f"btsq {COLS}, %rax", "decq %rax", "kmovq %rax, %k7"]
        for v in range(self.vectors):
            out += [f"kmovq %rax, %k{v + 1}", f"shrq ${self.types.lanes}, %rax"]
        return [
            *out,
            *self.stretch(count, of_a, True),
            f"{end}:",
            f"addq ${count * self.types.step_bytes}, {A}",
            f"leaq ({B},{BS},{count * self.per}), {B}",
            f"subq ${count}, {STEPS}",
        ]

    def fetch(self) -> list[str]:
        """Prefetch the next rows of B: parts of rows are too short for the hardware prefetcher."""
        lines = range(0, self.wide * self.types.in_bytes, 64)
        prefetch = f"leaq ({PLACE},{BS},{GEMM_ALONG_STREAMS}), {_COUNT}"
        return [
            prefetch,
            *[f"prefetcht1 {line}({_COUNT}{index})" for index in INDEX for line in lines],
        ]

    def stretch(self, count: int, of_a: list[str], masked: bool) -> list[str]:
        """Return `count` steps of a few vectors of columns; `of_a` holds the elements of one row of A."""
        types, vectors, out = self.types, range(self.vectors), []
        of_b = [[f"%zmm{s * self.vectors + v}" for v in vectors] for s in range(count)]
        if self.single and not masked and types.in_type == types.acc:
            # The multiply-adds read B from memory.
            of_b = [[f"{64 * v}({PLACE}{INDEX[s]})" for v in vectors] for s in range(count)]
        else:
            out = [line for s, step in enumerate(of_b) for line in self.load(s, step, masked)]
        corrections = [f"%zmm{_SIGN_CORRECTION + v}" for v in vectors] if types.flips_signs else []
        out += [f"vpxord {x}, {x}, {x}" for x in corrections]
        for step_of_b in of_b:
            for y, x in zip(step_of_b, corrections):
                out += self.multiply_add(_SIGNS, y, x)
        if self.single:
            return out + self.row_of_sums(SUMS, of_a, of_b, masked)
        row = self.label()
        return [
            *out,
            f"movq {A}, {_A_ROW}",
            f"movq {SUMS}, {_SUMS_ROW}",
            f"movq {_ROWS}, {_COUNT}",
            ".p2align 4",
            f"{row}:",
            *self.row_of_sums(_SUMS_ROW, of_a, of_b, masked),
            f"addq {AS}, {_A_ROW}",
            f"addq {STACK['ss']}, {_SUMS_ROW}",
            f"decq {_COUNT}",
            f"jne {row}",
        ]

    def row_of_sums(
        self, place: str, of_a: list[str], of_b: list[list[str]], masked: bool
    ) -> list[str]:
        """Return code that adds the products of one row of A to the sums at `place`."""
        masks = [f"{{%k{v + 1}}}" * masked for v in range(self.vectors)]
        sums = [f"%zmm{_OF_SUMS + v}" for v in range(self.vectors)]
        out = [
            f"{self.move} {64 * v}({place}), {x}{mask}{'{z}' * masked}"
            for v, (x, mask) in enumerate(zip(sums, masks))
        ]
        if self.types.flips_signs:
            out += [f"vpsubd %zmm{_SIGN_CORRECTION + v}, {x}, {x}" for v, x in enumerate(sums)]
        for s, step_of_b in enumerate(of_b):
            if not self.single:
                out.append(f"{self.broadcast} {s * self.types.step_bytes}({_A_ROW}), {_OF_A}")
            a = of_a[s] if self.single else _OF_A
            for b, x in zip(step_of_b, sums):
                in_memory = "(" in b
                out += self.multiply_add(*((b, a) if in_memory else (a, b)), x)
        stores = enumerate(zip(sums, masks))
        return out + [f"{self.move} {x}, {64 * v}({place}){mask}" for v, (x, mask) in stores]

    def multiply_add(self, x: str, y: str, sum: str) -> list[str]:
        return gemm_asm.multiply_add(self.types, x, y, sum, _PRODUCT)

    def load(self, step: int, to: list[str], masked: bool) -> list[str]:
        """Load the vectors of one step."""
        if self.types.joined_type:
            return self.load_joined(step, to, masked)
        load = _LOADS[self.types.in_type] if self.types.in_type != self.types.acc else self.move
        size = self.types.lanes * self.types.in_bytes
        out = [
            f"{load} {size * v}({PLACE}{INDEX[step]}), {x}" + f"{{%k{v + 1}}}{{z}}" * masked
            for v, x in enumerate(to)
        ]
        return out + [f"vpslld $16, {x}, {x}" for x in to if load == "vpmovzxwd"]

    def load_joined(self, step: int, to: list[str], masked: bool) -> list[str]:
        """Load and interleave the rows of a joined step.

        Interleaving works within quarters of registers, so columns are permuted first.
        """
        parts, out = [f"%zmm{_PARTS + i}" for i in range(self.per)], []
        permute, load = ("vpermq", "vmovdqu16") if self.per == 2 else ("vpermd", "vmovdqu8")
        for i, part in enumerate(parts):
            place = f"({PLACE}{INDEX[step * self.per + i]})"
            out += [f"{load} {place}, {part}{_ROW_MASK}"] if masked else []
            out.append(f"{permute} {part if masked else place}, {_ORDER}, {part}")
        unpack = lambda size, x, y, to: [
            f"vpunpck{half}{size} {y}, {x}, {z}" for half, z in zip("lh", to)
        ]
        if self.per == 2:
            return out + unpack("wd", parts[0], parts[1], to)
        pairs = [f"%zmm{_PARTS + 4 + i}" for i in range(4)]
        out += unpack("bw", parts[0], parts[1], pairs[:2])
        out += unpack("bw", parts[2], parts[3], pairs[2:])
        return (
            out
            + unpack("wd", pairs[0], pairs[2], to[:2])
            + unpack("wd", pairs[1], pairs[3], to[2:])
        )

    def order(self) -> list[str]:
        """Return the permutation that gives each quarter of a register its part of each vector."""
        size, kind = (8, ".quad") if self.per == 2 else (4, ".long")
        order = [v * 4 + quarter for quarter in range(4) for v in range(16 // size)]
        return [".p2align 6", f".L{self.name}_order:", f"{kind} {','.join(map(str, order))}"]
