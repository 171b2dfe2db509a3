"""Addresses of a native matmul's operands: descriptor words, and offsets from lists of dims.

In:   the descriptor (`DescriptorWriter`); in a task, also the words of the round (`Task`).
Out:  IR that computes byte offsets of batch elements, of ranges of k in one segment, and of ranges
      of rows or columns in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft._engine.codegen.gemm.descriptor import Word
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.util.record import record

Pack = Callable[[str, str, str], None]


class DescriptorWriter(LLVMFunctionWriter):
    """A function with a descriptor; descriptor words that are constant are `known`."""

    desc = "%desc"
    optimized = False

    def __init__(
        self, signature: str, decls: Declarations, types: GemmTypes, known: Mapping[int, str] = {}
    ) -> None:
        super().__init__(signature, decls, types.machine)
        self._words = dict(known)

    def descriptor_word(self, word: int, type: str = "i64") -> str:
        """Return a word of the descriptor, loaded at the beginning of the function."""
        value = self._words.get(word)
        if value is None:
            value = self._words[word] = self.first_word(self.desc, word, type)
        return value

    def first_word(self, base: str, word: int, type: str = "i64") -> str:
        at = base if word == 0 else self.let_first(f"getelementptr i8, ptr {base}, i64 {8 * word}")
        return self.let_first(f"load {type}, ptr {at}, align 8")


class Task(DescriptorWriter):
    """A task function, with the words of the round as attributes."""

    def __init__(
        self, name: str, decls: Declarations, types: GemmTypes, known: Mapping[int, str] = {}
    ) -> None:
        super().__init__(
            f"internal void @{name}(ptr %ctx, i64 %task, i64 %wid)", decls, types, known
        )
        self.desc = self.first_word("%ctx", 0, "ptr")
        self.first_panel, self.panels, self.col_tiles = (
            self.first_word("%ctx", i) for i in (4, 5, 7)
        )
        is_single_batch = known.get(Word.BATCH) == "1"
        self.first_batch, self.batch = (
            ("0", "1") if is_single_batch else (self.first_word("%ctx", i) for i in (3, 6))
        )

    def operands(self) -> tuple[str, str, str]:
        """Return the pointers of A, B and C; A and B are exchanged if the plan exchanged them."""
        a, b, c = (self.descriptor_word(w, "ptr") for w in (Word.A, Word.B, Word.C))
        swapped = self.is_nonzero(self.descriptor_word(Word.SWAPPED))
        return self.select(swapped, b, a, "ptr"), self.select(swapped, a, b, "ptr"), c


@record
class Dims:
    """A list of dims in the descriptor: the words with its length and position, and the number of
    strides per dim."""

    count: int
    at: int
    strides: int


BATCH, OUTER = Dims(Word.BATCH_DIMS, Word.BATCH_AT, 3), Dims(Word.OUTER_DIMS, Word.OUTER_AT, 2)
ROWS, COLS = Dims(Word.ROW_DIMS, Word.ROWS_AT, 1), Dims(Word.COL_DIMS, Word.COLS_AT, 1)


def offsets_function(decls: Declarations, types: GemmTypes) -> str:
    """Return `@offsets`, which splits a flat index over a list of dims and writes one byte offset
    per stride."""
    f = LLVMFunctionWriter(
        "internal void @offsets(ptr %list, i64 %dims, i64 %strides, i64 %index, ptr %out)",
        decls,
        types.machine,
    )
    width = f.add("%strides", 1)

    def put(j: str, value: str) -> None:
        f.do(f"store i64 {value}, ptr {f.byte_address('%out', f.mul(j, 8))}, align 8")

    def dim(i: str, index: str) -> list[str]:
        at = f.byte_address("%list", f.mul(f.mul(f.sub(f.sub("%dims", 1), i), width), 8))
        extent = f.load_word(at, 0)
        here = f.rem(index, extent)

        def add(j: str) -> None:
            step = f.mul(here, f.load_word(f.byte_address(at, f.mul(j, 8)), 1))
            put(j, f.add(f.load_word(f.byte_address("%out", f.mul(j, 8)), 0), step))

        f.loop(0, "%strides", 1, add)
        return [f.div(index, extent)]

    f.loop(0, "%strides", 1, lambda j: put(j, "0"))
    f.loop(0, "%dims", 1, dim, [("i64", "%index")])
    return f.end()


def locate(f: "DescriptorWriter", dims: Dims, index: str, out: str) -> list[str]:
    """Return the byte offsets, one per stride, of a flat index over some dims; `out` is scratch."""
    if f.descriptor_word(dims.count) == "0":
        return ["0"] * dims.strides
    first = f.byte_address(f.desc, f.mul(f.descriptor_word(dims.at), 8))
    f.do(
        f"call void @offsets(ptr {first}, i64 {f.descriptor_word(dims.count)}, i64 {dims.strides}, i64 {index}, ptr {out})"
    )
    return [f.load_word(out, j) for j in range(dims.strides)]


def segments(
    f: DescriptorWriter,
    types: GemmTypes,
    first: str,
    last: str,
    operand: int,
    stride: str,
    pack: Pack,
) -> None:
    """Call `pack(steps done, byte offset in the operand, k elements)` for each part of steps
    [first, last) in one segment."""
    per, segment_steps, k = (
        types.k_per_step,
        f.descriptor_word(Word.SEGMENT_STEPS),
        f.descriptor_word(Word.K),
    )
    if f.descriptor_word(Word.SEGMENTS) == "1":
        return pack(
            "0",
            f.mul(f.mul(first, per), stride),
            f.min(f.sub(k, f.mul(first, per)), f.mul(f.sub(last, first), per)),
        )
    offsets = f.slot("[2 x i64]")

    def segment(s: str) -> None:
        start = f.mul(s, segment_steps)
        begin, end = f.max(first, start), f.min(last, f.add(start, segment_steps))
        there = locate(f, OUTER, s, offsets)[operand]
        k0 = f.mul(f.sub(begin, start), per)
        count = f.min(f.sub(k, k0), f.mul(f.sub(end, begin), per))
        pack(f.sub(begin, first), f.add(there, f.mul(k0, stride)), count)

    f.loop(f.div(first, segment_steps), f.ceil_div(last, segment_steps), 1, segment)
    return None


def visit_runs(
    f: DescriptorWriter, first: str, last: str, run: int, dims: Dims, stride: str, pack: Pack
) -> None:
    """Call `pack(done, byte offset in the operand, count)` for each part of rows or columns [first,
    last) in one run."""
    if f.descriptor_word(dims.count) == "0":
        return pack("0", f.mul(first, stride), f.sub(last, first))
    length = f.descriptor_word(run)
    offset = f.slot("[1 x i64]")

    def block(q: str) -> None:
        start = f.mul(q, length)
        begin, end = f.max(first, start), f.min(last, f.add(start, length))
        here = f.add(locate(f, dims, q, offset)[0], f.mul(f.sub(begin, start), stride))
        pack(f.sub(begin, first), here, f.sub(end, begin))

    f.loop(f.div(first, length), f.ceil_div(last, length), 1, block)
    return None


def block_of(f: DescriptorWriter, block: str) -> tuple[str, str]:
    """Return the first step of a block of k, and the step after its last one."""
    size = f.descriptor_word(Word.BLOCK_STEPS)
    first = f.mul(block, size)
    return first, f.min(f.add(first, size), f.descriptor_word(Word.STEPS))


def row_block_count(f: LLVMFunctionWriter, rows: str, most: int) -> str:
    """Return the number of row blocks: blocks of `most` rows, then one block of 4, 2 or 1 rows per
    binary digit of the remainder."""
    f.decls.use("declare i64 @llvm.ctpop.i64(i64)")
    small_blocks = f.let(f"call i64 @llvm.ctpop.i64(i64 {f.rem(rows, most)})")
    return f.add(f.div(rows, most), small_blocks)
