"""The data structures of loop nests: levels, loops, and the nest that the strategies share.

In:   `LoweredGroup` scalar code over the dims of a shape.
Out:  a `LoopNest`: the dims that form one loop, the vectorized dim, the number of tasks, and the emitter of statements.
Next: the strategies; each adds loops to a nest: `transpose_tiling`, `outer_reduction`, `loop_splitting`; then `loop_nest`.

Adjacent dims whose addresses advance together become one loop. The vector runs along the dim in which most memory traffic is
contiguous, either a row dim (each lane its own row) or a column dim (lanes share the row's accumulators).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from weft._engine.compiler.loops.access_analysis import Access, AccessAnalysis, LoopDim, cost_of
from weft._engine.compiler.lowering.let_placement import Emitter
from weft._engine.compiler.lowering.lower import LoweredGroup, LoweredReduction, Output, reachable
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Buf, Const, Expr, Interleave, LoopKind, StoreElement
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import field, record, replace

# thresholds, measured on several machines
#: the longest stride, in elements, at which the rest of a cache line is read soon
_NEAR_STRIDE = 4


class Level(enum.IntEnum):
    """The depth of a loop in a nest over rows and columns, outermost first. A value is computed at the innermost level it depends on."""

    TASK = 0
    ROW = 1
    ROW_VECTOR = 2  # lanes are rows
    REMAINDER = 3  # the remainder of an unrolled vector loop
    COLUMN = 5  # the first column loop; the next are 7, 9, ...; the levels between are for columns in a block of a long sum


@record
class LoopLevel:
    """One loop of a nest: its level, the name of its variable and its number of iterations. `before` writes statements before the loop
    and `begin` at the beginning of an iteration. A loop with `own_sums` has its own accumulators, which are added to the outer
    accumulators when it ends."""

    level: int
    name: str
    extent: int | Expr
    kind: LoopKind
    before: Callable[[], None] | None = None
    begin: Callable[[], None] | None = None
    own_sums: bool = False

    @property
    def is_vector(self) -> bool:
        return self.kind is LoopKind.VECTOR


@record(frozen=False)
class LoopPass:
    """One pass over the columns of a row: reductions, outputs and the values of both (`roots`). For later passes, it also stores
    `spills` (buffer, index, value) in scratch and prefetches operands."""

    reductions: list[LoweredReduction]
    outputs: list[Output]
    roots: list[Expr]
    spills: list[tuple[str, Expr, Expr]] = field(default_factory=list)
    prefetched: list[tuple[str, Expr]] = field(default_factory=list)

    @property
    def exprs(self) -> list[Expr]:
        """Return all computed expressions: roots, indices and values of spills, indices of prefetches."""
        spilled = [x for _, index, value in self.spills for x in (index, value)]
        return [*self.roots, *spilled, *[index for _, index in self.prefetched]]


class LoopNest:
    """The dims of a kernel, its vector dim, and the emitter of its statements.

    Strategies describe an iteration by `where`, a dict from the id of a Dim to its index expression."""

    def __init__(self, low: LoweredGroup, name: str, along: int | None = None):
        self.low, self.name = low, name
        self.analysis = AccessAnalysis(low)
        #: the main code, then the remainders of unrolled dims
        self.analyses = [
            self.analysis,
            *(AccessAnalysis(replace(low, outputs=r.outputs)) for r in low.remainders),
        ]
        self.sizes = {low.names[v]: v.aval.nbytes for v in low.leaves}
        self.lengths = {low.names[v]: v.aval.size for v in low.leaves}
        self.dims = self._collapse()
        self.vector = next((dim for dim in self.dims if along in dim.dims), None) or self._vector()
        self.b = b = LoopsBuilder()
        self.emit = Emitter(b)
        self.scratch: list[Buf] = []
        self.staged: dict[int, Expr] = {}  # replacements of loads by reads of scratch
        # replacements in the current loop: constants of comparisons, unguarded loads
        self.decided: dict[int, Expr] = {}
        self.part: Expr = b.const(0, "i64")
        self.next_row: dict[int, Expr] = {}
        self.rows_later: Callable[[int], dict[int, Expr]] | None = None
        self.stream_from = MODEL.stream_bytes
        self.out_names = {
            var: f"y{i}" for i, var in enumerate(dict.fromkeys([out.var for out in low.outputs]))
        }

    def _collapse(self) -> list[LoopDim]:
        """Return the loops; adjacent dims are one loop if every access of the main code and of all remainders allows it."""
        low = self.low
        pinned = {key for analysis in self.analyses for key in analysis.pinned}
        dims: list[LoopDim] = []
        all_steps: list[int] = []  # strides of the last dim in all accesses
        for d, x in enumerate(low.vars):
            if type(x) is Const:
                continue
            column = d in low.columns
            outer_steps, all_steps = (
                all_steps,
                [a.terms.get(id(x), 0) for analysis in self.analyses for a in analysis.accesses],
            )
            steps = all_steps[: len(self.analysis.accesses)]
            last = dims[-1] if dims else None
            if (
                last is not None
                and last.column == column
                and pinned.isdisjoint((id(x), id(low.vars[last.dims[-1]])))
                and all(big == small * low.shape[d] for big, small in zip(outer_steps, all_steps))
            ):
                dims[-1] = LoopDim([*last.dims, d], last.extent * low.shape[d], column, steps)
            else:
                dims.append(LoopDim([d], low.shape[d], column, steps))
        return dims

    def _vector(self) -> LoopDim | None:
        """Return the dim along which most memory traffic is contiguous."""
        low, best, score = self.low, None, -1.0
        columns = {id(low.vars[d]) for d in low.columns}
        once = 1 / max(1, math.prod([low.shape[d] for d in low.columns]))
        widest = max([4, *(out.var.aval.dtype.itemsize for out in low.outputs)])
        weights = [
            a.weight * once
            if columns.isdisjoint(a.terms) and columns.isdisjoint(a.nonaffine)
            else a.weight
            for a in self.analysis.accesses
        ]
        for dim in self.dims:
            if low.parts and not dim.column:
                continue
            traffic = self._contiguous_traffic(dim, weights)
            traffic *= min(1.0, dim.extent * widest / MODEL.cache_line)
            if traffic >= score:
                best, score = dim, traffic
        return best

    def _contiguous_traffic(self, dim: LoopDim, weights: list[float]) -> float:
        """Return the contiguous traffic along a dim; accesses that are invariant along it count for about half."""
        traffic = 0.0
        own = {id(self.low.vars[d]) for d in dim.dims}
        for step, access, weight in zip(dim.steps, self.analysis.accesses, weights):
            if not own.isdisjoint(access.nonaffine):
                continue
            if step == access.run:
                traffic += weight
            elif step == 0:
                traffic += weight * 0.55
            elif abs(step) <= _NEAR_STRIDE:
                traffic += weight * 0.5
        return traffic

    def cost(self, roots: list[Expr]) -> int:
        """Return the cost of computing `roots` for one element."""
        return cost_of(reachable(roots))

    def tasks(self) -> int:
        """Return the number of tasks; 1 where starting threads and moving cache lines between them would cost more than they save."""
        total = math.prod([dim.extent for dim in self.dims])
        moved = sum(a.weight for a in self.analysis.accesses) or 1
        work = total * (moved + self.analysis.cost * 0.5)
        return (
            1 if work < MODEL.parallel_work else min(int(work / MODEL.task_bytes), MODEL.most_tasks)
        )

    def share(self, total: int, segments: int, tasks: int) -> tuple[list[LoopLevel], Expr, Expr]:
        """Return loops that divide `total` rows, or the segments of each row, among tasks; and the row and segment of an iteration."""
        b, loops = self.b, []
        per = -(-total // tasks) if total >= tasks else 1
        tasks = -(-total // per) * segments
        row = segment = b.const(0, "i64")
        if tasks > 1:
            t = b.index("t", tasks, Level.TASK)
            loops.append(LoopLevel(Level.TASK, "t", tasks, LoopKind.PARALLEL))
            self.part = t
            if segments > 1:
                row, segment = b.idiv(t, segments), b.irem(t, segments)
            else:
                row = b.imul(t, per)
        if per > 1:
            r = b.index("r", per, Level.ROW)
            rows_left = b.isub(total, row)
            loops.append(
                LoopLevel(
                    Level.ROW,
                    "r",
                    per if total % per == 0 else b.imin(rows_left, per),
                    LoopKind.SERIAL,
                )
            )
            row = b.iadd(row, r)
        return loops, row, segment

    def split(
        self, row: Expr, rows: list[LoopDim], counts: list[int], where: dict[int, Expr]
    ) -> None:
        b = self.b
        for dim, n in zip(reversed(rows[1:]), reversed(counts[1:])):
            where[id(dim)] = b.irem(row, n)
            row = b.idiv(row, n)
        if rows:
            where[id(rows[0])] = row

    def step(self, access: Access, dim: LoopDim) -> int:
        return access.terms.get(id(self.low.vars[dim.dims[-1]]), 0)

    def vector_step(self, access: Access) -> int:
        """Return the stride of an access along the vector dim; 0 if there is no such dim."""
        return 0 if self.vector is None else self.step(access, self.vector)

    def map_dims(self, where: dict[int, Expr]) -> dict[int, Expr]:
        zero = self.b.const(0, "i64")
        mapping = (
            {id(self.low.part): self.part, **self.decided}
            if self.low.parts > 1
            else dict(self.decided)
        )
        for dim in self.dims:
            for d in dim.dims:
                mapping[id(self.low.vars[d])] = zero
            mapping[id(self.low.vars[dim.dims[-1]])] = where[id(dim)]
        return mapping

    def store(self, outputs: list[Output], done: list[Expr], guard: Expr | None = None) -> None:
        """Store `outputs`; `done` has the index and the values of each.

        Results larger than the caches are stored past the caches because a kernel does not read its own results."""
        computed = iter(done)
        indices, values = [], []
        for out in outputs:
            index, *row = [next(computed) for _ in out.exprs]
            indices.append(index)
            values += row
        ready = iter(self.emit.before_stores(values))
        for out, index in zip(outputs, indices):
            name, past = self.out_names[out.var], out.var.aval.nbytes >= self.stream_from
            value, *after = [next(ready) for _ in out.exprs[1:]]
            stored = (
                Interleave(name, index, (value, *after), past)
                if after
                else StoreElement(name, index, value, guard, out.combine, past)
            )
            self.emit.append(stored)


def segment_length(extent: int, segments: int) -> int:
    """Return the length of each of `segments` segments: a multiple of 64 that divides the extent if such a length is near."""
    length = -(-extent // segments)
    min_length, blocks = -(-length // 64), extent // 64
    for count in (
        range(blocks // min_length, -(-blocks // (2 * min_length)) - 1, -1)
        if extent % 64 == 0
        else ()
    ):
        if blocks % count == 0:
            return 64 * (blocks // count)
    return min(64 * min_length, extent)
