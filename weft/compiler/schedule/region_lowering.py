"""Control flow: the bodies of loops and branches, and the memory of carried values.

In:   an equation `scan`, `while` or `cond` of a `Body`.
Out:  its steps: a control-flow step that contains the steps of its bodies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from weft.compiler.schedule.arena import Buffer, Ref
from weft.compiler.schedule.buffer_aliasing import alias
from weft.compiler.schedule.liveness import Pending, Timeline, fixed
from weft.ir import program as P
from weft.ir.jaxpr import Atom, Eqn, Var

if TYPE_CHECKING:
    from weft.compiler.schedule.schedule import Body


def write(body: Body, eqn: Eqn) -> None:
    """Add the steps of an equation of control flow."""
    how = _WRITE.get(eqn.primitive.name) or eqn.primitive.rule("lower")      # which says why there is none
    how(body, eqn)


def carried_from(eqn: Eqn) -> int:
    """Position among a loop's operands of the first carried value."""
    params = eqn.params
    return params["num_consts"] if eqn.primitive.name == "scan" else params["cond_nconsts"] + params["body_nconsts"]


def carried_count(eqn: Eqn) -> int:
    """How many values a loop carries."""
    return eqn.params["num_carry"] if eqn.primitive.name == "scan" else len(eqn.outvars)


# ---- carried values


def _carries(body: Body, atoms: Sequence[Atom], outvars: Sequence[Var]) -> list[Ref]:
    """Memory that a loop carries values in, filled with the first ones."""
    carries = []
    for atom, var in zip(atoms, outvars):
        carry = body.result(var)
        body.plan.copy(carry, body.ref(atom), atom.aval.nbytes)
        body.plan.touch(carry)
        carries.append(carry)
    return carries


def _carry_over(plan: Timeline, carries: list[Ref], fresh: list[Ref], avals: Sequence) -> None:
    """End of a loop body: the new values become the carried ones."""
    ends = [r.final() for r in fresh]
    homes = {c.final().buffer for c in carries}
    late = []
    for carry, new, aval in zip(carries, ends, avals):
        home = carry.final()
        if new == home or not aval.nbytes:
            continue
        if _adopt(plan, carry, new, ends, homes):
            continue
        if new.buffer in homes:
            spare = plan.temp(aval)
            plan.copy(spare, new, aval.nbytes)
            new = spare
        late.append((carry, new, aval.nbytes))
    for carry, new, nbytes in late:
        plan.copy(carry, new, nbytes)


def _adopt(plan: Timeline, carry: Ref, new: Ref, ends: list[Ref], homes: set[Buffer]) -> bool:
    """Let the step that makes a new carried value write it into the carry, if the old one is dead by then."""
    home, buffer = carry.final(), new.buffer
    if buffer.kind != "temp" or buffer.region is not plan.region or buffer in homes:
        return False
    if new.offset or new.strides or home.strides or home.offset or buffer.nbytes != home.buffer.nbytes:
        return False
    if sum(e.buffer is buffer for e in ends) != 1 or any(e.buffer is home.buffer for e in ends):
        return False
    writer = next((p for p in reversed(plan.steps) if p.time == buffer.first), None)
    read = plan.last_read.get(home.buffer, -1)
    if writer is None or read > buffer.first:
        return False
    if read == buffer.first:
        pair = next((p for p in (writer.in_place or {}).get(buffer, ()) if p[0] is home.buffer), None)
        if pair is None:
            return False
        alias(writer, pair)
    buffer.forward = home
    return True


def stacked_courses(eqn: Eqn, targets: Collection[Var]) -> dict[int, list[tuple[Var, bool]]]:
    """Carried values of a scan whose beginnings of turns are stacked: their stacks, and whether each is of the ends of turns."""
    if eqn.primitive.name != "scan" or not eqn.params["length"]:
        return {}
    inner, nc, nk = eqn.params["jaxpr"], eqn.params["num_consts"], eqn.params["num_carry"]
    found = {}
    for n, (begin, end) in enumerate(zip(inner.invars[nc:nc + nk], inner.outvars[:nk])):
        stacks = [(var, atom is not begin) for atom, var in zip(inner.outvars[nk:], eqn.outvars[nk:])
                  if var not in targets and (atom is begin or atom is end)]
        if begin.aval.nbytes and not all(ends for _, ends in stacks):
            found[n] = stacks
    return found


