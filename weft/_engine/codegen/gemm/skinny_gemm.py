"""Products of few rows of A that read B in place along its rows.

They are memory-bound, and long runs of rows are fastest to read.

`@build_skinny_function(ptr a, i64 as, i64 rows, ptr b, i64 bs, i64 steps, i64 cols, ptr sums, i64 ss)`: sums[row,
col] += sum over steps of a[row, step] * b[step, col]. Rows of packed steps of A are `as` bytes
apart, rows of B `bs`, rows of sums `ss`. The function reads several rows of B in parallel: loaded
values stay in registers while all rows of A use them, and the few sums stay in the L1 cache.
`@along_row` is the same for a single row. For AVX-512 both are assembled (`gemm_asm_skinny`).
"""

from __future__ import annotations

import itertools

from weft._engine.codegen.gemm.gemm_micro import broadcast, multiply_add, sign_bits
from weft._engine.codegen.gemm.gemm_pack import interleave, to_unit
from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.microkernels import GEMM_AHEAD, GEMM_ALONG_STREAMS
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record


def build_skinny_function(types: GemmTypes, decls: Declarations, name: str) -> str:
    """Return `@build_skinny_function`, or `@along_row` for a single row."""
    return _AlongWriter(types, decls, name).text()


@record
class _Steps:
    """Addresses of some steps: of A's first element, and of the rows of B that each step joins."""

    a: str
    rows: list[list[str]]


class _AlongWriter:
    """The function under construction. A *stretch* is the range of columns whose vectors are in
    registers."""

    def __init__(self, types: GemmTypes, decls: Declarations, name: str) -> None:
        arguments = "ptr noalias %a, i64 %as, i64 %rows, ptr noalias %b, i64 %bs, i64 %steps, i64 %cols, ptr noalias %sums, i64 %ss"
        f = self.f = LLVMFunctionWriter(
            f"void @{name}({arguments})", decls, types.machine, "noinline nounwind"
        )
        self.types, self.single, self.acc = types, name == "along_row", llvm_type(types.acc)
        self.lanes, self.vectors, self.wide = (
            types.lanes,
            types.vectors_along_b_row,
            types.cols_along_b_row,
        )
        self.whole = f.mul(f.div("%cols", self.wide), self.wide)
        visited = f.mul("%bs", GEMM_ALONG_STREAMS)
        self.distance = f.mul(visited, f.ceil_div(GEMM_AHEAD, visited))

    def text(self) -> str:
        """Return the finished function."""
        f, count = self.f, max(GEMM_ALONG_STREAMS // self.types.k_per_step, 1)
        most = f.mul(f.div("%steps", count), count)
        f.loop(0, most, count, lambda step: self.steps(step, count))
        f.loop(most, "%steps", 1, lambda step: self.steps(step, 1))
        return f.end()

    def steps(self, step: str, count: int) -> None:
        """Emit `count` steps of all columns."""
        f, wide, per = self.f, self.wide, self.types.k_per_step
        rows = [
            f.byte_address("%b", f.mul(f.add(f.mul(step, per), i), "%bs"))
            for i in range(count * per)
        ]
        steps = _Steps(
            f.byte_address("%a", f.mul(step, self.types.step_bytes)),
            [rows[s * per : (s + 1) * per] for s in range(count)],
        )
        per_line = max(MODEL.cache_line // (wide * self.types.in_bytes), 1)

        def line_of_stretches(j: str) -> None:
            for i in range(per_line):
                self.stretch(steps, f.add(j, i * wide), prefetches=count > 1 and i == 0)

        lines = self.whole
        if per_line > 1:
            lines = f.mul(f.div("%cols", wide * per_line), wide * per_line)
        f.loop(0, lines, wide * per_line, line_of_stretches)
        if per_line > 1:
            f.loop(lines, self.whole, wide, lambda j: self.stretch(steps, j, prefetches=count > 1))
        if self.types.machine.masks:  # without masks, the planner admits no incomplete stretches
            remaining = f.sub("%cols", self.whole)
            f.branch_without_values(
                f.less(0, remaining), lambda: self.stretch(steps, self.whole, remaining)
            )

    def stretch(
        self, steps: _Steps, j: str, left: str | None = None, prefetches: bool = False
    ) -> None:
        """Emit a stretch that begins at column `j`; `left` masks it to that many columns."""
        f, types = self.f, self.types
        offset, at = f.mul(j, types.in_bytes), f.mul(j, types.acc_bytes)
        if prefetches:
            self.prefetch(steps, offset)
        of_b = [self.load_step(rows, offset, left) for rows in steps.rows]
        masks = [self.mask(v, left) for v in range(self.vectors)]
        # Flipping the sign bits of A adds this amount to every row; it is subtracted below.
        corrections = ["zeroinitializer"] * self.vectors
        for step_of_b in of_b if types.flips_signs else ():
            corrections = self.multiply(sign_bits(self.lanes), step_of_b, corrections)

        def row(_: str, a: str, row_of_sums: str) -> list[str]:
            places = [
                f.byte_address(row_of_sums, v * self.lanes * types.acc_bytes)
                for v in range(self.vectors)
            ]
            sums = [f.load(self.acc, self.lanes, p, mask) for p, mask in zip(places, masks)]
            if types.flips_signs:
                vector = f"<{self.lanes} x {self.acc}>"
                sums = [f.let(f"sub {vector} {sum}, {x}") for sum, x in zip(sums, corrections)]
            for s, step_of_b in enumerate(of_b):
                x = broadcast(f, types, f.byte_address(a, s * types.step_bytes), self.lanes)
                sums = self.multiply(x, step_of_b, sums)
            for place, sum, mask in zip(places, sums, masks):
                f.store(self.acc, self.lanes, sum, place, mask)
            return [f.byte_address(a, "%as"), f.byte_address(row_of_sums, "%ss")]

        sums = f.byte_address("%sums", at)
        if self.single:
            row("0", steps.a, sums)
        else:
            f.loop(0, "%rows", 1, row, [("ptr", steps.a), ("ptr", sums)])

    def prefetch(self, steps: _Steps, offset: str) -> None:
        """Prefetch later parts of rows, which are too short for the hardware prefetcher."""
        f = self.f
        for row in itertools.chain.from_iterable(steps.rows):
            for line in range(0, self.wide * self.types.in_bytes, MODEL.cache_line):
                f.prefetch(f.byte_address(f.byte_address(row, f.add(offset, self.distance)), line))

    def load_step(self, rows: list[str], offset: str, left: str | None) -> list[str]:
        """Load the vectors of one step; each row of B holds a part of the step."""
        f, types, lanes, vectors = self.f, self.types, self.lanes, []
        for v in range(self.vectors):
            at = f.add(offset, v * lanes * types.in_bytes)
            parts = [
                f.load(llvm_type(types.in_type), lanes, f.byte_address(row, at), self.mask(v, left))
                for row in rows
            ]
            vectors.append(to_unit(f, types, interleave(f, types, parts, lanes), lanes))
        return vectors

    def mask(self, v: int, left: str | None) -> str | None:
        """Return the mask of vector `v` for the first `left` columns of a stretch; None for all."""
        if left is None:
            return None
        f, start = self.f, v * self.lanes
        return f.mask_of_first_lanes(
            f.select(f.less(start, left), f.sub(left, start), 0), self.lanes
        )

    def multiply(self, x: str, of_b: list[str], sums: list[str]) -> list[str]:
        """Return the sums plus x times the vectors of a step of B."""
        return [
            multiply_add(self.f, self.types, x, y, sum, self.lanes) for y, sum in zip(of_b, sums)
        ]
