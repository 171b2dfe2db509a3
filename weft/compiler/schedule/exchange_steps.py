"""Exchanges with other processes as steps: where each starts, what runs meanwhile, and where it is waited for.

In:   the fused program of one process, in which exchanges are equations (`ops.exchange`).
Out:  its items in an order that lets exchanges overlap with computing, with a mark where each result is needed; the steps of both.
Laws: the order is a function of the program alone, so that all processes start the same exchanges in the same order. An exchange is
      waited for within the program that starts it. Operand and result live, and nobody writes them, from start to wait: the mark reads
      both, so that all that plans memory sees it.
How:  an exchange starts as soon as its operand is there. Of what else is ready, that comes first on which later exchanges depend, then
      what depends on none, and last what has to wait.
"""

from __future__ import annotations

import numpy as np

from weft.compiler.fusion.fuse import Fusion
from weft.compiler.fusion.groups import Group
from weft.compiler.schedule.arena import Ref
from weft.compiler.schedule.buffer_assignment import BufferAssignment
from weft.compiler.schedule.liveness import ProgramBuilder
from weft.ir import program as P
from weft.ir.jaxpr import Eqn, Literal, Var, subjaxprs
from weft.ops.exchange import count_of, exchange_done_p, exchange_p, process_position_p


def overlapped(graph: Fusion) -> list[Group | Eqn]:
    """The items of a program in an order that overlaps, with a mark before the first reader of each exchange."""
    items, needs = graph.items, _needs(graph)
    starts = [is_exchange(item) for item in items]
    leads = list(starts)
    for i in reversed(range(len(items))):
        if leads[i]:
            for n in needs[i]:
                leads[n] = True
    under_way: dict[int, Eqn] = {}
    out: list[Group | Eqn] = []

    def rank(i: int) -> tuple[int, int]:
        if any(n in under_way for n in needs[i]):
            return 3, i
        return (0 if starts[i] else 1 if leads[i] else 2), i

    def wait(i: int) -> None:
        eqn = under_way.pop(i)
        out.append(Eqn(exchange_done_p, [*eqn.invars, *eqn.outvars], [], {}, eqn.source))

    readers: list[list[int]] = [[] for _ in items]
    for i, mine in enumerate(needs):
        for n in mine:
            readers[n].append(i)
    missing = [len(mine) for mine in needs]
    ready = {i for i, count in enumerate(missing) if not count}
    while ready:
        chosen = min(ready, key=rank)
        for n in sorted(needs[chosen] & under_way.keys()):
            wait(n)
        item = items[chosen]
        out.append(item)
        if starts[chosen] and type(item) is Eqn:
            under_way[chosen] = item
        ready.remove(chosen)
        for i in readers[chosen]:
            missing[i] -= 1
            if not missing[i]:
                ready.add(i)
    for n in sorted(under_way):
        wait(n)
    return out


def is_exchange(item: Group | Eqn) -> bool:
    """Whether an item starts an exchange."""
    return type(item) is Eqn and item.primitive is exchange_p and item.outvars[0].aval.size > 0


def _needs(graph: Fusion) -> list[set[int]]:
    """For each item those that come before it: what makes the values that it reads, and the effect before its own. Loops and branches
    that exchange inside keep their order among each other."""
    makers: dict[Var, int] = {}
    found: list[set[int]] = []
    effect = inside = -1
    for i, item in enumerate(graph.items):
        if isinstance(item, Group):
            reads, makes = graph.read_by(item), item.roots
        else:
            reads = [graph.memory_of(a) for a in item.invars if type(a) is not Literal]
            makes = item.outvars
        mine = {makers[v] for v in reads if v in makers}
        if not isinstance(item, Group):
            if item.effects:
                mine |= {effect} - {-1}
                effect = i
            if any(subjaxprs(item.params)):
                mine |= {inside} - {-1}
                inside = i
        makers.update((v, i) for v in makes)
        found.append(mine)
    return found


def lower(body: BufferAssignment, eqn: Eqn) -> None:
    """Add the steps of an exchange, or what belongs to one."""
    plan = body.plan
    if eqn.primitive is process_position_p:
        at = _word(plan, ("position", *eqn.params["table"]))
        body.env[eqn.outvars[0]] = _words(plan).moved(8 * at)       # of an i64 on a little-endian machine, the int32 in front
        plan.touch(_words(plan))
        return
    if eqn.primitive is exchange_done_p:
        request = body.requests.pop(eqn.invars[-1])
        reads = [body.ref(a) for a in eqn.invars if type(a) is not Literal]
        words = _words(plan)
        plan.step(lambda at: P.Wait(at(words), at(request)), [*reads, request, words], reads[-1:])
        return
    source, out = body.ref(eqn.invars[0]), body.result(eqn.outvars[0])
    if not eqn.outvars[0].aval.size:
        return
    params, aval = eqn.params, eqn.invars[0].aval
    size = len(params["groups"][0]) if params["groups"] else 1
    what = str(eqn.source) if eqn.source is not None else ""
    word = _word(plan, ("plan", params["kind"], aval.dtype.name, count_of(params["kind"], aval, size), params["op"], params["groups"],
                        params["pairs"], what))
    words, request = _words(plan), Ref(plan.new(8))
    title = f"{params['kind']}{' ' + params['op'] if params['op'] else ''} of {aval.str_short()}"
    plan.step(lambda at: P.Start(title, word, at(words), at(source), at(out), at(request)), [source, words], [out, request])
    body.requests[eqn.outvars[0]] = request


def _words(plan: ProgramBuilder) -> Ref:
    """The constant that the process fills in."""
    if plan.words_at is None:
        saved, plan.region = plan.region, None
        plan.words_at = Ref(plan.new(8 * P.FIRST_WORD, "const", len(plan.consts)))
        plan.region = saved
        plan.consts.append(np.zeros(P.FIRST_WORD, np.int64))
        plan.words += [("start",), ("wait",)]
    return plan.words_at


def _word(plan: ProgramBuilder, entry: tuple) -> int:
    """The number of a word of the process."""
    at = _words(plan)
    if entry not in plan.words:
        plan.words.append(entry)
        at.buffer.nbytes = 8 * len(plan.words)
    return plan.words.index(entry)
