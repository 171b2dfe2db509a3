"""Provenance of kernels: the elements in memory that each stored element depends on.

In:   a Loops `Kernel`.
Out:  `Provenance`: for each stored element, a tree of loaded elements; whether all iterations ran.
How:  the kernel is translated to a Python function. Expressions of loop variables and constants are
      numbers. Everything that depends on memory is a tree: None, the number of a loaded element, or
      a tuple of trees. Accesses are checked when they run. If a kernel runs more statements than
      the budget, loops without carried values run only some of their iterations; if that does not
      suffice, all loops do, and the trees are incomplete.
Laws: both operands of a select are evaluated, as in native code; if the condition is a number, only
      the selected one counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.ir import loops as L, loops_eval
from weft._engine.util.record import field, record
from weft._engine.verification.equation_maps import UncheckedKernelError

#: None, a loaded element, or a tuple of trees
Tree = Any
#: maximum number of statements that run
BUDGET = 20_000
#: the leaf of a value that lacks some of its iterations
INCOMPLETE = -1


class AccessError(Exception):
    """An access of a kernel that is invalid regardless of its equations."""

    def __init__(self, buf: str, problem: str) -> None:
        super().__init__(f"{buf}: {problem}")
        self.buf = buf


@record(frozen=False)
class Provenance:
    """The result of a run.

    `stored`: for each result, trees by element. `whole`: every iteration ran. `complete`: no tree
    lacks loads. `combined`: for each accumulator, the numbers of values that it had combined where
    it was used. Element i of input k has number `bases[k] + i`; `-2 - k` stands for all elements of
    input k.
    """

    inputs: list[str]
    bases: list[int]
    stored: dict[str, dict[int, Tree]]
    whole: bool
    complete: bool
    combined: dict[str, set[int]]


def leaves_of(tree: Tree) -> set[int]:
    """Return the numbers in a tree.

    >>> sorted(leaves_of((1, (None, 2), (2, 3))))
    [1, 2, 3]
    """
    reached: set[int] = set()
    seen: set[int] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if type(node) is tuple:
            if id(node) not in seen:
                seen.add(id(node))
                stack.extend(node)
        elif node is not None:
            reached.add(node)
    return reached


def provenance_of(
    kernel: L.LoopsKernel, given: Mapping[str, np.ndarray] | None = None
) -> Provenance:
    """Run a kernel on provenance. Elements of `given` inputs are numbers.

    Raise AccessError for an invalid access, and UncheckedKernelError if the kernel is not covered.
    """
    writer = _ProvenanceFunctionWriter(kernel, given or {})
    run = writer.function()
    for samples, partial in ((None, False), (4, False), (2, False), (3, True)):
        if _least_statements(kernel.body, samples, writer.carrying, partial) > BUDGET:
            continue
        machine = _ProvenanceInterpreter(kernel, samples, partial)
        try:
            run(machine)
        except _BudgetError:
            continue
        whole = not machine.cut
        if whole:
            machine.check_all_stored()
        machine.check_overwritten()
        return Provenance(
            writer.inputs, writer.bases, machine.stored, whole, whole or not partial, machine.counts
        )
    raise UncheckedKernelError("it runs too many statements")


class _BudgetError(Exception):
    """The run exceeds the budget of statements."""


class _ProvenanceInterpreter:
    """Memory and iteration counts of one run."""

    def __init__(self, kernel: L.LoopsKernel, samples: int | None, partial: bool) -> None:
        self.samples, self.partial = samples, partial
        self.budget = BUDGET
        self.cut = False
        self.random = random.Random(0)
        self.sizes = {buf.name: buf.size for buf in (*kernel.bufs, *kernel.scratch)}
        self.stored: dict[str, dict[int, Tree]] = {
            b.name: {} for b in kernel.bufs if b.mode != "in"
        }
        self.scratch: dict[str, dict[int, Tree]] = {b.name: {} for b in kernel.scratch}
        self.tasks: dict[str, dict[int, int]] = {name: {} for name in self.stored}
        self.task = 0
        self.counts: dict[str, set[int]] = {}
        self.overwritten: list[tuple[str, int, Tree, Tree, bool]] = []

    def iterations(self, extent: int, carries: bool, statements: int) -> Iterable[int]:
        """Return the iterations of a loop that run."""
        chosen: Sequence[int] = range(extent)
        if self.samples is not None and extent > self.samples and (self.partial or not carries):
            middle = self.random.sample(range(1, extent - 1), self.samples - 2)
            chosen, self.cut = sorted((0, *middle, extent - 1)), True
        self.budget -= len(chosen) * statements
        if self.budget < 0:
            raise _BudgetError
        return chosen

    def record_combined_count(self, name: str, count: int) -> None:
        """Record the number of values that an accumulator has combined where it is used."""
        self.counts.setdefault(name, set()).add(count)

    def begin_task(self, task: int) -> None:
        """Begin an iteration of the parallel loop, with scratch memory of its own."""
        self.task = task
        for memory in self.scratch.values():
            memory.clear()

    def raise_out_of_bounds(self, buf: str, index: int) -> Tree:
        """Raise AccessError for an index outside of its buffer."""
        raise AccessError(buf, f"element {index} is outside of its {self.sizes[buf]} elements")

    def read(self, buf: str, index: int) -> Tree:
        """Return the tree of an element that the kernel has stored."""
        own = self.scratch.get(buf)
        memory = self.stored[buf] if own is None else own
        if index not in memory:
            if not 0 <= index < self.sizes[buf]:
                self.raise_out_of_bounds(buf, index)
            if self.cut:
                return INCOMPLETE
            raise AccessError(buf, f"element {index} is read before it is written")
        if own is None and self.tasks[buf][index] != self.task:
            raise AccessError(
                buf,
                f"element {index} is read by task {self.task}, "
                f"but task {self.tasks[buf][index]} writes it",
            )
        return memory[index]

    def store(self, buf: str, index: int, tree: Tree) -> None:
        """Store a tree; overwritten elements of results are recorded."""
        if not 0 <= index < self.sizes[buf]:
            self.raise_out_of_bounds(buf, index)
        own = self.scratch.get(buf)
        if own is not None:
            own[index] = tree
            return
        memory = self.stored[buf]
        if index in memory:
            self.overwritten.append(
                (buf, index, memory[index], tree, self.tasks[buf][index] != self.task)
            )
        memory[index] = tree
        self.tasks[buf][index] = self.task

    def update(self, buf: str, index: int, tree: Tree) -> None:
        """Combine a tree into an element."""
        self.store(buf, index, (self.read(buf, index), tree))

    def unknown(self, buf: str, *parts: Tree) -> Tree:
        """Return the tree of a load from the kernel's own memory at an unknown index."""
        own = self.scratch.get(buf)
        return (*(self.stored[buf] if own is None else own).values(), *parts)

    def check_all_stored(self) -> None:
        for buf, memory in self.stored.items():
            if len(memory) < self.sizes[buf]:
                missing = next(i for i in range(self.sizes[buf]) if i not in memory)
                raise AccessError(
                    buf,
                    f"element {missing} is never written ({len(memory)} of {self.sizes[buf]} are)",
                )

    def check_overwritten(self) -> None:
        """Raise AccessError if an element is stored twice with independent values.

        Two tasks may store the same value, as overlapping tiles at the end of a dim do.
        """
        for buf, index, old, new, by_tasks in random.Random(0).sample(
            self.overwritten, min(len(self.overwritten), 200)
        ):
            before, after = leaves_of(old), leaves_of(new)
            if not before <= after or (by_tasks and before != after):
                writers = "by two tasks" if by_tasks else "twice"
                raise AccessError(
                    buf, f"element {index} is written {writers}, with different values"
                )


