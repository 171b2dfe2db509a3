"""Control flow: the bodies of loops and branches, and the memory of carried values.

In:   an equation of a loop or a branch, and the memory of the values around it.
Out:  its steps: a control-flow step that contains the steps of its bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._engine.compiler.fusion.classify import LoweringKind, lowering_kind
from weft._engine.compiler.schedule.arena import Ref, Region
from weft._engine.compiler.schedule.buffer_assignment import BufferAssignment
from weft._engine.compiler.schedule.liveness import PendingStep, finalized
from weft._engine.compiler.schedule.loop_carries import stacked_carries, update_carries
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Var, subjaxprs
from weft._engine.ops.families import BranchSpec, LoopSpec
from weft._engine.util.machine_model import MODEL

#: adds the steps of a program inside: from where its inputs are, where results are to be (or None) and which inputs may be
#: overwritten, to where the results are
Lower = Callable[..., list[Ref]]


def lower_region(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    """Add the steps of an equation of control flow."""
    match eqn.primitive.rules.get("lower"):
        case LoopSpec(counted=True):
            _scan(body, eqn, lower)
        case LoopSpec():
            _while(body, eqn, lower)
        case BranchSpec():
            _cond(body, eqn, lower)
        case _:
            eqn.primitive.rule("lower")  # which says why there is none


# ---- carried values


def _carries(body: BufferAssignment, atoms: Sequence[Atom], outvars: Sequence[Var]) -> list[Ref]:
    """Memory that a loop carries values in, filled with the first ones."""
    carries = []
    for atom, var in zip(atoms, outvars):
        carry = body.result(var)
        body.plan.copy(carry, body.ref(atom), atom.aval.nbytes)
        body.plan.touch(carry)
        carries.append(carry)
    return carries


def _history(
    body: BufferAssignment, eqn: Eqn, n: int, stacks: list[tuple[Var, bool]]
) -> tuple[Ref, Ref]:
    """Memory for a carried value in all iterations; where it is at the beginning and at the end of the first one.

    An iteration ends with what the next begins with: a stack of ends is that of beginnings, one place on."""
    params = eqn.params
    first, length, back = (
        eqn.invars[params["num_consts"] + n],
        params["length"],
        bool(params.get("reverse", False)),
    )
    nbytes, last = first.aval.nbytes, eqn.outvars[n]
    history = Ref(body.plan.new((length + 1) * nbytes))
    begins, ends = history.moved(back * nbytes), history.moved((not back) * nbytes)
    body.plan.copy(history.moved(back * length * nbytes), body.ref(first), nbytes)
    for var, of_ends in stacks:
        body.env[var] = ends if of_ends else begins
    if last not in body.targets:
        body.env[last] = history.moved((not back) * length * nbytes)
    return begins, ends


# ---- loops and branches


def _scan(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    params, plan = eqn.params, body.plan
    inner, length = params["jaxpr"], params["length"]
    nc, nk = params["num_consts"], params["num_carry"]
    consts = [body.ref(a) for a in eqn.invars[:nc]]
    xs = [body.ref(a) for a in eqn.invars[nc + nk :]]
    histories = {
        n: _history(body, eqn, n, stacks)
        for n, stacks in stacked_carries(eqn, body.targets).items()
    }
    moving = [n for n in range(nk) if n not in histories]
    carries = _carries(body, [eqn.invars[nc + n] for n in moving], [eqn.outvars[n] for n in moving])
    ys = [body.env.get(v) or body.result(v) for v in eqn.outvars[nk:]]
    if length == 0:
        return
    var = plan.loop_variable()
    along = lambda ref, aval: Ref(ref.buffer, ref.offset, (*ref.strides, (var, aval.nbytes)))

    def run() -> None:
        for ref in (*carries, *ys, *(begins for begins, _ in histories.values())):
            plan.touch(ref)
        given: list[Ref] = [
            *consts,
            *([None] * nk),
            *(along(r, v.aval) for r, v in zip(xs, inner.invars[nc + nk :])),
        ]
        outs = [None] * nk + [along(r, a.aval) for r, a in zip(ys, inner.outvars[nk:])]
        for n, carry in zip(moving, carries):
            given[nc + n] = carry
        for n, (begins, ends) in histories.items():
            aval = inner.outvars[n].aval
            given[nc + n], outs[n] = along(begins, aval), along(ends, aval)
        owned = [False] * nc + [n not in histories for n in range(nk)] + [False] * len(xs)
        fresh = lower(inner, given, outs, owned)
        update_carries(
            plan, carries, [fresh[n] for n in moving], [eqn.outvars[n].aval for n in moving]
        )

    region = Region(
        plan.region,
        tasks=not nk
        and length >= MODEL.task_loop_iterations
        and _are_tasks(inner)
        and (plan.region is None or plan.region.of_tasks() is None),
    )
    if region.tasks:
        plan.task_regions.append(region)
    steps = plan.inside(run, region)
    reverse = bool(params.get("reverse", False))
    plan.step(
        lambda at: P.Loop(
            var, length, finalized(steps, at), reverse, region.tasks, region.own_bytes
        ),
        [],
        [],
    )
    for n, (_, ends) in histories.items():
        out = eqn.outvars[n]
        if out in body.targets:
            nbytes = out.aval.nbytes
            plan.copy(body.result(out), ends.moved(0 if reverse else (length - 1) * nbytes), nbytes)


#: what native code does by itself, on any thread
_NATIVE = frozenset(LoweringKind) - {
    LoweringKind.HOST,
    LoweringKind.LIBRARY,
    LoweringKind.FFT,
    LoweringKind.COLLECTIVE,
    LoweringKind.EXCHANGE,
}


def _are_tasks(jaxpr: Jaxpr) -> bool:
    """Whether a program, the body of a loop that carries nothing, may run on any thread, several times at once."""
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
            plan.inside(lambda: lower(params["cond_jaxpr"], [*cond_consts, *carries], [flag]))
        )
        plan.steps.extend(plan.inside(run))

    def run() -> None:
        owned = [False] * n_body + [True] * len(carries)
        fresh = lower(params["body_jaxpr"], [*body_consts, *carries], [None] * len(carries), owned)
        update_carries(plan, carries, fresh, [v.aval for v in eqn.outvars])

    steps = plan.inside(whole)
    plan.step(
        lambda at: P.WhileLoop(finalized(test, at), at(flag), finalized(steps, at)), [flag], []
    )


def _cond(body: BufferAssignment, eqn: Eqn, lower: Lower) -> None:
    plan, branches = body.plan, eqn.params["branches"]
    index, *operands = eqn.invars
    selector = body.ref(index)
    ins = [body.ref(a) for a in operands]
    outs = [body.result(v) for v in eqn.outvars]
    made: list[list[PendingStep]] = []

    def whole() -> None:
        for ref in (selector, *outs):
            plan.touch(ref)
        for branch in branches:
            made.append(plan.inside(lambda branch=branch: lower(branch, ins, outs)))

    plan.inside(whole)
    plan.step(
        lambda at: P.Branch(at(selector), tuple(finalized(steps, at) for steps in made)),
        [selector],
        outs,
    )
