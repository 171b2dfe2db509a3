"""Transposes in registers: stores vectors of values as rows, the `Interleave` statement.

In:   an `Interleave` statement, inside a vector loop or not, and the emitter of its kernel.
Out:  shuffles and stores. Lane l of the k-th value becomes element k of row l; rows are `stride`
      elements apart.
Laws: only the rows of active iterations are accessed.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import vector
from weft._engine.codegen.ir.values import Affine, EmittedValue, constant
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.codegen.kernel.nontemporal import store_if_aligned
from weft._engine.ir.loops import COMPLEX, ITEMSIZE, Interleave, StoreElement

# thresholds, measured on several machines
#: shuffles within blocks of this many bytes are the cheapest
_TRANSPOSE_BLOCK_BYTES = 16


def interleave(emitter: Emission, stmt: Interleave) -> None:
    """Emit one row of values per iteration."""
    type_, count = emitter.buffers[stmt.buf].type, len(stmt.values)
    index = emitter.evaluate(stmt.index)
    values = [emitter.evaluate(value) for value in stmt.values]
    if (
        not emitter.vectorized
        or type_ in COMPLEX
        or not emitter.buffers[stmt.buf].size
        or not isinstance(index, Affine)
        or not (index.stride == count or (index.stride > count and count & (count - 1) == 0))
    ):
        _one_by_one(emitter, stmt, index, values)
        return
    columns = [emitter.registers_of(value) for value in values]
    for part in range(emitter.parts):
        rows = _Rows(emitter, stmt, index, part, [column[part] for column in columns])
        if index.stride == count:
            rows.store_adjacent_rows()
        else:
            rows.store_separate_rows()


def _one_by_one(
    emitter: Emission, stmt: Interleave, index: EmittedValue, values: list[EmittedValue]
) -> None:
    for k, value in enumerate(values):
        at = emitter.operate("add", [index, constant(k)], "i64")
        emitter.store_value(StoreElement(stmt.buf, stmt.index, stmt.values[k]), value, at, None)


#: maximum size of a lane in bytes
WIDEST = 8


class _Rows:
    """The rows of one part of a vector loop: `count` vectors of `width` lanes become `width` rows
    of `count` elements."""

    def __init__(
        self, emitter: Emission, stmt: Interleave, index: Affine, part: int, registers: list[str]
    ):
        self.emitter, self.stmt, self.index = emitter, stmt, index
        self.b, self.lanes, self.width, self.count = (
            emitter.b,
            emitter.lanes,
            emitter.lanes.w,
            len(registers),
        )
        self.type = emitter.buffers[stmt.buf].type
        self.size, self.tag = ITEMSIZE[self.type], emitter.alias_tag(stmt.buf)
        self.mask = emitter.masks[part]
        self.first = part * self.width
        self.memory, vectors = self.lanes.all_to_memory(registers, self.type)
        self.element = self.memory.split(" x ")[1][:-1]
        block = max(1, min(_TRANSPOSE_BLOCK_BYTES // self.size, self.width))
        transposed = (
            block <= self.count < self.width <= block * self.count and index.stride > self.count
        )
        whole = transposed or self.count == self.width
        self.sequence = (
            self._transpose(vectors, block) if whole else self._interleave(vectors, self.width)
        )

    def shuffle(self, x: str, y: str, order: list[int], width: int | None = None) -> str:
        """Shuffle the concatenated lanes of two vectors; adjacent lanes that stay adjacent move as
        one wider lane, which compiles faster."""
        width, b, run = width or self.width, self.b, 1
        while (
            2 * run * self.size <= WIDEST
            and 2 * run < width
            and all(
                order[at] % (2 * run) == 0 and order[at + run] == order[at] + run
                for at in range(0, width, 2 * run)
            )
        ):
            run *= 2
        memory, back = (
            vector(f"i{8 * self.size * run}" if run > 1 else self.element, lanes // run)
            for lanes in (self.width, width)
        )
        if run > 1:
            x, y = (
                z if z == "poison" else b.pure(f"bitcast {self.memory} {z} to {memory}", z)
                for z in (x, y)
            )
        shuffled = b.shuffle(memory, x, y, [lane // run for lane in order[::run]])
        return (
            shuffled
            if run == 1
            else b.pure(f"bitcast {back} {shuffled} to {vector(self.element, width)}", shuffled)
        )

    def _transpose(self, vectors: list[str], block: int) -> list[str]:
        """Return the rows of at most as many vectors as lanes: interleave within blocks of 16
        bytes, then distribute the blocks."""
        interleaved = [
            self._interleave(vectors[at : at + block], block) for at in range(0, self.count, block)
        ]
        columns = list(zip(*interleaved))
        per_vector = self.width // self.count  # rows per vector
        dealt = [
            self._distribute_blocks(
                [x for each in columns[at : at + per_vector] for x in each], block
            )
            for at in range(0, block, per_vector)
        ]
        return [x for together in zip(*dealt) for x in together]

    def _distribute_blocks(self, vectors: list[str], block: int) -> list[str]:
        """Return the n-th blocks of all vectors, for every n."""
        if len(vectors) == 1:
            return vectors
        even = [lane for lane in range(2 * self.width) if lane // block % 2 == 0]
        pairs = list(zip(vectors[0::2], vectors[1::2]))
        halves = [
            self._distribute_blocks(
                [self.shuffle(x, y, [lane + side for lane in even]) for x, y in pairs], block
            )
            for side in (0, block)
        ]
        return [x for both in zip(*halves) for x in both]

    def _interleave(self, vectors: list[str], block: int) -> list[str]:
        """Interleave vectors within each block of lanes; the results hold all rows in order."""
        if len(vectors) == 1:
            return vectors
        if len(vectors) % 2:
            return [self._pick(vectors, at) for at in range(len(vectors))]
        half = len(vectors) // 2
        if block % len(vectors) == 0:
            run, first, second = half, vectors[:half], vectors[half:]
        else:
            run, first, second = 1, vectors[0::2], vectors[1::2]
        low = [
            lane // block * block
            + lane % block // (2 * run) * run
            + lane % run
            + lane // run % 2 * self.width
            for lane in range(self.width)
        ]
        rows = []
        for x, y in zip(self._interleave(first, block), self._interleave(second, block)):
            rows += [
                self.shuffle(x, y, low),
                self.shuffle(x, y, [lane + block // 2 for lane in low]),
            ]
        return rows

    def _pick(self, vectors: list[str], at: int) -> str:
        """Return the `at`-th vector of the interleaved sequence, adding one operand at a time."""
        count, picked = len(vectors), vectors[0]
        places = [divmod(at * self.width + lane, count) for lane in range(self.width)]
        for k in range(1, count):
            order = []
            for lane, (row, column) in enumerate(places):
                order.append(self.width + row if column == k else row if k == 1 else lane)
            picked = self.shuffle(picked, vectors[k], order)
        return picked

    def pointer(self, row: int, beyond: int) -> str:
        """Return the address of element `beyond` of a row."""
        at = self.emitter.vector_address(self.stmt.buf, self.type, self.index, self.first + row)
        return (
            at
            if not beyond
            else self.b.pure(f"getelementptr i8, ptr {at}, i64 {beyond * self.size}", at)
        )

    def store_adjacent_rows(self) -> None:
        """Store contiguous rows as whole vectors."""
        if self.stmt.streaming and self.mask is None and self.emitter.target.is_x86:
            self._stream()
            return
        for number, x in enumerate(self.sequence):
            pointer = self.pointer(0, number * self.width)
            mask = None
            if self.mask is not None:
                order = [(number * self.width + lane) // self.count for lane in range(self.width)]
                mask = self.b.shuffle(self.lanes.i1, self.mask, "poison", order)
            self.emitter.write(self.memory, x, pointer, (self.size, self.tag), mask)

    def _stream(self) -> None:
        """Store nontemporally if the first row is aligned at run time, else normally."""
        nbytes = self.size * self.width
        base = self.pointer(0, 0)
        places = [self.pointer(0, number * self.width) for number in range(self.count)]
        store_if_aligned(
            self.emitter,
            base,
            list(zip(self.sequence, places)),
            self.memory,
            nbytes,
            self.size,
            self.tag,
        )

    def store_separate_rows(self) -> None:
        """Store rows with gaps between them, each by itself."""
        for row in range(self.width):
            mask, width = None, min(self.count, self.width)
            if self.mask is not None:
                on = self.b.pure(
                    f"extractelement {self.lanes.i1} {self.mask}, i32 {row}", self.mask
                )
                mask = self.emitter.lanes_of(width).splat(on, "i1")
            for first in range(0, self.count, width):
                at, lane = divmod(row * self.count + first, self.width)
                x, memory = self.sequence[at], self.memory
                if width < self.width:
                    x, memory = (
                        self.shuffle(x, "poison", list(range(lane, lane + width)), width),
                        vector(self.element, width),
                    )
                self.emitter.write(memory, x, self.pointer(row, first), (self.size, self.tag), mask)
