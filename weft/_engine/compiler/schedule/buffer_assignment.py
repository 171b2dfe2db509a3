"""Buffer assignment: each value of a body gets the memory of a result, of an operand that dies, or its own.

In:   a body's graph of groups and equations, the addresses of its inputs, and those required of its results.
Out:  `BufferAssignment`: the address of each value, and memory for each result when its step is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft._engine.compiler.fusion.classify import LoweringKind, loop_of, lowering_kind, row_major
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import Group
from weft._engine.compiler.schedule.arena import Ref
from weft._engine.compiler.schedule.liveness import ProgramBuilder
from weft._engine.core.primitive import ExchangeOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var


def joined_rows(eqn: Eqn) -> tuple[int, int, list[tuple[Atom, int, int]]]:
    """What a concatenation by copies copies: the number of rows, the bytes of one, and of each operand the bytes of a row and where in
    the result's row they are."""
    dim, out = eqn.params["dimension"], eqn.outvars[0].aval
    after, at, parts = math.prod(out.shape[dim + 1 :]) * out.dtype.itemsize, 0, []
    for atom in eqn.invars:
        width = atom.aval.shape[dim] * after
        parts.append((atom, width, at))
        at += width
    return math.prod(out.shape[:dim]), at, [part for part in parts if part[1]]


