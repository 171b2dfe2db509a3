"""Transpose tiling: loops for operands that are contiguous along a row dim instead of the vector dim.

In:   a `LoopNest` whose vector dim strides through an operand that is contiguous along another dim.
Out:  its loops, and statements that read each tile along its lines and transpose it in registers into scratch.

Tiles follow one another along the operand's lines because reads stall and stores past the caches do not. Adjacent cache lines
should be stored together, so as many rows of tiles as fit into a cache are processed together. If result rows begin inside
cache lines, tiles are skewed so that stores begin and end on cache lines. The last tile of a line ends with the line and
overlaps the tile before it, so that all tiles are full.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import TILE_LEAST_SIDE
from weft._engine.compiler.loops.access_analysis import Access, LoopDim
from weft._engine.compiler.loops.loop_levels import LoopLevel, LoopNest, segment_length
from weft._engine.compiler.loops.prefetch import PREFETCH_FROM_BYTES
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.build import type_name
from weft._engine.ir.loops import ITEMSIZE, Buf, Expr, Interleave, Load, LoopKind, Prefetch
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: results of at least this size are stored past the caches, because tiles are written across their lines
TILE_STREAM_BYTES = 1 << 24
#: elements of an operand's line over which tiles follow one another; at least 512
_TILE_RUN = 4096
#: lines at a multiple of this distance compete for the same sets of a cache
_TILE_CONFLICT_BYTES = 1 << 10
#: maximal number of rows of tiles that are processed together if results are stored past the caches
_TILE_ROWS = 4
#: maximal number of rows of skewed tiles processed together, if their lines fit into the cache
_TILE_ROWS_SKEWED = 8
#: bytes of a core's own cache
_TILE_CACHE_BYTES = 1 << 19
#: bytes of one way of a core's own cache
_TILE_CACHE_WAY_BYTES = 1 << 16
#: rows of a block that is transposed as a whole in the cache
_TILE_BLOCK_ROWS = 128
#: tiles of such a block along its lines
_TILE_BLOCK_TILES = 4
#: tiles between an access and its prefetch; the hardware prefetcher cannot follow this many lines
_TILE_PREFETCH_DISTANCE = 2
#: lines of no more bytes end before the hardware prefetcher detects a stream
_TILE_SHORT_LINE = 1 << 9
#: minimal number of lines that are transposed in registers at a time, unless the tile is smaller
_TILE_TRANSPOSED_LINES = 16


#: levels of the loops over tiles, inside the loops over tasks and rows: tiles of a line, groups of tiles across lines, lines of a
#: group, the parts of a skewed row (`_loop_over_lines`), elements of a line; then levels of the loops that stage a tile: its rows, its lines
_TILES, _GROUPS, _LINES, _HEADS, _VECTOR = range(2, 7)
_STAGED_ROWS, _STAGED_LINES = range(4, 6)


def transpose_tiling_of(nest: LoopNest) -> TransposeTiling | None:
    """Return the tiling if an operand is contiguous along a row dim and strided along the vector dim; otherwise None."""
    vector = nest.vector
    if vector is None or any(d.column for d in nest.dims) or vector.extent < TILE_LEAST_SIDE:
        return None
    if any(out.after for out in nest.low.outputs) or len(nest.low.outputs) > len(nest.out_names):
        return None
    for i, step in enumerate(vector.steps):
        if step > 1:
            line = _line_of([dim for dim in nest.dims if dim is not vector], i)
            if math.prod([dim.extent for dim in line]) >= TILE_LEAST_SIDE:
                return TransposeTiling(
                    nest,
                    vector,
                    line,
                    all(out.var.aval.nbytes >= TILE_STREAM_BYTES for out in nest.low.outputs),
                )
    return None


def _line_of(dims: list[LoopDim], access: int) -> list[LoopDim]:
    """Return the dim along which an access is contiguous; if it is short, preceded by the dims that continue the access."""
    line: list[LoopDim] = []
    extent = 1
    while extent < TILE_LEAST_SIDE:
        dim = next((d for d in dims if d.steps[access] == extent and d.extent > 1), None)
        if dim is None:
            break
        line.insert(0, dim)
        extent *= dim.extent
    return line


class TransposeTiling:
    """The writer of the loops over the tiles of one kernel.

    `line`: the dims along which operands are contiguous. `past`: results are stored past the caches. `twice`: tiles overlap and
    some elements are computed twice, so results must not overwrite operands."""

    def __init__(self, nest: LoopNest, vector: LoopDim, line: list[LoopDim], past: bool):
        self.nest, self.b, self.vector, self.line = nest, nest.b, vector, line
        self.counts = [d.extent for d in line]
        self.dim = dim = LoopDim(line[-1].dims, math.prod(self.counts), False, line[-1].steps)
        step = nest.step
        self.across = self._loads_across()
        weights = [a.weight for _, a in self.across]
        self.size = MODEL.cache_line // min(weights, default=4)
        while self.size > min(vector.extent, dim.extent):
            self.size //= 2
        self.short = dim.extent * max(weights, default=0) <= _TILE_SHORT_LINE
        results = [a for a in nest.analysis.accesses if a.buf.startswith("out ")]
        paged = any(step(a, dim) * a.weight % _TILE_CONFLICT_BYTES == 0 for a in results)
        self.skewed = past and self._begin_between_lines(results)
        self.together = self.skewed or (paged and not past)
        high, wide = 1, 1
        if past:
            high = self._rows_of_tiles(paged)
        elif paged:
            high, wide = _TILE_BLOCK_ROWS // self.size, _TILE_BLOCK_TILES
        self.high = max(1, min(high, vector.extent // self.size))
        self.wide = max(1, min(wide, dim.extent // self.size))
        self.rows = self.size * (self.high if self.together else 1)
        self.run = segment_length(dim.extent, -(-dim.extent // _TILE_RUN))
        cols = self.size * self.wide
        self.even = dim.extent % cols == 0 and self.run % cols == 0
        self.twice = not self.even or (vector.extent % self.rows > 0 and not self.skewed)
        self.pitch = self.rows + self.size * self.skewed

    def _loads_across(self) -> list[tuple[Load, Access]]:
        """Return the loads that are contiguous along the line and not along the vector dim."""
        step, vector, line = self.nest.step, self.vector, self.line
        steps = [math.prod(self.counts[k + 1 :]) for k in range(len(line))]
        return [
            (x, a)
            for x, a in self.nest.analysis.loads
            if a.plain and step(a, vector) > 1 and [step(a, d) for d in line] == steps
        ]

    def _rows_of_tiles(self, paged: bool) -> int:
        """Return the number of rows of tiles that fit into a cache if results are stored past the caches."""
        if len(self.line) > 1 and not self.skewed:
            return 1 + paged
        way = _TILE_CACHE_WAY_BYTES
        strides = [self.nest.step(a, self.vector) * a.weight for _, a in self.across]
        near = min([_TILE_CACHE_BYTES // math.gcd(n, way) // self.size for n in strides], default=1)
        if self.skewed:
            return max(_TILE_ROWS, min(_TILE_ROWS_SKEWED, near))
        return min(_TILE_ROWS, near)

    def _begin_between_lines(self, results: list[Access]) -> bool:
        """Return whether rows of the results begin inside cache lines, at the same offsets in all results."""
        nest, first = self.nest, results[0]
        steps = [nest.step(first, dim) for dim in nest.dims]
        line = MODEL.cache_line
        return (
            bool(self.across)
            and first.weight * self.size >= line
            and self.vector.extent * first.weight >= line
            and all(a.plain and a.form == first.form and a.weight == first.weight for a in results)
            and nest.step(first, self.vector) == 1
            and any(s > 1 and s * first.weight % MODEL.cache_line for s in steps)
        )

    def loops(self, rows: list[LoopDim], where: dict[int, Expr]) -> list[LoopLevel]:
        """Decide tasks and loops; fills `where`."""
        nest, b, vector, dim, size = self.nest, self.b, self.vector, self.dim, self.size
        tall, cols, group, run = size * self.high, size * self.wide, self.rows, self.run
        order = [*(row for row in rows if row not in self.line), vector]
        if self.across:
            order.sort(key=lambda row: -nest.step(self.across[0][1], row))
        counts = [-(-row.extent // tall) if row is vector else row.extent for row in order]
        order, counts = [*order, dim], [*counts, -(-dim.extent // run)]
        loops, row, _ = nest.share(math.prod(counts), 1, nest.tasks())
        nest.split(row, order, counts, where)
        first, width = self._part(where[id(dim)], run, dim.extent)
        start, extent = self._part(where[id(vector)], tall, vector.extent)
        c, h = b.index("c", -(-run // cols), _TILES), b.index("h", self.high, _GROUPS)
        self.base = b.iadd(first, self._place(c, cols, width, self.even))
        self.start = (
            start
            if self.skewed
            else b.iadd(start, self._place(h, group, extent, vector.extent % group == 0))
        )
        self.first, self.along = self.start, group
        nest.split(b.iadd(self.base, b.index("u", cols, _LINES)), self.line, self.counts, where)
        loops += [
            LoopLevel(_TILES, "c", self._parts(width, cols), LoopKind.SERIAL),
            LoopLevel(
                _GROUPS,
                "h",
                1 if self.together else self._parts(extent, group),
                LoopKind.SERIAL,
                begin=lambda: self.stage(where),
            ),
            LoopLevel(_LINES, "u", cols, LoopKind.SERIAL),
        ]
        if self.skewed:
            return [*loops, *self._loop_over_lines(where, tall)]
        where[id(vector)] = b.iadd(self.start, b.index("j", group, _VECTOR))
        return [*loops, LoopLevel(_VECTOR, "j", group, LoopKind.VECTOR)]

    def _loop_over_lines(self, where: dict[int, Expr], tall: int) -> list[LoopLevel]:
        """Return the loops over a row of tiles, which begins and ends on cache lines of the result.

        The ends of a result row are an exception.

        The shifted elements before the row are staged with it: the tile above is read again.
        """
        nest, b, vector, start = self.nest, self.b, self.vector, self.start
        out = nest.low.outputs[0]
        line, end = MODEL.cache_line // ITEMSIZE[type_name(out.var.aval.dtype)], b.iadd(start, tall)
        where[id(vector)] = start
        lead = b.irem(Substitution(nest.low.builder, b, nest.map_dims(where))(out.index), line)
        top, bottom = b.icmp("eq", start, 0), b.icmp("ge", end, vector.extent)
        begin = b.select(top, b.irem(b.isub(line, lead), line), b.imax(b.isub(start, lead), 0))
        stop = b.select(bottom, b.const(vector.extent, "i64"), b.isub(end, lead))
        # at the start of a result row, a second loop computes the elements before the first whole line
        head = b.icmp("eq", b.index("p", 2, _HEADS), 1)
        self.first = b.imax(b.isub(start, self.size), 0)
        self.along = b.isub(b.imin(end, vector.extent), self.first)
        where[id(vector)] = b.iadd(
            b.select(head, b.const(0, "i64"), begin), b.index("j", tall + line, _VECTOR)
        )
        extent = b.select(head, begin, b.isub(stop, begin))
        heads = b.select(top, b.const(2, "i64"), b.const(1, "i64"))
        return [
            LoopLevel(_HEADS, "p", heads, LoopKind.SERIAL),
            LoopLevel(_VECTOR, "j", extent, LoopKind.VECTOR),
        ]

    def _part(self, number: Expr, size: int, extent: int) -> tuple[Expr, int | Expr]:
        """Return the start of part `number` of a dim and its extent; only the last part may have fewer than `size` elements."""
        start = self.b.imul(number, size)
        return start, size if extent % size == 0 else self.b.imin(self.b.isub(extent, start), size)

    def _parts(self, extent: int | Expr, size: int) -> int | Expr:
        """Return the number of parts of `size` elements that cover `extent`."""
        return (
            -(-extent // size)
            if type(extent) is int
            else self.b.idiv(self.b.iadd(extent, size - 1), size)
        )

    def _place(self, number: Expr, size: int, extent: int | Expr, even: bool) -> Expr:
        """Return the start of a tile of an extent. The last tile ends with the extent and may overlap the tile before it."""
        start = self.b.imul(number, size)
        return start if even else self.b.imin(start, self.b.isub(extent, size))

    def stage(self, where: dict[int, Expr]) -> None:
        """Read tiles along their lines, transpose them in registers, and store them in scratch for the vector loop."""
        if not self.across:
            return
        nest, b, emit, size, along, cols = (
            self.nest,
            self.b,
            self.nest.emit,
            self.size,
            self.along,
            self.size * self.wide,
        )
        names, at = (
            [],
            b.iadd(b.imul(b.index("u"), self.pitch), b.isub(where[id(self.vector)], self.first)),
        )
        for x, _ in self.across:
            names.append(f"s{len(nest.scratch)}")
            nest.scratch.append(Buf(names[-1], x.type, self.pitch * cols))
            nest.staged[id(x)] = b.load(names[-1], at, x.type)
        at_once = min(size, max(_TILE_TRANSPOSED_LINES, size // 2))
        above = self._place(
            b.index("v", self.pitch // at_once, _STAGED_ROWS), at_once, along, type(along) is int
        )
        w = b.index("w", cols, _STAGED_LINES)
        roots, fetched = [b.iadd(b.imul(w, self.pitch), above)], []
        for k in range(at_once):
            row, place = b.iadd(b.iadd(self.first, above), k), b.iadd(self.base, w)
            here = self._substitution(where, row, place)
            roots += [here(x) for x, _ in self.across]
            later = (
                self._substitution(where, b.iadd(row, size * self.high), place)
                if self.short
                else self._substitution(where, row, b.iadd(place, _TILE_PREFETCH_DISTANCE * cols))
            )
            fetched += [
                (x.buf, later(x.index))
                for x, _ in self.across
                if nest.sizes[x.buf] >= PREFETCH_FROM_BYTES
            ]
        emit.open(_STAGED_ROWS)
        emit.open(_STAGED_LINES)
        at, *values = emit.compute(roots + [index for _, index in fetched])
        for (buf, _), index in zip(fetched, values[at_once * len(names) :]):
            emit.append(Prefetch(buf, index))
        for i, name in enumerate(names):
            emit.append(Interleave(name, at, tuple(values[i : at_once * len(names) : len(names)])))
        emit.close("w", cols, LoopKind.VECTOR)
        emit.close("v", self._parts(along, at_once), LoopKind.SERIAL)

    def _substitution(self, where: dict[int, Expr], row: Expr, place: Expr) -> Substitution:
        """Return the substitution for row `row` of the operand and position `place` in its line."""
        nest = self.nest
        starts = dict.fromkeys(map(id, self.line), self.b.const(0, "i64"))
        return Substitution(
            nest.low.builder,
            self.b,
            nest.map_dims({**where, **starts, id(self.vector): row, id(self.line[-1]): place}),
        )
