"""Lowering of control flow: the steps of loops and branches, and the memory of carried values.

In:   an equation of a loop or a branch, and the memory of outside values.
Out:  its steps: a control-flow step that contains the steps of its bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._engine.compiler.fusion.classify import LoweringKind, lowering_kind
from weft._engine.compiler.schedule.arena import ArenaRef, Region
from weft._engine.compiler.schedule.buffer_assignment import BufferAssignment
from weft._engine.compiler.schedule.liveness import PendingStep, assign_addresses
from weft._engine.compiler.schedule.loop_carries import find_stacked_carries, update_carries
from weft._engine.core.primitive import BranchLike, LoopLike
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Var, subjaxprs
from weft._engine.ir.types import ShapedArray

# thresholds, measured on several machines
#: minimal number of iterations that run in parallel, of a loop without carries
_TASK_LOOP_ITERATIONS = 8


#: a function that adds the steps of a body, given the addresses of inputs, the required addresses of results (or None) and flags of
#: inputs that may be overwritten; it returns the addresses of the results
Lower = Callable[..., list[ArenaRef]]


def lower_region(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    """Add the steps of a loop or branch; `lower` adds the steps of its bodies."""
    match eqn.primitive:
        case LoopLike(counted=True):
            _scan(body, eqn, lower)
        case LoopLike():
            _while(body, eqn, lower)
        case BranchLike():
            _cond(body, eqn, lower)
        case _:
            eqn.primitive.lower(eqn)  # raises the error of a missing rule


# ---- carried values


def _carries(
    body: BufferAssignment, atoms: Sequence[Atom], outvars: Sequence[Var]
) -> list[ArenaRef]:
    """Return the memory of the carries of a loop, and add copies of the initial values into it."""
    carries = []
    for atom, var in zip(atoms, outvars):
        carry = body.result(var)
        body.plan.copy(carry, body.ref(atom), atom.aval.nbytes)
        body.plan.touch(carry)
        carries.append(carry)
    return carries


def _history(
    body: BufferAssignment, eqn: Eqn, n: int, stacks: list[tuple[Var, bool]]
) -> tuple[ArenaRef, ArenaRef]:
    """Allocate memory for a carry in all iterations; return its address at the beginning and at the end of the first iteration.

    The carry at the end of an iteration is the carry at the beginning of the next, so both stacks share the memory, shifted by one
    element."""
    params = eqn.params
    first, length, back = (
        eqn.invars[params["num_consts"] + n],
        params["length"],
        bool(params.get("reverse", False)),
    )
    nbytes, last = first.aval.nbytes, eqn.outvars[n]
    history = ArenaRef(body.plan.new((length + 1) * nbytes))
    begins, ends = history.offset_by(back * nbytes), history.offset_by((not back) * nbytes)
    body.plan.copy(history.offset_by(back * length * nbytes), body.ref(first), nbytes)
    for var, of_ends in stacks:
        body.env[var] = ends if of_ends else begins
    if last not in body.targets:
        body.env[last] = history.offset_by((not back) * length * nbytes)
    return begins, ends


# ---- loops and branches


def _scan(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    scan = _LoopMemory(body, eqn)
    if not scan.length:
        return
    plan, region = body.plan, scan.region()
    if region.tasks:
        plan.task_regions.append(region)
    steps = plan.build_body(lambda: scan.iteration(lower), region)
    plan.step(
        lambda at: P.Loop(
            scan.var,
            scan.length,
            assign_addresses(steps, at),
            scan.reverse,
            region.tasks,
            region.own_bytes,
        ),
        [],
        [],
    )
    scan.copy_results()


class _LoopMemory:
    """The memory of a counted loop: constants, carries, histories of stacked carries, scanned inputs and stacked results."""

    def __init__(self, body: BufferAssignment, eqn: Eqn) -> None:
        params = eqn.params
        self.body, self.plan, self.eqn = body, body.plan, eqn
        self.inner, self.length = params["jaxpr"], params["length"]
        self.reverse = bool(params.get("reverse", False))
        self.nc, self.nk = params["num_consts"], params["num_carry"]
        first_x = self.nc + self.nk
        self.consts = [body.ref(a) for a in eqn.invars[: self.nc]]
        self.xs = [body.ref(a) for a in eqn.invars[first_x:]]
        self.histories = {
            n: _history(body, eqn, n, stacks)
            for n, stacks in find_stacked_carries(eqn, body.targets).items()
        }
        self.moving = [n for n in range(self.nk) if n not in self.histories]
        self.carries = _carries(
            body,
            [eqn.invars[self.nc + n] for n in self.moving],
            [eqn.outvars[n] for n in self.moving],
        )
        self.ys = [body.env.get(v) or body.result(v) for v in eqn.outvars[self.nk :]]
        self.var = self.plan.loop_variable() if self.length else ""

    def region(self) -> Region:
        """Return the region of the body; a long loop without carries has tasks."""
        outer = self.plan.region
        tasks = (
            not self.nk
            and self.length >= _TASK_LOOP_ITERATIONS
            and _are_tasks(self.inner)
            and (outer is None or outer.of_tasks() is None)
        )
        return Region(outer, tasks=tasks)

    def iteration(self, lower: Lower) -> None:
        """Add the steps of an iteration."""
        inner, nc, nk, moving = self.inner, self.nc, self.nk, self.moving
        begins = [begin for begin, _ in self.histories.values()]
        for ref in (*self.carries, *self.ys, *begins):
            self.plan.touch(ref)
        ins: list[ArenaRef | None] = [*self.consts, *([None] * nk)]
        ins += [
            self._address_of_iteration(r, v.aval) for r, v in zip(self.xs, inner.invars[nc + nk :])
        ]
        outs: list[ArenaRef | None] = [None] * nk
        outs += [self._address_of_iteration(r, a.aval) for r, a in zip(self.ys, inner.outvars[nk:])]
        for n, carry in zip(moving, self.carries):
            ins[nc + n] = carry
        for n, (begin, end) in self.histories.items():
            aval = inner.outvars[n].aval
            ins[nc + n], outs[n] = (
                self._address_of_iteration(begin, aval),
                self._address_of_iteration(end, aval),
            )
        owned = [False] * nc + [n not in self.histories for n in range(nk)] + [False] * len(self.xs)
        lowered = lower(inner, ins, outs, owned)
        avals = [self.eqn.outvars[n].aval for n in moving]
        update_carries(self.plan, self.carries, [lowered[n] for n in moving], avals)

    def _address_of_iteration(self, ref: ArenaRef, aval: ShapedArray) -> ArenaRef:
        """Return the address of the current iteration's element of a stack."""
        return ArenaRef(ref.buffer, ref.offset, (*ref.strides, (self.var, aval.nbytes)))

    def copy_results(self) -> None:
        """Copy the last values of histories to results that already have memory."""
        for n, (_, ends) in self.histories.items():
            out = self.eqn.outvars[n]
            if out in self.body.targets:
                nbytes = out.aval.nbytes
                last = ends.offset_by(0 if self.reverse else (self.length - 1) * nbytes)
                self.plan.copy(self.body.result(out), last, nbytes)