@record(frozen=False)
class _ProvenanceLoopFacts:
    """The accumulators and buffers that the body of a loop uses."""

    updated: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    read_first: set[str] = field(default_factory=set)
    reads: dict[str, int] = field(default_factory=dict)


class _ProvenanceFunctionWriter:
    """Writer of the Python function of a kernel."""

    def __init__(self, kernel: L.LoopsKernel, given: Mapping[str, np.ndarray]) -> None:
        self.kernel = kernel
        self.given = {name: f"g{k}" for k, name in enumerate(given)}
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.numbers: set[str] = set()  # names whose values are numbers
        self.constants: dict[str, Any] = {
            self.given[name]: values.reshape(-1).tolist() for name, values in given.items()
        }
        self.memo: dict[tuple[int, bool | str], str] = {}
        self.accumulators: set[str] = set()
        self.count = 0
        self.depth = 1
        self.inputs = [b.name for b in kernel.bufs if b.mode == "in"]
        self.bases: list[int] = []
        at = 0
        for buf in kernel.bufs:
            if buf.mode == "in":
                self.bases.append(at)
                at += buf.size
        self.base = dict(zip(self.inputs, self.bases))
        self.sizes = {b.name: b.size for b in (*kernel.bufs, *kernel.scratch)}
        facts: dict[int, _ProvenanceLoopFacts] = {}
        total = _facts(kernel.body, facts)
        self.carrying = {key for key, loop in facts.items() if _carries(loop, total)}
        self.needed = _needed_names(kernel.body)

    def function(self) -> Callable[[_ProvenanceInterpreter], None]:
        """Return the function."""
        self._body(self.kernel.body)
        text = "\n".join(
            [
                "def run(m):",
                " read, store, outside, combined = m.read, m.store, m.raise_out_of_bounds, m.record_combined_count",
                *self.lines,
                " return",
            ]
        )
        space: dict[str, Any] = {
            "apply": loops_eval.apply,
            "scalar": loops_eval.scalar,
            "div": _div,
            "rem": _rem,
            **self.constants,
        }
        # the text consists of names and numbers only
        exec(compile(text, "<kernel provenance>", "exec"), space)
        return space["run"]

    # ---- statements

    def _line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def _temp(self, text: str) -> str:
        self.count += 1
        name = f"t{self.count}"
        self._line(f"{name} = {text}")
        return name

    def _name(self, name: str) -> str:
        number = self.names.get(name)
        if number is None:
            number = self.names[name] = f"n{len(self.names)}"
        return number

    def _body(self, body: Sequence[L.Stmt]) -> None:
        for stmt in body:
            self.memo = {}
            self._stmt(stmt)

    def _stmt(self, stmt: L.Stmt) -> None:
        if isinstance(stmt, L.Let):
            self._let(stmt)
        elif isinstance(stmt, L.Init):
            self.numbers.discard(stmt.name)
            name = self._name(stmt.name)
            self.accumulators.add(stmt.name)
            self._line(f"{name} = {self._tree(stmt.value)}")
            self._line(f"k{name} = 0")
        elif isinstance(stmt, L.Accum):
            self._accum(stmt)
        elif isinstance(stmt, L.PrefixCombine):
            parts = [self._name(a) for a in stmt.accs] + [self._tree(v) for v in stmt.values]
            joined = self._temp(_tuple(parts))
            for name in (*stmt.names, *stmt.accs):
                self.numbers.discard(name)
                self._line(f"{self._name(name)} = {joined}")
        elif isinstance(stmt, L.StoreElement):
            self._store(stmt)
        elif isinstance(stmt, L.Interleave):
            at = self._place(stmt.buf, stmt.index)
            for k, value in enumerate(stmt.values):
                self._line(f"store({stmt.buf!r}, {at} + {k}, {self._tree(value)})")
        elif isinstance(stmt, L.For):
            self._loop(stmt)
        elif isinstance(stmt, L.If):
            self._branch(stmt)
        elif not isinstance(stmt, L.Prefetch):
            raise UncheckedKernelError(f"it has a {type(stmt).__name__}")

    def _let(self, stmt: L.Let) -> None:
        if not self._is_number(stmt.value):
            self.numbers.discard(stmt.name)
            self._line(f"{self._name(stmt.name)} = {self._tree(stmt.value)}")
            return
        self.numbers.add(stmt.name)
        if stmt.name in self.needed:
            self._line(f"{self._name(stmt.name)} = {self._number(stmt.value)}")

    def _accum(self, stmt: L.Accum) -> None:
        name = self._name(stmt.name)
        source = stmt.value.name if isinstance(stmt.value, L.ScalarRef) else None
        inner = source if source in self.accumulators else None
        value = self._name(inner) if inner is not None else self._tree(stmt.value)
        self._line(f"k{name} += {1 if inner is None else 'k' + self._name(inner)}")
        old = "None" if stmt.op == "set" else name
        if stmt.guard is None:
            self._line(f"{name} = {_tuple([old, value])}")
        elif self._is_number(stmt.guard):
            self._line(f"if {self._number(stmt.guard)}: {name} = {_tuple([old, value])}")
        else:
            self._line(f"{name} = {_tuple([name, value, self._tree(stmt.guard)])}")

    def _place(self, buf: str, index: L.Expr) -> str:
        if not self._is_number(index):
            raise UncheckedKernelError(f"it stores to {buf} at places that depend on data")
        return self._number(index)

    def _store(self, stmt: L.StoreElement) -> None:
        at, value = self._place(stmt.buf, stmt.index), self._tree(stmt.value)
        call = (
            f"m.update({stmt.buf!r}, {at}, {value})"
            if stmt.accumulate
            else f"store({stmt.buf!r}, {at}, {value})"
        )
        if stmt.guard is None:
            self._line(call)
        elif self._is_number(stmt.guard):
            self._line(f"if {self._number(stmt.guard)}: {call}")
        else:
            raise UncheckedKernelError(
                f"it stores to {stmt.buf} if a data-dependent condition holds"
            )

    def _loop(self, stmt: L.For) -> None:
        if isinstance(stmt.extent, int):
            extent = str(stmt.extent)
        elif self._is_number(stmt.extent):
            extent = self._number(stmt.extent)
        else:
            raise UncheckedKernelError("the extent of a loop depends on data")
        name = self._name(stmt.var)
        self._line(
            f"for {name} in m.iterations({extent}, {id(stmt) in self.carrying}, {len(stmt.body)}):"
        )
        self.depth += 1
        if stmt.is_parallel:
            self._line(f"m.begin_task({name})")
        self.numbers.add(stmt.var)
        self._body(stmt.body)
        self._line("pass")
        self.depth -= 1

    def _branch(self, stmt: L.If) -> None:
        if not self._is_number(stmt.cond):
            raise UncheckedKernelError("a branch depends on data")
        self._line(f"if {self._number(stmt.cond)}:")
        for k, body in enumerate((stmt.body, stmt.orelse)):
            if k:
                self._line("else:")
            self.depth += 1
            self._body(body)
            self._line("pass")
            self.depth -= 1

    # ---- expressions

    def _is_number(self, expr: L.Expr) -> bool:
        """Return whether an expression depends on no memory and no accumulator."""
        key = (id(expr), False)
        form = self.memo.get(key)
        if form is None:
            if isinstance(expr, L.Load):
                parts = [x for x in (expr.index, expr.guard, expr.other) if x is not None]
                form = (
                    "number"
                    if expr.buf in self.given and all(self._is_number(x) for x in parts)
                    else ""
                )
            elif isinstance(expr, L.ScalarRef):
                variable = expr.name
                form = "number" if variable in self.numbers else ""
            elif isinstance(expr, L.ScalarOp):
                form = "number" if all(self._is_number(a) for a in expr.args) else ""
            else:
                form = "number"
            self.memo[key] = form
        return bool(form)

    def _number(self, expr: L.Expr) -> str:
        """Write the value of an expression of loop variables and constants."""
        if isinstance(expr, L.Const):
            if expr.type == "bool" or expr.type in L.INTEGERS:
                return f"({expr.value!r})"
            return self._constant(loops_eval.scalar(expr.value, expr.type))
        if isinstance(expr, L.Index | L.ScalarRef):
            return self._name(expr.name)
        key = (id(expr), True)
        name = self.memo.get(key)
        if name is None:
            if isinstance(expr, L.Load):
                text = self._given_load(expr)
            else:
                text = self._number_op(expr, [self._number(a) for a in expr.args])
            name = self.memo[key] = self._temp(text)
        return name

    def _given_load(self, expr: L.Load) -> str:
        """Write the load of an element of a given input."""
        at, size = self._number(expr.index), self.sizes[expr.buf]
        loaded = (
            f"({self.given[expr.buf]}[{at}] if 0 <= {at} < {size} else outside({expr.buf!r}, {at}))"
        )
        if expr.guard is None:
            return loaded
        other = (
            ("False" if expr.type == "bool" else "0")
            if expr.other is None
            else self._number(expr.other)
        )
        return f"{loaded} if {self._number(expr.guard)} else {other}"

    def _number_op(self, expr: L.ScalarOp, args: list[str]) -> str:
        op, source = expr.op, expr.args[0].type
        if op == "select":
            return f"{args[1]} if {args[0]} else {args[2]}"
        if op in _COMPARE:
            return f"{args[0]} {_COMPARE[op]} {args[1]}"
        discrete = all(t == "bool" or t in L.INTEGERS for t in (source, expr.type))
        if source == "bool" and op in ("and", "or", "not", "xor"):
            return {"and": "{} and {}", "or": "{} or {}", "not": "not {}", "xor": "{} != {}"}[
                op
            ].format(*args)
        if discrete and op == "cast":
            return f"{args[0]} != 0" if expr.type == "bool" else _wrap(f"int({args[0]})", expr.type)
        if discrete and op in _INTEGER:
            return _wrap(_INTEGER[op].format(*args), expr.type)
        values = [f"scalar({a}, {x.type!r})" for a, x in zip(args, expr.args)]
        text = f"apply({op!r}, [{', '.join(values)}], {expr.type!r})"
        if expr.type == "bool":
            return f"bool({text})"
        return f"int({text})" if expr.type in L.INTEGERS else text

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _tree(self, expr: L.Expr) -> str:
        """Write the tree of an expression; `None` for numbers."""
        if self._is_number(expr):
            return "None"
        if isinstance(expr, L.ScalarRef):
            accumulator, name = expr.name, self._name(expr.name)
            if accumulator in self.accumulators and (id(expr), "count") not in self.memo:
                self.memo[id(expr), "count"] = name
                self._line(f"combined({accumulator!r}, k{name})")
            return name
        key = (-id(expr), True)
        tree = self.memo.get(key)
        if tree is None:
            if isinstance(expr, L.Load):
                tree = self._load(expr)
            else:
                assert isinstance(expr, L.ScalarOp)  # constants and indices are numbers
                tree = self._tree_op(expr)
            self.memo[key] = tree
        return tree

    def _tree_op(self, expr: L.ScalarOp) -> str:
        if expr.op == "select" and self._is_number(expr.args[0]):
            one, other = self._tree(expr.args[1]), self._tree(expr.args[2])
            return self._temp(f"{one} if {self._number(expr.args[0])} else {other}")
        text = _tuple([self._tree(a) for a in expr.args])
        return self._temp(text) if text.startswith("(") else text

    def _load(self, expr: L.Load) -> str:
        buf, guard = expr.buf, expr.guard
        other = "None" if expr.other is None else self._tree(expr.other)
        base, size = self.base.get(buf), self.sizes[buf]
        if not self._is_number(expr.index):
            extra = [self._tree(expr.index), *([] if guard is None else [self._tree(guard)]), other]
            if base is None:
                return self._temp(f"m.unknown({buf!r}, {', '.join(extra)})")
            value = _tuple([str(-2 - self.inputs.index(buf)), *extra])
            if guard is not None and self._is_number(guard):
                return self._temp(f"{value} if {self._number(guard)} else {other}")
            return self._temp(value)
        at = self._number(expr.index)
        inside = f"0 <= {at} < {size}"
        loaded = (
            f"read({buf!r}, {at})"
            if base is None
            else f"({base} + {at} if {inside} else outside({buf!r}, {at}))"
        )
        if guard is None:
            return self._temp(loaded)
        if self._is_number(guard):
            return self._temp(f"{loaded} if {self._number(guard)} else {other}")
        parts = [self._tree(guard), other]
        return self._temp(f"{_tuple([loaded, *parts])} if {inside} else {_tuple(parts)}")


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INTEGER = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "div": "div({}, {})",
    "rem": "rem({}, {})",
    "and": "{} & {}",
    "or": "{} | {}",
    "xor": "{} ^ {}",
    "neg": "-{}",
    "abs": "abs({})",
}


