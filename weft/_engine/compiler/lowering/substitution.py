"""Substitution in expressions: rebuild them in another builder, or replace subexpressions."""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.compiler.fusion.classify import flat_index
from weft._engine.compiler.lowering.lower import children, post_order
from weft._engine.ir.build import LoopsBuilder
from weft._engine.ir.loops import Const, Expr, Load, ScalarOp, ScalarRef


class Substitution:
    """A rewriter of expressions of one builder in another, with loop variables and other subexpressions replaced by `mapping`."""

    def __init__(self, old: LoopsBuilder, new: LoopsBuilder, mapping: dict[int, Expr]):
        self.old, self.new = old, new
        self.rewritten: dict[int, Expr] = dict(mapping)

    def __call__(self, root: Expr) -> Expr:
        rewritten = self.rewritten
        for x in post_order(root, rewritten, self._parts):
            rewritten[id(x)] = self._rewrite(x, self._form(x))
        return rewritten[id(root)]

    def _parts(self, x: Expr) -> Sequence[Expr]:
        form = self._form(x)
        return children(x) if form is None else [self.old.base(key) for key in form[0]]

    def _form(self, x: Expr):
        form = self.old.affine(x) if x.type == "i64" and type(x) is not Const else None
        return None if form is None or id(x) in form[0] else form

    def _rewrite(self, x: Expr, form) -> Expr:
        new, rewritten = self.new, self.rewritten
        if form is not None:
            return flat_index(new, [rewritten[key] for key in form[0]], form[0].values(), form[1])
        if type(x) is Const:
            return new.const(x.value, x.type)
        if type(x) is ScalarRef:
            return new.ref(x.name, x.type)
        if type(x) is Load:
            load = new.load(
                x.buf,
                rewritten[id(x.index)],
                x.type,
                None if x.guard is None else rewritten[id(x.guard)],
            )
            if id(x) in self.old.zeros:
                new.zeros.add(id(load))
            return load
        if type(x) is ScalarOp:
            return new.copy_operation(x, tuple([rewritten[id(a)] for a in x.args]), self.old)
        raise KeyError(x.name)  # a loop variable that the mapping lacks


class Replacement(Substitution):
    """A rewriter of expressions within one builder, with the subexpressions in `mapping` replaced."""

    def __init__(self, builder: LoopsBuilder, mapping: dict[int, Expr]):
        super().__init__(builder, builder, mapping)

    def _form(self, x: Expr):
        return None

    def _rewrite(self, x: Expr, form) -> Expr:
        if type(x) is ScalarOp:
            args = tuple([self.rewritten[id(a)] for a in x.args])
            return (
                x
                if all(a is b for a, b in zip(args, x.args))
                else self.new.copy_operation(x, args, self.old)
            )
        if type(x) is Load:
            index, guard = (
                self.rewritten[id(x.index)],
                None if x.guard is None else self.rewritten[id(x.guard)],
            )
            return self.new.load(x.buf, index, x.type, guard)
        return x
