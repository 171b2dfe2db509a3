"""Loop outlining: a loop over scalars or short rows becomes one kernel, because calls of kernels would cost more than its work.

In:   a scheduled `Program`.
Out:  the same program, in which each loop that only has small steps (kernels of one task, copies, branches and counted loops of
      such steps) is a single `Launch`.
Laws: values used only by the loop are in registers or private memory of the kernel; all others are in memory when it ends. Short
      buffers with constant indices are registers. A kernel returns within about `OUTLINED_CALL_BYTES` bytes of work, so that
      signals are handled: an uncounted loop continues in another call, a longer counted loop is not outlined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from weft._engine.compiler.schedule.schedule import Scheduled
from weft._engine.ir import loops, program as P
from weft._engine.ir.build import HALVES, LoopsBuilder
from weft._engine.ir.program import OUTLINED_BYTES, OUTLINED_CALL_BYTES
from weft._engine.ir.registry import HEAVY
from weft._engine.util.record import field, record, replace

# thresholds, measured on several machines
#: maximal number of values in a kernel: the compile time of LLVM grows faster than the size of a function
_OUTLINED_NAMES = 400
#: maximal number of iterations of a loop that is fully unrolled
_OUTLINED_UNROLLED = 4
#: maximal number of unrolled iterations of nested loops, and of elements of a buffer in registers
_OUTLINED_ITERATIONS = 16
#: maximal number of operations in an unrolled loop
_OUTLINED_COST = 512


def with_loop_kernels(scheduled: Scheduled) -> Scheduled:
    """Return the program with its small loops outlined into kernels."""
    program = scheduled.program
    uses = Counter(ref.slot for step in program.steps for ref in P.refs_of(step))
    return replace(
        scheduled, program=replace(program, steps=_rewrite(program, uses, program.steps))
    )


def _rewrite(
    program: P.ScheduledProgram, uses: Counter, steps: Sequence[P.Step]
) -> tuple[P.Step, ...]:
    rewritten: list[P.Step] = []
    for step in steps:
        if isinstance(step, P.Loop | P.WhileLoop):
            try:
                rewritten.append(replace(_whole(program, uses, step), origin=step.origin))
                continue
            except _NotOutlinableError:
                step = replace(step, body=_rewrite(program, uses, step.body))
        elif isinstance(step, P.Branch):
            step = replace(
                step,
                branches=tuple([_rewrite(program, uses, branch) for branch in step.branches]),
            )
        rewritten.append(step)
    return tuple(rewritten)


def _whole(program: P.ScheduledProgram, uses: Counter, loop: P.Loop | P.WhileLoop) -> P.Step:
    """Return a loop as a kernel. The kernel is written twice: first to find the buffers that can be registers."""
    mine = Counter(ref.slot for ref in P.refs_of(loop))
    private = {
        slot for slot, count in mine.items() if program.slots[slot].is_temp and uses[slot] == count
    }
    if isinstance(loop, P.WhileLoop):
        private.discard(loop.cond.slot)
    types = {
        ref.slot: buf.type
        for launch in _launches(loop)
        for buf, ref in zip(launch.kernel.bufs, launch.args)
    }
    draft = _LoopKernelWriter(private, types, frozenset())
    draft.build_launch(loop)
    return _LoopKernelWriter(private, types, draft.registers()).build_launch(loop)


def _launches(step: object) -> Iterator[P.Launch]:
    """Yield the kernel launches in a loop."""
    if isinstance(step, P.Launch):
        yield step
    bodies = {P.Loop: ("body",), P.WhileLoop: ("cond_body", "body"), P.Branch: ("branches",)}
    for part in (
        step
        if isinstance(step, tuple)
        else [getattr(step, name) for name in bodies.get(type(step), ())]
    ):
        yield from _launches(part)


class _NotOutlinableError(Exception):
    """A reason not to outline a loop."""


@record(frozen=False)
class _OutlinedBuffer:
    """A buffer of the new kernel.

    `outer`: strides of its address along loops outside of the kernel. `reach`: the end of its used elements. `places`: the constant
    indices that are used."""

    name: str
    type: str
    outer: tuple[tuple[str, int], ...] = ()
    reach: int = 0
    private: bool = False
    constant: bool = True  # all indices are constants
    loaded: bool = False
    stored: bool = False
    in_registers: bool = False
    # its registers are initialized before the loop, because the condition uses them
    early: bool = False
    places: dict[int, None] = field(default_factory=dict)


class _LoopKernelWriter:
    def __init__(self, private: set[int], types: dict[int, str], registers: frozenset[str]):
        self.private, self.types, self.register_names = private, types, registers
        self.b = LoopsBuilder()
        # by slot; scratch of inner kernels by name
        self.memory: dict[int | str, _OutlinedBuffer] = {}
        # loop variables in the kernel: index of the iteration, number of iterations
        self.vars: dict[str, tuple[loops.Expr, int]] = {}
        self.names: dict[str, loops.Expr] = {}
        # buffers of the kernel being copied: memory and first element
        self.bufs: dict[str, tuple[_OutlinedBuffer, loops.Expr]] = {}
        self.memo: dict[int, loops.Expr] = {}
        self.count = self.work = 0
        self.copies = 1
        # (memory, id of index) -> index, value last stored there
        self.known: dict[tuple[str, int], tuple[loops.Expr, loops.Expr]] = {}
        self.in_vector = False

    def registers(self) -> frozenset[str]:
        """Return the names of the buffers that can be registers, and are faster as registers."""
        return frozenset(
            [
                m.name
                for m in self.memory.values()
                if m.constant
                and len(m.places) <= _OUTLINED_ITERATIONS
                and all(0 <= at < m.reach for at in m.places)
                and m.type not in HALVES
                and (m.private or (m.loaded and m.stored))
            ]
        )

    # ---- the loop

    def build_launch(self, loop: P.Loop | P.WhileLoop) -> P.Step:
        """Return the step that runs the kernel of a loop."""
        if isinstance(loop, P.Loop):
            iterations = self._write_counted_loop(loop, top=True)
            body, total = (
                [*self._load_registers(), *iterations, *self._store_registers()],
                self.work * loop.extent,
            )
            if total > OUTLINED_CALL_BYTES:
                raise _NotOutlinableError
        else:
            body, total = self._while(loop), OUTLINED_CALL_BYTES
        if self.work > OUTLINED_BYTES:
            raise _NotOutlinableError
        used = [(slot, m) for slot, m in self.memory.items() if type(slot) is int and not m.private]
        bufs = tuple(
            [
                loops.Buf(
                    m.name,
                    m.type,
                    m.reach,
                    "in" if not m.stored else "inout" if m.loaded else "out",
                )
                for _, m in used
            ]
        )
        scratch = tuple(
            [
                loops.Buf(m.name, m.type, m.reach)
                for m in self.memory.values()
                if m.private and not m.in_registers
            ]
        )
        kernel = loops.LoopsKernel(bufs, tuple(body), scratch, "loop")
        launch = P.Launch(kernel, tuple([P.BufRef(slot, 0, m.outer) for slot, m in used]), total)
        return launch if isinstance(loop, P.Loop) else P.WhileLoop((launch,), loop.cond, ())

    def _write_counted_loop(self, loop: P.Loop, top: bool = False) -> list[loops.Stmt]:
        """Return the statements of a counted loop; for the top loop, set `work` to the work of one iteration."""
        name = self._fresh("l")
        index = self.b.index(name, loop.extent)
        saved = self.vars
        self.vars = {
            **saved,
            loop.var: (self.b.isub(loop.extent - 1, index) if loop.reverse else index, loop.extent),
        }
        outside, self.work = self.work, 0
        body = self._inner(self._steps, loop.body)
        self.work = outside + self.work * (1 if top else loop.extent)
        self.vars = saved
        return [
            loops.For(
                name,
                loop.extent,
                (*self._inits(private=True), *body) if top else body,
                loops.LoopKind.SERIAL,
            )
        ]

    def _while(self, loop: P.WhileLoop) -> list[loops.Stmt]:
        """Return the statements of an uncounted loop; it stops after the maximal number of iterations between checks for signals."""
        first = self._steps(loop.cond_body)
        self._note_access(loop.cond, "bool", 1)
        cond = self._load(self._place(loop.cond, "bool"), None, None)
        for memory in self.memory.values():
            memory.early = True
        body = self._inner(self._steps, loop.body)
        again = self._steps(loop.cond_body)
        most = max(1, OUTLINED_CALL_BYTES // self.work)
        iterations = loops.ScalarRef("iterations", "i64")
        continues = loops.ScalarOp(
            "and",
            (cond, loops.ScalarOp("lt", (iterations, loops.Const(most, "i64")), "bool")),
            "bool",
        )
        iteration = [
            *self._inits(private=True),
            *body,
            *again,
            loops.Accum("iterations", "add", loops.Const(1, "i64")),
        ]
        outlined = [
            loops.Init("iterations", loops.Const(0, "i64")),
            loops.While(continues, tuple(iteration)),
        ]
        return [*self._load_registers(), *first, *outlined, *self._store_registers()]

    def _load_registers(self) -> list[loops.Stmt]:
        """Return the initializations, before the loop, of registers that are live across iterations."""
        return self._inits(private=False) + self._inits(private=True, early=True)

    def _inits(self, private: bool, early: bool = False) -> list[loops.Stmt]:
        inits: list[loops.Stmt] = []
        for m in self.memory.values():
            if m.in_registers and m.private == private and (not private or m.early == early):
                for place in m.places:
                    value = (
                        loops.Const(_zero(m.type), m.type)
                        if private
                        else loops.Load(m.name, loops.Const(place, "i64"), m.type)
                    )
                    inits.append(loops.Init(_register(m, place), value))
        return inits

    def _store_registers(self) -> list[loops.Stmt]:
        """Return the stores, after the loop, of registers whose values are read outside."""
        return [
            loops.StoreElement(
                m.name, loops.Const(at, "i64"), loops.ScalarRef(_register(m, at), m.type)
            )
            for m in self.memory.values()
            if m.in_registers and not m.private
            for at in m.places
        ]

    # ---- steps

    def _steps(self, steps: Sequence[P.Step]) -> list[loops.Stmt]:
        stmts: list[loops.Stmt] = []
        for step in steps:
            self.work += 64
            if self.work > OUTLINED_BYTES:
                raise _NotOutlinableError
            if isinstance(step, P.Launch):
                stmts += self._launch(step)
            elif isinstance(step, P.Copy):
                stmts += self._copy(step)
            elif isinstance(step, P.Loop) and step.extent > 0:
                stmts += self._write_counted_loop(step)
            elif isinstance(step, P.Branch):
                stmts += self._branch(step)
            elif not isinstance(step, P.Loop):
                raise _NotOutlinableError
        return stmts

    def _launch(self, step: P.Launch) -> list[loops.Stmt]:
        kernel = step.kernel
        if step.work or any(isinstance(s, loops.For) and s.is_parallel for s in kernel.body):
            raise _NotOutlinableError
        self.names, self.bufs = {}, {}
        for buf, ref in zip(kernel.bufs, step.args):
            self._note_access(ref, buf.type, buf.size)
            self.bufs[buf.name] = self._place(ref, buf.type)
        for buf in kernel.scratch:
            name = self._fresh("s")
            memory = self.memory[name] = _OutlinedBuffer(
                name,
                buf.type,
                reach=buf.size,
                private=True,
                in_registers=name in self.register_names,
            )
            self.bufs[buf.name] = memory, self.b.const(0, "i64")
        return self._body(kernel.body)

    def _copy(self, step: P.Copy) -> list[loops.Stmt]:
        refs = step.dst, step.src
        known = [self.types[ref.slot] for ref in refs if ref.slot in self.types]
        type_ = known[0] if known else "u8" if step.nbytes % 4 else "u32"
        for ref in refs:
            self.types.setdefault(ref.slot, type_)
        count = step.nbytes // loops.ITEMSIZE[type_]
        for ref in refs:
            self._note_access(ref, type_, count)
        self.bufs = dict(zip("yx", [self._place(ref, type_) for ref in refs]))
        self.names = {}
        at = loops.Index("j")
        return self._body(
            (
                loops.For(
                    "j",
                    count,
                    (loops.StoreElement("y", at, loops.Load("x", at, type_)),),
                    loops.LoopKind.VECTOR,
                ),
            )
        )

    def _branch(self, step: P.Branch) -> list[loops.Stmt]:
        """Return the branches as nested ifs; a comparison guards each but the last."""
        if len(step.branches) < 2:
            return self._steps(step.branches[0] if step.branches else ())
        self._note_access(step.index, "i32", 1)
        name = self._fresh("v")
        stmts: list[loops.Stmt] = [
            loops.Let(name, self._load(self._place(step.index, "i32"), None, None))
        ]
        bodies = [self._inner(self._steps, branch) for branch in step.branches]
        chosen = bodies[-1]
        for i in reversed(range(len(bodies) - 1)):
            chosen = (
                loops.If(
                    loops.ScalarOp(
                        "le", (loops.ScalarRef(name, "i32"), loops.Const(i, "i32")), "bool"
                    ),
                    bodies[i],
                    chosen,
                ),
            )
        return [*stmts, *chosen]

    # ---- places

    def _note_access(self, ref: P.BufRef, type_: str, count: int) -> None:
        """Record that `count` elements of `type_` from address `ref` on are used."""
        memory, size = self.memory.get(ref.slot), loops.ITEMSIZE[type_]
        outer = tuple([(var, stride) for var, stride in ref.strides if var not in self.vars])
        if memory is None:
            name = f"m{ref.slot}"
            memory = self.memory[ref.slot] = _OutlinedBuffer(
                name,
                type_,
                outer,
                private=ref.slot in self.private,
                in_registers=name in self.register_names,
            )
        inner = [(stride, self.vars[var][1]) for var, stride in ref.strides if var in self.vars]
        if (
            memory.type != type_
            or memory.outer != outer
            or any(n % size for n in (ref.offset, *(stride for stride, _ in inner)))
        ):
            raise _NotOutlinableError
        end = (
            ref.offset // size
            + count
            + sum([stride // size * (extent - 1) for stride, extent in inner])
        )
        memory.reach = max(memory.reach, end)

    def _place(self, ref: P.BufRef, type_: str) -> tuple[_OutlinedBuffer, loops.Expr]:
        """Return the memory of an address, and the index of its element."""
        b, size = self.b, loops.ITEMSIZE[type_]
        at = b.const(ref.offset // size, "i64")
        for var, stride in ref.strides:
            if var in self.vars:
                at = b.iadd(at, b.imul(self.vars[var][0], stride // size))
        return self.memory[ref.slot], at

    # ---- statements of kernels

    def _fresh(self, prefix: str) -> str:
        self.count += 1
        if self.count > _OUTLINED_NAMES:
            raise _NotOutlinableError
        return f"{prefix}{self.count}"

    def _fresh_name(self, name: str, type_: str) -> str:
        """Return a unique name for the value that a kernel calls `name`."""
        fresh = self._fresh("v")
        self.names[name] = loops.ScalarRef(fresh, type_)
        return fresh

    def _body(self, stmts: Sequence[loops.Stmt]) -> list[loops.Stmt]:
        copied: list[loops.Stmt] = []
        outer = dict(self.names)
        for stmt in stmts:
            self.memo = {}
            copied += self._stmt(stmt)
        self.names = outer
        return copied

    def _inner(
        self, write: Callable[[Sequence], list[loops.Stmt]], what: Sequence
    ) -> tuple[loops.Stmt, ...]:
        """Return statements that may run any number of times: known stored values are forgotten before and after them."""
        self.known = {}
        stmts = write(what)
        self.known = {}
        return tuple(stmts)

    def _stmt(self, stmt: loops.Stmt) -> list[loops.Stmt]:
        match stmt:
            case loops.Let() | loops.Init():
                return self._definition(stmt)
            case loops.Accum():
                name, value = self._name(stmt.name), self._expr(stmt.value)
                return [replace(stmt, name=name, value=value, guard=self._maybe(stmt.guard))]
            case loops.PrefixCombine():
                return [self._scan(stmt)]
            case loops.StoreElement():
                return self._store(stmt)
            case loops.Interleave():
                memory, index = self._element(stmt.buf, stmt.index)
                self._record_store(memory, index)
                memory.constant = False
                values = tuple([self._expr(x) for x in stmt.values])
                return [loops.Interleave(memory.name, index, values)]
            case loops.Pack():
                return [self._pack(stmt)]
            case loops.Prefetch():
                return []
            case loops.For():
                return self._for(stmt)
            case loops.If():
                cond, body = self._expr(stmt.cond), self._inner(self._body, stmt.body)
                return [loops.If(cond, body, self._inner(self._body, stmt.orelse))]
        raise _NotOutlinableError

    def _definition(self, stmt: loops.Let | loops.Init) -> list[loops.Stmt]:
        value = self._expr(stmt.value)
        if isinstance(value, loops.Const) and isinstance(stmt, loops.Let):
            self.names[stmt.name] = value
            return []
        return [type(stmt)(self._fresh_name(stmt.name, value.type), value)]

    def _scan(self, stmt: loops.PrefixCombine) -> loops.PrefixCombine:
        values = tuple([self._expr(x) for x in stmt.values])
        names = tuple([self._fresh_name(name, x.type) for name, x in zip(stmt.names, values)])
        self.memo = {}
        accs = tuple(map(self._name, stmt.accs))
        return loops.PrefixCombine(
            names, accs, values, tuple([self._expr(x) for x in stmt.combine])
        )

    def _pack(self, stmt: loops.Pack) -> loops.Pack:
        memory, first = self.bufs[stmt.buf]
        if not (isinstance(first, loops.Const) and first.value == 0):
            raise _NotOutlinableError
        self._record_store(memory, first)
        memory.constant = False
        acc, value = self._name(stmt.acc), self._expr(stmt.value)
        return loops.Pack(acc, memory.name, value, self._expr(stmt.guard))

    def _name(self, name: str) -> str:
        named = self.names[name]
        if not isinstance(named, loops.ScalarRef | loops.Index):
            raise _NotOutlinableError
        return named.name

    def _maybe(self, expr: loops.Expr | None) -> loops.Expr | None:
        return None if expr is None else self._expr(expr)

    def _for(self, stmt: loops.For) -> list[loops.Stmt]:
        extent = stmt.extent if isinstance(stmt.extent, int) else self._expr(stmt.extent)
        extent = extent.value if isinstance(extent, loops.Const) else extent
        if not isinstance(extent, int):
            raise _NotOutlinableError
        copies = self.copies * extent
        short = (
            extent <= _OUTLINED_UNROLLED and copies <= _OUTLINED_ITERATIONS and not self.in_vector
        )
        if short and copies * _cost(stmt.body, set()) <= _OUTLINED_COST:
            return self._unroll(stmt, extent)
        name, work, saved = self._fresh("i"), self.work, self.in_vector
        self.names[stmt.var] = self.b.index(name, extent)
        self.work, self.in_vector = 0, saved or stmt.is_vector
        body = self._inner(self._body, stmt.body)
        self.work, self.in_vector = work + extent * max(4, self.work), saved
        return [loops.For(name, extent, body, stmt.kind)]

    def _unroll(self, stmt: loops.For, extent: int) -> list[loops.Stmt]:
        stmts, saved = [], self.copies
        self.copies = saved * extent
        for i in range(extent):
            self.names[stmt.var] = self.b.const(i, "i64")
            stmts += self._body(stmt.body)
        self.copies = saved
        return stmts

    def _element(self, buf: str, index: loops.Expr) -> tuple[_OutlinedBuffer, loops.Expr]:
        """Return the memory of a kernel's buffer, and the index of the element in it."""
        memory, first = self.bufs[buf]
        return memory, self.b.iadd(first, self._expr(index))

    @staticmethod
    def _note_known_element(memory: _OutlinedBuffer, at: loops.Expr) -> None:
        """Record an index: a constant index is a candidate for a register."""
        if isinstance(at, loops.Const):
            memory.places[at.value] = None
        else:
            memory.constant = False

    def _store(self, stmt: loops.StoreElement) -> list[loops.Stmt]:
        memory, at = self._element(stmt.buf, stmt.index)
        value, guard = self._expr(stmt.value), self._maybe(stmt.guard)
        if isinstance(guard, loops.Const):
            if not guard.value:
                return []
            guard = None
        self._record_store(memory, at)
        if memory.in_registers:
            return [loops.Accum(_register_at(memory, at), stmt.accumulate or "set", value, guard)]
        if self.in_vector or guard is not None or stmt.accumulate or memory.type in HALVES:
            return [loops.StoreElement(memory.name, at, value, guard, stmt.accumulate)]
        name = self._fresh("v")
        stored = value if isinstance(value, loops.Const) else loops.ScalarRef(name, memory.type)
        self.known[memory.name, id(at)] = at, stored
        return (
            [loops.StoreElement(memory.name, at, value)]
            if stored is value
            else [loops.Let(name, value), loops.StoreElement(memory.name, at, stored)]
        )

    def _record_store(self, memory: _OutlinedBuffer, at: loops.Expr) -> None:
        """Record a store; known values at indices that may be equal are forgotten."""
        memory.stored = True
        self._note_known_element(memory, at)
        memory.constant = memory.constant and not self.in_vector
        terms, first = self._form(at)
        for key, (other, _) in list(self.known.items()):
            its_terms, its_first = self._form(other)
            if key[0] == memory.name and (terms != its_terms or first == its_first):
                del self.known[key]

    def _form(self, at: loops.Expr) -> tuple[dict[int, int], int]:
        """Return an index as an affine form: its terms and the constant."""
        return self.b.affine(at) or ({id(at): 1}, 0)

    # ---- expressions

    def _load(
        self,
        place: tuple[_OutlinedBuffer, loops.Expr],
        guard: loops.Expr | None,
        other: loops.Expr | None,
    ) -> loops.Expr:
        memory, offset = place
        zero = loops.Const(_zero(memory.type), memory.type)
        if isinstance(guard, loops.Const):
            if not guard.value:
                return other or zero
            guard = None
        memory.loaded = True
        self._note_known_element(memory, offset)
        if not memory.in_registers:
            if guard is None and (memory.name, id(offset)) in self.known:
                return self.known[memory.name, id(offset)][1]
            return loops.Load(memory.name, offset, memory.type, guard, other)
        value = loops.ScalarRef(_register_at(memory, offset), memory.type)
        return (
            value
            if guard is None
            else loops.ScalarOp("select", (guard, value, other or zero), memory.type)
        )

    def _expr(self, expr: loops.Expr) -> loops.Expr:
        rewritten = self.memo.get(id(expr))
        if rewritten is None:
            rewritten = self.memo[id(expr)] = self._expression(expr)
        return rewritten

    def _expression(self, expr: loops.Expr) -> loops.Expr:
        if isinstance(expr, loops.Const):
            return self.b.const(expr.value, "i64") if expr.type == "i64" else expr
        if isinstance(expr, loops.Index | loops.ScalarRef):
            return self.names[expr.name]
        if isinstance(expr, loops.Load):
            return self._load(
                self._element(expr.buf, expr.index),
                self._maybe(expr.guard),
                self._maybe(expr.other),
            )
        args = tuple([self._expr(arg) for arg in expr.args])
        if expr.op == "select" and isinstance(args[0], loops.Const):
            return args[1] if args[0].value else args[2]
        if all(kind in ("i64", "bool") for kind in (expr.type, *(a.type for a in args))):
            return self.b.op(expr.op, *args, type=expr.type)
        return loops.ScalarOp(expr.op, args, expr.type)


def _cost(part: object, seen: set[int]) -> int:
    """Return the number of operations in statements or expressions, without addresses; heavy functions count 20."""
    if id(part) in seen:
        return 0
    seen.add(id(part))
    if isinstance(part, tuple):
        return sum([_cost(inner, seen) for inner in part])
    own = (
        0
        if not isinstance(part, loops.ScalarOp) or part.type == "i64"
        else 20
        if part.op in HEAVY
        else 1
    )
    return own + sum(
        [_cost(getattr(part, name), seen) for name in getattr(type(part), "__slots__", ())]
    )


def _register(memory: _OutlinedBuffer, at: int) -> str:
    return f"{memory.name}_{at}"


def _register_at(memory: _OutlinedBuffer, at: loops.Expr) -> str:
    """Return the register of an element of a memory in registers, whose index must be a constant."""
    if not isinstance(at, loops.Const):
        raise _NotOutlinableError
    return _register(memory, at.value)


def _zero(type_: str) -> object:
    return (
        False
        if type_ == "bool"
        else 0
        if type_ in loops.INTEGERS
        else 0.0
        if type_ in loops.FLOATS
        else 0j
    )
