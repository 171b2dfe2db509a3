"""Loops around scalar code: which dims collapse, which one is vectorized, what a task does.

In:   `Lowered` scalar code over the dims of a shape.
Out:  a Loops `Kernel`, the values of its buffers, and which outputs may overwrite which inputs.

Adjacent dims whose addresses advance together become one loop. The vector runs along the dim in which most memory traffic is
contiguous, either a row dim (each lane its own row) or a column dim (lanes share the row's accumulators). Tasks get equal shares
of the rows, or of the vector dim where rows are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.compiler.fusion.classify import row_major
from weft.compiler.loops.access_analysis import Access, Dim, Survey, cost_of
from weft.compiler.loops.bounds_check_elimination import bare, guarded, inside
from weft.compiler.loops.dim_collapsing import joined
from weft.compiler.loops.loop_splitting import Cuts, Piece, cuts_of, pieces_of
from weft.compiler.loops.outer_reduction import even_chunk, strips_of
from weft.compiler.loops.prefetch import between_passes, jumps, looked_up, streams
from weft.compiler.loops.transpose_tiling import tiles_of
from weft.compiler.loops.unroll_by_residue import turned
from weft.compiler.lowering.let_placement import Emitter
from weft.compiler.lowering.lower import Lowered, Output, reachable
from weft.compiler.lowering.substitution import Replace, Translate
from weft.ir.build import Builder, type_name
from weft.ir.jaxpr import Var
from weft.ir.loops import (
    FLOATS,
    ITEMSIZE,
    Accum,
    Buf,
    Const,
    Expr,
    Init,
    Kernel,
    Load,
    Op,
    Prefetch,
    Ref,
    Store,
    Weave,
)
from weft.ir.registry import HEAVY
from weft.util.machine_model import machine_model
from weft.util.record import record, replace

SUM_BLOCK = 4096               # a float sum longer than four of these is summed in blocks


@record(frozen=False)
class Built:
    """A kernel, the values behind its buffers in order, and (output, input) pairs that may share memory."""
    kernel: Kernel
    ins: list[Var]
    outs: list[Var]
    in_place: list[tuple[Var, Var]]


def build(low: Lowered, name: str = "kernel") -> Built:
    """The kernel that runs `low`."""
    nest = Nest(joined(low), name)
    for turns in turned(nest.low, nest.survey, nest.dims, nest.vector):
        other = Nest(turns.low, name, turns.along if turns.settled else None)
        if other.vector is not None and other.vector.dims[-1] == turns.along:
            return other.build()
    return nest.build()


class Nest:
    """Chooses and writes the loops of one kernel."""

    def __init__(self, low: Lowered, name: str, along: int | None = None):
        self.low, self.name = low, name
        self.survey = Survey(low)
        self.sizes = {low.names[v]: v.aval.nbytes for v in low.leaves}
        self.lengths = {low.names[v]: v.aval.size for v in low.leaves}
        self.dims = self._collapse()
        self.vector = next((dim for dim in self.dims if along in dim.dims), None) or self._vector()
        self.b = Builder()
        self.out_names = {var: f"y{i}" for i, var in enumerate(dict.fromkeys([out.var for out in low.outputs]))}

    # ---- shape of the nest

    def _collapse(self) -> list[Dim]:
        low, survey = self.low, self.survey
        dims: list[Dim] = []
        for d, x in enumerate(low.vars):
            if type(x) is Const:
                continue
            column = d in low.columns
            steps = [a.terms.get(id(x), 0) for a in survey.accesses]
            free = id(x) not in survey.pinned
            if dims and free and dims[-1].column == column and id(low.vars[dims[-1].dims[-1]]) not in survey.pinned \
                    and all(big == small * low.shape[d] for big, small in zip(dims[-1].steps, steps)):
                last = dims[-1]
                dims[-1] = Dim([*last.dims, d], last.extent * low.shape[d], column, steps)
            else:
                dims.append(Dim([d], low.shape[d], column, steps))
        return dims

    def _vector(self) -> Dim | None:
        best, score = None, -1.0
        columns = {id(self.low.vars[d]) for d in self.low.columns}
        once = 1 / max(1, math.prod([self.low.shape[d] for d in self.low.columns]))
        often = [once if columns.isdisjoint(a.terms) and columns.isdisjoint(a.jumps) else 1.0 for a in self.survey.accesses]
        for dim in self.dims if not self.low.parts else [d for d in self.dims if d.column]:
            got = 0.0
            own = {id(self.low.vars[d]) for d in dim.dims}
            for step, access, share in zip(dim.steps, self.survey.accesses, often):
                if own.isdisjoint(access.jumps):
                    near = 0.5 if abs(step) <= machine_model().near_stride else 0.0
                    got += access.weight * share * (1.0 if step == access.run else 0.55 if step == 0 else near)
            got *= min(1.0, dim.extent / 16)
            if got >= score:
                best, score = dim, got
        return best

    def cost(self, roots: list[Expr]) -> int:
        """What it takes to compute these for one element."""
        return cost_of(reachable(roots))

    def tasks(self) -> int:
        machine = machine_model()
        total = 1
        for dim in self.dims:
            total *= dim.extent
        moved = sum(a.weight for a in self.survey.accesses) or 1
        work = total * (moved + self.survey.cost * 0.5)
        return max(1, min(int(work / machine.task_bytes), machine.most_tasks))

    # ---- writing

    def build(self) -> Built:
        machine = machine_model()
        low, b = self.low, self.b
        self.emit = Emitter(b)
        self.scratch: list[Buf] = []
        rows = [d for d in self.dims if not d.column and d is not self.vector]
        where: dict[int, Expr] = {}
        tiles = tiles_of(self)
        self.stream_from = machine.stream_bytes if tiles is None else machine.tile_stream_bytes
        self.staged: dict[int, Expr] = {}
        self.part = b.const(0, "i64")
        self.next_row: dict[int, Expr] = {}
        self.rows_later: Callable[[int], dict[int, Expr]] | None = None
        strips = strips_of(self) if tiles is None else None
        self.decided: dict[int, Expr] = {}
        self.guarded: list[tuple[Load, Access]] = []
        cuts, whole = None, True
        if strips is not None:
            loops = strips.tasks(rows, where)
        elif tiles is not None:
            loops = tiles.loops(rows, where)
        else:
            loops = self._row_loops(rows, where)
            if self.vector is not None and not any(d.column for d in self.dims):
                self.guarded = guarded(self)
                cuts = cuts_of(low, [load for load, _ in self.survey.loads], low.vars[self.vector.dims[-1]], self.vector.extent,
                               machine.split_from_bytes >> 4 if self.guarded else machine.split_from_bytes)
            whole = cuts is None and not low.rest and not self.guarded
            loops = loops if whole else loops[:-1]
        for level, var, _, _ in loops:
            if low.parts and var == "r":
                self._begin_parts()
            self.emit.open(level)
            if tiles is not None and var == "h":
                tiles.stage(where)
        if strips is not None:
            strips.write(where)
        elif whole:
            self._rows(where)
        else:
            self._in_pieces(where, cuts)
        for _, var, extent, kind in reversed(loops):
            self.emit.close(var, extent, kind)
        bufs = [Buf(low.names[v], type_name(v.aval.dtype), v.aval.size) for v in low.leaves]
        bufs += [Buf(name, type_name(v.aval.dtype), v.aval.size, "out") for v, name in self.out_names.items()]
        kernel = Kernel(tuple(bufs), tuple(self.emit.scopes[0].body), tuple(self.scratch), self.name)
        in_place = [] if tiles is not None and tiles.twice else self._in_place()
        return Built(kernel, list(low.leaves), list(self.out_names), in_place)

    def _row_loops(self, rows: list[Dim], where: dict[int, Expr]) -> list:
        """Decide tasks and loops (level, var, extent, kind) over rows; fills `where`: id of Dim -> index expression."""
        b, vector = self.b, self.vector
        lanes_are_rows = vector is not None and not vector.column
        if lanes_are_rows and all(o.var.aval.nbytes >= self.stream_from for o in self.low.outputs):
            # who reads waits for memory, who stores past the caches does not
            rows = sorted(rows, key=lambda dim: -sum([abs(self.step(access, dim)) for _, access in self.survey.loads]))
        counts = [d.extent for d in rows]
        total, tasks, pieces, chunk = math.prod(counts), self.low.parts or self.tasks(), 1, vector.extent if lanes_are_rows else 0
        if lanes_are_rows and total < tasks:
            chunk = even_chunk(vector.extent, -(-tasks // total))
            pieces = -(-vector.extent // chunk)
        loops, row, piece = self.share(total, pieces, tasks)
        self.split(row, rows, counts, where)
        if loops and loops[-1][1] == "r":
            self.split(b.iadd(row, 1), rows, counts, self.next_row)
            self.rows_later = lambda n: self._split_of(b.imin(b.iadd(row, n), total - 1), rows, counts)
        if lanes_are_rows:
            j = b.index("j", chunk, 2)
            start = b.imul(piece, chunk)
            extent = chunk if vector.extent % chunk == 0 else b.imin(b.isub(vector.extent, start), chunk)
            where[id(vector)] = b.iadd(start, j)
            self.run = start, b.imin(b.iadd(start, chunk), vector.extent), chunk
            loops.append((2, "j", extent, "vector"))
        return loops

    def share(self, total: int, pieces: int, tasks: int) -> tuple[list, Expr, Expr]:
        """Loops that give every task its share of `total` rows, or of the pieces of one; the row, and the piece of it."""
        b, loops = self.b, []
        per = -(-total // tasks) if total >= tasks else 1
        tasks = -(-total // per) * pieces
        row = piece = b.const(0, "i64")
        if tasks > 1:
            t = b.index("t", tasks, 0)
            loops.append((0, "t", tasks, "parallel"))
            self.part = t
            if pieces > 1:
                row, piece = b.idiv(t, pieces), b.irem(t, pieces)
            else:
                row = b.imul(t, per)
        if per > 1:
            r = b.index("r", per, 1)
            left = b.isub(total, row)
            loops.append((1, "r", per if total % per == 0 else b.imin(left, per), "serial"))
            row = b.iadd(row, r)
        return loops, row, piece

    def _split_of(self, row: Expr, rows: list[Dim], counts: list[int]) -> dict[int, Expr]:
        where: dict[int, Expr] = {}
        self.split(row, rows, counts, where)
        return where

    def split(self, row: Expr, rows: list[Dim], counts: list[int], where: dict[int, Expr]) -> None:
        b = self.b
        for dim, n in zip(reversed(rows[1:]), reversed(counts[1:])):
            where[id(dim)] = b.irem(row, n)
            row = b.idiv(row, n)
        if rows:
            where[id(rows[0])] = row

    def step(self, access: Access, dim: Dim) -> int:
        return access.terms.get(id(self.low.vars[dim.dims[-1]]), 0)

    def _begin_parts(self) -> None:
        """Set the results to which the rows of a part add theirs."""
        b, emit = self.b, self.emit
        for out in self.low.outputs:
            if out.combine is not None:
                columns = out.var.aval.size // self.low.parts
                emit.open(5)
                (at,) = emit.compute([b.iadd(b.imul(self.part, columns), b.index(f"z{columns}", columns, 5))])
                emit.append(Store(self.out_names[out.var], at, out.init))
                emit.close(f"z{columns}", columns, "vector")

    def _rows(self, where: dict[int, Expr]) -> None:
        """The body of one row: passes over the columns, then what is stored once."""
        low, emit, b = self.low, self.emit, self.b
        columns = [d for d in self.dims if d.column]
        if self.vector in columns:
            columns.remove(self.vector)
            columns.append(self.vector)
        row_level = emit.scopes[-1].level
        loops = []
        for k, dim in enumerate(columns):
            name = f"c{k}" if dim is not self.vector else "j"
            where[id(dim)] = b.index(name, dim.extent, 5 + k)
            loops.append((5 + k, name, dim.extent, "vector" if dim is self.vector else "serial"))
        blocked = bool(loops) and loops[-1][3] == "vector" and columns[-1].extent >= 4 * SUM_BLOCK
        if blocked:
            n = columns[-1].extent
            k = b.index("k", -(-n // SUM_BLOCK), 50)
            j = b.index("j2", SUM_BLOCK, 51)
            start = b.imul(k, SUM_BLOCK)
            where[id(columns[-1])] = b.iadd(start, j)
            extent = SUM_BLOCK if n % SUM_BLOCK == 0 else b.imin(b.isub(n, start), SUM_BLOCK)
            loops[-1:] = [(50, "k", -(-n // SUM_BLOCK), "serial"), (51, "j2", extent, "vector")]
        translate = Translate(low.builder, b, {**self.mapping(where), **self.staged})
        for r in low.reductions:
            emit.ref_levels[r.name] = row_level
        last = max([r.level for r in low.reductions] + [o.level for o in low.outputs], default=-1)
        passes = []
        for p in range(last + 1):
            reductions = [r for r in low.reductions if r.level == p]
            outputs = [o for o in low.outputs if o.level == p]
            if reductions or outputs:
                roots = [translate(r.value) for r in reductions]
                roots += [translate(x) for o in outputs for x in o.exprs]
                passes.append((reductions, outputs, roots))
        if loops and self.vector is not None and self.vector.column and len(passes) > 1:
            self._spill(passes, columns, where)
        else:
            passes = [(*p, []) for p in passes]
        fetched = between_passes(self, passes, where)
        for (reductions, outputs, roots, spills), ahead in zip(passes, fetched):
            self._pass(reductions, outputs, roots, spills, loops, blocked, ahead)
        final = [o for o in low.outputs if o.level < 0]
        roots = [translate(x) for o in final for x in o.exprs]
        coming = [*jumps(self, where), *([] if columns else [*looked_up(self, where), *streams(self, translate)])]
        done = emit.compute(roots + [index for _, index in coming])
        for (buf, _), index in zip(coming, done[len(roots):]):
            emit.append(Prefetch(buf, index))
        self.store(final, done[:len(roots)])

    def _in_pieces(self, where: dict[int, Expr], cuts: Cuts | None) -> None:
        """The vector loop, cut where comparisons of its index change; and what is left of dims after whole turns."""
        b, low, emit = self.b, self.low, self.emit
        start, stop, most = self.run
        outside = Translate(low.builder, b, self.mapping(where))
        length, free = b.isub(stop, start), None
        if cuts is not None:
            pieces = pieces_of(cuts, b, outside, low.builder.base, start, stop, most)
        elif self.guarded:
            free = inside(self, self.guarded, where, start, stop)
            pieces = [Piece(start, b.select(now, length, b.const(0, "i64")), most, {}) for now in (free, b.logical_not(free))]
        else:
            pieces = [Piece(start, length, most, {})]
        for k, piece in enumerate(pieces):
            if type(piece.extent) is Const and not piece.extent.value:
                continue
            name = f"j{k}"
            where[id(self.vector)] = b.iadd(piece.start, b.index(name, piece.most, 2))
            self.decided = piece.decided
            if free is not None and k == 0:
                at = Translate(low.builder, b, self.mapping(where))
                self.decided = {id(load): bare(self, load, at) for load, _ in self.guarded}
            emit.open(2)
            self._rows(where)
            emit.close(name, piece.extent, "vector")
        self.decided = {}
        for k, rest in enumerate(low.rest):
            when = None if rest.when is None else Translate(low.builder, b, self.mapping(where))(rest.when)
            if rest.once:
                self._outputs(rest.outputs, where, b.logical_and(when, b.icmp("eq", stop, self.vector.extent)))
                continue
            where[id(self.vector)] = b.iadd(start, b.index(f"e{k}", most, 3))
            emit.open(2)
            emit.open(3)
            self._outputs(rest.outputs, where)
            emit.close(f"e{k}", b.isub(stop, start), "vector")
            emit.close(f"w{k}", b.select(when, b.const(1, "i64"), b.const(0, "i64")), "serial")

    def _outputs(self, outputs: list[Output], where: dict[int, Expr], guard: Expr | None = None) -> None:
        translate = Translate(self.low.builder, self.b, self.mapping(where))
        self.store(outputs, self.emit.compute([translate(x) for o in outputs for x in o.exprs]), guard)

    def store(self, outputs: list[Output], done: list[Expr], guard: Expr | None = None) -> None:
        """Store `outputs`; `done` has the index and the values of each.

        Results larger than the caches go past them; no kernel reads its results again."""
        found = iter(done)
        indices, values = [], []
        for out in outputs:
            index, *row = [next(found) for _ in out.exprs]
            indices.append(index)
            values += row
        ready = iter(self.emit.before_stores(values))
        for out, index in zip(outputs, indices):
            name, past = self.out_names[out.var], out.var.aval.nbytes >= self.stream_from
            value, *after = [next(ready) for _ in out.exprs[1:]]
            self.emit.append(Weave(name, index, (value, *after), past) if after
                             else Store(name, index, value, guard, out.combine, past))

    def _pass(self, reductions: list, outputs: list, roots: list, spills: list, loops: list, blocked: bool,
              ahead: list) -> None:
        emit = self.emit
        for r in reductions:
            emit.append(Init(r.name, r.init))
        partial: dict[str, str] = {}
        for level, _, _, _ in loops:
            if blocked and level == 51:
                for r in reductions:
                    if r.op in ("add", "mul"):
                        partial[r.name] = r.name + "b"
                        emit.append(Init(r.name + "b", r.init))
            emit.open(level)
        done = emit.compute(roots + [x for s in spills for x in s[1:]] + [x for _, x in ahead])
        stored = len(reductions) + 2 * len(outputs)
        for r, value in zip(reductions, done):
            emit.append(Accum(partial.get(r.name, r.name), r.op, value))
        for (buf, _, _), index, value in zip(spills, done[stored::2], done[stored + 1::2]):
            emit.append(Store(buf, index, value))
        for (buf, _), index in zip(ahead, done[len(done) - len(ahead):]):
            emit.append(Prefetch(buf, index))
        self.store(outputs, done[len(reductions):stored])
        for level, var, extent, kind in reversed(loops):
            emit.close(var, extent, kind)
            if level == 51:
                for r in reductions:
                    if r.name in partial:
                        emit.append(Accum(r.name, r.op, Ref(partial[r.name], r.value.type)))

    def _spill(self, passes: list, columns: list[Dim], where: dict[int, Expr]) -> None:
        """Costly values that several passes compute are kept in a scratch row by the first."""
        b = self.b
        at, size = b.const(0, "i64"), 1
        for dim, stride in zip(columns, row_major(tuple(d.extent for d in columns))):
            at = b.iadd(at, b.imul(where[id(dim)], stride))
            size *= dim.extent
        first: dict[int, int] = {}
        kept: dict[int, Expr] = {}
        spills: list[list] = [[] for _ in passes]
        for p, (_, _, roots) in enumerate(passes):
            replaced: dict[int, Expr] = {}
            reach = reachable(roots)
            for x in reach:
                if id(x) in first and first[id(x)] < p and type(x) is Op and x.op in HEAVY and x.type in FLOATS \
                        and size * ITEMSIZE[x.type] <= machine_model().spill_bytes and len(self.scratch) < 4 + len(kept):
                    if id(x) not in kept:
                        if len(kept) >= 4 or self.emit.level(x) < 5:
                            continue
                        name = f"s{len(kept)}"
                        self.scratch.append(Buf(name, x.type, size))
                        kept[id(x)] = b.load(name, at, x.type)
                        spills[first[id(x)]].append((name, at, x))
                    replaced[id(x)] = kept[id(x)]
            if replaced:
                rewrite = Replace(b, replaced)
                roots[:] = [rewrite(r) for r in roots]
            for x in reach:
                first.setdefault(id(x), p)
        passes[:] = [(*p, s) for p, s in zip(passes, spills)]

    def mapping(self, where: dict[int, Expr]) -> dict[int, Expr]:
        zero = self.b.const(0, "i64")
        mapping = {id(self.low.part): self.part, **self.decided} if self.low.parts > 1 else dict(self.decided)
        for dim in self.dims:
            for d in dim.dims:
                mapping[id(self.low.vars[d])] = zero
            mapping[id(self.low.vars[dim.dims[-1]])] = where[id(dim)]
        return mapping

    # ---- sharing memory

    def _in_place(self) -> list[tuple[Var, Var]]:
        """Outputs that may overwrite an input: every read of the input is of an element about to be written."""
        low, pairs = self.low, []
        turns = [(low.outputs, self.survey), *((rest.outputs, Survey(replace(low, outputs=rest.outputs))) for rest in low.rest)]
        last = max((o.level for o in low.outputs), default=0)
        if len({r.level for r in low.reductions}) > 1 and any(o.level >= 0 for o in low.outputs):
            last_pass = max(max(r.level for r in low.reductions), last)
        else:
            last_pass = max([last, *(r.level for r in low.reductions)], default=0)
        for var in self.out_names:
            if any(o.combine is not None or (low.columns and (o.level < 0 or o.level != last_pass)) for o in low.outputs if o.var is var):
                continue
            for leaf in low.leaves:
                alike = leaf.aval.size == var.aval.size and leaf.aval.dtype.itemsize == var.aval.dtype.itemsize
                if alike and all(_reads_what_it_writes(survey, low.names[leaf], [o for o in outputs if o.var is var])
                                 for outputs, survey in turns):
                    pairs.append((var, leaf))
        return pairs


def _reads_what_it_writes(survey: Survey, name: str, outputs: list[Output]) -> bool:
    """Whether a turn reads no other elements of a buffer than it writes of an output."""
    forms = [survey.b.affine(o.index) for o in outputs]
    written = [(form[0], form[1] + k) for o, form in zip(outputs, forms) if form is not None for k in range(1 + len(o.after))]
    return all(a.plain and a.form in written for a in survey.accesses if a.buf == name)
