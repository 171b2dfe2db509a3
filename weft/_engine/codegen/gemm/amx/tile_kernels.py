"""The micro-kernels of `gemm_micro` for AMX: two by two tiles of 16 rows by 16 sums, or fewer.

A task configures the tile registers for whole tiles (`configure_tiles`) and releases them at its end.
A kernel takes its number of rows as one more argument, before `place`; for fewer rows or columns
than its tiles have, it configures smaller tiles meanwhile, so that it neither reads nor writes beyond
them. Blocks of k are padded with zeros to whole tiles. The order of loads, and the prefetches of four
lines of B and four rows of C per product, measured fastest on Emerald Rapids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import (
    STREAMS,
    TILE_STATE_FUNCTIONS,
    kernel_name,
    tiles,
)

# Registers of all kernels. Arguments are passed in the first six, then on the stack.
_A, _AS, _B, _BS, _K_STEPS, _SRC = "%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"
_SPARE, _DS, _PITCH, _PLACE, _PREFETCH, _DST = _KEPT = (
    "%rbx",
    "%rbp",
    "%r12",
    "%r13",
    "%r14",
    "%r15",
)
_I, _SECOND, _B_STEP, _ROW = "%rax", "%r10", "%r11", "%r9"
#: stack offsets of arguments, above the saved registers
_ON_STACK = {
    name: 8 * (len(_KEPT) + 1 + i)
    for i, name in enumerate(
        ("ss", "dst", "ds", "last", "prefetch", "next", "rows", "place", "pitch", "streams")
    )
}
#: bytes of a configuration of tiles, and positions in it of the bytes per row and of the rows of tile 0
_CONFIGURATION, _COLUMN_BYTES, _ROWS = 64, 16, 48
#: first registers of the tiles of A and of B; sums have the first four
_OF_A, _OF_B = 4, 6
#: lines of B's next panel, and rows of C, prefetched per product of tiles
_LINES, _ROWS_AHEAD = 4, 4


def module(types: GemmTypes, needed: Collection[str]) -> str:
    """Return a module with the needed kernels and the functions that set and release tiles.

    They add `src` if "blocks" is needed, and prefetch `streams` if "epilogue" is needed.
    """
    lines = whole_tiles(".Lwhole_tiles")
    configure, release = TILE_STATE_FUNCTIONS
    lines += _function(configure, ["ldtilecfg .Lwhole_tiles(%rip)", "retq"])
    lines += _function(release, ["tilerelease", "retq"])
    for rows, vectors, edge in tiles(types):
        name = kernel_name(rows, vectors, edge)
        if name in needed:
            kernel = _TileKernel(types, name, rows // 16, vectors)
            lines += _function(name, kernel.body("blocks" in needed, "epilogue" in needed))
    return as_module(lines)


def whole_tiles(label: str) -> list[str]:
    """Return a configuration of 8 tiles of 16 rows of 64 bytes."""
    table = [1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]
    return [".p2align 6", f"{label}:", f".byte {','.join(map(str, table))}"]


def _function(name: str, body: list[str]) -> list[str]:
    return [
        ".p2align 4",
        f".globl {name}",
        f".type {name},@function",
        f"{name}:",
        *body,
        f".size {name}, .-{name}",
    ]


class _TileKernel:
    """A kernel for `down` by `across` tiles of sums, 1 or 2 each."""

    def __init__(self, types: GemmTypes, name: str, down: int, across: int) -> None:
        assert types.unit is not None
        self.types, self.name, self.down, self.across = types, name, down, across
        self.multiply = types.unit.instruction
        self.sums = [(r, v) for r in range(down) for v in range(across)]

    def body(self, adds: bool, epilogue: bool) -> list[str]:
        """Return the lines of the function."""
        return [
            *[f"pushq {register}" for register in _KEPT],
            *self.configure_edge(),
            *self.take_arguments(epilogue),
            *self.load_sums(adds),
            *self.products(epilogue),
            *self.each_sum(_DST, _DS, lambda place, tile: f"tilestored {tile}, {place}"),
            *self.if_edge("whole", "restored", ["ldtilecfg .Lwhole_tiles(%rip)"]),
            *[f"popq {register}" for register in reversed(_KEPT)],
            "vzeroupper",
            "retq",
        ]

    def if_edge(self, label: str, end: str, then: list[str]) -> list[str]:
        """Return `then`, run only if the kernel has fewer rows or columns than its tiles."""
        return [
            f"cmpq ${16 * self.down}, {_ON_STACK['rows']}(%rsp)",
            f"jne .L{self.name}_{label}",
            f"cmpq $16, {_ON_STACK['last']}(%rsp)",
            f"je .L{self.name}_{end}",
            f".L{self.name}_{label}:",
            *then,
            f".L{self.name}_{end}:",
        ]

    def configure_edge(self) -> list[str]:
        """Configure the last row and the last column of tiles for the rows and columns that there are."""
        r, v, below = self.down - 1, self.across - 1, _CONFIGURATION
        last_rows = [_tile(r, column) for column in range(self.across)] + [_OF_A + r]
        last_columns = [_tile(row, v) for row in range(self.down)] + [_OF_B + v]
        return self.if_edge("edge", "configured", [
            f"movq {_ON_STACK['rows']}(%rsp), %rax", f"subq ${16 * r}, %rax",
            f"movq {_ON_STACK['last']}(%rsp), %r10", "shlq $2, %r10",
            "vmovdqu64 .Lwhole_tiles(%rip), %zmm0", f"vmovdqu64 %zmm0, -{below}(%rsp)",
            *[f"movb %al, {_ROWS + tile - below}(%rsp)" for tile in last_rows],
            *[f"movw %r10w, {_COLUMN_BYTES + 2 * tile - below}(%rsp)" for tile in last_columns],
            f"ldtilecfg -{below}(%rsp)",
        ])  # fmt: skip

    def take_arguments(self, epilogue: bool) -> list[str]:
        """Load arguments, and compute the number of tiles along k and the strides between them."""
        of_place = ("place", "pitch") if epilogue else ("dst", "ds")
        names = ("dst", "ds", "prefetch", *of_place)
        return [
            *[
                f"movq {_ON_STACK[name]}(%rsp), {register}"
                for name, register in zip(names, (_DST, _DS, _PREFETCH, _PLACE, _PITCH))
            ],
            f"movq {_BS}, {_B_STEP}",
            f"shlq $4, {_B_STEP}",
            f"addq $15, {_K_STEPS}",
            f"shrq $4, {_K_STEPS}",
        ]

    def load_sums(self, adds: bool) -> list[str]:
        zeros = [f"tilezero %tmm{_tile(*place)}" for place in self.sums]
        if not adds:
            return zeros
        loads = self.each_sum(_SRC, _I, lambda place, tile: f"tileloadd {place}, {tile}")
        start = f".L{self.name}_start"
        return [
            f"testq {_SRC}, {_SRC}", f"je {start}_zero", f"movq {_ON_STACK['ss']}(%rsp), {_I}", *loads,
            f"jmp {start}", f"{start}_zero:", *zeros, f"{start}:",
        ]  # fmt: skip

    def each_sum(self, first: str, stride: str, each: Callable[[str, str], str]) -> list[str]:
        """Return the line `each(address, register)` for every tile of sums."""
        second = [f"movq {stride}, {_SECOND}", f"shlq $4, {_SECOND}", f"addq {first}, {_SECOND}"]
        out = list(second) if self.down > 1 else []
        for r, v in self.sums:
            base = _SECOND if r else first
            out.append(each(f"{64 * v}({base},{stride},1)", f"%tmm{_tile(r, v)}"))
        return out

    def products(self, epilogue: bool) -> list[str]:
        """Return the loop over k: two tiles of A times two of B, each loaded once."""
        loop, multiply = f".L{self.name}_loop", self.multiply
        second = [f"movq {_AS}, {_SECOND}", f"shlq $4, {_SECOND}", f"addq {_A}, {_SECOND}"]
        out = [*second, "xorl %eax, %eax", f"testq {_K_STEPS}, {_K_STEPS}", f"je {loop}_end"]
        out += [".p2align 4", f"{loop}:"]
        loaded: set[int] = set()
        for r, v in self.sums:
            a, b = _OF_A + r, _OF_B + v
            base = _SECOND if r else _A
            loads = {a: f"({base},{_AS},1)", b: f"{64 * v}({_B},{_BS},1)"}
            out += [f"tileloadd {at}, %tmm{t}" for t, at in loads.items() if t not in loaded]
            loaded |= {*loads}
            out.append(f"{multiply} %tmm{b}, %tmm{a}, %tmm{_tile(r, v)}")
        if len(self.sums) == 4:
            out += self.prefetches(epilogue)
        return [
            *out, f"addq $64, {_A}", f"addq $64, {_SECOND}", f"addq {_B_STEP}, {_B}",
            f"incq {_I}", f"cmpq {_K_STEPS}, {_I}", f"jb {loop}", f"{loop}_end:",
        ]  # fmt: skip

    def prefetches(self, epilogue: bool) -> list[str]:
        """Prefetch lines of B's next panel, and rows of the place of the sums or of each stream."""
        out = [f"prefetcht1 {64 * i}({_PREFETCH})" for i in range(_LINES)]
        out += [f"addq ${64 * _LINES}, {_PREFETCH}"]
        groups = self.types.rows // _ROWS_AHEAD
        out += [f"movl %eax, {_ROW}d", f"andl ${groups - 1}, {_ROW}d", f"shll $2, {_ROW}d"]
        out += [f"imulq {_PITCH}, {_ROW}", f"addq {_PLACE}, {_ROW}"]
        if epilogue:
            out += [
                "movl %eax, %ebx", f"shrl ${groups.bit_length() - 1}, %ebx", f"andl ${STREAMS - 1}, %ebx", "shll $3, %ebx",
                f"addq {_ON_STACK['streams']}(%rsp), {_SPARE}", f"addq ({_SPARE}), {_ROW}",
            ]  # fmt: skip
        fetch = "prefetcht1" if epilogue else "prefetchw"
        for i in range(_ROWS_AHEAD):
            out += [f"addq {_PITCH}, {_ROW}"] if i else []
            out += [f"{fetch} ({_ROW})", f"{fetch} 64({_ROW})"]
        return out


def _tile(r: int, v: int) -> int:
    """Return the register of a tile of sums."""
    return 2 * r + v
