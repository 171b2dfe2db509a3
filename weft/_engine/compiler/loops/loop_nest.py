"""The builder of loop nests: tasks, loops and statements around scalar code.

In:   `LoweredGroup` scalar code over the dims of a shape.
Out:  a Loops `LoopsKernel`, the values of its buffers, and the pairs of outputs and inputs that may share memory.

A strategy may decide the loops; otherwise tasks get equal shares of the rows, or of the vector dim if rows are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft._engine.compiler.fusion.classify import SPLIT_FROM_BYTES, flat_index, row_major
from weft._engine.compiler.loops.access_analysis import Access, AccessAnalysis, LoopDim
from weft._engine.compiler.loops.bounds_check_elimination import (
    guarded_loads,
    in_bounds_condition,
    remove_guard,
)
from weft._engine.compiler.loops.dim_collapsing import collapse_inner_dims
from weft._engine.compiler.loops.loop_levels import (
    Level,
    LoopLevel,
    LoopNest,
    LoopPass,
    segment_length,
)
from weft._engine.compiler.loops.loop_splitting import (
    Segment,
    Splits,
    find_splits,
    split_into_segments,
)
from weft._engine.compiler.loops.outer_reduction import outer_reduction_of
from weft._engine.compiler.loops.prefetch import (
    between_passes,
    prefetch_gather,
    prefetch_irregular_rows,
    prefetch_streams,
)
from weft._engine.compiler.loops.transpose_tiling import TILE_STREAM_BYTES, transpose_tiling_of
from weft._engine.compiler.loops.unroll_by_residue import list_unrolled_versions
from weft._engine.compiler.lowering.lower import LoweredGroup, Output, reachable
from weft._engine.compiler.lowering.substitution import Replacement, Substitution
from weft._engine.ir.build import type_name
from weft._engine.ir.jaxpr import Var
from weft._engine.ir.loops import (
    FLOATS,
    ITEMSIZE,
    Accum,
    Buf,
    Const,
    Expr,
    Init,
    Load,
    LoopKind,
    LoopsKernel,
    Prefetch,
    ScalarOp,
    ScalarRef,
    StoreElement,
)
from weft._engine.ir.registry import HEAVY
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: maximal bytes of one row of values that a later pass reads from scratch instead of computing them again
_SPILL_BYTES = 1 << 17


#: a float sum along one dim of at least four blocks of this length is accumulated block by block
_SUM_BLOCK = 4096
#: numbers of terms in nested loops: a sum of at least the first number has a second, inner accumulator, and that sums at least the
#: second number of terms
_SUM_TERMS = (128, 16)


def _find_blocked_level(
    columns: Sequence[LoopDim], vector: LoopDim | None
) -> tuple[int, int] | None:
    """Return the column loop of a long sum that has a second accumulator, and the iterations of its blocks.

    Neither accumulator then has many terms. None if the sum is short.

    The error of an accumulator grows with its number of terms. Adding up the lanes of a vector costs as much as a few terms, so
    short loops have no second accumulator.
    """
    most, fewest = _SUM_TERMS
    terms = [-(-dim.extent // fewest) if dim is vector else dim.extent for dim in columns]
    if columns and columns[-1] is vector and columns[-1].extent >= 4 * _SUM_BLOCK:
        return len(columns) - 1, _SUM_BLOCK
    if math.prod(terms) < most:
        return None
    splits: list[tuple[int, int, int]] = []  # terms of the longer part, loop, iterations of a block
    for i, dim in enumerate(columns):
        outer, inner = math.prod(terms[:i]), math.prod(terms[i + 1 :])
        if outer > 1 and terms[i] * inner >= fewest:
            splits.append((max(outer, terms[i] * inner), i, dim.extent))
        if dim is not vector:
            block = max(-(-fewest // inner), math.isqrt(outer * dim.extent // inner), 1)
            if block < dim.extent:
                # the additional loop counts as twice the terms
                splits.append((2 * max(outer * -(-dim.extent // block), block * inner), i, block))
    return min(splits)[1:] if splits else None


@record(frozen=False)
class BuiltKernel:
    """A kernel, the values of its buffers in order, and (output, input) pairs that may share memory."""

    kernel: LoopsKernel
    ins: list[Var]
    outs: list[Var]
    in_place: list[tuple[Var, Var]]


def build(low: LoweredGroup, name: str = "kernel") -> BuiltKernel:
    """Return the kernel that runs `low`."""
    nest = _LoopNestBuilder(collapse_inner_dims(low), name)
    for unrolled in list_unrolled_versions(nest.low, nest.analysis, nest.dims, nest.vector):
        other = _LoopNestBuilder(
            unrolled.low, name, unrolled.along if unrolled.is_required else None
        )
        if other.vector is not None and other.vector.dims[-1] == unrolled.along:
            return other.build()
    return nest.build()


class _LoopNestBuilder(LoopNest):
    guarded: list[tuple[Load, Access]]

    def build(self) -> BuiltKernel:
        rows = [d for d in self.dims if not d.column and d is not self.vector]
        where: dict[int, Expr] = {}
        self.guarded = []
        tiles = transpose_tiling_of(self)
        self.stream_from = MODEL.stream_bytes if tiles is None else TILE_STREAM_BYTES
        strips = outer_reduction_of(self) if tiles is None else None
        if strips is not None:
            self._emit_loops(strips.tasks(rows, where), lambda: strips.write(where))
        elif tiles is not None:
            self._emit_loops(tiles.loops(rows, where), lambda: self._rows(where))
        else:
            self._emit_row_loops(rows, where)
        in_place = [] if tiles is not None and tiles.twice else self._in_place()
        return BuiltKernel(self._kernel(), list(self.low.leaves), list(self.out_names), in_place)

    def _emit_loops(self, loops: list[LoopLevel], body: Callable[[], None]) -> None:
        """Emit loops around a body."""
        for loop in loops:
            if loop.before is not None:
                loop.before()
            self.emit.open(loop.level)
            if loop.begin is not None:
                loop.begin()
        body()
        for loop in reversed(loops):
            self.emit.close(loop.name, loop.extent, loop.kind)

    def _emit_row_loops(self, rows: list[LoopDim], where: dict[int, Expr]) -> None:
        """Emit tasks and loops over rows; the vector loop is split into segments if its guards or comparisons change."""
        low, vector, splits = self.low, self.vector, None
        loops = self._row_loops(rows, where)
        if vector is not None and not any(d.column for d in self.dims):
            self.guarded = guarded_loads(self)
            splits = find_splits(
                low,
                [load for load, _ in self.analysis.loads],
                low.vars[vector.dims[-1]],
                vector.extent,
                SPLIT_FROM_BYTES >> 4 if self.guarded else SPLIT_FROM_BYTES,
            )
        if vector is None or not (splits or low.remainders or self.guarded):
            self._emit_loops(loops, lambda: self._rows(where))
        else:
            self._emit_loops(loops[:-1], lambda: self._in_segments(vector, where, splits))

    def _kernel(self) -> LoopsKernel:
        low = self.low
        bufs = [Buf(low.names[v], type_name(v.aval.dtype), v.aval.size) for v in low.leaves]
        bufs += [
            Buf(name, type_name(v.aval.dtype), v.aval.size, "out")
            for v, name in self.out_names.items()
        ]
        body = tuple(self.emit.scopes[0].body)
        return LoopsKernel(tuple(bufs), body, tuple(self.scratch), self.name)

    def _row_loops(self, rows: list[LoopDim], where: dict[int, Expr]) -> list[LoopLevel]:
        """Decide tasks and loops over rows; fills `where`."""
        b, lanes = self.b, self._row_lanes()
        if lanes is not None and all(
            o.var.aval.nbytes >= self.stream_from for o in self.low.outputs
        ):
            # stores past the caches do not stall as reads do, so the reads should be contiguous
            rows = sorted(
                rows,
                key=lambda dim: (
                    -sum([abs(self.step(access, dim)) for _, access in self.analysis.loads])
                ),
            )
        counts = [d.extent for d in rows]
        total, tasks, segments, chunk = (
            math.prod(counts),
            self.low.parts or self.tasks(),
            1,
            0 if lanes is None else lanes.extent,
        )
        if lanes is not None and total < tasks:
            chunk = segment_length(lanes.extent, -(-tasks // total))
            segments = -(-lanes.extent // chunk)
        loops, row, segment = self.share(total, segments, tasks)
        self.split(row, rows, counts, where)
        if loops and loops[-1].level == Level.ROW:
            if self.low.parts:
                loops[-1] = replace(loops[-1], before=self._begin_parts)
            self.split(b.iadd(row, 1), rows, counts, self.next_row)
            self.rows_later = lambda n: self._split_of(
                b.imin(b.iadd(row, n), total - 1), rows, counts
            )
        if lanes is not None:
            loops.append(self._vector_loop(lanes, segment, chunk, where))
        return loops

    def _row_lanes(self) -> LoopDim | None:
        """Return the vector dim if its lanes are rows."""
        vector = self.vector
        return None if vector is None or vector.column else vector

    def _vector_loop(
        self, vector: LoopDim, segment: Expr, chunk: int, where: dict[int, Expr]
    ) -> LoopLevel:
        """Return the loop over a segment of the vector dim."""
        b = self.b
        start, extent = b.imul(segment, chunk), chunk
        if vector.extent % chunk:
            extent = b.imin(b.isub(vector.extent, start), chunk)
        where[id(vector)] = b.iadd(start, b.index("j", chunk, Level.ROW_VECTOR))
        self.run = start, b.imin(b.iadd(start, chunk), vector.extent), chunk
        return LoopLevel(Level.ROW_VECTOR, "j", extent, LoopKind.VECTOR)

    def _split_of(self, row: Expr, rows: list[LoopDim], counts: list[int]) -> dict[int, Expr]:
        where: dict[int, Expr] = {}
        self.split(row, rows, counts, where)
        return where

    def _begin_parts(self) -> None:
        """Initialize the results into which the rows of a part accumulate."""
        b, emit = self.b, self.emit
        for out in self.low.outputs:
            if out.combine is not None and out.init is not None:
                columns = out.var.aval.size // self.low.parts
                emit.open(Level.COLUMN)
                (at,) = emit.compute(
                    [
                        b.iadd(
                            b.imul(self.part, columns),
                            b.index(f"z{columns}", columns, Level.COLUMN),
                        )
                    ]
                )
                emit.append(StoreElement(self.out_names[out.var], at, out.init))
                emit.close(f"z{columns}", columns, LoopKind.VECTOR)

    def _rows(self, where: dict[int, Expr]) -> None:
        """Write the body of one row: passes over the columns, then the outputs that are stored once per row."""
        low, emit, b = self.low, self.emit, self.b
        columns = [d for d in self.dims if d.column]
        if self.vector in columns:
            columns.remove(self.vector)
            columns.append(self.vector)
        row_level = emit.scopes[-1].level
        loops = self._column_loops(columns, where)
        substitute = Substitution(low.builder, b, {**self.map_dims(where), **self.staged})
        for r in low.reductions:
            emit.ref_levels[r.name] = row_level
        passes = self._passes(substitute)
        if loops and self.vector is not None and self.vector.column and len(passes) > 1:
            self._spill(passes, columns, where)
        between_passes(self, passes, where)
        for one in passes:
            self._pass(one, loops)
        final = [o for o in low.outputs if o.level < 0]
        roots = [substitute(x) for o in final for x in o.exprs]
        prefetched = prefetch_irregular_rows(self, where)
        if not columns:
            prefetched = [
                *prefetched,
                *prefetch_gather(self, where),
                *prefetch_streams(self, substitute),
            ]
        done = emit.compute(roots + [index for _, index in prefetched])
        self._append_prefetches(prefetched, done[len(roots) :])
        self.store(final, done[: len(roots)])

    def _append_prefetches(
        self, prefetched: Sequence[tuple[str, Expr]], indices: list[Expr]
    ) -> None:
        for (buf, _), index in zip(prefetched, indices):
            self.emit.append(Prefetch(buf, index))

    def _column_loops(self, columns: list[LoopDim], where: dict[int, Expr]) -> list[LoopLevel]:
        """Decide the loops over the columns of a row, with a loop over blocks in a long sum; fills `where`."""
        b, loops = self.b, []
        for k, dim in enumerate(columns):
            level = Level.COLUMN + 2 * k
            name, kind = (
                ("j", LoopKind.VECTOR) if dim is self.vector else (f"c{k}", LoopKind.SERIAL)
            )
            where[id(dim)] = b.index(name, dim.extent, level)
            loops.append(LoopLevel(level, name, dim.extent, kind))
        blocked_level = _find_blocked_level(columns, self.vector)
        if blocked_level is None:
            return loops
        k, length = blocked_level
        loop, dim = loops[k], columns[k]
        loops[k] = replace(loop, own_sums=True)
        if length < dim.extent:
            blocks = -(-dim.extent // length)
            start = b.imul(b.index("k", blocks, loop.level), length)
            where[id(dim)] = b.iadd(start, b.index("j2", length, loop.level + 1))
            extent = b.imin(b.isub(dim.extent, start), length) if dim.extent % length else length
            loops[k : k + 1] = [
                LoopLevel(loop.level, "k", blocks, LoopKind.SERIAL),
                LoopLevel(loop.level + 1, "j2", extent, loop.kind, own_sums=True),
            ]
        return loops

    def _passes(self, substitute: Substitution) -> list[LoopPass]:
        """Return the passes over columns, in order."""
        low, passes = self.low, []
        last = max([r.level for r in low.reductions] + [o.level for o in low.outputs], default=-1)
        for p in range(last + 1):
            reductions = [r for r in low.reductions if r.level == p]
            outputs = [o for o in low.outputs if o.level == p]
            if reductions or outputs:
                roots = [substitute(r.value) for r in reductions]
                roots += [substitute(x) for o in outputs for x in o.exprs]
                passes.append(LoopPass(reductions, outputs, roots))
        return passes

    def _in_segments(self, vector: LoopDim, where: dict[int, Expr], splits: Splits | None) -> None:
        """Write the vector loop, split where comparisons of its index change, and the remainders of unrolled dims."""
        b, low, emit = self.b, self.low, self.emit
        start, stop, most = self.run
        outside = Substitution(low.builder, b, self.map_dims(where))
        length, free = b.isub(stop, start), None
        if splits is not None:
            segments = split_into_segments(splits, b, outside, low.builder.base, start, stop, most)
        elif self.guarded:
            free = in_bounds_condition(self, self.guarded, where, start, stop)
            segments = [
                Segment(start, b.select(guard, length, b.const(0, "i64")), most, {})
                for guard in (free, b.logical_not(free))
            ]
        else:
            segments = [Segment(start, length, most, {})]
        for k, segment in enumerate(segments):
            if type(segment.extent) is Const and not segment.extent.value:
                continue
            name = f"j{k}"
            where[id(vector)] = b.iadd(segment.start, b.index(name, segment.most, Level.ROW_VECTOR))
            self.decided = segment.decided
            if free is not None and k == 0:
                at = Substitution(low.builder, b, self.map_dims(where))
                self.decided = {id(load): remove_guard(self, load, at) for load, _ in self.guarded}
            emit.open(Level.ROW_VECTOR)
            self._rows(where)
            emit.close(name, segment.extent, LoopKind.VECTOR)
        self.decided = {}
        for k, remainder in enumerate(low.remainders):
            when = (
                None
                if remainder.when is None
                else Substitution(low.builder, b, self.map_dims(where))(remainder.when)
            )
            if remainder.once:
                self._outputs(
                    remainder.outputs,
                    where,
                    b.logical_and(when, b.icmp("eq", stop, vector.extent)),
                )
                continue
            where[id(vector)] = b.iadd(start, b.index(f"e{k}", most, Level.REMAINDER))
            emit.open(Level.ROW_VECTOR)
            emit.open(Level.REMAINDER)
            self._outputs(remainder.outputs, where)
            emit.close(f"e{k}", b.isub(stop, start), LoopKind.VECTOR)
            once = b.const(1, "i64")
            times = once if when is None else b.select(when, once, b.const(0, "i64"))
            emit.close(f"w{k}", times, LoopKind.SERIAL)

    def _outputs(
        self, outputs: list[Output], where: dict[int, Expr], guard: Expr | None = None
    ) -> None:
        substitute = Substitution(self.low.builder, self.b, self.map_dims(where))
        self.store(
            outputs, self.emit.compute([substitute(x) for o in outputs for x in o.exprs]), guard
        )

    def _pass(self, one: LoopPass, loops: list[LoopLevel]) -> None:
        emit, reductions, outputs = self.emit, one.reductions, one.outputs
        has_own_sums = any(loop.own_sums for loop in loops)
        sums = [r for r in reductions if r.op in ("add", "mul")] if has_own_sums else []
        second_accumulators = {r.name: f"{r.name}b" for r in sums}
        for r in reductions:
            emit.append(Init(r.name, r.init))
        for loop in loops:
            for r in sums if loop.own_sums else ():
                emit.append(Init(second_accumulators[r.name], r.init))
            emit.open(loop.level)
        done = emit.compute(one.exprs)
        stored = len(reductions) + 2 * len(outputs)
        for r, value in zip(reductions, done):
            emit.append(Accum(second_accumulators.get(r.name, r.name), r.op, value))
        for (buf, _, _), index, value in zip(one.spills, done[stored::2], done[stored + 1 :: 2]):
            emit.append(StoreElement(buf, index, value))
        self._append_prefetches(one.prefetched, done[len(done) - len(one.prefetched) :])
        self.store(outputs, done[len(reductions) : stored])
        for loop in reversed(loops):
            emit.close(loop.name, loop.extent, loop.kind)
            for r in sums if loop.own_sums else ():
                emit.append(
                    Accum(r.name, r.op, ScalarRef(second_accumulators[r.name], r.value.type))
                )

    def _spill(
        self, passes: list[LoopPass], columns: list[LoopDim], where: dict[int, Expr]
    ) -> None:
        """Have the first of several passes that compute a costly value store it in a scratch row for the others."""
        b = self.b
        extents = tuple([dim.extent for dim in columns])
        at, size = (
            flat_index(b, [where[id(dim)] for dim in columns], row_major(extents)),
            math.prod(extents),
        )
        first: dict[int, int] = {}
        spilled: dict[int, Expr] = {}
        for p, one in enumerate(passes):
            replaced: dict[int, Expr] = {}
            reach = reachable(one.roots)
            for x in reach:
                if (
                    id(x) in first
                    and first[id(x)] < p
                    and type(x) is ScalarOp
                    and x.op in HEAVY
                    and x.type in FLOATS
                    and size * ITEMSIZE[x.type] <= _SPILL_BYTES
                    and len(self.scratch) < 4 + len(spilled)
                ):
                    if id(x) not in spilled:
                        if len(spilled) >= 4 or self.emit.level(x) < Level.COLUMN:
                            continue
                        name = f"s{len(spilled)}"
                        self.scratch.append(Buf(name, x.type, size))
                        spilled[id(x)] = b.load(name, at, x.type)
                        passes[first[id(x)]].spills.append((name, at, x))
                    replaced[id(x)] = spilled[id(x)]
            if replaced:
                rewrite = Replacement(b, replaced)
                one.roots = [rewrite(r) for r in one.roots]
            for x in reach:
                first.setdefault(id(x), p)

    # ---- sharing memory

    def _in_place(self) -> list[tuple[Var, Var]]:
        """Return pairs of an output and an input that it may overwrite: each iteration reads only input elements that it writes."""
        low = self.low
        versions = [*zip([low.outputs, *(r.outputs for r in low.remainders)], self.analyses)]

        def may_overwrite(var: Var, leaf: Var) -> bool:
            alike = (
                leaf.aval.size == var.aval.size
                and leaf.aval.dtype.itemsize == var.aval.dtype.itemsize
            )
            name = low.names[leaf]
            return alike and all(
                _reads_what_it_writes(analysis, name, [o for o in outputs if o.var is var])
                for outputs, analysis in versions
            )

        return [
            (var, leaf)
            for var in self._results_of_last_pass()
            for leaf in low.leaves
            if may_overwrite(var, leaf)
        ]

    def _results_of_last_pass(self) -> list[Var]:
        """Return the results that are written, not added to, in the last pass."""
        low = self.low
        levels = [o.level for o in low.outputs] + [r.level for r in low.reductions]
        last_pass = max(levels, default=0)
        others = {
            o.var
            for o in low.outputs
            if o.combine is not None or (low.columns and (o.level < 0 or o.level != last_pass))
        }
        return [var for var in self.out_names if var not in others]


def _reads_what_it_writes(analysis: AccessAnalysis, name: str, outputs: list[Output]) -> bool:
    """Return whether each iteration reads only those elements of a buffer that it writes of an output."""
    forms = [analysis.b.affine(o.index) for o in outputs]
    written = [
        (form[0], form[1] + k)
        for o, form in zip(outputs, forms)
        if form is not None
        for k in range(1 + len(o.after))
    ]
    return all(a.plain and a.form in written for a in analysis.accesses if a.buf == name)
