"""The micro-kernels of `gemm_micro` for AVX2 in assembly.

Six rows of two vectors of sums occupy twelve of the sixteen registers.

In:   a types and the names of kernels.
Out:  the text of an assembly module, with the calling convention of Linux.
Laws: the sums are the same as in `gemm_micro`, in the same order; nothing is stored beyond the
      lanes of an edge.

Twelve of the twenty instructions of a k step are multiply-adds, so only cache misses cost time. Zen 3
prefetches the next rows of packed operands in hardware, and software prefetches of them would cost
time. The kernels prefetch only the destination of the sums, or the same place of the arrays that an
epilogue reads: their rows are too far apart for the hardware prefetcher.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import STREAMS, kernel_name, tiles

# thresholds, measured on several machines
#: k steps per iteration of a kernel: 4, 2 or 1
_GEMM_UNROLLED_K_STEPS = 4


# Registers of all kernels. Arguments are passed in the first six, then on the stack.
_A, _AS, _B, _BS, _K_STEPS, _SRC = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
_AS3, _AS5, _BS3, _PLACE, _PITCH, _STREAMS = _KEPT = (
    "%rbx",
    "%r12",
    "%r13",
    "%r14",
    "%r15",
    "%rbp",
)
_I, _I32, _X, _Y = "%rax", "%eax", "%r10", "%r11"
#: stack offsets of arguments, above the saved registers
_ON_STACK = {
    name: f"{8 * (len(_KEPT) + 1 + i)}(%rsp)"
    for i, name in enumerate(
        ("ss", "dst", "ds", "last", "prefetch", "next", "place", "pitch", "streams")
    )
}
#: vector registers in addition to the sums: B, the elements of A alternately; after the loop, the
#: mask of an edge and the masked addend
_OF_B, _OF_A, _LANES, _ADDED = 12, (14, 15), "%ymm15", "%ymm14"


def module(types: GemmTypes, needed: Collection[str]) -> str:
    """Return a module with the needed kernels. They add `src` if "blocks" is needed, and prefetch
    `streams` if "epilogue" is."""
    kernels = [
        _Avx2RegisterKernel(types, *tile) for tile in tiles(types) if kernel_name(*tile) in needed
    ]
    lines = [
        line
        for kernel in kernels
        for line in kernel.lines("blocks" in needed, "epilogue" in needed)
    ]
    if any(kernel.edge for kernel in kernels):
        # a mask is loaded from the border between 32 bytes of ones and 32 bytes of zeros
        lines += [".p2align 5", ".Llanes:", ".fill 32, 1, 0xff", ".fill 32, 1, 0"]
    return as_module(lines)


class _Avx2RegisterKernel:
    def __init__(self, types: GemmTypes, rows: int, vectors: int, edge: bool) -> None:
        self.types, self.name, self.rows, self.vectors, self.edge = (
            types,
            kernel_name(rows, vectors, edge),
            rows,
            vectors,
            edge,
        )
        self.tile = [(r, v) for r in range(rows) for v in range(vectors)]
        self.element_bytes = types.step_bytes // types.k_steps_per_step
        self.kind = "s" if types.joined_type or types.acc_bytes == 4 else "d"
        self.add = f"vaddp{self.kind}" if types.is_float else "vpaddd"

    def lines(self, adds: bool, epilogue: bool) -> list[str]:
        # the kernel that does nearly all work
        full = self.rows == self.types.rows and not self.edge
        out = [
            f".globl {self.name}",
            f".type {self.name},@function",
            ".p2align 4",
            f"{self.name}:",
            *[f"pushq {r}" for r in _KEPT],
            f"leaq ({_AS},{_AS},2), {_AS3}",
            f"leaq ({_AS},{_AS},4), {_AS5}",
            f"leaq ({_BS},{_BS},2), {_BS3}",
        ]
        out += [f"vxorps {s}, {s}, {s}" for s in map(self.sum, self.tile)]
        if full:
            place, pitch = ("place", "pitch") if epilogue else ("dst", "ds")
            out += [f"movq {_ON_STACK[place]}, {_PLACE}", f"movq {_ON_STACK[pitch]}, {_PITCH}"]
            out += [f"movq {_ON_STACK['streams']}, {_STREAMS}"] if epilogue else self.fetch_place()
        out += self.iterations(self.fetch_stream() if full and epilogue else [])
        out += [f"movq {_ON_STACK['dst']}, {_PLACE}", f"movq {_ON_STACK['ds']}, {_PITCH}"]
        if self.edge:
            out += [
                f"movq {_ON_STACK['last']}, {_X}",
                f"imulq ${-self.types.acc_bytes}, {_X}, {_X}",
                f"leaq .Llanes(%rip), {_Y}",
                f"vmovups 32({_Y},{_X}), {_LANES}",
            ]
        if adds:
            out += [
                f"testq {_SRC}, {_SRC}",
                f"je .L{self.name}_store",
                f"movq {_ON_STACK['ss']}, {_X}",
            ]
            out += [*self.each_place(_SRC, _X, self.accumulate_memory), f".L{self.name}_store:"]
        out += self.each_place(_PLACE, _PITCH, self.store)
        return [
            *out,
            *[f"popq {r}" for r in reversed(_KEPT)],
            "vzeroupper",
            "retq",
            f".size {self.name}, .-{self.name}",
        ]

    def sum(self, place: tuple[int, int]) -> str:
        return f"%ymm{place[0] * self.vectors + place[1]}"

    def iterations(self, asks: list[str]) -> list[str]:
        """Return all k steps in unrolled iterations, which begin with the prefetches `asks`."""
        label, unroll = f".L{self.name}", _GEMM_UNROLLED_K_STEPS
        return [
            f"movq {_K_STEPS}, {_I}",
            f"shrq ${unroll.bit_length() - 1}, {_I}",
            f"andq ${unroll - 1}, {_K_STEPS}",
            f"testq {_I}, {_I}",
            f"je {label}_rest",
            ".p2align 5",
            f"{label}_iteration:",
            *asks,
            *self.k_steps(unroll),
            f"decq {_I}",
            f"jne {label}_iteration",
            f"{label}_rest:",
            f"testq {_K_STEPS}, {_K_STEPS}",
            f"je {label}_end",
            f"{label}_k_step:",
            *self.k_steps(1),
            f"decq {_K_STEPS}",
            f"jne {label}_k_step",
            f"{label}_end:",
        ]

    def k_steps(self, count: int) -> list[str]:
        """Return `count` k steps: a multiply-add of each sum per k step, then the advance."""
        out: list[str] = []
        for u in range(count):
            k_step = ("", f",{_BS}", f",{_BS},2", f",{_BS3}")[u]
            out += [f"vmovups {32 * v}({_B}{k_step}), %ymm{_OF_B + v}" for v in range(self.vectors)]
            for r in range(self.rows):
                a = f"%ymm{_OF_A[r % 2 if self.fuses else 0]}"
                index = ("", f",{_AS}", f",{_AS},2", f",{_AS3}", f",{_AS},4", f",{_AS5}")[r]
                out.append(f"vbroadcasts{self.kind} {u * self.element_bytes}({_A}{index}), {a}")
                for v in range(self.vectors):
                    out += self.multiply_add(a, f"%ymm{_OF_B + v}", self.sum((r, v)))
        return [
            *out,
            f"addq ${count * self.element_bytes}, {_A}",
            f"leaq ({_B},{_BS},{count}), {_B}",
        ]

    @property
    def fuses(self) -> bool:
        """True if one instruction multiplies and adds.

        Otherwise the product takes the second register for elements of A.
        """
        return self.types.is_float

    def multiply_add(self, x: str, y: str, sum: str) -> list[str]:
        if self.fuses:
            return [f"vfmadd231p{self.kind} {x}, {y}, {sum}"]
        product = f"%ymm{_OF_A[1]}"
        return [
            f"{'vpmaddwd' if self.types.joined_type else 'vpmulld'} {x}, {y}, {product}",
            f"vpaddd {product}, {sum}, {sum}",
        ]

    def fetch_place(self) -> list[str]:
        """Prefetch the destination of the sums: a line of each row."""
        step = [f"addq {_PITCH}, {_PLACE}", f"prefetcht0 ({_PLACE})"]
        return [*step[1:], *step * (self.rows - 1)]

    def fetch_stream(self) -> list[str]:
        """Prefetch a line of an array that an epilogue reads; each iteration takes the next row or array."""
        return [
            f"movl {_I32}, {_X}d",
            f"andl $7, {_X}d",
            f"imulq {_PITCH}, {_X}",
            f"addq {_PLACE}, {_X}",
            f"movl {_I32}, {_Y}d",
            f"shrl $3, {_Y}d",
            f"andl ${STREAMS - 1}, {_Y}d",
            f"addq ({_STREAMS},{_Y},8), {_X}",
            f"prefetcht0 ({_X})",
        ]

    def each_place(
        self, first: str, stride: str, each: Callable[[str, tuple[int, int]], list[str]]
    ) -> list[str]:
        """Return `each(address, sum)` for all sums; `first` advances down the rows."""
        out = []
        for r in range(self.rows):
            out += [f"addq {stride}, {first}"] if r else []
            out += [
                line for v in range(self.vectors) for line in each(f"{32 * v}({first})", (r, v))
            ]
        return out

    def accumulate_memory(self, address: str, place: tuple[int, int]) -> list[str]:
        sum = self.sum(place)
        if self.edge and place[1] == self.vectors - 1:
            return [
                f"vmaskmovps {address}, {_LANES}, {_ADDED}",
                f"{self.add} {_ADDED}, {sum}, {sum}",
            ]
        return [f"{self.add} {address}, {sum}, {sum}"]

    def store(self, address: str, place: tuple[int, int]) -> list[str]:
        if self.edge and place[1] == self.vectors - 1:
            return [f"vmaskmovps {self.sum(place)}, {_LANES}, {address}"]
        return [f"vmovups {self.sum(place)}, {address}"]
