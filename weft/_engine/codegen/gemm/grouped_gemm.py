"""A matmul for each group of rows, or of k, one after the other, each on all threads.

In:   a `Gemm` step with `groups`, the words of its descriptor, the matmul's function.
Out:  the text of `void name(ptr desc, ptr first, ptr count)`, which calls the function for every
      group. It updates the descriptor for each group: the operands, the number of rows or steps,
      and the number of tiles or blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.gemm.descriptor import Word
from weft._engine.codegen.ir.gemm_types import machine, nbytes
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.ir.program import Gemm


def build_group_loop(step: Gemm, words: Sequence[int], name: str, function: str) -> str:
    """Return the text of a function that runs all groups of a step."""
    f = LLVMFunctionWriter(
        f"internal void @{name}(ptr %desc, ptr %first, ptr %count)",
        Declarations(),
        machine(),
        "nounwind",
    )
    operands = [f.load_word("%desc", word, "ptr") for word in (Word.A, Word.B, Word.C)]
    types = gemm.types_of(step)
    sizes = nbytes(step.in_type), nbytes(step.in_type), nbytes(step.out_type)

    def put(word: int, value: object, kind: str = "i64") -> None:
        f.do(f"store {kind} {value}, ptr {f.byte_address('%desc', 8 * word)}, align 8")

    def read(base: str, at: str) -> str:
        return f.let(f"zext i32 {f.read('i32', f.byte_address(base, f.mul(at, 4)), 4)} to i64")

    def moved(places: Sequence[str], at: str, strides: Sequence[int]) -> list[str]:
        return [f.byte_address(place, f.mul(at, stride)) for place, stride in zip(places, strides)]

    def call(places: Sequence[str]) -> None:
        for word, place in zip((Word.A, Word.B, Word.C), places):
            put(word, place, "ptr")
        f.do(f"call void {function}(ptr %desc)")

    def sums(places: Sequence[str], first: str, count: str) -> None:
        steps = f.ceil_div(count, types.k_per_step)
        put(Word.K, count)
        put(Word.STEPS, steps)
        put(Word.SEGMENT_STEPS, f.max(steps, 1))
        put(Word.BLOCKS, f.max(f.ceil_div(steps, max(words[Word.BLOCK_STEPS], 1)), 1))
        call(moved(places, first, (words[Word.A_KS], words[Word.B_KS], 0)))

    def clear(c: str, first: str, last: str) -> None:
        """Emit zeros for rows that belong to no group."""
        place, size = (
            f.byte_address(c, f.mul(first, words[Word.C_MS])),
            f.mul(f.sub(last, first), words[Word.C_MS]),
        )
        f.branch_without_values(
            f.less(first, last),
            lambda: f.do(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)"),
        )

    def rows(places: Sequence[str], first: str, count: str, done: str) -> list[str]:
        """Emit a group of rows, and the clearing of rows between `done` and its first row; return
        the new `done`."""
        put(Word.M, count)
        put(Word.ROW_RUN, f.max(count, 1))
        put(Word.ROW_TILES, f.ceil_div(count, words[Word.TILE_ROWS]))
        is_nonempty = f.is_nonzero(count)

        def group() -> None:
            clear(places[2], done, first)
            call(moved(places, first, (words[Word.A_MS], 0, words[Word.C_MS])))

        f.branch_without_values(is_nonempty, group)
        return [f.select(is_nonempty, f.add(first, count), done)]

    def dim(d: int, places: Sequence[str], number: str) -> None:
        """Emit the products of dims from `d` on; `number` is the flat index over earlier dims."""
        extent, *strides = step.groups[d]
        strides = [stride * size for stride, size in zip(strides, sizes)]

        def emit_group(i: str, *done: str) -> list[str] | None:
            at, here = f.add(f.mul(number, extent), i), moved(places, i, strides)
            if d + 1 < len(step.groups):
                return dim(d + 1, here, at)
            first, count = read("%first", at), read("%count", at)
            return rows(here, first, count, *done) if done else sums(here, first, count)

        by_rows = d + 1 == len(step.groups) and step.grouped == "m"
        done = f.loop(0, extent, 1, emit_group, [("i64", "0")] if by_rows else [])
        if by_rows:
            clear(places[2], done[0], str(step.m))

    dim(0, operands, "0")
    return f.end() + "\n"
