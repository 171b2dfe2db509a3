"""The function of `skinny_gemm` for AMX: up to 16 rows of A, and B in place.

For a tile along k, the function interleaves rows of B into tiles in a buffer, then adds the products
of all tiles of the buffer to the sums in memory. The buffer follows the sums: it may be larger than
the stack of a thread. It reads eight rows of B at a time, over
all columns: the hardware prefetcher follows that many streams, and software prefetches of more rows
are half as fast. All tiles of A and of sums have as many rows as A, since an instruction takes about a
cycle for each.
"""

from __future__ import annotations

from weft._engine.codegen.gemm.amx.tile_kernels import whole_tiles
from weft._engine.codegen.gemm.assembler_support import as_module
from weft._engine.codegen.gemm.avx512 import gemm_asm_skinny as vectors
from weft._engine.codegen.ir.gemm_types import GemmTypes

#: registers as in `gemm_asm_skinny`, and: the first row of a group, the start of the buffer, the
#: place in it, spare
_ROW, _TILES, _BUFFER, _SPARE = "%r14", "%r15", "%rdx", "%rax"
#: rows of B that are read at a time
_ROWS_AT_ONCE = 8
#: register of the tile of A, and first register of the tiles of B; sums have the first four
_OF_A, _OF_B = 4, 5
#: bytes of a configuration of tiles, below the stack pointer, and position in it of the rows of tile 0
_CONFIGURATION, _ROWS = 64, 48


def text(types: GemmTypes, name: str) -> str:
    """Return a module with the function `name`."""
    return as_module(_TilesAlong(types, name).lines())


class _TilesAlong(vectors.AlongFunction):
    def __init__(self, types: GemmTypes, name: str) -> None:
        super().__init__(types, name)
        assert types.unit is not None
        self.multiply = types.unit.instruction
        self.step_bytes = 64 * self.per  # of the buffer: a row of each tile
        self.stretch_bytes = types.tile_steps * self.step_bytes  # tiles of a stretch of columns

    def lines(self) -> list[str]:
        """Return the function and its tables."""
        loop, end = self.label(), self.label()
        table, below = f".L{self.name}_tiles", _CONFIGURATION
        return [
            *self.enter(),
            f"vmovdqu64 {table}(%rip), %zmm0", f"vmovdqu64 %zmm0, -{below}(%rsp)",
            *[f"movb %dl, {_ROWS + tile - below}(%rsp)" for tile in range(_OF_B)],
            f"ldtilecfg -{below}(%rsp)",
            f"movq {vectors.STACK['ss']}, {_TILES}", f"imulq %rdx, {_TILES}", f"addq {vectors.STACK['sums']}, {_TILES}",
            f"shrq ${_log2(self.types.tile_steps)}, {vectors.STEPS}", f"je {end}",
            f"{loop}:", *self.fill_buffer(), *self.add_products(),
            f"addq $64, {vectors.A}", f"decq {vectors.STEPS}", f"jne {loop}",
            f"{end}:", *self.leave(),
            *self.order(), *whole_tiles(table),
        ]  # fmt: skip

    def fill_buffer(self) -> list[str]:
        """Return the loop over groups of rows of B that interleaves a tile along k of all columns."""
        group, loop, remainder, end = (self.label() for _ in range(4))
        cols, place = vectors.COLS, vectors.PLACE
        groups = self.types.tile_steps * self.per // _ROWS_AT_ONCE
        return [
            f"movq {_TILES}, {_ROW}", f"movl ${groups}, {vectors.SUMS}d",
            f"{group}:",
            f"movq {vectors.STACK['cols']}, {cols}", f"movq {vectors.B}, {place}", f"movq {_ROW}, {_BUFFER}",
            ".p2align 4", f"{loop}:", f"cmpq ${self.wide}, {cols}", f"jb {remainder}",
            *self.interleave(masked=False),
            f"addq $64, {place}", f"addq ${self.stretch_bytes}, {_BUFFER}", f"subq ${self.wide}, {cols}", f"jmp {loop}",
            f"{remainder}:", f"testq {cols}, {cols}", f"je {end}",
            "xorl %eax, %eax", f"btsq {cols}, %rax", "decq %rax", "kmovq %rax, %k7",
            *self.interleave(masked=True),
            f"{end}:",
            f"leaq ({vectors.B},{vectors.BS},{_ROWS_AT_ONCE}), {vectors.B}", f"addq ${64 * _ROWS_AT_ONCE}, {_ROW}",
            f"decl {vectors.SUMS}d", f"jne {group}",
        ]  # fmt: skip

    def interleave(self, masked: bool) -> list[str]:
        """Return the interleaved columns of a stretch in a group of rows."""
        out = []
        for step in range(_ROWS_AT_ONCE // self.per):
            columns = [f"%zmm{v}" for v in range(self.vectors)]
            out += self.load_joined(step, columns, masked)
            at = step * self.step_bytes
            out += [f"vmovdqa64 {x}, {at + 64 * v}({_BUFFER})" for v, x in enumerate(columns)]
        return out

    def add_products(self) -> list[str]:
        """Return the loop over vectors of columns that adds products to sums."""
        stretch, end = self.label(), self.label()
        cols, sums, place = vectors.COLS, vectors.SUMS, vectors.PLACE
        out = [
            f"tileloadd ({vectors.A},{vectors.AS},1), %tmm{_OF_A}",
            f"movq {vectors.STACK['cols']}, {cols}", f"movq {vectors.STACK['sums']}, {sums}",
            f"movq {_TILES}, {_BUFFER}",
            f"movl ${self.step_bytes}, {place}d", f"movq {vectors.STACK['ss']}, {_SPARE}",
            f"{stretch}:",
        ]  # fmt: skip
        for v in range(self.vectors):
            b, at = _OF_B + v % 3, f"{64 * v}({sums},{_SPARE},1)"
            out += [
                f"tileloadd {64 * v}({_BUFFER},{place},1), %tmm{b}",
                f"tileloadd {at}, %tmm{v}",
                f"{self.multiply} %tmm{b}, %tmm{_OF_A}, %tmm{v}",
                f"tilestored %tmm{v}, {at}",
                f"subq ${self.types.lanes}, {cols}",
                f"jbe {end}",
            ]
        return [
            *out, f"addq ${self.stretch_bytes}, {_BUFFER}", f"addq ${64 * self.vectors}, {sums}", f"jmp {stretch}",
            f"{end}:",
        ]  # fmt: skip


def _log2(number: int) -> int:
    return number.bit_length() - 1
