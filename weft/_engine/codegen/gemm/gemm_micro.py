"""The matmul micro-kernels: a register tile of C over one block of k.

A kernel is `void(ptr a, i64 as, ptr b, i64 bs, i64 k_steps, ptr src, i64 ss, ptr dst, i64 ds, i64
last, ptr prefetch, i64 next)`: dst[r, lane] = (src[r, lane] or 0) + sum over k steps of a[r, k_step] *
b[k_step, lane]. Rows of a, src and dst are `as`, `ss` and `ds` bytes apart, k steps of b `bs` bytes;
`src` may be null for zeros, or equal to `dst`. The kernel prefetches `dst`, `prefetch` (part of B's
next panel) and the addresses `next` bytes after `a` (the next rows). With epilogues, kernels also
take `ptr place, i64 pitch, ptr streams`: instead of `dst`, they prefetch rows that are `pitch`
bytes apart, at `place` bytes after each of the `STREAMS` pointers in `streams`.

There are kernels for several numbers of rows and every number of vectors, so that edges do no extra
work. *Edge* kernels use `last` lanes of the last vector, others use all lanes; very few columns use
half vectors. Products of few rows may use `skinny_gemm` instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type, nbytes
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter, splat_constant
from weft._engine.codegen.ir.microkernels import (
    GEMM_LINE_K_STEPS,
    STREAMS,
    k_steps_per_iteration,
    kernel_name,
    tiles,
)
from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.writer import Declarations

#: LLVM's names of instructions that add products of joined elements to a sum; the first of two 8-bit
#: operands is unsigned
_ADDS = {
    "vdpbf16ps": "@llvm.x86.avx512bf16.dpbf16ps.512",
    "vpdpwssd": "@llvm.x86.avx512.vpdpwssd.512",
    "vpdpbusd": "@llvm.x86.avx512.vpdpbusd.512",
    "bfmmla": "@llvm.aarch64.neon.bfmmla",
    "smmla": "@llvm.aarch64.neon.smmla.v4i32.v16i8",
    "ummla": "@llvm.aarch64.neon.ummla.v4i32.v16i8",
}
#: instructions that add pairs of products, without a sum
_PAIRS_OF_I16 = {
    64: "@llvm.x86.avx512.pmaddw.d.512",
    32: "@llvm.x86.avx2.pmadd.wd",
    16: "@llvm.x86.sse2.pmadd.wd",
}


def kernels(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    """Return the kernels named in `needed`, exported; they add `src` if "blocks" is needed."""
    kernel = _MatrixKernel if types.multiplies_pairs else _TileKernel
    kernels = [
        kernel(types, decls, tile, needed).text()
        for tile in tiles(types)
        if kernel_name(*tile) in needed
    ]
    return "\n".join(kernels)


class _TileKernel:
    """A kernel under construction: a register tile of `rows` rows by `vectors` vectors of sums."""

    def __init__(
        self,
        types: GemmTypes,
        decls: Declarations,
        tile: tuple[int, int, bool],
        needed: Collection[str],
    ) -> None:
        self.rows, vectors, edge = tile
        self.types, self.acc = types, llvm_type(types.acc)
        self.lanes, self.vectors = (types.lanes, vectors) if vectors else (types.half_lanes, 1)
        self.vector = f"<{self.lanes} x {self.acc}>"
        self.adds, self.epilogue = "blocks" in needed, "epilogue" in needed
        self.element_bytes = 4 if types.joined_type else types.acc_bytes
        self.unroll = k_steps_per_iteration(types, self.rows, self.vectors, edge)
        self.prefetches_rows = self.rows == types.rows and not types.multiplies_by_element
        self.prefetches = self.prefetches_rows and not edge and self.unroll == 1
        streams = ", ptr %place, i64 %pitch, ptr %streams" if self.epilogue else ""
        f = self.f = LLVMFunctionWriter(
            f"void @{kernel_name(*tile)}(ptr noalias %a, i64 %as, ptr noalias %b, i64 %bs, i64 %k_steps, "
            f"ptr %src, i64 %ss, ptr %dst, i64 %ds, i64 %last, ptr %prefetch, i64 %next{streams})",
            decls,
            types.machine,
            "noinline nounwind",
        )
        mask = f.mask_of_first_lanes("%last", self.lanes) if edge else None
        self.masks = [*[None] * (self.vectors - 1), mask]  # masks of the vectors of a row of C
        # Without cheap masks, the planner packs and pads panels with edges.
        reads_masked = types.machine.masks and not types.joined_type
        self.b_masks = self.masks if reads_masked else [None] * self.vectors
        self.row_offsets = ["0", *(f.mul("%as", r) for r in range(1, self.rows))]

    def text(self) -> str:
        """Return the finished function."""
        f = self.f
        end, sums = self.emit_loops()
        if self.types.flips_signs:
            corrections = self.load_row(end, self.acc, [None] * self.vectors)
            sums = self.add_all("add", sums, corrections * self.rows)
        if self.adds:
            sums = f.branch_with_values(
                f.let("icmp ne ptr %src, null"), lambda: self.with_source(sums), sums, self.vector
            )
        for sum, (pointer, mask) in zip(sums, self.tile_at("%dst", "%ds")):
            f.store(self.acc, self.lanes, sum, pointer, mask)
        return f.end()

    def emit_loops(self) -> tuple[str, list[str]]:
        """Emit the loops over k steps; return the address after the last k step of B, and the sums."""
        f, k_steps = self.f, "%k_steps"
        zeros = [(self.vector, "zeroinitializer")] * (self.rows * self.vectors)
        state = [("ptr", "%a"), ("ptr", "%b"), *zeros]
        if self.unroll > 1:
            body = self.emit_k_step_pair if self.types.multiplies_by_element else self.emit_k_steps
            values = f.loop(0, f.div(k_steps, self.unroll), 1, body, state)
            state = [(type, value) for (type, _), value in zip(state, values)]
            k_steps = f.rem(k_steps, self.unroll)
        if self.prefetches:
            state.append(("ptr", "%prefetch"))
        _, end, *sums = f.loop(0, k_steps, 1, self.single_k_step, state)
        return end, sums[: len(zeros)]

    def single_k_step(self, i: str, pa: str, pb: str, *state: str) -> list[str]:
        """Emit a k step; if the kernel prefetches, the last state points into B's next panel."""
        f, count = self.f, self.rows * self.vectors
        sums, prefetched = list(state[:count]), state[count:]
        for pointer in prefetched:
            f.prefetch(pointer)
        if self.prefetches_rows:
            # The next rows of A are far apart: prefetch one row per iteration.
            f.prefetch(f.byte_address(f.byte_address(pa, "%next"), self.row_in_turn("%as", i)))
        if prefetched:
            self.prefetch_results(i)
        sums = self.k_step(pa, pb, 0, sums)
        pb, pa = f.byte_address(pb, "%bs"), f.byte_address(pa, self.element_bytes)
        return [pa, pb, *sums, *[f.byte_address(p, 64 // GEMM_LINE_K_STEPS) for p in prefetched]]

    def emit_k_steps(self, _: str, pa: str, pb: str, *state: str) -> list[str]:
        """Emit several k steps, and prefetch the same elements of all next rows of A."""
        f, sums = self.f, list(state)
        if self.prefetches_rows:
            next_rows = f.byte_address(pa, "%next")
            for offset in self.row_offsets:
                f.prefetch(f.byte_address(next_rows, offset))
        for u in range(self.unroll):
            sums = self.k_step(pa, pb, u * self.element_bytes, sums)
            pb = f.byte_address(pb, "%bs")
        return [f.byte_address(pa, self.unroll * self.element_bytes), pb, *sums]

    def emit_k_step_pair(self, _: str, pa: str, pb: str, *state: str) -> list[str]:
        """Emit two k steps that load the elements of a row of A together.

        The elements stay in a register for that row only.
        """
        f, acc, lanes = self.f, self.acc, self.lanes
        sums, after, unmasked = list(state), f.byte_address(pb, "%bs"), [None] * self.vectors
        rows_of_b = [self.load_row(row, acc, unmasked) for row in (pb, after)]
        for r in range(self.rows):
            pair = f.load(acc, 2, f.byte_address(pa, self.row_offsets[r]))
            for half, row_of_b in enumerate(rows_of_b):
                x = f.shuffle(pair, "poison", f"<2 x {acc}>", [half] * lanes)
                self.multiply_row(sums, r, x, row_of_b)
        return [f.byte_address(pa, 2 * self.element_bytes), f.byte_address(after, "%bs"), *sums]

    def k_step(self, pa: str, pb: str, offset: int, sums: list[str]) -> list[str]:
        """Emit a multiply-add for every sum."""
        f, sums = self.f, list(sums)
        row_of_b = self.load_row(pb, "i32" if self.types.joined_type else self.acc, self.b_masks)
        for r in range(self.rows):
            pointer = f.byte_address(f.byte_address(pa, self.row_offsets[r]), offset)
            self.multiply_row(sums, r, broadcast(f, self.types, pointer, self.lanes), row_of_b)
        return sums

    def multiply_row(self, sums: list[str], r: int, x: str, row_of_b: list[str]) -> None:
        """Add x times a row of B to row `r` of the sums, in place."""
        for i, y in enumerate(row_of_b, r * self.vectors):
            sums[i] = multiply_add(self.f, self.types, x, y, sums[i], self.lanes)

    def prefetch_results(self, i: str) -> None:
        """Prefetch one line per iteration of the rows where the sums will be stored."""
        f, lines = self.f, self.types.panel_row_bytes // 64
        place, pitch = ("%place", "%pitch") if self.epilogue else ("%dst", "%ds")
        row = f.byte_address(place, self.row_in_turn(pitch, i))
        line = f.byte_address(row, f.mul(f.let(f"and i64 {i}, {8 * (lines - 1)}"), 8))
        if self.epilogue:
            stream = f.let(f"and i64 {f.div(i, 8 * lines)}, {STREAMS - 1}")
            line = f.byte_address(
                line, f.load_word(f.byte_address("%streams", f.mul(stream, 8)), 0)
            )
        f.prefetch(line)

    def row_in_turn(self, stride: str, i: str) -> str:
        """Return the offset of the row, one of eight, whose turn it is in iteration `i`."""
        return self.f.mul(stride, self.f.let(f"and i64 {i}, 7"))

    def load_row(self, row: str, element: str, masks: Sequence[str | None]) -> list[str]:
        """Load the vectors of a row of B."""
        f, stride = self.f, self.types.machine.vector_bytes
        return [
            f.load(element, self.lanes, f.byte_address(row, v * stride), mask)
            for v, mask in enumerate(masks)
        ]

    def tile_at(self, row: str, stride: str) -> list[tuple[str, str | None]]:
        """Return the addresses of the tile's vectors, with their masks."""
        f, width, vectors = self.f, self.types.machine.vector_bytes, []
        for r in range(self.rows):
            row = f.byte_address(row, stride) if r else row
            vectors += [(f.byte_address(row, v * width), mask) for v, mask in enumerate(self.masks)]
        return vectors

    def with_source(self, sums: list[str]) -> list[str]:
        """Add the values at `src` to the sums."""
        f, tile = self.f, self.tile_at("%src", "%ss")
        loaded = [f.load(self.acc, self.lanes, pointer, mask) for pointer, mask in tile]
        return self.add_all("fadd" if self.types.is_float else "add", sums, loaded)

    def add_all(self, plus: str, xs: list[str], ys: list[str]) -> list[str]:
        return [self.f.let(f"{plus} {self.vector} {x}, {y}") for x, y in zip(xs, ys)]


class _MatrixKernel(_TileKernel):
    """A kernel for instructions that multiply two rows of A by two columns of B.

    During the loop, a register holds the sums of two rows and two columns, row after row.
    """

    def emit_loops(self) -> tuple[str, list[str]]:
        """Emit the loop over steps; return the address after the last step of B, and the sums in rows."""
        pairs = range(0, self.rows, 2)
        zeros = [(self.vector, "zeroinitializer")] * (len(pairs) * 2 * self.vectors)
        state = [("ptr", "%a"), ("ptr", "%b"), *zeros]
        _, end, *sums = self.f.loop(0, "%k_steps", 1, self.emit_step, state)
        rows: list[str] = []
        for pair in pairs:
            columns = sums[pair * self.vectors : (pair + 2) * self.vectors]
            for lanes in ([0, 1, 4, 5], [2, 3, 6, 7]):
                rows += [
                    self.f.shuffle(left, right, self.vector, lanes)
                    for left, right in zip(columns[::2], columns[1::2])
                ]
        return end, rows[: self.rows * self.vectors]

    def emit_step(self, _: str, pa: str, pb: str, *sums: str) -> list[str]:
        """Emit the products of a step: of each pair of rows and each pair of columns."""
        f, types, columns = self.f, self.types, 2 * self.vectors
        pairs, totals = [self.load_pair(pa, r) for r in range(0, self.rows, 2)], list(sums)
        for c in range(columns):
            of_b = f.load("i32", self.lanes, f.byte_address(pb, c * types.machine.vector_bytes))
            for i, of_a in enumerate(pairs):
                at = i * columns + c
                totals[at] = multiply_add(f, types, of_b, of_a, totals[at], self.lanes)
        return [f.byte_address(pa, types.step_bytes), f.byte_address(pb, "%bs"), *totals]

    def load_pair(self, pa: str, r: int) -> str:
        """Load a step of row `r` and of the next row of A into one register; the last row is its own
        next one."""
        f, pair = self.f, "poison"
        for half, row in enumerate((r, min(r + 1, self.rows - 1))):
            step = f.read("i64", f.byte_address(pa, self.row_offsets[row]), self.types.in_bytes)
            pair = f.let(f"insertelement <2 x i64> {pair}, i64 {step}, i32 {half}")
        return f.let(f"bitcast <2 x i64> {pair} to <{self.lanes} x i32>")


def join(f: LLVMFunctionWriter, types: GemmTypes, value: str, lanes: int) -> str:
    """Join the elements of each step into one lane.

    `value` has `k_per_step * lanes` elements in their memory type.
    """
    wide = types.k_per_step * lanes
    value = f.convert(value, types.in_type, types.joined_type, wide)
    return f.let(f"bitcast <{wide} x {llvm_type(types.joined_type)}> {value} to <{lanes} x i32>")


def flip(f: LLVMFunctionWriter, types: GemmTypes, value: str, lanes: int) -> str:
    """Flip the sign bits of joined elements of A if the multiply-add requires it."""
    return f.let(f"xor <{lanes} x i32> {value}, {sign_bits(lanes)}") if types.flips_signs else value


def sign_bits(lanes: int) -> str:
    """Return flipped zeros: joined 8-bit elements with only the sign bits set."""
    return splat_constant("i32", 0x80808080, lanes)


def broadcast(f: LLVMFunctionWriter, types: GemmTypes, pointer: str, lanes: int) -> str:
    """Return a step of A in every lane."""
    kind = "i32" if types.joined_type else llvm_type(types.acc)
    align = types.in_bytes if types.joined_type else types.acc_bytes
    return f.splat(f.read(kind, pointer, align), kind, lanes)


def multiply_add(
    f: LLVMFunctionWriter, types: GemmTypes, x: str, y: str, sum: str, lanes: int
) -> str:
    """Return `sum` plus the products of packed vectors of elements of A and B."""
    acc = llvm_type(types.acc)
    vector = f"<{lanes} x {acc}>"
    if types.joined_type:
        return _multiply_add_joined(f, types, x, y, sum)
    if types.is_float:
        # fmuladd: one rounding on machines with fused multiply-add, and never a library call on
        # others.
        name = f"@llvm.fmuladd.v{lanes}{mangle(acc)}"
        f.decls.use(f"declare {vector} {name}({vector}, {vector}, {vector})")
        return f.let(f"call {vector} {name}({vector} {x}, {vector} {y}, {vector} {sum})")
    return f.let(f"add {vector} {f.let(f'mul {vector} {x}, {y}')}, {sum}")


def _multiply_add_joined(f: LLVMFunctionWriter, types: GemmTypes, x: str, y: str, sum: str) -> str:
    lanes, vector = types.lanes, f"<{types.lanes} x {llvm_type(types.acc)}>"
    elements = types.machine.vector_bytes // nbytes(types.joined_type)
    joined = f"<{elements} x {'bfloat' if types.is_float else llvm_type(types.joined_type)}>"
    x, y = (f.let(f"bitcast <{lanes} x i32> {z} to {joined}") for z in (x, y))
    if types.flips_signs and types.in_type == "i8":
        # the first operand is unsigned: for i8 it is the flipped operand
        x, y = y, x
    unit = types.unit
    if name := _ADDS.get(unit.instruction) if unit else None:
        f.decls.use(f"declare {vector} {name}({vector}, {joined}, {joined})")
        return f.let(f"call {vector} {name}({vector} {sum}, {joined} {y}, {joined} {x})")
    name = _PAIRS_OF_I16[types.machine.vector_bytes]
    f.decls.use(f"declare {vector} {name}({joined}, {joined})")
    return f.let(
        f"add {vector} {f.let(f'call {vector} {name}({joined} {x}, {joined} {y})')}, {sum}"
    )