def _div(x: int, y: int) -> int:
    """Return the quotient rounded toward zero; all bits set for a zero divisor."""
    if y == 0:
        return -1
    return x // y if (x < 0) == (y < 0) else -(-x // y)


def _rem(x: int, y: int) -> int:
    return x if y == 0 else x - _div(x, y) * y


def _wrap(text: str, type_: str) -> str:
    """Wrap an integer to the width of its type; index arithmetic never overflows."""
    if type_ == "i64":
        return text
    bits = 8 * L.ITEMSIZE[type_]
    if type_ in L.UNSIGNED:
        return f"({text}) & {(1 << bits) - 1}"
    half = 1 << (bits - 1)
    return f"((({text}) + {half}) & {(1 << bits) - 1}) - {half}"


def _tuple(parts: Sequence[str]) -> str:
    """Write the union of trees."""
    names = list(dict.fromkeys(p for p in parts if p != "None"))
    if not names:
        return "None"
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


# ---- facts of loops


def _facts(body: Sequence[L.Stmt], out: dict[int, _ProvenanceLoopFacts]) -> _ProvenanceLoopFacts:
    """Return the facts of a body, and add the facts of its loops to `out`."""
    facts = _ProvenanceLoopFacts()

    def read(*exprs: L.Expr | None) -> None:
        for buf in _buffers_read(exprs):
            facts.reads[buf] = facts.reads.get(buf, 0) + 1
            if buf not in facts.written:
                facts.read_first.add(buf)

    for stmt in body:
        if isinstance(stmt, L.Let):
            read(stmt.value)
        elif isinstance(stmt, L.Init):
            read(stmt.value)
            facts.declared.add(stmt.name)
        elif isinstance(stmt, L.Accum):
            read(stmt.value, stmt.guard)
            facts.updated.add(stmt.name)
        elif isinstance(stmt, L.PrefixCombine):
            read(*stmt.values)
            facts.updated.update(stmt.accs)
        elif isinstance(stmt, L.StoreElement):
            read(stmt.index, stmt.value, stmt.guard)
            if stmt.accumulate:
                read(L.Load(stmt.buf, L.Const(0, "i64"), stmt.value.type))
            facts.written.add(stmt.buf)
        elif isinstance(stmt, L.Interleave):
            read(stmt.index, *stmt.values)
            facts.written.add(stmt.buf)
        elif isinstance(stmt, L.For):
            inner = out[id(stmt)] = _facts(stmt.body, out)
            _add(facts, inner)
        elif isinstance(stmt, L.If):
            for part in (stmt.body, stmt.orelse):
                _add(facts, _facts(part, out))
    facts.updated -= facts.declared
    return facts


