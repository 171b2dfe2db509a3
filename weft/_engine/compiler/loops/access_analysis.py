"""Access analysis of a kernel: its dims, the strides of its memory accesses, and its cost.

In:   `LoweredGroup` scalar code.
Out:  `AccessAnalysis`, the facts that `compiler.loops.loop_nest` and the strategies use to choose loops.
"""

from __future__ import annotations

from weft._engine.compiler.lowering.lower import LoweredGroup, reachable
from weft._engine.ir.build import type_name
from weft._engine.ir.loops import ITEMSIZE, Expr, Index, Load, ScalarOp
from weft._engine.ir.registry import HEAVY
from weft._engine.util.record import field, record


@record(frozen=False)
class LoopDim:
    """One loop, over the adjacent dims `dims` of the shape. `steps` has its stride in each access."""

    dims: list[int]
    extent: int
    column: bool
    steps: list[int] = field(default_factory=list)


@record(frozen=False)
class Access:
    """A memory access and the strides of its address (`terms`), by id of loop variable.

    `affine`: the address is a sum of loop variables times strides and a constant, its `form`. `plain`: affine and unguarded.
    `nonaffine`: ids of the loop variables on which the address depends without a fixed stride. `gathered`: the address
    is computed from values in memory. `run`: number of adjacent elements that are read or written; `weight`: their bytes."""

    buf: str
    terms: dict[int, int]
    weight: int
    affine: bool
    plain: bool
    form: tuple[dict[int, int], int]
    nonaffine: set[int]
    gathered: bool
    run: int = 1


class AccessAnalysis:
    """All memory accesses of the code, and the loop variables that are used outside of addresses."""

    def __init__(self, low: LoweredGroup):
        self.b = low.builder
        self.accesses: list[Access] = []
        self.loads: list[tuple[Load, Access]] = []
        self.pinned: set[int] = set()
        self.cost = 0
        self.seen: set[int] = set()
        for r in low.reductions:
            self.visit(r.value)
        for out in low.outputs:
            for value in (out.value, *out.after):
                self.visit(value)
            self.address(
                f"out {len(self.accesses)}",
                out.index,
                ITEMSIZE[type_name(out.var.aval.dtype)],
                None,
                1 + len(out.after),
            )

    def address(self, buf: str, index: Expr, size: int, guard: Expr | None, run: int = 1) -> None:
        form = self.b.affine(index)
        terms, others = {}, [] if form is not None else [index]
        for key, k in (form[0] if form is not None else {}).items():
            base = self.b.base(key)
            if type(base) is Index:
                terms[key] = k
            else:
                others.append(base)
        for expr in others:
            self.visit(expr)
        made_of = reachable(others)
        nonaffine = {id(x) for x in made_of if type(x) is Index}
        gathered = any(type(x) is Load for x in made_of)
        self.accesses.append(
            Access(
                buf,
                terms,
                size * run,
                not others,
                guard is None and not others,
                form or ({}, 0),
                nonaffine,
                gathered,
                run,
            )
        )

    def visit(self, root: Expr) -> None:
        stack = [root]
        seen = self.seen
        while stack:
            x = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if type(x) is Load:
                self.address(x.buf, x.index, ITEMSIZE[x.type], x.guard)
                self.loads.append((x, self.accesses[-1]))
                if x.guard is not None:
                    stack.append(x.guard)
            elif type(x) is ScalarOp:
                self.cost += cost_of([x])
                stack.extend(x.args)
            elif type(x) is Index:
                self.pinned.add(id(x))


def cost_of(exprs: list[Expr]) -> int:
    """Return the cost of computing `exprs`; addresses are free."""
    return sum(
        [20 if x.op in HEAVY else 1 for x in exprs if type(x) is ScalarOp and x.type != "i64"]
    )