class BufferAssignment:
    """The memory of a body's values. `owned` inputs may be overwritten when dead; `outs` say where results go, or None."""

    def __init__(
        self,
        plan: ProgramBuilder,
        jaxpr: Jaxpr,
        ins: Sequence[Ref],
        outs: Sequence[Ref | None],
        owned: Sequence[bool] = (),
    ):
        self.plan, self.jaxpr = plan, jaxpr
        self.env: dict[Var, Ref] = dict(zip(jaxpr.invars, ins))
        for var, value in zip(jaxpr.constvars, jaxpr.consts):
            self.env[var] = plan.const(value, var.aval.dtype)
        self.outs = outs
        self.owned = {v for v, yes in zip(jaxpr.invars, owned) if yes}
        self.graph = Fusion(jaxpr)
        self.items = self.graph.items
        if any(isinstance(eqn.primitive, ExchangeOp) for eqn in jaxpr.eqns):
            from weft._engine.compiler.schedule.overlap import overlapped  # few programs have such

            self.items = overlapped(self.graph)
        self.targets: dict[Var, Ref] = {}
        self.last_read: dict[Var, int] = {}
        self.requests: dict[Atom, Ref] = {}  # of exchanges in flight, by their results
        self.now = 0  # the item whose step is being made

    def assign_targets(self) -> set[int]:
        """Before any step: where values go that results and updates are made of; results that are copied before all else."""
        self._find_targets()
        early = self._copy_carries()
        for i, item in enumerate(self.items):
            reads = (
                self.graph.read_by(item)
                if isinstance(item, Group)
                else [a for a in item.invars if type(a) is not Literal]
            )
            for var in reads:
                self.last_read[self.graph.memory_of(var)] = i
        for atom in self.jaxpr.outvars:
            if type(atom) is not Literal:
                self.last_read[self.graph.memory_of(atom)] = len(self.items)
        self._propagate_targets()
        return early

    def _find_targets(self) -> None:
        """Values that are written straight into the memory of an output."""
        for atom, out in zip(self.jaxpr.outvars, self.outs):
            if out is None or type(atom) is Literal:
                continue
            base = self.graph.memory_of(atom)
            if (
                base not in self.env
                and base not in self.targets
                and base.aval.nbytes == atom.aval.nbytes
            ):
                self.targets[base] = out

    def _copy_carries(self) -> set[int]:
        """Results that are unchanged carried values: copied first, so that the next ones may take the carries' memory."""
        found = set()
        for n, (atom, out) in enumerate(zip(self.jaxpr.outvars, self.outs)):
            if out is not None and type(atom) is not Literal and atom in self.owned:
                self.plan.copy(out, self.ref(atom), atom.aval.nbytes)
                found.add(n)
        return found

    def _propagate_targets(self) -> None:
        """The initial value of an update or a loop is computed in the memory of its result, if it has no other use."""
        for i in reversed(range(len(self.items))):
            item = self.items[i]
            if isinstance(item, Group):
                continue
            if lowering_kind(item) in (
                LoweringKind.SCATTER,
                LoweringKind.UPDATE,
                LoweringKind.LIBRARY,
            ):
                self._propagate_target(i, item, item.invars[0], item.outvars[0])
            elif lowering_kind(item) is LoweringKind.JOIN:
                rows, _, parts = joined_rows(item)
                for atom, _, at in parts if rows == 1 else ():
                    self._propagate_target(i, item, atom, item.outvars[0], at)
            elif (loop := loop_of(item)) is not None:
                from weft._engine.compiler.schedule.loop_carries import (
                    stacked_carries,
                )  # what programs without loops do without

                stacked = stacked_carries(item, self.targets)
                first, count = loop.first_carried(item.params), loop.carried_count(item.params)
                for n, (atom, var) in enumerate(zip(item.invars[first:], item.outvars[:count])):
                    if n not in stacked:
                        self._propagate_target(i, item, atom, var)

    def _propagate_target(
        self, position: int, item: Eqn, atom: Atom, var: Var, at: int | None = None
    ) -> None:
        """Have an operand made in the memory of the result: all of it, or the part that begins `at` a byte."""
        if type(atom) is Literal:
            return
        base = self.graph.memory_of(atom)
        if not self._reads_once(item.invars, base):
            return
        if (
            base not in self.env
            and base not in self.targets
            and self.last_read[base] == position
            and base.aval.nbytes == atom.aval.nbytes
            and (at is not None or atom.aval.nbytes == var.aval.nbytes)
        ):
            if var not in self.targets:
                self.targets[var] = self.plan.temp(var.aval)
            self.targets[base] = self.targets[var].moved(at or 0)

    def ref(self, atom: Atom) -> Ref:
        """Where a value is, dense."""
        if type(atom) is Literal:
            return self.plan.const(atom.val, atom.aval.dtype)
        found = self.env.get(atom)
        if found is None:
            base, view = self.graph.resolve(atom)
            assert view is not None  # else `env` has it by now
            found = self.env[atom] = self.ref(base).moved(view.offset * atom.aval.dtype.itemsize)
        return found

    def result(self, var: Var) -> Ref:
        """Memory for a result of the current step."""
        made = self.env[var] = self.targets.get(var) or self.plan.temp(var.aval)
        return made

    def operand(self, atom: Atom) -> tuple[Ref, tuple[int, ...]]:
        """Address and strides of an operand that need not be dense: transposes, broadcasts and slices are only strides."""
        if type(atom) is not Literal and atom not in self.env:
            base, view = self.graph.resolve(atom)
            if view is not None:
                return self.ref(base).moved(view.offset * atom.aval.dtype.itemsize), view.strides
        return self.ref(atom), row_major(atom.aval.shape)

    def overwritten(self, eqn: Eqn) -> Ref:
        """The result's memory, holding the first operand: that operand's own memory if it is dead."""
        operand, out = eqn.invars[0], eqn.outvars[0]
        source = self.ref(operand)
        if type(operand) is not Literal and out not in self.targets:
            base = self.graph.memory_of(operand)
            mine = base in self.owned or (
                base not in self.jaxpr.invars and base not in self.jaxpr.constvars
            )
            dead = self.last_read[base] == self.now and self._reads_once(eqn.invars, base)
            if mine and dead and not source.strides and base.aval.nbytes == out.aval.nbytes:
                self.env[out] = source
                return source
        target = self.result(out)
        self.plan.copy(target, source, out.aval.nbytes)  # nothing if the operand was made there
        return target

    def may_overwrite(self, eqn: Eqn) -> bool:
        """Whether the result takes the place of the first operand, which is dead."""
        operand = eqn.invars[0]
        if type(operand) is Literal:
            return False
        base = self.graph.memory_of(operand)
        given = (
            base in self.jaxpr.invars and base not in self.owned and base not in self.plan.donated
        )
        dead = self.last_read[base] == self.now and self._reads_once(eqn.invars, base)
        return dead and not given and base not in self.jaxpr.constvars

    def _reads_once(self, atoms: Sequence[Atom], base: Var) -> bool:
        """Whether only one of `atoms` uses the memory of `base`: views of it would see it change."""
        return sum(type(a) is not Literal and self.graph.memory_of(a) is base for a in atoms) == 1