def _add(facts: _ProvenanceLoopFacts, inner: _ProvenanceLoopFacts) -> None:
    facts.read_first |= inner.read_first - facts.written
    facts.updated |= inner.updated
    facts.written |= inner.written
    for buf, count in inner.reads.items():
        facts.reads[buf] = facts.reads.get(buf, 0) + count


def _carries(loop: _ProvenanceLoopFacts, total: _ProvenanceLoopFacts) -> bool:
    """Return whether later iterations of a loop, or statements after it, read values that its
    iterations leave."""
    if loop.updated or loop.written & loop.read_first:
        return True
    return any(total.reads.get(buf, 0) > loop.reads.get(buf, 0) for buf in loop.written)


def _buffers_read(exprs: Iterable[L.Expr | None]) -> set[str]:
    buffers: set[str] = set()
    seen: set[int] = set()
    stack = [x for x in exprs if x is not None]
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, L.ScalarOp):
            stack += x.args
        elif isinstance(x, L.Load):
            buffers.add(x.buf)
            stack += [part for part in (x.index, x.guard, x.other) if part is not None]
    return buffers


def _needed_names(body: Sequence[L.Stmt]) -> set[str]:
    """Return the names that indices, conditions and extents use, directly or indirectly."""
    needed: set[str] = set()
    _collect_needed(body, needed)
    return needed


