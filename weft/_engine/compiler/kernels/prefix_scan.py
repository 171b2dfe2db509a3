"""Kernels of prefix scans, such as cumulative sums: all prefixes of one or several arrays along a dim.

In:   an equation whose lowering is a `ScanSpec`.
Out:  Loops kernels. If the scanned dim is the innermost, the vector runs along it (a `PrefixCombine` across lanes); otherwise it runs
      along the inner dims, next to a strip of running values.
Laws: if the other dims are too small to occupy all threads, a long dim is split into blocks, and blocks are grouped into
      segments that stay in the last-level cache. One kernel runs once before the first and once per segment: each task
      combines the totals before its block, writes the block's prefixes, and computes the total of the corresponding
      block of the next segment. Lengths are fixed, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.compiler.lowering.lower import combining_operation
from weft._engine.ir.build import HALVES, LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.loops import (
    ITEMSIZE,
    Accum,
    Buf,
    Const,
    Expr,
    For,
    If,
    Init,
    Let,
    LoopKind,
    LoopsKernel,
    Prefetch,
    PrefixCombine,
    ScalarRef,
    Stmt,
    StoreElement,
)
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record

# thresholds, measured on several machines
#: minimal bytes of an operand that a task reads
_SCAN_TASK_BYTES = 1 << 16
#: maximal number of adjacent running values of a task
_SCAN_STRIP = 1024
#: minimal number of adjacent running values of a task
_SCAN_NARROWEST_STRIP = 64
#: the number of tasks below which a dim is divided further
_SCAN_FEW_TASKS = 4
#: fewer running values than this are kept in registers
_SCAN_REGISTER_VALUES = 8
#: rows between an access and its prefetch
_SCAN_PREFETCH_ROWS = 2
#: elements of a block in one strip
_SCAN_BLOCK = 1 << 14
#: bytes of a group of blocks; two groups stay in the last-level cache
_SCAN_STRETCH_BYTES = 1 << 21
#: minimal number of elements of an array whose scanned dim is divided into blocks
_SCAN_SPLIT_FROM = 1 << 18


Combine = Callable[[LoopsBuilder, Sequence[Expr], Sequence[Expr]], list[Expr]]


def prefix_scan_of(eqn: Eqn) -> PrefixScan:
    """Return the prefix scan of an equation."""
    aval, spec, axis = eqn.invars[0].aval, eqn.primitive.lower, eqn.params["axis"]
    types = tuple([type_name(a.aval.dtype) for a in eqn.invars])
    neutral = None if spec.identity is None else (spec.identity(aval.dtype),)
    op = combining_operation(spec.combine, types[0])
    combine = _of_program(eqn.params["combine"].program) if op is None else _of_op(op)
    around = math.prod(aval.shape[:axis]), aval.shape[axis], math.prod(aval.shape[axis + 1 :])
    return PrefixScan(
        *around, types, combine, eqn.params["reverse"], eqn.primitive.name, neutral, op
    )


def _of_op(op: str) -> Combine:
    if op in (
        "min",
        "max",
    ):
        # the NaN test of the first operand, the new value, is then not part of the dependency between iterations
        return lambda b, earlier, later: [b.op(op, later[0], earlier[0])]
    return lambda b, earlier, later: [b.op(op, earlier[0], later[0])]


def _of_program(program: Jaxpr) -> Combine:
    """Return a combination that applies a program of scalars by the lower rules of its ops."""

    def combine(b: LoopsBuilder, earlier: Sequence[Expr], later: Sequence[Expr]) -> list[Expr]:
        env: dict[Var, Expr] = dict(zip(program.invars, (*earlier, *later)))

        def read(atom: Atom) -> Expr:
            if type(atom) is not Literal:
                return env[atom]
            return b.const(np.asarray(atom.val, atom.aval.dtype).item(), type_name(atom.aval.dtype))

        for eqn in program.eqns:
            readers = [lambda index, guard=None, atom=a: read(atom) for a in eqn.invars]
            avals = {
                "in_avals": [a.aval for a in eqn.invars],
                "out_avals": [v.aval for v in eqn.outvars],
            }
            results = eqn.primitive.lower(b, (), *readers, **avals, **eqn.params)
            env[eqn.outvars[0]] = results[0] if isinstance(results, list | tuple) else results
        return [b.cast(read(a), x.type) for a, x in zip(program.outvars, earlier)]

    return combine


@record
class PrefixScan:
    """A scan of arrays of `outer` x `length` x `inner` elements along `length`, from the end if `reverse`.

    `neutral`: the identity of the combination, one value per array; None if it is unknown, and scans then begin with the first
    elements. `op`: the name of the combination if it is a single operation.
    """

    outer: int
    length: int
    inner: int
    types: tuple[str, ...]
    combine: Combine
    reverse: bool
    name: str
    neutral: tuple | None = None
    op: str | None = None

    @property
    def nbytes(self) -> list[int]:
        """The size of each array in bytes."""
        return [self.outer * self.length * self.inner * ITEMSIZE[type_] for type_ in self.types]

    @property
    def lanes(self) -> int:
        """The number of adjacent inner elements that one task scans."""
        target_lanes = -(-self.inner // max(1, _SCAN_FEW_TASKS // self.outer))
        narrowest = _SCAN_NARROWEST_STRIP
        return min(
            self.inner, _SCAN_STRIP, max(narrowest, -(-target_lanes // narrowest) * narrowest)
        )

    @property
    def strips(self) -> int:
        """The number of strips of `lanes` elements that cover the inner elements."""
        return -(-self.inner // self.lanes)

    @property
    def block(self) -> int:
        """The length of the blocks into which `length` is divided."""
        if (
            self.outer * self.strips >= _SCAN_FEW_TASKS
            or self.outer * self.length * self.inner < _SCAN_SPLIT_FROM
        ):
            return self.length
        return min(self.length, _SCAN_BLOCK // self.lanes)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.length // self.block)

    @property
    def segment_blocks(self) -> int:
        """The number of consecutive blocks in a segment."""
        row = self.outer * self.inner * sum([ITEMSIZE[type_] for type_ in self.types])
        return min(self.blocks, max(1, _SCAN_STRETCH_BYTES // (self.block * row)))

    @property
    def launches(self) -> int:
        """The number of runs of the kernel: the number of segments + 1, or 1 without blocks."""
        return 1 if self.blocks == 1 else 1 + -(-self.blocks // self.segment_blocks)

    @property
    def wide(self) -> tuple[str, ...]:
        """The types of the computation: halves are computed in f32."""
        return tuple(["f32" if type_ in HALVES else type_ for type_ in self.types])

    @property
    def carried_bytes(self) -> list[int]:
        """The sizes in bytes of the buffers between runs of the kernel: totals of blocks, and prefixes at the ends of blocks."""
        return [
            self.outer * self.blocks * self.inner * ITEMSIZE[type_]
            for _ in range(2)
            for type_ in self.wide
        ]

    def kernel(self) -> LoopsKernel:
        """Return the kernel from arrays to their prefixes. With blocks, it also takes the segment's number, from -1 on, and the
        buffers of `carried_bytes`."""
        return _PrefixScanWriter(self).kernel()


class _PrefixScanWriter:
    def __init__(self, run: PrefixScan):
        self.run, self.b = run, LoopsBuilder()
        self.count = len(run.types)
        self.strip = run.inner >= _SCAN_REGISTER_VALUES
        self.streaming = [nbytes >= MODEL.stream_bytes for nbytes in run.nbytes]

    def kernel(self) -> LoopsKernel:
        run, b = self.run, self.b
        cut = run.blocks > 1
        rows = run.outer * run.segment_blocks * run.strips
        per = (
            1
            if cut
            else max(
                1,
                min(rows, _SCAN_TASK_BYTES // (run.block * run.lanes * ITEMSIZE[run.types[0]])),
            )
        )
        tasks = -(-rows // per)
        row = b.imul(b.index("t", tasks), per)
        if per > 1:
            row = b.iadd(row, b.index("r", per, 1))
        body = self.segment(row) if cut else self.row(row)
        if per > 1:
            extent = (
                per if rows % per == 0 else b.imin(b.isub(rows, b.imul(b.index("t"), per)), per)
            )
            body = (For("r", extent, body),)
        body = (For("t", tasks, body, LoopKind.PARALLEL if tasks > 1 else LoopKind.SERIAL),)
        size, totals = run.outer * run.length * run.inner, run.outer * run.blocks * run.inner
        bufs = [Buf(f"x{i}", type_, size) for i, type_ in enumerate(run.types)]
        if cut:
            bufs.append(Buf("n", "i64", 1))
        bufs += [Buf(f"y{i}", type_, size, "out") for i, type_ in enumerate(run.types)]
        if cut:
            bufs += [
                Buf(f"{letter}{i}", type_, totals, "inout")
                for letter in "tp"
                for i, type_ in enumerate(run.wide)
            ]
        scratch = (
            [Buf(f"s{i}", type_, run.lanes) for i, type_ in enumerate(run.wide)]
            if self.strip
            else []
        )
        return LoopsKernel(tuple(bufs), body, tuple(scratch), run.name)

    def row(self, row: Expr) -> tuple[Stmt, ...]:
        """Return the code of one strip of a scan without blocks."""
        strip = self.b.irem(row, self.run.strips)
        return self.scan_block(strip, self.b.idiv(row, self.run.strips), self.b.const(0, "i64"))

    def segment(self, row: Expr) -> tuple[Stmt, ...]:
        """Return the code of one block of a segment, and of the total of the corresponding block of the next segment."""
        run, b = self.run, self.b
        strip, row = b.irem(row, run.strips), b.idiv(row, run.strips)
        place, outer = b.irem(row, run.segment_blocks), b.idiv(row, run.segment_blocks)
        begin = b.imul(b.load("n", 0, "i64"), run.segment_blocks)
        number = b.iadd(begin, place)
        next_block = b.iadd(number, run.segment_blocks)
        here = b.op("and", b.icmp("ge", number, 0), b.icmp("lt", number, run.blocks))
        return (
            If(here, self.scan_block(strip, outer, number, begin)),
            If(
                b.icmp("lt", next_block, run.blocks),
                self.scan_block(strip, outer, next_block, stores=False),
            ),
        )

    def scan_block(
        self,
        strip: Expr,
        outer: Expr,
        number: Expr,
        segment: Expr | None = None,
        stores: bool = True,
    ) -> tuple[Stmt, ...]:
        """Return the code of block `number` of one strip. If `segment`, the number of the segment's first block, is given, the block
        begins with the combination of all earlier blocks."""
        run, b = self.run, self.b
        self.outer, self.number, self.begin, self.stores = outer, number, segment, stores
        begin, self.side = b.imul(number, run.block), b.imul(strip, run.lanes)
        whole = run.length % run.block == 0
        extent = (
            b.const(run.block, "i64") if whole else b.imin(b.isub(run.length, begin), run.block)
        )
        self.j = b.index("j", run.lanes, 3) if run.inner > 1 else b.const(0, "i64")
        self.aside = b.iadd(self.side, self.j)
        self.at = lambda k: self.position(b.iadd(begin, k))
        k = b.index("k", run.block, 2)
        skipped = 0 if run.neutral is not None else 1
        steps = b.isub(extent, skipped)
        steps = steps.value if isinstance(steps, Const) else steps
        return (
            self.in_strips(steps, b.iadd(k, skipped))
            if self.strip
            else self.in_registers(steps, b.iadd(k, skipped))
        )

    def position(self, along: Expr) -> Expr:
        """Return the flat index of the element at position `along` of the scanned dim."""
        run, b = self.run, self.b
        along = b.isub(run.length - 1, along) if run.reverse else along
        return b.iadd(b.imul(b.iadd(b.imul(self.outer, run.length), along), run.inner), self.aside)

    def block_at(self, number: Expr) -> Expr:
        """Return the flat index of a block's entry in the buffers of totals and of last prefixes."""
        run, b = self.run, self.b
        return b.iadd(b.imul(b.iadd(b.imul(self.outer, run.blocks), number), run.inner), self.aside)

    def values(self, k: Expr) -> list[Expr]:
        """Return the elements at position `k` of the block."""
        b, at = self.b, self.at(k)
        return [
            b.cast(b.load(f"x{i}", at, type_), wide)
            for i, (type_, wide) in enumerate(zip(self.run.types, self.run.wide))
        ]

    def first(self) -> list[Expr]:
        """Return the neutral values, or the first elements if they are unknown."""
        run, b = self.run, self.b
        if run.neutral is not None:
            return [b.const(value, type_) for value, type_ in zip(run.neutral, run.wide)]
        return self.values(b.const(0, "i64"))

    def before(self, begin: Expr) -> tuple[list[Expr], Expr, list[Expr]]:
        """Return the prefix before the segment that begins with block `begin`, the number of the segment's totals to combine with it,
        and the totals, indexed by Index `c`."""
        run, b = self.run, self.b
        later = b.icmp("gt", begin, 0)
        past = [
            b.load(f"p{i}", self.block_at(b.isub(begin, 1)), type_, later)
            for i, type_ in enumerate(run.wide)
        ]
        # without neutral values, the combination begins with the total of block 0
        skipped = (
            b.const(0, "i64")
            if run.neutral is not None
            else b.select(later, b.const(0, "i64"), b.const(1, "i64"))
        )
        first = self.first() if run.neutral is not None else self.totals(begin)
        place = b.iadd(begin, b.iadd(skipped, b.index("c", run.segment_blocks, 2)))
        return (
            [b.select(later, x, y) for x, y in zip(past, first)],
            b.isub(b.isub(self.number, begin), skipped),
            self.totals(place),
        )

    def totals(self, number: Expr) -> list[Expr]:
        return [
            self.b.load(f"t{i}", self.block_at(number), type_)
            for i, type_ in enumerate(self.run.wide)
        ]

    def initial_values(self, before: Sequence[Expr]) -> Sequence[Expr]:
        """Return the initial values of the block: `before`, combined with the first elements if there are no neutral values."""
        b, first = self.b, self.first()
        if self.run.neutral is not None:
            return before
        return [
            b.select(b.icmp("gt", self.number, 0), x, y)
            for x, y in zip(self.run.combine(b, before, first), first)
        ]

    def store_prefixes(self, at: Expr, values: Sequence[Expr]) -> list[Stmt]:
        types = self.run.types
        return [
            StoreElement(
                f"y{i}", at, self.b.storage_form(value, types[i]), streaming=self.streaming[i]
            )
            for i, value in enumerate(values)
        ]

    def store_first(self, values: Sequence[Expr]) -> list[Stmt]:
        """Return the stores of the first prefixes if these are the first elements; otherwise none."""
        return (
            self.store_prefixes(self.at(self.b.const(0, "i64")), values)
            if self.stores and self.run.neutral is None
            else []
        )

    def store_last(self, values: Sequence[Expr]) -> list[Stmt]:
        """Return the stores of a block's last prefix, or of its total, for other tasks."""
        if self.run.blocks == 1:
            return []
        return [
            StoreElement(f"{'p' if self.stores else 't'}{i}", self.block_at(self.number), value)
            for i, value in enumerate(values)
        ]

    def refs(self, letter: str) -> list[ScalarRef]:
        return [ScalarRef(f"{letter}{i}", type_) for i, type_ in enumerate(self.run.wide)]

    def in_registers(self, steps: int | Expr, k: Expr) -> tuple[Stmt, ...]:
        """Return the code of a block with accumulators in scalars, or in lanes of a vector of all inner elements."""
        run, b = self.run, self.b
        accs, names = self.refs("a"), self.refs("v")
        if not self.stores and run.op is not None and run.inner == 1:
            # only the total is needed: any order of terms will do
            step: Stmt = Accum(accs[0].name, run.op, *self.values(k))
        else:
            step = PrefixCombine(
                tuple([x.name for x in names]),
                tuple([x.name for x in accs]),
                tuple(self.values(k)),
                tuple(run.combine(b, accs, names)),
            )
        body: list[Stmt] = []
        initial: Sequence[Expr] = self.first()
        if self.begin is not None:
            base, count, totals = self.before(self.begin)
            priors, next_ = self.refs("c"), self.refs("w")
            body += [Init(prior.name, value) for prior, value in zip(priors, base)]
            body.append(
                For(
                    "c",
                    count,
                    (
                        PrefixCombine(
                            tuple([x.name for x in next_]),
                            tuple([x.name for x in priors]),
                            tuple(totals),
                            tuple(run.combine(b, priors, next_)),
                        ),
                    ),
                )
            )
            initial = self.initial_values(priors)
        body += [Init(acc.name, value) for acc, value in zip(accs, initial)]
        body += self.store_first(accs)
        prefetched = self.at(b.iadd(k, run.segment_blocks * run.block))  # of the next segment
        coming = (
            [Prefetch(f"x{i}", prefetched) for i in range(self.count)]
            if self.begin is not None
            else []
        )
        body.append(
            For(
                "k",
                steps,
                (step, *(self.store_prefixes(self.at(k), names) if self.stores else ()), *coming),
                LoopKind.SERIAL if run.inner > 1 else LoopKind.VECTOR,
            )
        )
        body += self.store_last(accs)
        return (
            (For("j", run.inner, tuple(body), LoopKind.VECTOR),) if run.inner > 1 else tuple(body)
        )

    def in_strips(self, steps: int | Expr, k: Expr) -> tuple[Stmt, ...]:
        """Return the code of a block with adjacent accumulators in scratch."""
        run, b = self.run, self.b
        even = run.inner % run.lanes == 0
        extent = run.lanes if even else b.imin(b.isub(run.inner, self.side), run.lanes)
        running = [b.load(f"s{i}", self.j, type_) for i, type_ in enumerate(run.wide)]
        names = self.refs("v")

        def keep(values: Sequence[Expr], then: list[Stmt]) -> For:
            lets = [Let(name.name, value) for name, value in zip(names, values)]
            keeps = [StoreElement(f"s{i}", self.j, name) for i, name in enumerate(names)]
            return For("j", extent, (*lets, *keeps, *then), LoopKind.VECTOR)

        # the hardware prefetcher does not predict the next rows of a strip, which are far apart
        distance = _SCAN_PREFETCH_ROWS
        coming = (
            [Prefetch(f"x{i}", self.at(b.iadd(k, distance))) for i in range(self.count)]
            if run.strips > 1
            else []
        )
        step = keep(
            run.combine(b, running, self.values(k)),
            [*coming, *(self.store_prefixes(self.at(k), names) if self.stores else ())],
        )
        if self.begin is None:
            body = [keep(self.first(), self.store_first(names))]
        else:
            base, count, totals = self.before(self.begin)
            body = [keep(base, []), For("c", count, (keep(run.combine(b, running, totals), []),))]
            body += (
                []
                if run.neutral is not None
                else [keep(self.initial_values(running), self.store_first(names))]
            )
        body.append(For("k", steps, (step,)))
        if run.blocks > 1:
            body.append(For("j", extent, tuple(self.store_last(running)), LoopKind.VECTOR))
        return tuple(body)
