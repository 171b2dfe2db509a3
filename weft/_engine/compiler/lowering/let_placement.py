"""Let placement: shared expressions become `Let`s, hoisted out of all loops where they are invariant."""

from __future__ import annotations

import operator

from weft._engine.compiler.lowering.lower import children, post_order
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import (
    Const,
    Expr,
    For,
    Index,
    Let,
    Load,
    LoopKind,
    ScalarOp,
    ScalarRef,
    Stmt,
)
from weft._engine.util.record import field, record


@record(frozen=False)
class LetScope:
    """The body of a loop under construction, and the ids of expressions that are bound in it."""

    level: int
    body: list[Stmt] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)


class Emitter:
    """A writer of nested loop bodies. Levels count loops from the outside; `builder.levels` has the level of each loop variable."""

    def __init__(self, builder: LoopsBuilder):
        self.b = builder
        self.scopes = [LetScope(0)]
        self.env: dict[int, Expr] = {}
        self.level_of: dict[int, int] = {}
        self.ref_levels: dict[str, int] = {}
        # buffers that the current body writes; loads from them stay in that body
        self.written: frozenset[str] = frozenset()
        self.count = 0
        self.keep: list = []

    def open(self, level: int) -> None:
        """Begin the body of a loop."""
        self.scopes.append(LetScope(level))

    def close(self, var: str, extent: int | Expr, kind: LoopKind) -> None:
        """End the body of a loop and put the loop into the enclosing body."""
        scope = self.scopes.pop()
        for key in scope.bound:
            del self.env[key]
        self.append(For(var, extent, tuple(scope.body), kind))

    def append(self, stmt: Stmt) -> None:
        self.scopes[-1].body.append(stmt)

    def level(self, expr: Expr) -> int:
        """Return the level of the innermost loop over which the expression varies."""
        levels = self.level_of
        for x in post_order(expr, levels):
            if type(x) is Index:
                levels[id(x)] = self.b.levels[id(x)]
            elif type(x) is ScalarRef:
                levels[id(x)] = self.ref_levels.get(x.name, 0)
            elif type(x) is Load and x.buf in self.written:
                levels[id(x)] = self.scopes[-1].level
            else:
                levels[id(x)] = max((levels[id(k)] for k in children(x)), default=0)
        return levels[id(expr)]

    def compute(self, roots: list[Expr]) -> list[Expr]:
        """Return the roots for use in a statement of the current body, after binding shared and loop-invariant subexpressions."""
        here = self.scopes[-1].level
        uses: dict[int, int] = {}
        deepest: dict[int, int] = {}
        order: list[Expr] = []
        for root in roots:
            self.level(root)
            self._collect(root, uses, order)
        for root in roots:
            deepest[id(root)] = here
        places: dict[int, int] = {}
        for x in reversed(order):
            mine = places[id(x)] = self._scope_level(x)
            for kid in children(x):
                if deepest.get(id(kid), 0) <= mine:
                    deepest[id(kid)] = mine
        built: dict[int, Expr] = {}
        for x in order:
            rebuilt = self._rebuild(x, built)
            if self._binds(x, here, uses[id(x)], deepest.get(id(x), here), places[id(x)]):
                rebuilt = self._bind(x, rebuilt)
            built[id(x)] = rebuilt
        return [self._bound_or_built(r, built) for r in roots]

    def _collect(self, root: Expr, uses: dict[int, int], order: list[Expr]) -> None:
        """Count the uses of subexpressions of `root`, and append them to `order`, each after its operands."""
        uses[id(root)] = uses.get(id(root), 0) + 1
        if uses[id(root)] > 1 or id(root) in self.env:
            return
        stack = [(root, iter(children(root)))]
        while stack:
            x, kids = stack[-1]
            for kid in kids:
                num_uses = uses.get(id(kid), 0)
                uses[id(kid)] = num_uses + 1
                if not num_uses and id(kid) not in self.env:
                    stack.append((kid, iter(children(kid))))
                    break
            else:
                order.append(x)
                stack.pop()

    def _scope_level(self, x: Expr) -> int:
        level = self.level_of[id(x)]
        best = self.scopes[0].level
        for scope in self.scopes:
            if scope.level <= level:
                best = scope.level
        return best

    def _binds(self, x: Expr, here: int, uses: int, deepest: int, mine: int) -> bool:
        if type(x) in (Const, Index, ScalarRef):
            return False
        if mine < here and deepest > mine:
            return True
        if uses < 2:
            return False
        # addresses are not bound in the innermost body: they are one addition, which the addressing mode absorbs
        form = self.b.affine(x) if x.type == "i64" else None
        return not (mine == here and form is not None and id(x) not in form[0])

    def _bind(self, x: Expr, made: Expr) -> Expr:
        level = self._scope_level(x)
        scope = next(s for s in reversed(self.scopes) if s.level == level)
        ref = self.env[id(x)] = self._let(made, scope)
        self.keep.append(x)
        scope.bound.append(id(x))
        return ref

    def before_stores(self, values: list[Expr]) -> list[Expr]:
        """Bind all but the first of several values that are stored in turn, because a store may overwrite memory that another value
        reads; return the values."""
        return [
            v if not i or type(v) in (Const, Index, ScalarRef) else self._let(v, self.scopes[-1])
            for i, v in enumerate(values)
        ]

    def _let(self, value: Expr, scope: LetScope) -> ScalarRef:
        name = f"v{self.count}"
        self.count += 1
        scope.body.append(Let(name, value))
        return ScalarRef(name, value.type)

    def _bound_or_built(self, x: Expr, built: dict[int, Expr]) -> Expr:
        bound = self.env.get(id(x))
        return bound if bound is not None else built[id(x)]

    def _rebuild(self, x: Expr, built: dict[int, Expr]) -> Expr:
        kids = children(x)
        if not kids:
            return x
        new_kids = tuple([self._bound_or_built(k, built) for k in kids])
        if all(map(operator.is_, new_kids, kids)):
            return x
        if type(x) is Load:
            guard = new_kids[1] if x.guard is not None else None
            return Load(x.buf, new_kids[0], x.type, guard, x.other)
        return ScalarOp(x.op, new_kids, x.type) if type(x) is ScalarOp else x
