"""Micro-kernels in assembly that read an irregular A in place through address lists.

Such operands are windows of images and sums in segments.

The arguments equal the arguments of `gemm_micro`'s kernels except for the first two: `a` points to
the addresses of the rows; `as` points to a list of i64: the bytes between steps of k, then (steps,
byte offset in each row) for each run of steps, then (0, 0).
"""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.gemm.avx512.gemm_asm import ON_STACK, SRC, Avx512RegisterKernel, I, X, Y
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import GEMM_LINE_K_STEPS, STREAMS, kernel_name, tiles

_ROWS, _LIST = "%rdi", "%rsi"
#: registers of the row addresses; then the byte offset in all rows, its step, and the k step number
#: at the end of the run
_ROW = ("%rbx", "%rbp", "%r12", "%r13", "%r14", "%r15")
_AT, _STEP, _END = "%rdi", "%r9", "%r8"
#: stack slots below the stack pointer: `src`, and the address list of the rows to prefetch
_KEPT_SRC, _NEXT = -8, -16


def kernels(types: GemmTypes, needed: Collection[str]) -> list[Avx512RegisterKernel]:
    """Return the needed kernels."""
    return [_Runs(types, *tile) for tile in tiles(types) if kernel_name(*tile, True) in needed]


class _Runs(Avx512RegisterKernel):
    runs = True

    def take_arguments(self, streams: bool) -> list[str]:
        out = [
            f"movq {SRC}, {_KEPT_SRC}(%rsp)",
            f"movq {ON_STACK['next']}(%rsp), {X}",
            f"addq {_ROWS}, {X}",
            f"movq {X}, {_NEXT}(%rsp)",
        ]
        out += [f"movq {8 * r}({_ROWS}), {_ROW[r]}" for r in range(self.rows)]
        return [*out, f"movq ({_LIST}), {_STEP}"]

    def iterations(self, prefetches: bool, streams: bool) -> list[str]:
        run, end = f".L{self.name}_run", f".L{self.name}_end"
        asks = [*self._fetch_row(), *self._fetch_place(streams)] if prefetches else []
        return ["xorl %eax, %eax", f"xorl {_END}d, {_END}d", f"{run}:", f"movq 8({_LIST}), {X}", f"movq 16({_LIST}), {_AT}",
                f"addq $16, {_LIST}", f"testq {X}, {X}", f"je {end}", f"addq {X}, {_END}",
                ".p2align 4", f"{run}_k_steps:", *asks, *self.k_steps(1), f"incq {I}", f"cmpq {_END}, {I}", f"jb {run}_k_steps",
                f"jmp {run}", f"{end}:", *self.take_sums()]  # fmt: skip

    def row(self, r: int, offset: object = "") -> str:
        return f"({_ROW[r]},{_AT})"

    def go_on(self, count: int) -> list[str]:
        return [f"addq {_STEP}, {_AT}"]

    def _fetch_row(self) -> list[str]:
        """Prefetch the same elements of the next rows, one row per k step."""
        return [
            f"movq {_NEXT}(%rsp), {X}",
            f"movl %eax, {Y}d",
            f"andl $7, {Y}d",
            f"movq ({X},{Y},8), {X}",
            f"prefetcht1 ({X},{_AT})",
        ]

    def _fetch_place(self, streams: bool) -> list[str]:
        """Prefetch B's next panel and the destination of the sums, as other kernels do."""
        lines = self.types.panel_row_bytes // 64
        place, pitch = ("place", "pitch") if streams else ("dst", "ds")
        out = [
            f"movq %rax, {Y}",
            f"shlq ${(64 // GEMM_LINE_K_STEPS).bit_length() - 1}, {Y}",
            f"addq {ON_STACK['prefetch']}(%rsp), {Y}",
            f"prefetcht1 ({Y})",
            f"movl %eax, {X}d",
            f"andl $7, {X}d",
            f"imulq {ON_STACK[pitch]}(%rsp), {X}",
            f"addq {ON_STACK[place]}(%rsp), {X}",
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
            f"shlq $3, {Y}",
            f"addq {ON_STACK['streams']}(%rsp), {Y}",
            f"addq ({Y}), {X}",
            f"prefetcht1 ({X})",
        ]
