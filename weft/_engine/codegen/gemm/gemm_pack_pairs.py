"""Packing for instructions that multiply pairs of rows by pairs of columns (BFMMLA, SMMLA).

`@pack_a` and `@pack_b` have the arguments and the access patterns of `gemm_pack`. A *line* is a row of A
or a column of B. A packed step is 8 bytes of k of one line, as they are in memory. A row of A is packed
as a row of its steps; a step of B is packed as a row of the columns of a panel. Vectors copy whole steps,
of several lines if lines are dense. Other steps are copied element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft._engine.codegen.gemm.gemm_pack import interleave, pack_paths, store_joined
from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.microkernels import GEMM_PACK_PREFETCH_ROWS
from weft._engine.codegen.ir.writer import Declarations, Operand

#: lines that are interleaved together, and steps that are loaded together
_LINES, _STEPS = 4, 2


def pack_a(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    """Return `@pack_a`."""
    f = LLVMFunctionWriter(
        "void @pack_a("
        "ptr noalias %dst, i64 %row_bytes, ptr noalias %src, i64 %ms, i64 %ks, i64 %rows, i64 %k)",
        decls,
        types.machine,
        "noinline nounwind",
    )

    def place(i: str, s: str) -> str:
        row = f.byte_address("%dst", f.mul(i, "%row_bytes"))
        return f.byte_address(row, f.mul(s, types.step_bytes))

    pack = _PairPacking(f, types, "%rows", "%ms", place)
    paths = {
        "pack_a_copy": pack.copy_steps,
        "pack_a_transpose": pack.interleave_lines,
        "pack_a_scalar": pack.copy_elements,
    }
    is_along, is_across = (f.equal(stride, types.in_bytes) for stride in ("%ks", "%ms"))
    pack_paths(f, is_along, is_across, paths, needed)
    return f.end()


def pack_b(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    """Return `@pack_b`."""
    f = LLVMFunctionWriter(
        "void @pack_b(ptr noalias %dst, ptr noalias %src, i64 %ns, i64 %ks, i64 %cols, i64 %k)",
        decls,
        types.machine,
        "noinline nounwind",
    )

    def place(j: str, s: str) -> str:
        row = f.byte_address("%dst", f.mul(s, types.panel_row_bytes))
        return f.byte_address(row, f.mul(j, types.column_bytes))

    pack = _PairPacking(f, types, "%cols", "%ns", place)
    paths = {
        "pack_b_copy": pack.interleave_lines,
        "pack_b_transpose": pack.copy_steps,
        "pack_b_scalar": pack.copy_elements,
    }
    is_along, is_across = (f.equal(stride, types.in_bytes) for stride in ("%ns", "%ks"))
    pack_paths(f, is_along, is_across, paths, needed)
    return f.end()


class _PairPacking:
    """The packing of the first `lines` rows or columns, `stride` bytes apart, to `place(line, step)`."""

    def __init__(
        self,
        f: LLVMFunctionWriter,
        types: GemmTypes,
        lines: str,
        stride: str,
        place: Callable[[str, str], str],
    ) -> None:
        self.f, self.types, self.lines, self.stride, self.place = f, types, lines, stride, place
        self.steps = f.ceil_div("%k", types.k_per_step)
        self.whole_steps = f.div("%k", types.k_per_step)

    def copy_steps(self) -> None:
        """Pack lines with dense k: copy steps."""
        f = self.f
        pairs = f.mul(f.div(self.whole_steps, _STEPS), _STEPS)

        def copy(i: str, s: str, count: int) -> None:
            src = f.byte_address(self.line(i), f.mul(s, self.types.step_bytes))
            steps = f.let(f"load <{count} x i64>, ptr {src}, align {self.types.in_bytes}")
            self.store(steps, count, lambda t: self.place(i, f.add(s, t)))

        def line(i: str) -> None:
            f.loop(0, pairs, _STEPS, lambda s: copy(i, s, _STEPS))
            f.loop(pairs, self.whole_steps, 1, lambda s: copy(i, s, 1))
            f.loop(self.whole_steps, self.steps, 1, lambda s: self.copy_element(i, s))

        f.loop(0, self.lines, 1, line)

    def interleave_lines(self) -> None:
        """Pack dense lines: interleave the elements of consecutive k of adjacent lines."""
        f, types = self.f, self.types
        whole_lines = f.mul(f.div(self.lines, _LINES), _LINES)
        distance = f.mul("%ks", GEMM_PACK_PREFETCH_ROWS)

        def step(s: str) -> None:
            first = f.mul(s, types.k_per_step)
            rows = [
                f.byte_address("%src", f.mul(f.add(first, h), "%ks"))
                for h in range(types.k_per_step)
            ]
            for row in rows:
                f.prefetch(f.byte_address(row, distance))

            def square(i: str) -> None:
                offset = f.mul(i, types.in_bytes)
                parts = [
                    f.load(llvm_type(types.in_type), _LINES, f.byte_address(row, offset))
                    for row in rows
                ]
                wide = f"<{_LINES * types.k_per_step} x {llvm_type(types.in_type)}>"
                joined = interleave(f, types, parts, _LINES)
                steps = f.let(f"bitcast {wide} {joined} to <{_LINES} x i64>")
                self.store(steps, _LINES, lambda t: self.place(f.add(i, t), s))

            f.loop(0, whole_lines, _LINES, square)
            f.loop(whole_lines, self.lines, 1, lambda i: self.copy_element(i, s))

        f.loop(0, self.whole_steps, 1, step)
        f.loop(self.whole_steps, self.steps, 1, lambda s: self.copy_line_elements(s))

    def copy_elements(self) -> None:
        """Pack lines of any strides, element by element."""
        self.f.loop(0, self.steps, 1, self.copy_line_elements)

    def copy_line_elements(self, s: str) -> None:
        """Pack one step of all lines, element by element."""
        self.f.loop(0, self.lines, 1, lambda i: self.copy_element(i, s))

    def copy_element(self, i: str, s: str) -> None:
        """Pack one step of one line, with zeros beyond k."""
        store_joined(self.f, self.types, self.line(i), s, "%ks", "%k", self.place(i, s), 0)

    def line(self, i: str) -> str:
        """Return the address of a line."""
        return self.f.byte_address("%src", self.f.mul(i, self.stride))

    def store(self, steps: str, count: int, place: Callable[[int], Operand]) -> None:
        """Store each of `count` steps at its own place."""
        for t in range(count):
            step = self.f.let(f"extractelement <{count} x i64> {steps}, i32 {t}")
            self.f.do(f"store i64 {step}, ptr {place(t)}, align 8")
