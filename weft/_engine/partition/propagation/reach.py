"""The reach of dims: the bytes of a program's values that are split if one dim is split.

In:   the equations of a program and of its inner programs, with their factor rules.
Out:  per variable, the reach of each dim.
How:  dims with the same factor in an equation are in one class, and so are the dims of values that regions link. The class of the
      batch dim of a network has dims of nearly all values; the class of a weight's dim has dims of that weight and of the
      activations that it multiplies. The reach of a class is the size of all values with a dim in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft._engine.ir.factors import FactorRule
from weft._engine.ir.jaxpr import Eqn, Literal, Var

Dim = tuple[Var, int]


def reach_of_dims(
    eqns: Iterable[Eqn],
    rule_of: Callable[[Eqn], FactorRule | None],
    links_of: Callable[[Eqn], Sequence[Sequence[tuple[Any, int]]]],
) -> dict[Var, tuple[int, ...]]:
    """Return the reach of each dim of each variable in `eqns`, in bytes."""
    classes = _DimClasses()
    for eqn in eqns:
        rule = rule_of(eqn)
        if rule is not None:
            classes.join_factors(eqn, rule)
        for group in links_of(eqn):
            classes.join_linked(group)
    return classes.compute_reach()


class _DimClasses:
    """Disjoint sets of dims."""

    def __init__(self) -> None:
        self.parents: dict[Dim, Dim] = {}

    def find(self, dim: Dim) -> Dim:
        """Return the representative of the class of `dim`."""
        parents = self.parents
        while (parent := parents.setdefault(dim, dim)) != dim:
            parents[dim] = parents[parent]
            dim = parent
        return dim

    def join(self, a: Dim, b: Dim) -> None:
        self.parents[self.find(a)] = self.find(b)

    def join_factors(self, eqn: Eqn, rule: FactorRule) -> None:
        """Join the dims of each factor of `eqn`; a dim of several factors counts as its major one."""
        dims: dict[int, Dim] = {}
        for atom, factors in (*zip(eqn.invars, rule.ins), *zip(eqn.outvars, rule.outs)):
            if type(atom) is Literal:
                continue
            for d, of_dim in enumerate(factors):
                self.find((atom, d))  # a dim of size 1 is also a class
                major = next((f for f in of_dim if rule.sizes[f] != 1), None)
                if major is not None:
                    self.join((atom, d), dims.setdefault(major, (atom, d)))

    def join_linked(self, group: Sequence[tuple[Any, int]]) -> None:
        """Join the dims of linked values, ignoring the leading loop dims of each."""
        values = [(atom, lead) for atom, lead in group if type(atom) is not Literal]
        for atom, lead in values[1:]:
            first, skipped = values[0]
            for d in range(atom.aval.ndim - lead):
                self.join((atom, lead + d), (first, skipped + d))

    def compute_reach(self) -> dict[Var, tuple[int, ...]]:
        """Return the reach of each dim of each variable."""
        total: dict[Dim, int] = {}
        variables = dict.fromkeys(var for var, _ in list(self.parents))
        classes = {var: [self.find((var, d)) for d in range(var.aval.ndim)] for var in variables}
        for var, var_classes in classes.items():
            for representative in set(var_classes):
                total[representative] = total.get(representative, 0) + var.aval.nbytes
        return {
            var: tuple(total[representative] for representative in var_classes)
            for var, var_classes in classes.items()
        }
