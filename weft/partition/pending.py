"""Pending sums: which values are, or will probably be, sums over devices that nobody has done yet, and how far those may wait.

In:   the equations of a program, the values computed so far, the wishes for all others.
Out:  the axes of pending sums that an equation lets through instead of having them done before it.
Laws: a sum is never done twice, and waits only where that makes it smaller or several of them one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from weft.ir.factors import FactorRule
from weft.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft.partition.propagate import Propagation, axes_of_factors


def variables(atoms: Sequence) -> list[Var]:
    """The variables among `atoms`."""
    return [a for a in atoms if type(a) is not Literal]


class Pending:
    """Who makes and who reads each variable of a program, and the sums that wait for it; `env` has the values computed so far."""

    def __init__(self, wishes: Propagation, env: Mapping[Var, Any]):
        self.wishes, self.env = wishes, env
        self.uses: Counter = Counter()
        self.readers: dict[Var, list[Eqn]] = {}         # the equations that read a variable
        self.makers: dict[Var, Eqn] = {}                # the equation that makes it
        self.foreseen: dict[Var, frozenset] = {}

    def note(self, jaxpr: Jaxpr, eqns: Sequence[Eqn]) -> None:
        """Take in the `eqns` of a program that its results or effects depend on."""
        for eqn in eqns:
            read = set(variables(eqn.invars))
            self.uses.update(read)
            for var in read:
                self.readers.setdefault(var, []).append(eqn)
            self.makers.update(dict.fromkeys(eqn.outvars, eqn))
        self.uses.update(variables(jaxpr.outvars))

    def passing(self, eqn: Eqn, rule: FactorRule, values: Sequence[Any]) -> frozenset:
        """The axes of pending sums that this equation lets through, because it is linear in the summed operands.

        Only sums that nobody else waits for pass, so a sum is never done twice; and only where that saves something:
        here or later the sum gets smaller, or several become one.
        """
        pending = [(i, v.pending) for i, v in enumerate(values) if v.pending]
        if not pending or any(i not in rule.linear_ins for i, _ in pending):
            return frozenset()
        axes = pending[0][1]
        needed = set(rule.linear_ins) if rule.additive else {pending[0][0]}
        if any(p != axes for _, p in pending) or {i for i, _ in pending} != needed:
            return frozenset()
        if any(self.uses[eqn.invars[i]] != 1 for i, _ in pending):
            return frozenset()
        return axes if self.gains(eqn, [eqn.invars[i] for i, _ in pending], axes) else frozenset()

    def gains(self, eqn: Eqn, pending: Sequence[Var], axes: frozenset) -> bool:
        """Whether it pays to let sums over `axes` that `pending` wait for through the linear equation `eqn`."""
        before = {v: v.aval.nbytes for v in pending}
        after = sum(v.aval.nbytes for v in eqn.outvars)
        if after != sum(before.values()) or len(eqn.outvars) != 1:
            return after < sum(before.values())
        (var,) = eqn.outvars
        reader = self.readers.get(var, [None])[0]
        if self.uses[var] != 1 or reader is None or reader.primitive.kind == "region":
            return False
        rule = self.wishes.rule(reader)
        where = [i for i, a in enumerate(reader.invars) if a is var]
        if rule is None or any(i not in rule.linear_ins for i in where):
            return False
        others = [reader.invars[i] for i in rule.linear_ins if reader.invars[i] is not var] if rule.additive else []
        if any(self.awaits(a) != axes for a in others):
            return False
        return self.gains(reader, [var, *others], axes)

    def awaits(self, atom: Any) -> frozenset:
        """The axes over which a value is, or will probably be, a pending sum."""
        if type(atom) is Literal:
            return frozenset()
        if atom in self.env:
            return self.env[atom].pending
        if atom not in self.foreseen:
            self.foreseen[atom] = self.foresee(atom)
        return self.foreseen[atom]

    def foresee(self, atom: Var) -> frozenset:
        """`awaits` for a value that is not computed yet, from the wishes for the operands of its equation."""
        eqn = self.makers.get(atom)
        rule = None if eqn is None or eqn.primitive.kind == "region" else self.wishes.rule(eqn)
        if rule is None:
            return frozenset()
        summed: set = set()
        for a, factors in zip(eqn.invars, rule.ins):
            for f, mine in axes_of_factors(factors, self.wishes.spec(a), rule, self.wishes.sizes)[0].items():
                if rule.reduced.get(f) == "add":
                    summed.update(mine)
        return frozenset(summed) or self.awaits_through(eqn, rule)

    def awaits_through(self, eqn: Eqn, rule: FactorRule) -> frozenset:
        """The axes of a probable pending sum that would pass a linear equation."""
        found = [self.awaits(eqn.invars[i]) for i in rule.linear_ins]
        if rule.additive:
            return found[0] if found and all(axes == found[0] for axes in found) else frozenset()
        pending = [axes for axes in found if axes]
        return pending[0] if len(pending) == 1 else frozenset()