def _collect_needed(body: Sequence[L.Stmt], needed: set[str]) -> None:
    for stmt in reversed(body):
        if isinstance(stmt, L.For | L.If | L.While):
            for part in (stmt.body, getattr(stmt, "orelse", ())):
                _collect_needed(part, needed)
            numbers = [stmt.extent if isinstance(stmt, L.For) else stmt.cond]
            _mark([x for x in numbers if not isinstance(x, int)], True, needed)
            continue
        values, numbers = _uses(stmt)
        variable = stmt.name if isinstance(stmt, L.Let) else None
        _mark(values, variable in needed, needed)
        _mark(numbers, True, needed)


def _uses(stmt: L.Stmt) -> tuple[list[L.Expr], list[L.Expr]]:
    """Return the value expressions of a statement, and its index and condition expressions."""
    if isinstance(stmt, L.Let | L.Init):
        return [stmt.value], []
    if isinstance(stmt, L.Accum):
        return [stmt.value], [] if stmt.guard is None else [stmt.guard]
    if isinstance(stmt, L.PrefixCombine):
        return list(stmt.values), []
    if isinstance(stmt, L.StoreElement):
        return [stmt.value], [stmt.index, *([] if stmt.guard is None else [stmt.guard])]
    if isinstance(stmt, L.Interleave):
        return list(stmt.values), [stmt.index]
    return [], []


def _mark(exprs: Sequence[L.Expr], as_numbers: bool, needed: set[str]) -> None:
    stack = [(x, as_numbers) for x in exprs]
    seen: set[tuple[int, bool]] = set()
    while stack:
        x, number = stack.pop()
        if (id(x), number) in seen:
            continue
        seen.add((id(x), number))
        if isinstance(x, L.ScalarRef):
            if number:
                needed.add(x.name)
        elif isinstance(x, L.Load):
            stack += [(part, True) for part in (x.index, x.guard) if part is not None]
            stack += [] if x.other is None else [(x.other, number)]
        elif isinstance(x, L.ScalarOp):
            stack += [(a, number or (k == 0 and x.op == "select")) for k, a in enumerate(x.args)]


def _least_statements(
    body: Sequence[L.Stmt], samples: int | None, carrying: set[int], partial: bool
) -> int:
    """Return a lower bound of the statements that run."""
    total = len(body)
    for stmt in body:
        if isinstance(stmt, L.For):
            extent = stmt.extent if isinstance(stmt.extent, int) else 1
            if samples is not None and (partial or id(stmt) not in carrying):
                extent = min(extent, samples)
            total += extent * _least_statements(stmt.body, samples, carrying, partial)
    return total
