"""Reductions over outer dims: adjacent accumulators in scratch, updated by several rows at a time.

In:   a `LoopNest` that is vectorized along a row dim while a dim outside of it is reduced.
Out:  its loops: a task owns a strip of the vector dim and passes over the rows of that strip.
Laws: accumulators of earlier passes are read in place. Data with several passes form a strip narrow enough to stay in the caches
      (`strip_width`); fusion checks that before it puts such passes into one kernel.
      A sum of exp(x - shift) over rows needs no pass of its own if the shift is the maximum m of the same x, or a constant where m is
      not finite: the sum is accumulated along with m, block by block, and rescaled when m grows (`OnlineSum`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft._engine.compiler.fusion.reduction_domain import (
    REDUCTION_FEWEST_STRIP_ROWS,
    REDUCTION_NARROWEST_STRIP,
    REDUCTION_STRIP,
    strip_width,
)
from weft._engine.compiler.loops.access_analysis import LoopDim
from weft._engine.compiler.loops.loop_levels import Level, LoopLevel, LoopNest, segment_length
from weft._engine.compiler.loops.prefetch import contiguous_prefetches
from weft._engine.compiler.lowering.lower import LoweredReduction, Output, reachable
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.loops import (
    FLOATS,
    Buf,
    Const,
    Expr,
    LoopKind,
    Prefetch,
    ScalarOp,
    ScalarRef,
    StoreElement,
)
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: strips in total if each element is read once: more, narrower strips would be shorter streams from memory
_REDUCTION_FEWEST_STREAMED = 2
#: rows that are added at a time if their code is short
_REDUCTION_UNROLLED_ROWS = 8
#: the maximal cost of short code
_REDUCTION_UNROLLED_COST = 16
#: distance between the rows that are added and the rows that are prefetched
_REDUCTION_PREFETCH_ROWS = 16
#: strips of more elements are left to the hardware prefetcher
_REDUCTION_PREFETCH_WIDTH = 512


#: levels of the loops in a strip: blocks of rows, rows, elements
_BLOCKS, _ROWS, _VECTOR = range(3, 6)
STRIP_TYPES = frozenset({"bool", "i32", "u32", "i64", "u64", "f32", "f64"})


def outer_reduction_of(nest: LoopNest) -> OuterReduction | None:
    """Return the loops over strips if the nest has one reduced dim, outside of its vector dim; otherwise None."""
    low, vector = nest.low, nest.vector
    columns = [d for d in nest.dims if d.column]
    if (
        vector is None
        or vector.column
        or len(columns) != 1
        or vector.extent < 16
        or columns[0].extent < REDUCTION_FEWEST_STRIP_ROWS
    ):
        return None
    if any(r.value.type not in STRIP_TYPES for r in low.reductions):
        return None
    strips = OuterReduction(nest, vector, columns[0])
    return strips if strips.width else None


@record
class OnlineSum:
    """A sum of exp(x - shift) accumulated along with the maximum `top` of x; `shift` is `top`, or a constant where that is not finite.

    The loop over rows subtracts `near`: the shift, or zero where it is not finite, since a difference of infinities would make the
    unfinished sum NaN. `sum` is the reduction with `near`.
    """

    top: LoweredReduction
    sum: LoweredReduction
    shift: Expr
    near: Expr


def _follows_maximum(shift: Expr) -> bool:
    """Return whether a shift is the maximum, or a select of the maximum where it is finite and a constant elsewhere."""
    if type(shift) is not ScalarOp or shift.op != "select":
        return type(shift) is ScalarRef
    condition, finite, otherwise = shift.args
    return (
        type(finite) is ScalarRef
        and type(otherwise) is Const
        and type(condition) is ScalarOp
        and condition.op == "is_finite"
        and condition.args[0] is finite
    )


class OuterReduction:
    """The writer of the loops of one kernel."""

    def __init__(self, nest: LoopNest, vector: LoopDim, column: LoopDim):
        self.nest, self.vector, self.column = nest, vector, column
        self.low, self.b = nest.low, nest.b
        self.bufs: dict[str, str] = {}  # reduction -> its scratch buffer
        self.placed = {r.extreme: r for r in self.low.reductions if r.extreme is not None}
        self.online_sums = self._online_sums()
        online = {online_sum.sum.name for online_sum in self.online_sums}
        self.reductions = [
            r for r in self.low.reductions if r.extreme is None and r.name not in online
        ]
        levels = [r.level for r in self.reductions] + [o.level for o in self.low.outputs]
        self.last = max(levels, default=0)
        around = math.prod([d.extent for d in nest.dims if d is not column and d is not vector])
        # online sums reread rows within a block, so only the number of threads limits the width of strips
        again = (
            column.extent if self.last else REDUCTION_FEWEST_STRIP_ROWS if self.online_sums else 0
        )
        if again:
            self.width = strip_width(again, vector.extent, around)
        else:
            share = (
                -(-vector.extent * around // _REDUCTION_FEWEST_STREAMED)
                if nest.tasks() > 1
                else REDUCTION_STRIP
            )
            self.width = min(REDUCTION_STRIP, max(share, REDUCTION_NARROWEST_STRIP))

    def _online_sums(self) -> list[OnlineSum]:
        b, tops, sums = (
            self.low.builder,
            {r.name: r for r in self.low.reductions if r.op == "max" and r.level == 0},
            [],
        )
        for r in self.low.reductions:
            x = r.value
            if (
                r.op != "add"
                or type(x) is not ScalarOp
                or x.op != "exp"
                or type(x.args[0]) is not ScalarOp
                or x.args[0].op != "sub"
            ):
                continue
            of, shift = x.args[0].args
            names = {y.name for y in reachable([shift]) if type(y) is ScalarRef}
            top = tops.get(next(iter(names), ""))
            # the terms of a partial sum are in [0, 1] only if x never exceeds the running maximum
            if (
                top is None
                or len(names) > 1
                or self.placed.get(top.name) is not None
                or of is not top.value
                or not _follows_maximum(shift)
            ):
                continue
            near = b.select(b.op("is_finite", shift), shift, b.const(0, shift.type))
            sums.append(
                OnlineSum(
                    top, replace(r, level=0, value=b.op("exp", b.op("sub", of, near))), shift, near
                )
            )
        return sums

    def tasks(self, rows: list[LoopDim], where: dict[int, Expr]) -> list[LoopLevel]:
        """Decide the loop over strips; fills `where`."""
        nest, b, n = self.nest, self.b, self.vector.extent
        chunk = segment_length(n, -(-n // self.width))
        segments = -(-n // chunk)
        total = segments * math.prod([dim.extent for dim in rows])
        t = b.index("t", total, Level.TASK) if total > 1 else b.const(0, "i64")
        nest.split(b.idiv(t, segments), rows, [d.extent for d in rows], where)
        start = b.imul(b.irem(t, segments), chunk)
        where[id(self.vector)] = b.iadd(start, b.index("j", chunk, _VECTOR))
        self.extent = chunk if n % chunk == 0 else b.imin(b.isub(n, start), chunk)
        self.chunk = chunk
        if total == 1:
            return []
        return [
            LoopLevel(
                Level.TASK, "t", total, LoopKind.PARALLEL if nest.tasks() > 1 else LoopKind.SERIAL
            )
        ]

    def write(self, where: dict[int, Expr]) -> None:
        """Write the passes over the rows, then the outputs that are stored once per strip."""
        low, nest = self.low, self.nest
        for r in low.reductions:
            nest.scratch.append(Buf(f"s{len(nest.scratch)}", r.value.type, self.chunk))
            self.bufs[r.name] = nest.scratch[-1].name
        for level in range(self.last + 1):
            reductions = [r for r in self.reductions if r.level == level]
            outputs = [o for o in low.outputs if o.level == level]
            if reductions or outputs:
                online_sums = self.online_sums if level == 0 else []
                self._begin([*reductions, *(online_sum.sum for online_sum in online_sums)])
                if online_sums:
                    self._loop_over_blocks(where, reductions, online_sums)
                else:
                    self._loop_over_rows(where, reductions, outputs)
        where[id(self.column)] = self.b.const(0, "i64")
        final = [o for o in low.outputs if o.level < 0]
        substitute, roots = self._substitution(where), []
        for o in final:
            roots += [substitute(o.index), substitute(o.value)]
        if final:
            nest.emit.open(_VECTOR)
            nest.store(final, nest.emit.compute(roots))
            nest.emit.close("j", self.extent, LoopKind.VECTOR)

    def _begin(self, reductions: list[LoweredReduction]) -> None:
        emit, b, j = self.nest.emit, self.b, self.b.index("j")
        if not reductions:
            return
        emit.open(_VECTOR)
        for r in reductions:
            emit.append(StoreElement(self.bufs[r.name], j, r.init))
            place = self.placed.get(r.name)
            if place is not None:
                # until a better value comes, the first of equal values is at position 0
                emit.append(StoreElement(self.bufs[place.name], j, b.const(0, place.init.type)))
        emit.close("j", self.extent, LoopKind.VECTOR)

    def _loop_over_rows(
        self, where: dict[int, Expr], reductions: list[LoweredReduction], outputs: list[Output]
    ) -> None:
        emit, b, extent = self.nest.emit, self.b, self.column.extent
        # several rows share the loads and stores of the accumulators if their code is short
        short = self.nest.cost([r.value for r in reductions]) <= _REDUCTION_UNROLLED_COST
        side = 1 if not reductions else _REDUCTION_UNROLLED_ROWS if short else 2
        blocks, leftover = divmod(extent, side)
        for var, count, start, together in (
            (f"c{side}", blocks, 0, side),
            (f"d{side}", leftover, blocks * side, 1),
        ):
            if count:
                first = b.iadd(b.imul(b.index(var, count, _ROWS), together), start)
                emit.open(_ROWS)
                self._pass(where, reductions, outputs, [b.iadd(first, k) for k in range(together)])
                emit.close(var, count, LoopKind.SERIAL)

    def _loop_over_blocks(
        self,
        where: dict[int, Expr],
        reductions: list[LoweredReduction],
        online_sums: list[OnlineSum],
    ) -> None:
        """Write the loop over blocks of rows: update the maxima and other reductions, rescale the online sums, add the block's rows."""
        emit, b, start = self.nest.emit, self.b, 0
        for var, size in (("k", _REDUCTION_UNROLLED_ROWS), ("d", 1)):
            blocks = (self.column.extent - start) // size
            if blocks:
                base = b.iadd(b.imul(b.index(var, blocks, _BLOCKS), size), start)
                emit.open(_BLOCKS)
                self._pass(
                    where, reductions, [], [b.iadd(base, i) for i in range(size)], online_sums
                )
                pair = min(size, 2)
                first = b.iadd(base, b.imul(b.index("e", size // pair, _ROWS), pair))
                emit.open(_ROWS)
                self._pass(
                    where,
                    [online_sum.sum for online_sum in online_sums],
                    [],
                    [b.iadd(first, i) for i in range(pair)],
                )
                emit.close("e", size // pair, LoopKind.SERIAL)
                emit.close(var, blocks, LoopKind.SERIAL)
            start += blocks * size
        emit.open(_VECTOR)
        sums = [
            b.load(self.bufs[online_sum.sum.name], b.index("j"), online_sum.sum.value.type)
            for online_sum in online_sums
        ]
        substitute = self._substitution(where)
        scales = [
            b.op("exp", b.op("sub", substitute(online_sum.near), substitute(online_sum.shift)))
            for online_sum in online_sums
        ]
        for online_sum, value in zip(
            online_sums, emit.compute([b.op("mul", x, y) for x, y in zip(sums, scales)])
        ):
            emit.append(StoreElement(self.bufs[online_sum.sum.name], b.index("j"), value))
        emit.close("j", self.extent, LoopKind.VECTOR)

    def _rescale_sum(self, online_sum: OnlineSum, where: dict[int, Expr], top: Expr) -> Expr:
        """Return the partial sum, rescaled to the greater of the previous maximum and `top`."""
        b, j, own = (
            self.b,
            self.b.index("j"),
            id(self.low.builder.ref(online_sum.top.name, online_sum.top.value.type)),
        )
        before, after = self._substitution(where), self._substitution(where)
        after.rewritten[own] = b.op("max", before.rewritten[own], top)
        difference = b.op("sub", before(online_sum.near), after(online_sum.near))
        # The difference is positive only if a maximum is infinite; the minimum keeps exp from overflowing there.
        scale = b.op("exp", b.op("min", difference, b.const(0, difference.type)))
        return b.op(
            "mul", b.load(self.bufs[online_sum.sum.name], j, online_sum.sum.value.type), scale
        )

    def _substitution(self, where: dict[int, Expr]) -> Substitution:
        """Return a substitution that reads accumulators of earlier passes from their strips."""
        low, b = self.low, self.b
        substitute = Substitution(low.builder, b, self.nest.map_dims(where))
        for r in low.reductions:
            substitute.rewritten[id(low.builder.ref(r.name, r.value.type))] = b.load(
                self.bufs[r.name], b.index("j"), r.value.type
            )
        return substitute

    def _pass(
        self,
        where: dict[int, Expr],
        reductions: list[LoweredReduction],
        outputs: list[Output],
        rows: list[Expr],
        online_sums: Sequence[OnlineSum] = (),
    ) -> None:
        """Write the code that adds some rows into the strips, stores their outputs, and rescales the online sums."""
        emit, b = self.nest.emit, self.b
        values, stored = self._row_values(where, reductions, outputs, rows)
        emit.open(_VECTOR)
        targets: list[tuple[str, str | None]] = []
        roots: list[Expr] = []
        for r in reductions:
            place = self.placed.get(r.name)
            if place is not None:
                targets += [(self.bufs[r.name], None), (self.bufs[place.name], None)]
                roots += self._first_extreme(r, place, values[r.name], values[place.name])
            else:
                targets.append((self.bufs[r.name], r.op))
                roots.append(self._tree(r.op, values[r.name]))
        for online_sum in online_sums:
            targets.append((self.bufs[online_sum.sum.name], None))
            roots.append(
                self._rescale_sum(online_sum, where, self._tree("max", values[online_sum.top.name]))
            )
        # the hardware prefetches adjacent rows, which are one stream
        are_rows_separate = self.chunk < self.vector.extent
        prefetched = (
            self._prefetch_next_rows(where, rows)
            if outputs or (len(rows) > 1 and are_rows_separate and not online_sums)
            else []
        )
        done = emit.compute([*roots, *stored, *(index for _, index in prefetched)])
        for (buf, _), index in zip(prefetched, done[len(roots) + len(stored) :]):
            emit.append(Prefetch(buf, index))
        for (name, op), value in zip(targets, emit.before_stores(done[: len(roots)])):
            emit.append(StoreElement(name, b.index("j"), value, None, op))
        self.nest.store(outputs * len(rows), done[len(roots) : len(roots) + len(stored)])
        emit.close("j", self.extent, LoopKind.VECTOR)

    def _row_values(
        self,
        where: dict[int, Expr],
        reductions: list[LoweredReduction],
        outputs: list[Output],
        rows: list[Expr],
    ) -> tuple[dict[str, list[Expr]], list[Expr]]:
        """Return the values of some rows by the name of their reduction, and the indices and values that the rows store."""
        values: dict[str, list[Expr]] = {r.name: [] for r in self.low.reductions}
        stored: list[Expr] = []
        for row in rows:
            where[id(self.column)] = row
            substitute = self._substitution(where)
            for r in reductions:
                values[r.name].append(substitute(r.value))
                place = self.placed.get(r.name)
                if place is not None and place.at is not None:
                    values[place.name].append(substitute(place.at))
            for o in outputs:
                stored += [substitute(o.index), substitute(o.value)]
        return values, stored

    def _prefetch_next_rows(
        self, where: dict[int, Expr], rows: list[Expr]
    ) -> list[tuple[str, Expr]]:
        """Return the buffers and indices to prefetch for later rows. Several rows at a time, on different pages, are more streams than
        the hardware prefetcher follows, and a short row stored past the caches ends before it reacts."""
        prefetches = []
        for row in rows if self.chunk <= _REDUCTION_PREFETCH_WIDTH else []:
            there = self._substitution(
                {**where, id(self.column): self.b.iadd(row, _REDUCTION_PREFETCH_ROWS)}
            )
            prefetches += contiguous_prefetches(self.nest, [self.column], there)
        return prefetches

    def _tree(self, op: str, terms: list[Expr]) -> Expr:
        while len(terms) > 1:
            terms = [
                self.b.op(op, *terms[i : i + 2]) if i + 1 < len(terms) else terms[i]
                for i in range(0, len(terms), 2)
            ]
        return terms[0]

    def _first_extreme(
        self, r: LoweredReduction, place: LoweredReduction, values: list[Expr], places: list[Expr]
    ) -> tuple[Expr, Expr]:
        """Return the extreme value and its position after some further rows: a better value or the first NaN replaces it."""
        b, j = self.b, self.b.index("j")
        best, position = (
            b.load(self.bufs[r.name], j, values[0].type),
            b.load(self.bufs[place.name], j, places[0].type),
        )
        for value, at in zip(values, places):
            better = b.op("gt" if r.op == "max" else "lt", value, best)
            if value.type in FLOATS:
                known = b.op("eq", best, best)
                better = b.logical_or(better, b.logical_and(b.op("ne", value, value), known))
            best, position = b.select(better, value, best), b.select(better, at, position)
        return best, position