def _course(body: Body, eqn: Eqn, n: int, stacks: list[tuple[Var, bool]]) -> tuple[Ref, Ref]:
    """Memory for a carried value at all times, and where it lies at the begin and at the end of the first turn.

    The end of a turn is the begin of the next: a stack of ends is that of begins, one place on."""
    first, length, back = eqn.invars[carried_from(eqn) + n], eqn.params["length"], bool(eqn.params.get("reverse", False))
    nbytes, last = first.aval.nbytes, eqn.outvars[n]
    course = Ref(body.plan.new((length + 1) * nbytes))
    begins, ends = course.moved(back * nbytes), course.moved((not back) * nbytes)
    body.plan.copy(course.moved(back * length * nbytes), body.ref(first), nbytes)
    for var, of_ends in stacks:
        body.env[var] = ends if of_ends else begins
    if last not in body.targets:
        body.env[last] = course.moved((not back) * length * nbytes)
    return begins, ends


# ---- loops and branches


def _scan(body: Body, eqn: Eqn) -> None:
    params, plan = eqn.params, body.plan
    inner, length = params["jaxpr"], params["length"]
    nc, nk = params["num_consts"], params["num_carry"]
    consts = [body.ref(a) for a in eqn.invars[:nc]]
    xs = [body.ref(a) for a in eqn.invars[nc + nk:]]
    courses = {n: _course(body, eqn, n, stacks) for n, stacks in stacked_courses(eqn, body.targets).items()}
    moving = [n for n in range(nk) if n not in courses]
    carries = _carries(body, [eqn.invars[nc + n] for n in moving], [eqn.outvars[n] for n in moving])
    ys = [body.env.get(v) or body.result(v) for v in eqn.outvars[nk:]]
    if length == 0:
        return
    var = plan.loop_variable()
    along = lambda ref, aval: Ref(ref.buffer, ref.offset, (*ref.strides, (var, aval.nbytes)))

    def run() -> None:
        for ref in (*carries, *ys, *(begins for begins, _ in courses.values())):
            plan.touch(ref)
        given: list[Ref] = [*consts, *([None] * nk), *(along(r, v.aval) for r, v in zip(xs, inner.invars[nc + nk:]))]
        outs = [None] * nk + [along(r, a.aval) for r, a in zip(ys, inner.outvars[nk:])]
        for n, carry in zip(moving, carries):
            given[nc + n] = carry
        for n, (begins, ends) in courses.items():
            aval = inner.outvars[n].aval
            given[nc + n], outs[n] = along(begins, aval), along(ends, aval)
        owned = [False] * nc + [n not in courses for n in range(nk)] + [False] * len(xs)
        fresh = body.within(inner, given, outs, owned)
        _carry_over(plan, carries, [fresh[n] for n in moving], [eqn.outvars[n].aval for n in moving])

    steps = plan.inside(run)
    reverse = bool(params.get("reverse", False))
    plan.step(lambda at: P.Loop(var, length, fixed(steps, at), reverse), [], [])
    for n, (_, ends) in courses.items():
        out = eqn.outvars[n]
        if out in body.targets:
            nbytes = out.aval.nbytes
            plan.copy(body.result(out), ends.moved(0 if reverse else (length - 1) * nbytes), nbytes)


def _while(body: Body, eqn: Eqn) -> None:
    params, plan = eqn.params, body.plan
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts = [body.ref(a) for a in eqn.invars[:n_cond]]
    body_consts = [body.ref(a) for a in eqn.invars[n_cond:n_cond + n_body]]
    carries = _carries(body, eqn.invars[n_cond + n_body:], eqn.outvars)
    flag = plan.temp(params["cond_jaxpr"].outvars[0].aval)
    plan.touch(flag)
    test: list[Pending] = []

    def whole() -> None:
        for ref in (*carries, flag):
            plan.touch(ref)
        test.extend(plan.inside(lambda: body.within(params["cond_jaxpr"], [*cond_consts, *carries], [flag])))
        plan.steps.extend(plan.inside(run))

    def run() -> None:
        owned = [False] * n_body + [True] * len(carries)
        fresh = body.within(params["body_jaxpr"], [*body_consts, *carries], [None] * len(carries), owned)
        _carry_over(plan, carries, fresh, [v.aval for v in eqn.outvars])

    steps = plan.inside(whole)
    plan.step(lambda at: P.WhileLoop(fixed(test, at), at(flag), fixed(steps, at)), [flag], [])


def _cond(body: Body, eqn: Eqn) -> None:
    plan, branches = body.plan, eqn.params["branches"]
    index, *operands = eqn.invars
    selector = body.ref(index)
    ins = [body.ref(a) for a in operands]
    outs = [body.result(v) for v in eqn.outvars]
    made: list[list[Pending]] = []

    def whole() -> None:
        for ref in (selector, *outs):
            plan.touch(ref)
        for branch in branches:
            made.append(plan.inside(lambda branch=branch: body.within(branch, ins, outs)))

    plan.inside(whole)
    plan.step(lambda at: P.Branch(at(selector), tuple(fixed(steps, at) for steps in made)), [selector], outs)


_WRITE = {"scan": _scan, "while": _while, "cond": _cond}
