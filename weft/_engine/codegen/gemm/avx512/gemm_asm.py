"""The micro-kernels of `gemm_micro` for AVX-512 in assembly, with a fixed register allocation.

LLVM takes 4 to 9 ms to allocate the registers of one kernel, and half a millisecond to assemble it.
The text is module-level assembly with the calling convention of Linux.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import (
    GEMM_LINE_K_STEPS,
    STREAMS,
    k_steps_per_iteration,
    kernel_name,
)

# Registers of all kernels. Arguments are passed in the first six, then on the stack.
_A, _AS, _B, _BS, _K_STEPS, SRC = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
_AS3, _AS5, _DST, _DS, _PREFETCH, _NEXT = _KEPT = ("%rbx", "%r12", "%r15", "%rbp", "%r14", "%r13")
I, X, Y = "%rax", "%r10", "%r11"
#: the destination of the sums, its row stride, and `src`; until the sums are stored, they hold the
#: place, pitch and streams to prefetch
_OF_PLACE = _DST, _DS, SRC
#: stack offsets of arguments, above the saved registers
ON_STACK = {
    name: 8 * (len(_KEPT) + 1 + i)
    for i, name in enumerate(
        ("ss", "dst", "ds", "last", "prefetch", "next", "place", "pitch", "streams")
    )
}
#: vector registers in addition to the sums: B, the element of A, a product, and the even and odd
#: parts of sums
_OF_B, _OF_A, _PRODUCT, _EVEN, _ODD = 24, 28, 29, 30, 31


def mask(count: str, register: str) -> list[str]:
    """Set mask `register` to the first `count` bits, less than 64; clobbers %rax."""
    return ["xorl %eax, %eax", f"btsq {count}, %rax", "decq %rax", f"kmovq %rax, {register}"]


class Avx512RegisterKernel:
    """One kernel; 0 `vectors` is half a vector."""

    runs = False

    def __init__(self, types: GemmTypes, rows: int, vectors: int, edge: bool) -> None:
        self.types, self.name, self.rows, self.edge = (
            types,
            kernel_name(rows, vectors, edge, self.runs),
            rows,
            edge,
        )
        self.vectors, self.register = (vectors, "%zmm") if vectors else (1, "%ymm")
        self.stored = 1 if types.quads else self.vectors  # stored vectors per row of sums
        self.element_bytes = types.step_bytes // types.k_steps_per_step
        self.suffix = "s" if types.joined_type or types.acc_bytes == 4 else "d"
        self.broadcast = "vbroadcastf32x4" if types.quads else f"vbroadcasts{self.suffix}"
        self.full = rows == types.rows  # the kernel that does nearly all work
        _, self.add = _instructions(types)

    def lines(self, adds: bool, epilogue: bool) -> list[str]:
        prefetches = self.full and not self.edge and not self.types.quads
        streams = prefetches and epilogue
        tile = [(r, v) for r in range(self.rows) for v in range(self.vectors)]
        out = [f".globl {self.name}", f".type {self.name},@function", ".p2align 4", f"{self.name}:"]
        out += [f"pushq {register}" for register in _KEPT]
        out += self.take_arguments(streams)
        if self.edge:
            out += [f"movq {ON_STACK['last']}(%rsp), {X}"]
            out += (
                [f"addq ${(self.vectors - 1) * self.types.lanes}, {X}"] if self.types.quads else []
            )
            out += mask(X, "%k1")
        out += [f"vpxord {s}, {s}, {s}" for s in map(self.sum, tile)]
        out += self.iterations(prefetches, streams)
        if self.types.flips_signs:
            out += [
                f"vpaddd {64 * v}({_B}), {s}, {s}" for (_, v), s in zip(tile, map(self.sum, tile))
            ]
        if self.types.quads:
            out += self.add_quads()
        if adds:
            out += [
                f"testq {SRC}, {SRC}",
                f"je .L{self.name}_store",
                f"movq {ON_STACK['ss']}(%rsp), {X}",
            ]
            out += self.each_place(
                SRC, X, lambda place, s, mask: f"{self.add} {place}, {s}, {s}{mask}"
            )
            out += [f".L{self.name}_store:"]
        out += self.each_place(
            _DST, _DS, lambda place, s, mask: f"vmovup{self.suffix} {s}, {place}{mask}"
        )
        out += [f"popq {register}" for register in reversed(_KEPT)]
        return [*out, "vzeroupper", "retq", f".size {self.name}, .-{self.name}"]

    def take_arguments(self, streams: bool) -> list[str]:
        out = [
            f"movq {ON_STACK[name]}(%rsp), {register}"
            for name, register in (
                ("dst", _DST),
                ("ds", _DS),
                ("prefetch", _PREFETCH),
                ("next", _NEXT),
            )
        ]
        out += [f"leaq ({_AS},{_AS},2), {_AS3}", f"leaq ({_AS},{_AS},4), {_AS5}"]
        if streams:  # registers that the final stores need are loaded afterwards
            out += [f"movq {SRC}, -8(%rsp)"]
            out += [
                f"movq {ON_STACK[name]}(%rsp), {register}"
                for name, register in zip(("place", "pitch", "streams"), _OF_PLACE)
            ]
        return out

    def iterations(self, prefetches: bool, streams: bool) -> list[str]:
        """Return all k steps; reload the destination of the sums if its registers were in use."""
        unroll, out = k_steps_per_iteration(self.types, self.rows, self.vectors, self.edge), []
        if unroll > 1:
            out += [
                f"movq {_K_STEPS}, {Y}",
                f"shrq ${unroll.bit_length() - 1}, {Y}",
                f"andq ${unroll - 1}, {_K_STEPS}",
            ]
            out += self.loop("iterations", Y, [*self.fetch_next_rows(), *self.k_steps(unroll)])
        out += self.loop(
            "k_steps",
            _K_STEPS,
            [
                *(self.fetch_next_row() if self.full else ()),
                *(_fetch_place(self.types, streams) if prefetches else ()),
                *self.k_steps(1),
            ],
        )
        return [*out, *(self.take_sums() if streams else ())]

    def take_sums(self) -> list[str]:
        """Reload the source and destination of the sums."""
        return [
            f"movq {place}(%rsp), {register}"
            for place, register in zip((ON_STACK["dst"], ON_STACK["ds"], -8), _OF_PLACE)
        ]

    def sum(self, place: tuple[int, int]) -> str:
        return f"{self.register}{place[0] * self.vectors + place[1]}"

    def row(self, r: int, offset: object = "") -> str:
        """Return the address of an element of A in row r."""
        index = ("", f",{_AS}", f",{_AS},2", f",{_AS3}", f",{_AS},4", f",{_AS5}")[r]
        return f"{offset or ''}({_A}{index})"

    def loop(self, name: str, count: str, body: list[str]) -> list[str]:
        """Run `body` `count` times; zero times is possible."""
        label = f".L{self.name}_{name}"
        return [
            "xorl %eax, %eax",
            f"testq {count}, {count}",
            f"je {label}_end",
            ".p2align 4",
            f"{label}:",
            *body,
            f"incq {I}",
            f"cmpq {count}, {I}",
            f"jb {label}",
            f"{label}_end:",
        ]

    def k_steps(self, count: int) -> list[str]:
        """Return `count` k steps: a multiply-add of each sum per k step, then the advance."""
        out = []
        for u in range(count):
            for v in range(self.vectors):
                # (B of joined elements and of quads is always packed and padded.)
                padded = self.types.joined_type or self.types.quads
                edge_mask = "{%k1}{z}" if self.edge and v == self.vectors - 1 and not padded else ""
                out.append(
                    f"vmovup{self.suffix} {64 * v}({_B}), {self.register}{_OF_B + v}{edge_mask}"
                )
            out.append(f"addq {_BS}, {_B}")
            for r in range(self.rows):
                x = f"{self.register}{_OF_A}"
                out.append(f"{self.broadcast} {self.row(r, u * self.element_bytes)}, {x}")
                for v in range(self.vectors):
                    out += self.multiply_add(x, f"{self.register}{_OF_B + v}", self.sum((r, v)))
        return [*out, *self.go_on(count)]

    def go_on(self, count: int) -> list[str]:
        """Advance to the elements of A after `count` k steps."""
        return [f"addq ${count * self.element_bytes}, {_A}"]

    def multiply_add(self, x: str, y: str, sum: str) -> list[str]:
        return multiply_add(self.types, x, y, sum, f"{self.register}{_PRODUCT}")

    def add_quads(self) -> list[str]:
        """Add up the four lanes of each sum: each row of sums becomes one vector."""
        order, even, odd = (f"{self.register}{i}" for i in (_OF_A, _EVEN, _ODD))
        out = [f"vmovups .Lorder(%rip), {order}"]
        for r in range(self.rows):
            sums = [self.sum((r, v)) for v in range(self.vectors)]
            for _ in range(2):
                # add neighboring lanes of two vectors (a missing one leaves unused lanes)
                pairs = [(sums[i], sums[min(i + 1, len(sums) - 1)]) for i in range(0, len(sums), 2)]
                for a, b in pairs:
                    out += [
                        f"vshufps $0x88, {b}, {a}, {even}",
                        f"vshufps $0xdd, {b}, {a}, {odd}",
                        f"vaddps {odd}, {even}, {a}",
                    ]
                sums = [a for a, _ in pairs]
            out.append(f"vpermps {sums[0]}, {order}, {sums[0]}")
        return out

    def fetch_next_row(self) -> list[str]:
        """Prefetch the same elements of the next rows of A, which are far apart: one row per k step."""
        return [
            f"movl %eax, {X}d",
            f"andl $7, {X}d",
            f"movq {X}, {Y}",
            f"imulq {_AS}, {Y}",
            f"addq {_A}, {Y}",
            f"prefetcht1 ({Y},{_NEXT})",
        ]

    def fetch_next_rows(self) -> list[str]:
        """Prefetch the same elements of all next rows of A in an unrolled iteration."""
        out = [f"leaq ({_A},{_NEXT}), {X}"]
        return out + [f"prefetcht1 {self.row(r).replace(_A, X)}" for r in range(self.rows)]

    def each_place(
        self, first: str, stride: str, each: Callable[[str, str, str], str]
    ) -> list[str]:
        """Return the line `each(address, sum, mask)` for every register of sums.

        The register `first` holds the address of row 0; `stride` is added to it for each further row.
        """
        out = []
        for r in range(self.rows):
            out += [f"addq {stride}, {first}"] if r else []
            for v in range(self.stored):
                mask = "{%k1}" if self.edge and v == self.stored - 1 else ""
                out.append(each(f"{64 * v}({first})", self.sum((r, v)), mask))
        return out


def _fetch_place(types: GemmTypes, streams: bool) -> list[str]:
    """Prefetch a line per iteration of B's next panel and of the destination of the sums.

    With `streams`, prefetch the same segment of each stream, one after the other; a segment takes
    one iteration per line and row. X holds the number of the iteration modulo 8, set by
    `fetch_next_row`.
    """
    lines = types.panel_row_bytes // 64
    place, pitch, list_ = _OF_PLACE
    out = [
        f"prefetcht1 ({_PREFETCH})",
        f"addq ${64 // GEMM_LINE_K_STEPS}, {_PREFETCH}",
        f"imulq {pitch}, {X}",
        f"addq {place}, {X}",
        f"movl %eax, {Y}d",
        f"andl ${8 * (lines - 1)}, {Y}d",
    ]
    if not streams:
        return [*out, f"prefetcht1 ({X},{Y},8)"]
    return [
        *out,
        f"leaq ({X},{Y},8), {X}",
        f"movl %eax, {Y}d",
        f"shrl ${(8 * lines).bit_length() - 1}, {Y}d",
        f"andl ${STREAMS - 1}, {Y}d",
        f"addq ({list_},{Y},8), {X}",
        f"prefetcht1 ({X})",
    ]


def multiply_add(types: GemmTypes, x: str, y: str, sum: str, product: str) -> list[str]:
    """Add the products of an element of A and a vector of B to a sum."""
    multiply, add = _instructions(types)
    if types.flips_signs and types.in_type == "i8":
        # the middle operand of the instruction is unsigned
        x, y = y, x
    if multiply.startswith(("vfm", "vdp", "vpdp")):
        return [f"{multiply} {x}, {y}, {sum}"]
    return [f"{multiply} {x}, {y}, {product}", f"{add} {product}, {sum}, {sum}"]


def _instructions(types: GemmTypes) -> tuple[str, str]:
    """Return the instructions that multiply (and add, if there is one) and that add."""
    if unit := types.unit:
        return unit.instruction, "vaddps" if types.is_float else "vpaddd"
    kind = "s" if types.acc_bytes == 4 else "d"
    return (
        (f"vfmadd231p{kind}", f"vaddp{kind}")
        if types.is_float
        else {"s": ("vpmulld", "vpaddd"), "d": ("vpmullq", "vpaddq")}[kind]
    )
