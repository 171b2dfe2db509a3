"""Exchanges with other processes as steps: start and wait.

In:   equations of exchanges, and the `done` equations where their results are needed (`overlap`).
Out:  the steps, and the entries of the program's words, a constant whose values depend on the process.
Laws: the operand and the result stay live and unwritten from start to wait.
"""

from __future__ import annotations

import numpy as np

from weft._engine.compiler.schedule.arena import ArenaRef
from weft._engine.compiler.schedule.buffer_assignment import BufferAssignment
from weft._engine.compiler.schedule.liveness import ProgramBuilder
from weft._engine.ir import program as P
from weft._engine.ir.jaxpr import Eqn, Literal
from weft._engine.ops.exchange import count_of, role_of


def lower(body: BufferAssignment, eqn: Eqn) -> None:
    """Add the steps of an equation of an exchange: its start, its end, or the position of the process."""
    plan = body.plan
    role = role_of(eqn)
    if role == "position":
        at = _word(plan, ("position", *eqn.params["table"]))
        # the low int32 of a little-endian i64
        body.env[eqn.outvars[0]] = _words(plan).offset_by(8 * at)
        plan.touch(_words(plan))
        return
    if role == "done":
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
    word = _word(
        plan,
        (
            "plan",
            params["kind"],
            aval.dtype.name,
            count_of(params["kind"], aval, size),
            params["op"],
            params["groups"],
            params["pairs"],
            what,
        ),
    )
    words, request = _words(plan), ArenaRef(plan.new(8))
    title = f"{params['kind']}{' ' + params['op'] if params['op'] else ''} of {aval.str_short()}"
    plan.step(
        lambda at: P.Start(title, word, at(words), at(source), at(out), at(request)),
        [source, words],
        [out, request],
    )
    body.requests[eqn.outvars[0]] = request


def _words(plan: ProgramBuilder) -> ArenaRef:
    """Return the address of the words, a constant that each process fills in."""
    if plan.words_at is None:
        saved, plan.region = plan.region, None
        plan.words_at = ArenaRef(plan.new(8 * P.FIRST_WORD, P.SlotKind.CONSTANT, len(plan.consts)))
        plan.region = saved
        plan.consts.append(np.zeros(P.FIRST_WORD, np.int64))
        plan.words += [("start",), ("wait",)]
    return plan.words_at


def _word(plan: ProgramBuilder, entry: tuple) -> int:
    """Return the number of the word with the given description; add it if it is new."""
    at = _words(plan)
    if entry not in plan.words:
        plan.words.append(entry)
        at.buffer.nbytes = 8 * len(plan.words)
    return plan.words.index(entry)
