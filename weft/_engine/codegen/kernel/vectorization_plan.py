"""Vectorization of a loop: lanes per vector, vectors per iteration, and the kind of remainder.

In:   a `vector` loop, the target, the kernel's buffers.
Out:  a `VectorizationPlan`, or None if the loop stays scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

from weft._engine.codegen.toolchain.target import CpuTarget
from weft._engine.ir import loops
from weft._engine.ir.build import HALVES
from weft._engine.ir.registry import HEAVY
from weft._engine.util.record import record

# thresholds, measured on several machines
#: bodies of at least this cost have one masked loop instead of a loop and a masked remainder
_MASKED_LOOP_COST = 40
#: without masks, short loops over narrow elements use fewer lanes unless the extent is at least
#: this many vectors
_UNMASKED_VECTORS = 8
#: this many loads keep memory busy without unrolling
_MANY_LOADS = 8
#: vectors in a product reduction; more vectors have fewer factors each, so that fewer products
#: become subnormal, which is slow
_PRODUCT_PARTS = 8
#: cost of a scan across the lanes of a vector
_SCAN_STEPS = 8
#: number of registers that a transpose in registers may use
_TRANSPOSE_REGISTERS = 16
#: a kernel whose loops have at most this many iterations is not worth optimizing
BRIEF_ITERATIONS = 64
#: a function that occurs this often in a kernel is called instead of inlined
OUTLINE_FROM = 4
#: number of cheap operations that cost as much as one call of a function
_CALL_WORK = 4


@record
class VectorizationPlan:
    """The shape of a vector loop: `parts` vectors of `lanes` elements per iteration.

    `reductions`: outer accumulators and their operations, without scanned accumulators. `scanned`:
    accumulators of scans. `packed`: counters of `Pack` statements. `masked`: the remainder is a
    masked block. `merged`: every block is masked, so that a long body is compiled only once.
    """

    lanes: int
    parts: int
    masked: bool
    merged: bool
    reductions: dict[str, str]
    scanned: frozenset[str]
    packed: frozenset[str]


def assigned_accumulators(stmt: loops.Stmt) -> list[str]:
    """Return the names of the accumulators that a statement assigns, in order."""
    names: dict[str, None] = {}

    def visit(inner: loops.Stmt) -> None:
        if isinstance(inner, loops.Accum):
            names[inner.name] = None
        elif isinstance(inner, loops.Pack):
            names[inner.acc] = None
        elif isinstance(inner, loops.PrefixCombine):
            names.update(dict.fromkeys(inner.accs))
        for body in bodies(inner):
            for child in body:
                visit(child)

    visit(stmt)
    return list(names)


def bodies(stmt: loops.Stmt) -> tuple[tuple[loops.Stmt, ...], ...]:
    """The bodies a statement holds."""
    if isinstance(stmt, loops.For | loops.While):
        return (stmt.body,)
    return (stmt.body, stmt.orelse) if isinstance(stmt, loops.If) else ()


def _parts(expr: loops.Expr) -> Sequence[loops.Expr]:
    """Return the direct operands of an expression."""
    if isinstance(expr, loops.Load):
        return [part for part in (expr.index, expr.guard, expr.other) if part is not None]
    return expr.args if isinstance(expr, loops.ScalarOp) else ()


def expressions(stmt: loops.Stmt) -> list[loops.Expr]:
    """Return the expressions of a statement, without the expressions of nested statements."""
    exprs: list = []
    for name in _EXPRESSIONS[type(stmt)]:
        part = getattr(stmt, name)
        exprs += (
            part
            if isinstance(part, tuple)
            else ()
            if part is None or isinstance(part, int)
            else (part,)
        )
    return exprs


_EXPRESSIONS = {
    loops.Let: ("value",),
    loops.Init: ("value",),
    loops.Accum: ("value", "guard"),
    loops.PrefixCombine: ("values", "combine"),
    loops.StoreElement: ("index", "value", "guard"),
    loops.Interleave: ("index", "values"),
    loops.Pack: ("value", "guard"),
    loops.Prefetch: ("index",),
    loops.For: ("extent",),
    loops.While: ("cond",),
    loops.If: ("cond",),
}


class _VectorLoopFacts:
    """Facts about a loop body: element sizes, cost, reductions."""

    def __init__(self, buffers: dict[str, loops.Buf], outlined: Container[str]):
        self.outlined = outlined
        self.calls = False
        self.buffers = buffers
        self.seen: set[int] = set()
        self.sizes: set[int] = set()
        self.types: set[str] = set()
        self.memory: set[str] = set()
        self.cost = self.loads = 0
        self.inner: set[str] = set()
        self.reductions: dict[str, str] = {}
        self.plain = True
        self.streaming = False
        self.transposed = 0
        self.scanned: set[str] = set()
        self.packed: set[str] = set()

    def expr(self, expr: loops.Expr) -> None:
        if id(expr) in self.seen:
            return
        self.seen.add(id(expr))
        if isinstance(expr, loops.ScalarOp):
            if expr.type != "i64":
                self.cost += 20 if expr.op in HEAVY else 1
                self.calls = self.calls or expr.op in self.outlined
                self.note(expr.type)
            for arg in expr.args:
                if arg.type != "i64":
                    self.note(arg.type)
        elif isinstance(expr, loops.Load):
            self.cost += 1
            self.loads += 1
            self.note_moved(expr.type)
            self.memory.add(expr.type)
        for part in _parts(expr):
            self.expr(part)

    def note(self, type_: str) -> None:
        """Record the type of an operand; half precision is computed in 32-bit registers."""
        self.note_moved("f32" if type_ in HALVES else type_)

    def note_moved(self, type_: str) -> None:
        """Record the type of a value that is only loaded and stored; complex values are pairs."""
        self.types.add(type_)
        if type_ != "bool":
            self.sizes.add(loops.ITEMSIZE[type_] // (2 if type_ in loops.COMPLEX else 1))

    def stmt(self, stmt: loops.Stmt) -> None:
        for expr in expressions(stmt):
            self.expr(expr)
        if isinstance(stmt, loops.Init):
            self.inner.add(stmt.name)
            self.note(stmt.value.type)
        elif isinstance(stmt, loops.Accum):
            self.accum(stmt)
        elif isinstance(stmt, loops.PrefixCombine):
            outside = [acc for acc in stmt.accs if acc not in self.inner]
            self.scanned.update(outside)
            self.cost += len(outside) * _SCAN_STEPS
        elif isinstance(stmt, loops.StoreElement | loops.Interleave | loops.Pack):
            self.write(stmt)
        elif isinstance(stmt, loops.While):
            self.plain = False
        for body in bodies(stmt):
            for child in body:
                self.stmt(child)

    def accum(self, stmt: loops.Accum) -> None:
        self.note(stmt.value.type)
        if stmt.name not in self.inner:
            if stmt.op == "set" or self.reductions.get(stmt.name, stmt.op) != stmt.op:
                self.plain = False
            self.reductions[stmt.name] = stmt.op

    def write(self, stmt: loops.StoreElement | loops.Interleave | loops.Pack) -> None:
        stored = self.buffers[stmt.buf].type
        self.memory.add(stored)
        if isinstance(stmt, loops.StoreElement) and stmt.accumulate:
            self.note(stored)
        else:
            self.note_moved(stored)
        if isinstance(stmt, loops.StoreElement):
            self.streaming = self.streaming or stmt.streaming
        elif isinstance(stmt, loops.Interleave):
            self.transposed = max(self.transposed, len(stmt.values))
        else:
            self.packed.add(stmt.acc)


def is_brief(kernel: loops.LoopsKernel) -> bool:
    """Return whether optimizing a kernel takes longer than it saves, as no loop has many iterations."""
    return iterations(kernel.body) <= BRIEF_ITERATIONS and not repeated_math(kernel.body)


def iterations(
    body: tuple[loops.Stmt, ...], computed: Callable[[loops.Expr], int | None] = lambda extent: None
) -> float:
    """Return the maximum runs of the innermost statements; `computed` bounds computed extents."""
    most = 1.0
    for stmt in body:
        if isinstance(stmt, loops.While):
            return math.inf
        if isinstance(stmt, loops.For):
            extent = stmt.extent if isinstance(stmt.extent, int) else computed(stmt.extent)
            most = max(
                most, iterations(stmt.body, computed) * (math.inf if extent is None else extent)
            )
        elif isinstance(stmt, loops.If):
            most = max(most, iterations(stmt.body, computed), iterations(stmt.orelse, computed))
    return most


def repeated_math(body: tuple[loops.Stmt, ...]) -> Container[str]:
    """Return the long functions that occur so often in a body that they should be called.

    Instruction selection takes superlinear time in the length of a block; a call adds little to the
    cost of a long function.
    """
    counts = _count(body)
    if counts.get("complex", 0) >= OUTLINE_FROM:
        return HEAVY
    return frozenset([op for op, count in counts.items() if count >= OUTLINE_FROM and op in HEAVY])


def consists_mostly_of_calls(body: tuple[loops.Stmt, ...], outlined: Container[str]) -> bool:
    """Return whether a body mostly calls functions, so that it needs no optimization itself."""
    counts = _count(body)
    calls = sum([count for op, count in counts.items() if op in outlined])
    return calls * _CALL_WORK >= sum(counts.values()) - calls


def _count(body: tuple[loops.Stmt, ...]) -> dict[str, int]:
    """Return the number of each operation outside addresses; complex functions count as `complex`."""
    counts: dict[str, int] = {}
    seen: set[int] = set()

    def visit(expr: loops.Expr) -> None:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        if isinstance(expr, loops.ScalarOp):
            if expr.type != "i64":
                name = (
                    "complex"
                    if expr.op in HEAVY and expr.args[0].type in loops.COMPLEX
                    else expr.op
                )
                counts[name] = counts.get(name, 0) + 1
        for part in _parts(expr):
            visit(part)

    waiting = list(body)
    while waiting:
        stmt = waiting.pop()
        for expr in expressions(stmt):
            visit(expr)
        waiting += [child for inner in bodies(stmt) for child in inner]
    return counts


def upper_bound(extent: loops.Expr | int) -> int | None:
    """Return the upper bound of a computed extent that is a minimum with a constant, else None."""
    if isinstance(extent, loops.ScalarOp) and extent.op == "min":
        constants = [arg.value for arg in extent.args if isinstance(arg, loops.Const)]
        return int(constants[0]) if constants else None
    return None


def plan_of(
    loop: loops.For,
    target: CpuTarget,
    buffers: dict[str, loops.Buf],
    extent: int | None,
    exact: bool = True,
    outlined: Container[str] = frozenset(),
) -> VectorizationPlan | None:
    """Return the plan of a vector loop; None to keep it scalar.

    `extent` is the number of iterations, or an upper bound if not `exact`, or None if unknown.
    """
    facts = _VectorLoopFacts(buffers, outlined)
    for stmt in loop.body:
        facts.stmt(stmt)
    if not facts.plain or extent == 1:
        return None
    # AVX2 has masked loads and stores of 4 and 8 bytes only.
    masked = target.has_masks or (
        target.level == "avx2" and all(loops.ITEMSIZE[type_] >= 4 for type_ in facts.memory)
    )
    lanes = _lanes(facts, target, extent, masked)
    if lanes < 2:
        return None
    parts = _count_parts(facts, lanes, extent, masked)
    if not exact:
        # A power of two: the low bits of the extent are then the remainder.
        parts = 1 << (parts.bit_length() - 1)
    has_rest = not exact or extent is None or extent % (lanes * parts) != 0
    merged = (
        target.has_masks
        and has_rest
        and facts.cost >= _MASKED_LOOP_COST
        and not (facts.streaming or facts.transposed or facts.scanned)
    )
    return VectorizationPlan(
        lanes,
        parts,
        masked,
        merged,
        facts.reductions,
        frozenset(facts.scanned),
        frozenset(facts.packed),
    )


def _lanes(facts: _VectorLoopFacts, target: CpuTarget, extent: int | None, masked: bool) -> int:
    """Return the number of lanes for the widest element and, if small, for the extent."""
    lanes = target.lanes(max(facts.sizes, default=1))
    if target.vector_bytes <= 16:
        lanes = min(lanes, 8)
    if extent is None:
        return lanes
    if extent < lanes:
        # the largest power of two that is not above the extent
        longest = 1 << extent.bit_length() >> 1
        lanes = max(4, 1 << (extent - 1).bit_length()) if masked else min(lanes, longest)
    if not masked:
        while lanes > 8 and extent % lanes and extent < _UNMASKED_VECTORS * lanes:
            lanes //= 2
    return lanes


def _count_parts(facts: _VectorLoopFacts, lanes: int, extent: int | None, masked: bool) -> int:
    """Return the number of vectors per iteration that registers and the extent allow."""
    parts = _parallel_parts(facts, lanes)
    if facts.types & loops.COMPLEX:
        parts = min(parts, 2)
    if extent is not None:
        parts = max(1, min(parts, -(-extent // lanes) if masked else extent // lanes))
        while not masked and lanes > 8 and parts > 1 and extent % (lanes * parts) >= lanes:
            parts -= 1
    if facts.transposed:
        parts = max(1, min(parts, _TRANSPOSE_REGISTERS // facts.transposed))
    return parts


def _parallel_parts(facts: _VectorLoopFacts, lanes: int) -> int:
    """Return the number of vectors to compute in parallel to hide latencies."""
    if facts.loads >= _MANY_LOADS:
        return 1
    if facts.cost > 16 and not facts.calls:
        return 2 if facts.cost <= 90 else 1
    return _PRODUCT_PARTS if lanes < 16 and "mul" in facts.reductions.values() else 4
