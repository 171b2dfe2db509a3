"""Overlap: the values whose collectives can run behind computation.

In:   a global program.
Out:  its variables that are ready early or needed late, so that a collective on them need not delay computation.
How:  for each variable, the sets of products that come before and after it, as the bits of two numbers. A
      value with no product before it is ready early: parameters. One with no product after it is needed late: gradients. Its
      collectives hide only if some product is neither before nor after it. Other values, such as activations, are on the
      critical path.
Laws: the program of a loop is one of its own, in which carried values are on the critical path. A loop, a branch and a custom
      operation are one product in the program around them. Calls are part of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from weft._engine.core.primitive import CustomOp, LoopLike, ProductOp, RegionOp
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import is_call

#: the bit of what is before and after the carried values of a loop
_CARRIED = 1


def hideable_values(program: Jaxpr) -> frozenset[Var]:
    """Return the variables of a program, and of the loops in it, whose collectives can run behind computation."""
    return _hideable(program, (), ())


def _hideable(
    program: Jaxpr, carried_ins: Iterable[Any], carried_outs: Iterable[Any]
) -> frozenset[Var]:
    reach = _Reach()
    _add(reach.before, carried_ins, _CARRIED)
    _add(reach.after, carried_outs, _CARRIED)
    reach.add_before(program)
    reach.add_after(program)
    hideable = reach.hideable()
    for eqn in _equations(program):
        if isinstance(eqn.primitive, LoopLike):
            hideable |= _hideable_in_loop(eqn, eqn.primitive)
    return hideable


def _hideable_in_loop(eqn: Eqn, loop: LoopLike) -> frozenset[Var]:
    body: Jaxpr = eqn.params[loop.body]
    count = loop.carried_count(eqn.params)
    first = loop.first_carried(eqn.params) - loop.first_constant(eqn.params)
    return _hideable(body, body.invars[first : first + count], body.outvars[:count])


def _equations(program: Jaxpr) -> Iterator[Eqn]:
    """Yield the equations of a program and of the calls in it."""
    for eqn in program.eqns:
        if is_call(eqn):
            yield from _equations(eqn.params["jaxpr"])
        else:
            yield eqn


class _Reach:
    """The products before and after each variable of a program, as bits."""

    def __init__(self) -> None:
        self.before: dict[Var, int] = defaultdict(int)
        self.after: dict[Var, int] = defaultdict(int)
        self._bits: dict[Eqn, int] = {}

    def add_before(self, program: Jaxpr) -> None:
        """Add the products before the results of a program, whose arguments have theirs."""
        for eqn in program.eqns:
            if is_call(eqn):
                called: Jaxpr = eqn.params["jaxpr"]
                for a, v in zip(eqn.invars, called.invars):
                    _add(self.before, [v], _union(self.before, [a]))
                self.add_before(called)
                for a, v in zip(called.outvars, eqn.outvars):
                    _add(self.before, [v], _union(self.before, [a]))
            else:
                _add(self.before, eqn.outvars, _union(self.before, eqn.invars) | self._bit(eqn))

    def add_after(self, program: Jaxpr) -> None:
        """Add the products after the arguments of a program, whose results have theirs."""
        for eqn in reversed(program.eqns):
            if is_call(eqn):
                called: Jaxpr = eqn.params["jaxpr"]
                for a, v in zip(called.outvars, eqn.outvars):
                    _add(self.after, [a], _union(self.after, [v]))
                self.add_after(called)
                for a, v in zip(eqn.invars, called.invars):
                    _add(self.after, [a], _union(self.after, [v]))
            else:
                _add(self.after, eqn.invars, _union(self.after, eqn.outvars) | self._bit(eqn))

    def hideable(self) -> frozenset[Var]:
        """Return the variables with no product on one side, and some product on neither."""
        products = sum(self._bits.values())
        hideable = set[Var]()
        for v in {**self.before, **self.after}:
            before, after = self.before.get(v, 0), self.after.get(v, 0)
            if not (before and after) and products & ~(before | after):
                hideable.add(v)
        return frozenset(hideable)

    def _bit(self, eqn: Eqn) -> int:
        if not isinstance(eqn.primitive, (ProductOp, RegionOp, CustomOp)):
            return 0
        return self._bits.setdefault(eqn, 2 << len(self._bits))


def _add(bits: dict[Var, int], atoms: Iterable[Any], mask: int) -> None:
    for a in atoms:
        if isinstance(a, Var):
            bits[a] |= mask


def _union(bits: dict[Var, int], atoms: Iterable[Any]) -> int:
    mask = 0
    for a in atoms:
        if isinstance(a, Var):
            mask |= bits[a]
    return mask
