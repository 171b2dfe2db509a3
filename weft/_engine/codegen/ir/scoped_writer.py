"""A writer of LLVM functions with scopes, value numbering and loop-invariant code placement.

In:   instructions as text, with their operands.
Out:  the lines of the function.
Laws: every pure instruction is written once per scope, in the outermost scope where its operands
      are defined, so that common subexpressions and loop invariants need no later pass. No
      instruction leaves a conditional scope. A nested scope is appended to its parent when it
      closes, after the instructions hoisted out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.writer import LLVMBodyWriter, Typed


class CodeScope:
    """A region of code under construction: lines, value table and label of the current block."""

    __slots__ = ("label", "lines", "table")

    def __init__(self, label: str):
        self.lines: list[str] = []
        self.table: dict[str, str] = {}
        self.label = label


class ScopedWriter(LLVMBodyWriter):
    """The body of one function; pure instructions are placed by the scopes of their operands.

    `lines` are the lines of the innermost open scope.
    """

    def __init__(self) -> None:
        self.scopes: list[CodeScope] = []
        self.push("entry")
        self._count = 0
        self.hoist_limit = 0
        self.load_hoist_limit = 0
        self.level_of: dict[str, int] = {}
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}

    @property
    def depth(self) -> int:
        """Level of the innermost open scope."""
        return len(self.scopes) - 1

    def name(self, prefix: str = "v") -> str:
        """Return a fresh local name."""
        return f"%{prefix}{self.fresh()}"

    def label(self, prefix: str) -> str:
        """Return a fresh block label."""
        return f"{prefix}{self.fresh()}"

    def pure(self, text: str, *operands: str) -> str:
        """Return the name of a pure instruction, in the outermost scope that has its operands."""
        level, level_of = self.hoist_limit, self.level_of
        for operand in operands:
            at = level_of.get(operand, 0)
            if at > level:
                level = at
        scope = self.scopes[level]
        name = scope.table.get(text)
        if name is None:
            self._count += 1
            name = f"%v{self._count}"
            scope.lines.append(f"  {name} = {text}")
            scope.table[text] = name
            level_of[name] = level
        return name

    def shuffle(self, type_: str, x: str, y: str, order: Iterable[int]) -> str:
        """Shuffle the concatenated lanes of two vectors into `order`; `y` may be `poison`."""
        lanes = [f"i32 {lane}" for lane in order]
        return self.pure(
            f"shufflevector {type_} {x}, {type_} {y}, <{len(lanes)} x i32> <{', '.join(lanes)}>",
            x,
            y,
        )

    def invariant_load(self, text: str, *operands: str) -> str:
        """Like `pure`, for a load from read-only memory; the load is not hoisted out of a scope
        that may not run."""
        limit, self.hoist_limit = self.hoist_limit, max(self.hoist_limit, self.load_hoist_limit)
        name = self.pure(text, *operands)
        self.hoist_limit = limit
        return name

    def let(self, value: str, prefix: str = "v") -> str:
        """Return the name of an instruction written at the current position, never shared."""
        name = self.name(prefix)
        self.scopes[-1].lines.append(f"  {name} = {value}")
        self.level_of[name] = self.depth
        return name

    def block(self, label: str) -> None:
        """Begin a block in the innermost scope."""
        super().block(label)
        self.scopes[-1].label = label

    def push(self, label: str) -> None:
        """Open a scope whose first block is `label`."""
        scope = CodeScope(label)
        self.scopes.append(scope)
        self.lines = scope.lines

    def pop(self) -> CodeScope:
        """Close the innermost scope and return it; the caller appends its lines."""
        scope = self.scopes.pop()
        self.lines = self.scopes[-1].lines
        return scope

    # --- control

    def _emit_arm(
        self, label: str, emit: Callable[[], Sequence[str] | None]
    ) -> tuple[CodeScope, Sequence[str]]:
        """Return a closed scope with the code of `emit`, and its values. Nothing is hoisted out: it
        may not run."""
        limits = self.hoist_limit, self.load_hoist_limit
        self.push(label)
        self.hoist_limit = self.load_hoist_limit = self.depth
        values = emit() or ()
        self.hoist_limit, self.load_hoist_limit = limits
        return self.pop(), values

    def branch(
        self,
        cond: str,
        then: Callable[[], Sequence[str] | None],
        orelse: Callable[[], Sequence[str] | None] | None = None,
        types: Sequence[str] = (),
    ) -> list[str]:
        labels = [self.label("then"), *([self.label("else")] if orelse else []), self.label("done")]
        arms = [
            self._emit_arm(label, emit)
            for label, emit in zip(labels, (then, orelse) if orelse else (then,))
        ]
        self.do(f"br i1 {cond}, label %{labels[0]}, label %{labels[1]}")
        for label, (scope, _) in zip(labels, arms):
            self.block(label)
            self.lines.extend(scope.lines)
            self.do(f"br label %{labels[-1]}")
        self.block(labels[-1])
        if not types:
            return []
        (first, a), (second, b) = arms
        return [
            x if x == y else self.let(f"phi {type} [{x}, %{first.label}], [{y}, %{second.label}]")
            for type, x, y in zip(types, a, b)
        ]

    def conditional(
        self,
        cond: str,
        emit: Callable[[], Sequence[str]],
        type_: str,
        others: Sequence[str] = (),
        level: int | None = None,
        is_unlikely: bool = False,
    ) -> list[str]:
        """Emit a branch and return the values of `emit` if `cond` holds, else `others`, or zeros
        without `others`.

        All values have type `type_`. The branch is placed in scope `level` (default: the innermost
        scope), where its operands must be defined; `is_unlikely` is a branch-weight hint for LLVM.
        """
        place, (then, done) = (
            self.scopes[self.depth if level is None else level],
            (self.label("then"), self.label("done")),
        )
        scope, results = self._emit_arm(then, emit)
        begin = [
            f"  br i1 {cond}, label %{then}, label %{done}" + (", !prof !2" if is_unlikely else ""),
            f"{then}:",
        ]
        place.lines += [*begin, *scope.lines, f"  br label %{done}", f"{done}:"]
        values = [self.define(self.name(), level) for _ in results]
        place.lines += [
            f"  {value} = phi {type_} [{x}, %{scope.label}], [{other}, %{place.label}]"
            for value, x, other in zip(
                values, results, others or ["zeroinitializer"] * len(results)
            )
        ]
        place.label = done
        return values

    def loop_over_range(
        self,
        start: str,
        stop: str,
        step: int,
        body: Callable[..., Sequence[str]],
        carried: Typed,
        runs_at_least_once: bool,
    ) -> list[str]:
        """Emit a loop over signed numbers, as `loop` does; without a test before the first
        iteration if it `runs_at_least_once`."""
        head, exit_, counter = self.label("loop"), self.label("exit"), self.name("i")
        values = self._open_loop(head, [counter], carried)
        load_hoist_limit = self.load_hoist_limit
        if not runs_at_least_once:
            self.load_hoist_limit = self.depth
            inside, go = self.label("body"), self.let(f"icmp slt i64 {counter}, {stop}")
            self.do(f"br i1 {go}, label %{inside}, label %{exit_}")
            self.block(inside)
        # Address operands are computed in the outermost scope, and the rest is an addressing mode.
        # The frozen index hides the counter from loop strength reduction, whose search dominates
        # compile time.
        renewed = list(body(self.let(f"freeze i64 {self.let(f'add i64 {counter}, 0')}"), *values))
        self.load_hoist_limit = load_hoist_limit
        onward = self.let(f"add nuw nsw i64 {counter}, {step}")
        if runs_at_least_once:
            continues = self.let(f"icmp slt i64 {onward}, {stop}")
            self.do(f"br i1 {continues}, label %{head}, label %{exit_}")
        else:
            self.do(f"br label %{head}")
        self._close_loop(
            head, exit_, [("i64", counter, start, onward), *_phis(carried, values, renewed)]
        )
        results = renewed if runs_at_least_once else values
        for name in results:
            if name[0] == "%" and self.level_of.get(name, 0) > self.depth:
                self.define(name)
        return results

    def loop_while(
        self,
        tests: Sequence[Callable[..., str]],
        body: Callable[..., Sequence[str] | None],
        carried: Typed = (),
    ) -> list[str]:
        head, exit_ = self.label("while"), self.label("exit")
        values = self._open_loop(head, [], carried)
        load_hoist_limit, self.load_hoist_limit = self.load_hoist_limit, self.depth
        for test in tests:
            inside = self.label("do")
            self.do(f"br i1 {test(*values)}, label %{inside}, label %{exit_}")
            self.block(inside)
        renewed = body(*values) or ()
        self.load_hoist_limit = load_hoist_limit
        self.do(f"br label %{head}")
        self._close_loop(head, exit_, _phis(carried, values, renewed))
        for value in values:
            self.define(value)
        return values

    def _open_loop(self, head: str, defined: list[str], carried: Typed) -> list[str]:
        """Open the scope of a loop; return the names of its carried values."""
        values = [self.name("p") for _ in carried]
        self.push(head)
        for name in (*defined, *values):
            self.define(name)
        return values

    def _close_loop(self, head: str, exit_: str, phis: Sequence[tuple[str, str, str, str]]) -> None:
        """Close the scope of a loop; `phis` lists types, names, first and last values."""
        scope = self.pop()
        enter = self.scopes[-1].label
        self.do(f"br label %{head}")
        self.lines.append(f"{head}:")
        self.lines.extend(
            [
                f"  {name} = phi {type_} [{first}, %{enter}], [{last}, %{scope.label}]"
                for type_, name, first, last in phis
            ]
        )
        self.lines.extend(scope.lines)
        self.block(exit_)

    def helper(
        self,
        name: str,
        type_: str,
        params: str,
        result: str,
        linkage: str = "internal",
        traits: str = "noinline",
    ) -> str:
        """Return the text of a function whose body is everything written so far."""
        lines = "\n".join(self.scopes[0].lines)
        return f"define {linkage} {type_} @{name}({params}) {traits} #0 {{\nentry:\n{lines}\n  ret {type_} {result}\n}}\n"

    def define(self, name: str, level: int | None = None) -> str:
        """Record that `name` is defined at `level` (default: the innermost scope)."""
        self.level_of[name] = self.depth if level is None else level
        return name

    def declare(self, name: str, result: str, *args: str) -> str:
        """Declare an external function or intrinsic once; return its name."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"
        return name

    def intrinsic(self, base: str, type_: str, *args: str, result: str | None = None) -> str:
        """Call the overloaded intrinsic `llvm.<base>.<type>` on arguments of one vector type."""
        name = f"llvm.{base}.{mangle(type_)}"
        self.declare(name, result or type_, *([type_] * len(args)))
        listed = ", ".join([f"{type_} {arg}" for arg in args])
        return self.pure(f"call {result or type_} @{name}({listed})", *args)


def _phis(
    carried: Typed, values: Sequence[str], renewed: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    return [
        (type_, value, first, last) for (type_, first), value, last in zip(carried, values, renewed)
    ]
