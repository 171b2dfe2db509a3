"""Partial sums: values that are, or will probably be, unreduced sums over devices, and the deferral of their reductions.

In:   the equations of a program, the values computed so far, the target specs of all others.
Out:  the axes of partial sums that pass through an equation instead of being reduced before it.
Laws: no sum is reduced twice, and a reduction is deferred only if that makes it smaller or merges several reductions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.core.primitive import RegionOp
from weft._engine.ir.factors import FactorRule
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.partition.propagation.propagate import Propagation, axes_of_factors


def variables(atoms: Sequence[Any]) -> list[Var]:
    """Return the variables among `atoms`."""
    return [a for a in atoms if type(a) is not Literal]


class PartialSums:
    """The producer and the readers of each variable of a program, and the partial sums; `env` has the values computed so far."""

    def __init__(self, target_specs: Propagation, env: Mapping[Var, Any]):
        self.target_specs, self.env = target_specs, env
        self.uses: Counter[Any] = Counter()
        self.readers: dict[Var, list[Eqn]] = {}  # the equations that read a variable
        self.makers: dict[Var, Eqn] = {}  # the equation that produces a variable
        self.predictions: dict[Var, frozenset[Any]] = {}

    def note(self, jaxpr: Jaxpr, eqns: Sequence[Eqn]) -> None:
        """Add the `eqns` of a program on which its results or effects depend."""
        for eqn in eqns:
            read = set(variables(eqn.invars))
            self.uses.update(read)
            for var in read:
                self.readers.setdefault(var, []).append(eqn)
            self.makers.update(dict.fromkeys(eqn.outvars, eqn))
        self.uses.update(variables(jaxpr.outvars))

    def defer(self, eqn: Eqn, rule: FactorRule, values: Sequence[Any]) -> frozenset[Any]:
        """Return the axes of partial sums that pass through an equation, because it is linear in the summed operands.

        Only sums without other readers pass, so that no sum is reduced twice, and only if that pays: the sum becomes smaller here or
        later, or several sums become one.
        """
        partial = [(i, v.partial_axes) for i, v in enumerate(values) if v.partial_axes]
        if not partial or any(i not in rule.linear_ins for i, _ in partial):
            return frozenset()
        axes = partial[0][1]
        needed = set(rule.linear_ins) if rule.additive else {partial[0][0]}
        if any(p != axes for _, p in partial) or {i for i, _ in partial} != needed:
            return frozenset()
        if any(self.uses[eqn.invars[i]] != 1 for i, _ in partial):
            return frozenset()
        return (
            axes if self.pays_off(eqn, [eqn.invars[i] for i, _ in partial], axes) else frozenset()
        )

    def pays_off(self, eqn: Eqn, partial: Sequence[Atom], axes: frozenset[Any]) -> bool:
        """Return whether reducing `partial` over `axes` after the linear equation `eqn` is cheaper than before it."""
        before = {v: v.aval.nbytes for v in partial}
        after = sum(v.aval.nbytes for v in eqn.outvars)
        if after != sum(before.values()) or len(eqn.outvars) != 1:
            return after < sum(before.values())
        (var,) = eqn.outvars
        reader = self.readers.get(var, [None])[0]
        if self.uses[var] != 1 or reader is None or isinstance(reader.primitive, RegionOp):
            return False
        rule = self.target_specs.rule(reader)
        where = [i for i, a in enumerate(reader.invars) if a is var]
        if rule is None or any(i not in rule.linear_ins for i in where):
            return False
        others = (
            [reader.invars[i] for i in rule.linear_ins if reader.invars[i] is not var]
            if rule.additive
            else []
        )
        if any(self.partial_axes(a) != axes for a in others):
            return False
        return self.pays_off(reader, [var, *others], axes)

    def partial_axes(self, atom: Any) -> frozenset[Any]:
        """Return the axes over which a value is, or will probably be, a partial sum."""
        if type(atom) is Literal:
            return frozenset()
        if atom in self.env:
            return self.env[atom].partial_axes
        if atom not in self.predictions:
            self.predictions[atom] = self.predicted_axes(atom)
        return self.predictions[atom]

    def predicted_axes(self, atom: Var) -> frozenset[Any]:
        """Return `partial_axes` of a value that is not computed yet, from the target specs of the operands of its equation."""
        eqn = self.makers.get(atom)
        if eqn is None or isinstance(eqn.primitive, RegionOp):
            return frozenset()
        rule = self.target_specs.rule(eqn)
        if rule is None:
            return frozenset()
        summed: set[Any] = set()
        for a, factors in zip(eqn.invars, rule.ins):
            for f, mine in axes_of_factors(
                factors, self.target_specs.spec(a), rule, self.target_specs.sizes
            )[0].items():
                if rule.reduced.get(f) == "add":
                    summed.update(mine)
        return frozenset(summed) or self.partial_axes_through(eqn, rule)

    def partial_axes_through(self, eqn: Eqn, rule: FactorRule) -> frozenset[Any]:
        """Return the axes of a probable partial sum that would pass through a linear equation."""
        operand_axes = [self.partial_axes(eqn.invars[i]) for i in rule.linear_ins]
        if rule.additive:
            return (
                operand_axes[0]
                if operand_axes and all(axes == operand_axes[0] for axes in operand_axes)
                else frozenset()
            )
        partial = [axes for axes in operand_axes if axes]
        return partial[0] if len(partial) == 1 else frozenset()


def live_eqns(jaxpr: Jaxpr) -> list[Eqn]:
    """Return the equations on which results or effects depend; the others need no communication."""
    needed = set(variables(jaxpr.outvars))
    live: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            needed.update(variables(eqn.invars))
            live.append(eqn)
    return live[::-1]