#: kinds of equations that native code computes on any thread, without Python
_NATIVE = frozenset(LoweringKind) - {
    LoweringKind.HOST,
    LoweringKind.LIBRARY,
    LoweringKind.FFT,
    LoweringKind.COLLECTIVE,
    LoweringKind.EXCHANGE,
}


def _are_tasks(jaxpr: Jaxpr) -> bool:
    """Return whether the body of a loop without carries may run on any thread, several iterations at once."""
    return not jaxpr.effects and all(
        lowering_kind(eqn) in _NATIVE
        and all(_are_tasks(inner) for _, inner in subjaxprs(eqn.params))
        for eqn in jaxpr.eqns
    )


def _while(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    params, plan = eqn.params, body.plan
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts = [body.ref(a) for a in eqn.invars[:n_cond]]
    body_consts = [body.ref(a) for a in eqn.invars[n_cond : n_cond + n_body]]
    carries = _carries(body, eqn.invars[n_cond + n_body :], eqn.outvars)
    flag = plan.temp(params["cond_jaxpr"].outvars[0].aval)
    plan.touch(flag)
    test: list[PendingStep] = []

    def whole() -> None:
        for ref in (*carries, flag):
            plan.touch(ref)
        test.extend(
            plan.build_body(lambda: lower(params["cond_jaxpr"], [*cond_consts, *carries], [flag]))
        )
        plan.steps.extend(plan.build_body(run))

    def run() -> None:
        owned = [False] * n_body + [True] * len(carries)
        lowered_body = lower(
            params["body_jaxpr"], [*body_consts, *carries], [None] * len(carries), owned
        )
        update_carries(plan, carries, lowered_body, [v.aval for v in eqn.outvars])

    steps = plan.build_body(whole)
    plan.step(
        lambda at: P.WhileLoop(assign_addresses(test, at), at(flag), assign_addresses(steps, at)),
        [flag],
        [],
    )


def _cond(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    plan, branches = body.plan, eqn.params["branches"]
    index, *operands = eqn.invars
    selector = body.ref(index)
    ins = [body.ref(a) for a in operands]
    outs = [body.result(v) for v in eqn.outvars]
    bodies: list[list[PendingStep]] = []

    def whole() -> None:
        for ref in (selector, *outs):
            plan.touch(ref)
        for branch in branches:
            bodies.append(plan.build_body(lambda branch=branch: lower(branch, ins, outs)))

    plan.build_body(whole)
    plan.step(
        lambda at: P.Branch(at(selector), tuple(assign_addresses(steps, at) for steps in bodies)),
        [selector],
        outs,
    )
