"""Kernels of running combinations: all prefixes of one or several arrays along a dim.

In:   an equation whose lowering is a `ScanSpec`.
Out:  Loops kernels. Where the scanned dim is the innermost, the vector runs along it (a `Scan` across its lanes); otherwise
      it runs along the inner dims and a strip of running values is kept beside it.
Laws: a dim that is long and has too few neighbours to keep threads busy is cut into blocks: one kernel finds the totals of
      the blocks, these are run over by the same means, and the last kernel starts each block from what came before.
      Blocks have fixed lengths, so that results are equal under any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.compiler.nest import STREAM_BYTES
from weft.ir.build import HALVES, Builder, type_name
from weft.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft.ir.loops import ITEMSIZE, Accum, Buf, Expr, For, Init, Kernel, Let, Prefetch, Ref, Scan, Stmt, Store
from weft.util.record import record, replace

_BOOLEAN = {"add": "or", "max": "or", "mul": "and", "min": "and"}
TASK_BYTES = 1 << 16           # of each operand that a task reads, at least
STRIP = 1024                   # running values that a task keeps side by side
NARROW = 64                    # strips are not narrower than this,
FEW_TASKS = 4                  # though there be fewer than this
IN_REGISTERS = 8               # fewer inner elements than this are kept in registers
AHEAD = 2                      # rows of a strip that are fetched before their turn
BLOCK = 1 << 15                # elements of a block, all strips together
SPLIT = 1 << 18                # elements from which a dim is cut into blocks

Combine = Callable[[Builder, list[Expr], list[Expr]], list[Expr]]


def of(eqn: Eqn) -> Running:
    """The running combination that an equation asks for."""
    aval, spec, axis = eqn.invars[0].aval, eqn.primitive.rules["lower"], eqn.params["axis"]
    types = tuple([type_name(a.aval.dtype) for a in eqn.invars])
    neutral = None if spec.identity is None else (spec.identity(aval.dtype),)
    op = _BOOLEAN.get(spec.combine, spec.combine) if types[0] == "bool" else spec.combine
    combine = _of_program(eqn.params["combine"].program) if op is None else _of_op(op)
    around = math.prod(aval.shape[:axis]), aval.shape[axis], math.prod(aval.shape[axis + 1:])
    return Running(*around, types, combine, eqn.params["reverse"], eqn.primitive.name, neutral, op)


def _of_op(op: str) -> Combine:
    return lambda b, earlier, later: [b.op(op, earlier[0], later[0])]


def _of_program(program: Jaxpr) -> Combine:
    """A program of scalars, by the lower rules of its operations."""
    def combine(b: Builder, earlier: list[Expr], later: list[Expr]) -> list[Expr]:
        env: dict[Var, Expr] = dict(zip(program.invars, (*earlier, *later)))

        def read(atom: Atom) -> Expr:
            if type(atom) is not Literal:
                return env[atom]
            return b.const(np.asarray(atom.val, atom.aval.dtype).item(), type_name(atom.aval.dtype))

        for eqn in program.eqns:
            readers = [lambda index, guard=None, atom=a: read(atom) for a in eqn.invars]
            avals = {"in_avals": [a.aval for a in eqn.invars], "out_avals": [v.aval for v in eqn.outvars]}
            made = eqn.primitive.rules["lower"](b, (), *readers, **avals, **eqn.params)
            env[eqn.outvars[0]] = made[0] if isinstance(made, list | tuple) else made
        return [b.cast(read(a), x.type) for a, x in zip(program.outvars, earlier)]

    return combine


@record
class Running:
    """Arrays of `outer` x `length` x `inner` elements that are combined along `length`, from the end if `reverse`.

    `neutral`, where it is known, are the values that change nothing; without them the first elements begin. `op` is the operation
    that the combination is, if it is one.
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
        """The size of each array."""
        return [self.outer * self.length * self.inner * ITEMSIZE[type_] for type_ in self.types]

    @property
    def lanes(self) -> int:
        """The inner elements that one task goes along with."""
        few = -(-self.inner // max(1, FEW_TASKS // self.outer))
        return min(self.inner, STRIP, max(NARROW, -(-few // NARROW) * NARROW))

    @property
    def strips(self) -> int:
        """The tasks side by side."""
        return -(-self.inner // self.lanes)

    @property
    def block(self) -> int:
        """The length of the pieces that `length` is cut into."""
        if self.outer * self.strips >= FEW_TASKS or self.outer * self.length * self.inner < SPLIT:
            return self.length
        return min(self.length, BLOCK // self.lanes)

    @property
    def blocks(self) -> int:
        """The number of those pieces."""
        return -(-self.length // self.block)

    @property
    def wide(self) -> tuple[str, ...]:
        """The types that are computed in."""
        return tuple(["f32" if type_ in HALVES else type_ for type_ in self.types])

    def over_blocks(self) -> Running:
        """The running combination of the blocks' totals."""
        return replace(self, length=self.blocks, types=self.wide, reverse=False)

    def kernel(self) -> Kernel:
        """From arrays to their prefixes; cut into blocks, it also reads the prefixes of the blocks' totals."""
        return _Writer(self, stores=True).kernel()

    def totals(self) -> Kernel:
        """From arrays to the totals of their blocks."""
        return _Writer(self, stores=False).kernel()


class _Writer:
    """Writes one kernel: of all prefixes, or of totals alone."""

    def __init__(self, run: Running, stores: bool):
        self.run, self.stores, self.b = run, stores, Builder()
        self.count = len(run.types)
        self.strip = run.inner >= IN_REGISTERS
        self.carries = stores and run.blocks > 1
        self.streaming = [nbytes >= STREAM_BYTES for nbytes in run.nbytes]

    def kernel(self) -> Kernel:
        run, b = self.run, self.b
        rows = run.outer * run.blocks * run.strips
        per = max(1, min(rows, TASK_BYTES // (run.block * run.lanes * ITEMSIZE[run.types[0]])))
        tasks = -(-rows // per)
        row = b.imul(b.index("t", tasks), per)
        if per > 1:
            row = b.iadd(row, b.index("r", per, 1))
        body = self.row(row)
        if per > 1:
            extent = per if rows % per == 0 else b.imin(b.isub(rows, b.imul(b.index("t"), per)), per)
            body = (For("r", extent, body),)
        body = (For("t", tasks, body, "parallel" if tasks > 1 else "serial"),)
        size, totals = run.outer * run.length * run.inner, run.outer * run.blocks * run.inner
        bufs = [Buf(f"x{i}", type_, size) for i, type_ in enumerate(run.types)]
        if self.carries:
            bufs += [Buf(f"p{i}", type_, totals) for i, type_ in enumerate(run.wide)]
        made = (run.types, size) if self.stores else (run.wide, totals)
        bufs += [Buf(f"y{i}", type_, made[1], "out") for i, type_ in enumerate(made[0])]
        scratch = [Buf(f"s{i}", type_, run.lanes) for i, type_ in enumerate(run.wide)] if self.strip else []
        return Kernel(tuple(bufs), body, tuple(scratch), run.name)

    def row(self, row: Expr) -> tuple[Stmt, ...]:
        """One block of one strip."""
        run, b = self.run, self.b
        strip, row = b.irem(row, run.strips), b.idiv(row, run.strips)
        self.number, outer = b.irem(row, run.blocks), b.idiv(row, run.blocks)
        begin, self.side = b.imul(self.number, run.block), b.imul(strip, run.lanes)
        whole = run.length % run.block == 0
        extent = b.const(run.block, "i64") if whole else b.imin(b.isub(run.length, begin), run.block)
        self.j = b.index("j", run.lanes, 3) if run.inner > 1 else b.const(0, "i64")
        self.aside = b.iadd(self.side, self.j)
        self.at = lambda k: self.position(outer, b.iadd(begin, k))
        self.block_at = b.imul(b.iadd(b.imul(outer, run.blocks), self.number), run.inner)
        k = b.index("k", run.block, 2)
        ahead = 0 if run.neutral is not None else 1
        steps = b.isub(extent, ahead)
        steps = steps.value if not hasattr(steps, "op") else steps
        return self.in_strips(steps, b.iadd(k, ahead)) if self.strip else self.in_registers(steps, b.iadd(k, ahead))

    def position(self, outer: Expr, along: Expr) -> Expr:
        run, b = self.run, self.b
        along = b.isub(run.length - 1, along) if run.reverse else along
        return b.iadd(b.imul(b.iadd(b.imul(outer, run.length), along), run.inner), self.aside)

    def values(self, k: Expr) -> list[Expr]:
        """The elements at a place of the block."""
        b, at = self.b, self.at(k)
        return [b.cast(b.load(f"x{i}", at, type_), wide) for i, (type_, wide) in enumerate(zip(self.run.types, self.run.wide))]

    def first(self) -> list[Expr]:
        """What a block begins with: what came before it, and its first elements where nothing else is to begin with."""
        run, b = self.run, self.b
        if run.neutral is not None:
            found = [b.const(value, type_) for value, type_ in zip(run.neutral, run.wide)]
        else:
            found = self.values(b.const(0, "i64"))
        if not self.carries:
            return found
        follows = b.icmp("gt", self.number, 0)
        at = b.iadd(b.isub(self.block_at, run.inner), self.aside)
        before = [b.load(f"p{i}", at, type_, follows) for i, type_ in enumerate(run.wide)]
        joined = before if run.neutral is not None else run.combine(b, before, found)
        return [b.select(follows, x, y) for x, y in zip(joined, found)]

    def stored(self, at: Expr, values: list[Expr]) -> list[Stmt]:
        types = self.run.types
        return [Store(f"y{i}", at, self.b.stored(value, types[i]), streaming=self.streaming[i]) for i, value in enumerate(values)]

    def begun(self, values: list[Expr]) -> list[Stmt]:
        """The first prefixes, where they are the first elements."""
        return self.stored(self.at(self.b.const(0, "i64")), values) if self.stores and self.run.neutral is None else []

    def ended(self, values: list[Expr]) -> list[Stmt]:
        """The totals, where they are asked for."""
        at = self.b.iadd(self.block_at, self.aside)
        return [] if self.stores else [Store(f"y{i}", at, value) for i, value in enumerate(values)]

    def refs(self, letter: str) -> list[Expr]:
        return [Ref(f"{letter}{i}", type_) for i, type_ in enumerate(self.run.wide)]

    def in_registers(self, steps: int | Expr, k: Expr) -> tuple[Stmt, ...]:
        """The accumulators are scalars, or lanes of a vector of all inner elements."""
        run, b = self.run, self.b
        accs, names = self.refs("a"), self.refs("v")
        if not self.stores and run.op is not None and run.inner == 1:      # lanes need not be in order
            turn: Stmt = Accum(accs[0].name, run.op, *self.values(k))
        else:
            turn = Scan(tuple([x.name for x in names]), tuple([x.name for x in accs]), tuple(self.values(k)),
                        tuple(run.combine(b, accs, names)))
        body: list[Stmt] = [Init(acc.name, value) for acc, value in zip(accs, self.first())]
        body += self.begun(accs)
        body.append(For("k", steps, (turn, *(self.stored(self.at(k), names) if self.stores else ())),
                        "serial" if run.inner > 1 else "vector"))
        body += self.ended(accs)
        return (For("j", run.inner, tuple(body), "vector"),) if run.inner > 1 else tuple(body)

    def in_strips(self, steps: int | Expr, k: Expr) -> tuple[Stmt, ...]:
        """The accumulators lie side by side in scratch."""
        run, b = self.run, self.b
        even = run.inner % run.lanes == 0
        extent = run.lanes if even else b.imin(b.isub(run.inner, self.side), run.lanes)
        kept = [b.load(f"s{i}", self.j, type_) for i, type_ in enumerate(run.wide)]
        names = self.refs("v")

        def keep(values: list[Expr], then: list[Stmt]) -> For:
            lets = [Let(name.name, value) for name, value in zip(names, values)]
            keeps = [Store(f"s{i}", self.j, name) for i, name in enumerate(names)]
            return For("j", extent, (*lets, *keeps, *then), "vector")

        # the next rows of a strip lie elsewhere, where no fetcher of the machine looks by itself
        coming = [Prefetch(f"x{i}", self.at(b.iadd(k, AHEAD))) for i in range(self.count)] if run.strips > 1 else []
        turn = keep(run.combine(b, kept, self.values(k)), [*coming, *(self.stored(self.at(k), names) if self.stores else ())])
        body = [keep(self.first(), self.begun(names)), For("k", steps, (turn,))]
        if not self.stores:
            body.append(For("j", extent, tuple(self.ended(kept)), "vector"))
        return tuple(body)
