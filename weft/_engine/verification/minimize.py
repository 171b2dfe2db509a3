"""Reduction of a failing program to a smaller program with the same failure.

In:   a program and its arguments, and `fails(program, arguments)`, which compiles and runs one.
Out:  a program of few equations and its arguments, which still fails.
How:  every value is computed op by op once. Bisection finds the first equation whose value is
      wrong; then equations are removed in chunks of halving size (delta debugging): their values
      become arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.interpret import rule_results
from weft._engine.core.trace import eval_trace, set_trace
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import inline_calls

#: a program and its arguments
Case = tuple[Jaxpr, list[np.ndarray]]


class Minimizer:
    """A search for a smaller case within `seconds`. `on_smaller_case` is called with every smaller case."""

    def __init__(
        self,
        fails: Callable[[Jaxpr, list[np.ndarray]], Any],
        seconds: float = 60.0,
        on_smaller_case: Callable[[Jaxpr, list[np.ndarray]], None] | None = None,
    ) -> None:
        self.fails, self.on_smaller_case = fails, on_smaller_case
        self.end = time.monotonic() + seconds
        self.env: dict[Var, np.ndarray] = {}

    def minimize(self, program: Jaxpr, args: Sequence[np.ndarray], result: int = -1) -> Case | None:
        """Return the smallest failing case, or None if the program alone does not fail."""
        program = inline_calls(program)
        self._evaluate(program, args)
        outs = list(program.outvars)
        eqns = list(program.eqns)
        if 0 <= result < len(outs) and self._try(eqns, [outs[result]]):
            outs = [outs[result]]
        elif not self._try(eqns, outs):
            return None
        eqns, outs = self._first_wrong(eqns, outs)
        eqns = self._without_chunks(eqns, outs)
        return self._case(eqns, outs)

    def _evaluate(self, program: Jaxpr, args: Sequence[np.ndarray]) -> None:
        """Compute every value of a program and keep it in `env`."""
        self.env.update(zip(program.constvars, map(np.asarray, program.consts)))
        self.env.update(zip(program.invars, args))
        with set_trace(eval_trace):
            for eqn in program.eqns:
                outs = rule_results(eqn, [self._value(a) for a in eqn.invars])
                self.env.update(zip(eqn.outvars, map(np.asarray, outs)))

    def _value(self, atom: Atom) -> np.ndarray:
        return (
            np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, Literal) else self.env[atom]
        )

    def _case(self, eqns: Sequence[Eqn], outs: Sequence[Atom]) -> Case:
        """Return the program of the equations that `outs` need; other values become arguments."""
        needed = {a for a in outs if isinstance(a, Var)}
        needed_eqns: list[Eqn] = []
        for eqn in reversed(eqns):
            if eqn.effects or any(v in needed for v in eqn.outvars):
                needed_eqns.append(eqn)
                needed.update(a for a in eqn.invars if isinstance(a, Var))
        needed_eqns.reverse()
        computed = {v for eqn in needed_eqns for v in eqn.outvars}
        read = [a for eqn in needed_eqns for a in eqn.invars] + list(outs)
        ins = list(dict.fromkeys([a for a in read if isinstance(a, Var) and a not in computed]))
        return Jaxpr((), (), ins, outs, needed_eqns, name="reduced"), [self.env[v] for v in ins]

    def _try(self, eqns: Sequence[Eqn], outs: Sequence[Atom]) -> bool:
        if time.monotonic() > self.end:
            return False
        program, args = self._case(eqns, outs)
        if not self.fails(program, args):
            return False
        if self.on_smaller_case is not None:
            self.on_smaller_case(program, args)
        return True

    def _first_wrong(self, eqns: list[Eqn], outs: list[Atom]) -> tuple[list[Eqn], list[Atom]]:
        """Return, by bisection, the equations up to one whose value is wrong while the previous
        value is right."""
        eqns = list(self._case(eqns, outs)[0].eqns)
        right, wrong = -1, len(eqns) - 1
        best: tuple[list[Eqn], list[Atom]] = (eqns, outs)
        while wrong - right > 1 or (best[1] is outs and wrong > right):
            middle = (right + wrong) // 2 if wrong - right > 1 else wrong
            results: list[Atom] = [v for v in eqns[middle].outvars if not v.unused]
            if results and self._try(eqns[: middle + 1], results):
                wrong, best = middle, (eqns[: middle + 1], results)
            elif middle == wrong:
                break
            else:
                right = middle
        return best

    def _without_chunks(self, eqns: list[Eqn], outs: list[Atom]) -> list[Eqn]:
        """Return the remaining equations after replacing as many as possible by their values."""
        eqns = list(self._case(eqns, outs)[0].eqns)
        size = max(1, len(eqns) // 2)
        while eqns:
            start = 0
            while start < len(eqns):
                fewer = eqns[:start] + eqns[start + size :]
                if fewer and self._try(fewer, outs):
                    eqns = list(self._case(fewer, outs)[0].eqns)
                else:
                    start += size
            if size == 1:
                break
            size = max(1, size // 2)
        return eqns
