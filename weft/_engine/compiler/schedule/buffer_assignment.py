"""Buffer assignment: each value of a body gets the memory of a result, of an operand at its last use, or its own.

In:   a body's graph of groups and equations, the addresses of its inputs, and the required addresses of its results.
Out:  `BufferAssignment`: the address of each value, and memory for each result when its step is created.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft._engine.compiler.fusion.classify import LoweringKind, loop_of, lowering_kind, row_major
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.schedule.arena import ArenaRef
from weft._engine.compiler.schedule.liveness import ProgramBuilder
from weft._engine.core.primitive import ExchangeOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var


def match_joined_rows(eqn: Eqn) -> tuple[int, int, list[tuple[Atom, int, int]]]:
    """Return the copies of a concatenation: the number of rows, the bytes of a result row, and (operand, bytes of its row, byte offset
    in the result row) for each operand."""
    dim, out = eqn.params["dimension"], eqn.outvars[0].aval
    after, at, parts = math.prod(out.shape[dim + 1 :]) * out.dtype.itemsize, 0, []
    for atom in eqn.invars:
        width = atom.aval.shape[dim] * after
        parts.append((atom, width, at))
        at += width
    return math.prod(out.shape[:dim]), at, [part for part in parts if part[1]]


class BufferAssignment:
    """The memory of the values of a body: of a program, loop or branch.

    Inputs that are `owned` may be overwritten after their last use. `outs` has the required address of each result, or None."""

    def __init__(
        self,
        plan: ProgramBuilder,
        jaxpr: Jaxpr,
        ins: Sequence[ArenaRef],
        outs: Sequence[ArenaRef | None],
        owned: Sequence[bool] = (),
    ):
        self.plan, self.jaxpr = plan, jaxpr
        self.env: dict[Var, ArenaRef] = dict(zip(jaxpr.invars, ins))
        for var, value in zip(jaxpr.constvars, jaxpr.consts):
            self.env[var] = plan.const(value, var.aval.dtype)
        self.outs = outs
        self.owned = {v for v, yes in zip(jaxpr.invars, owned) if yes}
        self.graph = Fusion(jaxpr)
        self.items = self.graph.items
        if any(isinstance(eqn.primitive, ExchangeOp) for eqn in jaxpr.eqns):
            from weft._engine.compiler.schedule.overlap import schedule_overlap  # rarely needed

            self.items = schedule_overlap(self.graph)
        self.targets: dict[Var, ArenaRef] = {}
        self.last_read: dict[Var, int] = {}
        # requests of exchanges in flight, by their results
        self.requests: dict[Atom, ArenaRef] = {}
        self.now = 0  # the position of the item whose step is being created

    def assign_targets(self) -> set[int]:
        """Decide, before any step is created, which values are computed in the memory of results.

        Return the numbers of the results that are copied before all other steps."""
        self._find_targets()
        early = self._copy_carries()
        for i, item in enumerate(self.items):
            reads = (
                self.graph.read_by(item)
                if isinstance(item, KernelGroup)
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
        """Assign the memory of outputs to the values that become outputs."""
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
        """Copy results that are unchanged carried values first, so that new carries may overwrite their memory; return their numbers."""
        copied = set()
        for n, (atom, out) in enumerate(zip(self.jaxpr.outvars, self.outs)):
            if out is not None and type(atom) is not Literal and atom in self.owned:
                self.plan.copy(out, self.ref(atom), atom.aval.nbytes)
                copied.add(n)
        return copied

    def _propagate_targets(self) -> None:
        """Have initial values of updates and loops computed in the memory of the results, if they have no other use."""
        for i in reversed(range(len(self.items))):
            item = self.items[i]
            if isinstance(item, KernelGroup):
                continue
            if lowering_kind(item) in (
                LoweringKind.SCATTER,
                LoweringKind.UPDATE,
                LoweringKind.LIBRARY,
            ):
                self._propagate_target(i, item, item.invars[0], item.outvars[0])
            elif lowering_kind(item) is LoweringKind.JOIN:
                rows, _, parts = match_joined_rows(item)
                for atom, _, at in parts if rows == 1 else ():
                    self._propagate_target(i, item, atom, item.outvars[0], at)
            elif (loop := loop_of(item)) is not None:
                from weft._engine.compiler.schedule.loop_carries import (
                    find_stacked_carries,
                )  # not needed by programs without loops

                stacked = find_stacked_carries(item, self.targets)
                first, count = loop.first_carried(item.params), loop.carried_count(item.params)
                for n, (atom, var) in enumerate(zip(item.invars[first:], item.outvars[:count])):
                    if n not in stacked:
                        self._propagate_target(i, item, atom, var)

    def _propagate_target(
        self, position: int, item: Eqn, atom: Atom, var: Var, at: int | None = None
    ) -> None:
        """Have an operand computed in the memory of the result: in all of it, or in the part that begins at byte `at`."""
        if type(atom) is Literal:
            return
        base = self.graph.memory_of(atom)
        if not self._is_only_use(item.invars, base):
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
            self.targets[base] = self.targets[var].offset_by(at or 0)

    def ref(self, atom: Atom) -> ArenaRef:
        """Return the address of a value, which must be dense."""
        if type(atom) is Literal:
            return self.plan.const(atom.val, atom.aval.dtype)
        address = self.env.get(atom)
        if address is None:
            base, view = self.graph.resolve(atom)
            assert view is not None  # `env` has all computed values
            address = self.env[atom] = self.ref(base).offset_by(
                view.offset * atom.aval.dtype.itemsize
            )
        return address

    def result(self, var: Var) -> ArenaRef:
        """Assign memory to a result of the current step; return its address."""
        address = self.env[var] = self.targets.get(var) or self.plan.temp(var.aval)
        return address

    def operand(self, atom: Atom) -> tuple[ArenaRef, tuple[int, ...]]:
        """Return the address and strides of an operand that need not be dense: transposes, broadcasts and slices are strides only."""
        if type(atom) is not Literal and atom not in self.env:
            base, view = self.graph.resolve(atom)
            if view is not None:
                return self.ref(base).offset_by(
                    view.offset * atom.aval.dtype.itemsize
                ), view.strides
        return self.ref(atom), row_major(atom.aval.shape)

    def overwritten(self, eqn: Eqn) -> ArenaRef:
        """Return memory for the result that holds the values of the first operand: the operand's memory at its last use, or a copy."""
        operand, out = eqn.invars[0], eqn.outvars[0]
        source = self.ref(operand)
        if type(operand) is not Literal and out not in self.targets:
            base = self.graph.memory_of(operand)
            mine = base in self.owned or (
                base not in self.jaxpr.invars and base not in self.jaxpr.constvars
            )
            dead = self.last_read[base] == self.now and self._is_only_use(eqn.invars, base)
            if mine and dead and not source.strides and base.aval.nbytes == out.aval.nbytes:
                self.env[out] = source
                return source
        target = self.result(out)
        self.plan.copy(target, source, out.aval.nbytes)  # no copy if the operand is already there
        return target

    def may_overwrite(self, eqn: Eqn) -> bool:
        """Return whether the result may overwrite the first operand because this is the operand's last use."""
        operand = eqn.invars[0]
        if type(operand) is Literal:
            return False
        base = self.graph.memory_of(operand)
        readonly = (
            base in self.jaxpr.invars and base not in self.owned and base not in self.plan.donated
        )
        dead = self.last_read[base] == self.now and self._is_only_use(eqn.invars, base)
        return dead and not readonly and base not in self.jaxpr.constvars

    def _is_only_use(self, atoms: Sequence[Atom], base: Var) -> bool:
        """Return whether only one of `atoms` is in the memory of `base`; otherwise overwriting it would change the others."""
        return sum(type(a) is not Literal and self.graph.memory_of(a) is base for a in atoms) == 1
