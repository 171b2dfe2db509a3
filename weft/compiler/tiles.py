"""Tiles: operands that are read across the vector dim, along a dim of the rows, as in transposes.

In:   a `Nest` whose vector dim strides through an operand that is contiguous along another dim.
Out:  its loops, and statements that bring each tile into scratch first, along its lines, turned in registers.

Tiles follow one another along the operand's lines: reads wait for memory, so they go in order; stores past the caches need not.
Where lines of a result lie a quarter of a page apart, or a multiple of it, a few rows of tiles go side by side, so that stores fill
several lines that touch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.compiler.ahead import FETCHED_BYTES
from weft.compiler.strips import even_chunk
from weft.compiler.survey import LINE, Access, Dim
from weft.compiler.translate import Translate
from weft.ir.loops import Buf, Expr, Load, Prefetch, Store, Weave

if TYPE_CHECKING:
    from weft.compiler.nest import Nest

RUN = 4096                     # elements of an operand along which tiles, a cache line wide and high, follow one another
APART = 1 << 10                # bytes: lines so far apart, or a multiple of it, wait for each other unless they touch, also in caches
READ_AT_ONCE = 32              # lines of an operand side by side, at most
TILES_AHEAD = 4                # of that many lines the machine's fetchers lose sight: tiles are fetched so many before their turn,
SHORT_LINE = 1 << 10           # and the next rows where a line ends before a fetcher has found its stream (bytes)
LEAST = 16                     # elements that a side of a tiled operand has


def tiles_of(nest: Nest) -> Tiles | None:
    """The tiles of a kernel that has a row dim along which an operand is contiguous that strides along the vector dim."""
    vector = nest.vector
    if vector is None or any(d.column for d in nest.dims) or vector.extent < LEAST:
        return None
    for i, step in enumerate(vector.steps):
        if step > 1:
            line = _line_of([dim for dim in nest.dims if dim is not vector], i)
            if math.prod([dim.extent for dim in line]) >= LEAST:
                return Tiles(nest, line)
    return None


def _line_of(dims: list[Dim], access: int) -> list[Dim]:
    """The dim along which an access is contiguous; where it is short, behind those along which that goes on."""
    line: list[Dim] = []
    extent = 1
    while extent < LEAST:
        dim = next((d for d in dims if d.steps[access] == extent and d.extent > 1), None)
        if dim is None:
            break
        line.insert(0, dim)
        extent *= dim.extent
    return line


class Tiles:
    """Writes the loops over the tiles of one kernel. `line` are the dims along which operands are contiguous."""

    def __init__(self, nest: Nest, line: list[Dim]):
        self.nest, self.b, self.line = nest, nest.b, line
        self.counts = [d.extent for d in line]
        self.dim = dim = Dim(line[-1].dims, math.prod(self.counts), False, line[-1].steps)
        vector, step = nest.vector, nest.step
        steps = [math.prod(self.counts[k + 1:]) for k in range(len(line))]
        self.across: list[tuple[Load, Access]] = [(x, a) for x, a in nest.survey.loads
                                                  if a.plain and step(a, vector) > 1 and [step(a, d) for d in line] == steps]
        self.size = LINE // min([a.weight for _, a in self.across], default=4)
        while self.size > min(vector.extent, dim.extent):
            self.size //= 2
        self.short = max([dim.extent * a.weight for _, a in self.across], default=0) <= SHORT_LINE
        paged = any(step(a, dim) * a.weight % APART == 0 for a in nest.survey.accesses if a.buf.startswith("out "))
        self.high = max(1, min(READ_AT_ONCE, vector.extent) // self.size) if paged and not self.short else 1

    def loops(self, rows: list[Dim], where: dict[int, Expr]) -> list:
        """Decide tasks and loops (level, var, extent, kind); fills `where`: id of Dim -> index expression."""
        nest, b, vector, dim, size, high = self.nest, self.b, self.nest.vector, self.dim, self.size, self.high
        run = even_chunk(dim.extent, -(-dim.extent // RUN))
        order = [*(row for row in rows if row not in self.line), vector]
        if self.across:
            order.sort(key=lambda row: -nest.step(self.across[0][1], row))
        counts = [-(-row.extent // (size * high)) if row is vector else row.extent for row in order]
        order, counts = [*order, dim], [*counts, -(-dim.extent // run)]
        loops, row, _ = nest.share(math.prod(counts), 1, nest.tasks())
        nest.split(row, order, counts, where)
        first, left = self._part(where[id(dim)], run, dim.extent)
        start, beside = self._part(where[id(vector)], size * high, vector.extent)
        self.base, self.down = self._part(b.index("c", -(-run // size), 2), size, dim.extent, first)
        self.start, self.along = self._part(b.index("h", high, 3), size, vector.extent, start)
        nest.split(b.iadd(self.base, b.index("u", size, 4)), self.line, self.counts, where)
        where[id(vector)] = b.iadd(self.start, b.index("j", size, 5))
        return [*loops, (2, "c", self._tiles(left), "serial"), (3, "h", 1 if high == 1 else self._tiles(beside), "serial"),
                (4, "u", self.down, "serial"), (5, "j", self.along, "vector")]

    def _part(self, number: Expr, size: int, extent: int, first: int | Expr = 0) -> tuple[Expr, int | Expr]:
        """Where a part of a dim begins, and what there is of its `size` elements."""
        start = self.b.iadd(first, self.b.imul(number, size))
        return start, size if extent % size == 0 else self.b.imin(self.b.isub(extent, start), size)

    def _tiles(self, extent: int | Expr) -> int | Expr:
        """How many tiles hold so many elements."""
        return -(-extent // self.size) if type(extent) is int else self.b.idiv(self.b.iadd(extent, self.size - 1), self.size)

    def stage(self, where: dict[int, Expr]) -> None:
        """Bring a tile into scratch along its lines, turned in registers: what is read across them is read from there."""
        if not self.across:
            return
        nest, b, size, along = self.nest, self.b, self.size, self.along
        names, at = [], b.iadd(b.imul(b.index("u"), size), b.index("j"))
        for x, _ in self.across:
            names.append(f"s{len(nest.scratch)}")
            nest.scratch.append(Buf(names[-1], x.type, size * size))
            nest.staged[id(x)] = b.load(names[-1], at, x.type)
        if type(along) is int:
            self._turn(where, names, b.const(0, "i64"), size, "v", 1)
            return
        # one row at a time where the tile has not as many as fit
        self._turn(where, names, b.const(0, "i64"), size, "v", b.idiv(along, size))
        self._turn(where, names, b.index("z", size, 4), 1, "z", b.irem(along, size))

    def _turn(self, where: dict[int, Expr], names: list[str], first: Expr, count: int, var: str, extent: int | Expr) -> None:
        """`count` rows from `first` on, `extent` times."""
        nest, b, emit, size, w = self.nest, self.b, self.nest.emit, self.size, self.b.index("w", self.size, 5)
        roots, fetched = [b.iadd(b.imul(w, size), first)], []
        for k in range(count):
            row, place = b.iadd(b.iadd(self.start, first), k), b.iadd(self.base, w)
            here = self._translate(where, row, place)
            roots += [here(x) for x, _ in self.across]
            if count > 1:
                later = self._translate(where, b.iadd(row, size), place) if self.short \
                    else self._translate(where, row, b.iadd(place, TILES_AHEAD * size))
                fetched += [(x.buf, later(x.index)) for x, _ in self.across if nest.sizes[x.buf] >= FETCHED_BYTES]
        emit.open(4)
        emit.open(5)
        at, *values = emit.compute(roots + [index for _, index in fetched])
        for (buf, _), index in zip(fetched, values[count * len(names):]):
            emit.append(Prefetch(buf, index))
        for i, name in enumerate(names):
            row = tuple(values[i:count * len(names):len(names)])
            emit.append(Weave(name, at, row) if count > 1 else Store(name, at, row[0]))
        emit.close("w", self.down, "vector")
        emit.close(var, extent, "serial")

    def _translate(self, where: dict[int, Expr], row: Expr, place: Expr) -> Translate:
        """Code at a row of the operand and a place in its line."""
        nest = self.nest
        starts = dict.fromkeys(map(id, self.line), self.b.const(0, "i64"))
        return Translate(nest.low.builder, self.b, nest.mapping({**where, **starts, id(nest.vector): row, id(self.line[-1]): place}))
