"""Linearization: the derivative at a point, as a program that is linear in the tangents.

`linearize_flat` runs a function under forward mode whose parent is a `LinearTrace`: what depends on values alone is computed
at once by the enclosing trace, what depends on tangents is staged. The staged program's constants are the residuals.
`partial_eval_jaxpr` makes the same split on a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._engine.core.stage import StageTrace, StageTracer
from weft._engine.core.trace import Zero, check_leaks, current_trace, set_trace, typeof
from weft._engine.ir.jaxpr import DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.transforms.jvp import JVPTrace
from weft._engine.util.config import config
from weft._engine.util.state import guard


class LinearTrace(StageTrace):
    """Stages what depends on its own tracers; passes everything else to its parent."""

    __slots__ = ()
    records_constants = False

    def process(self, primitive, args: Sequence, params: dict):
        if not any(type(x) is StageTracer and x._trace is self for x in args):
            return self.parent.process(primitive, args, params)
        rule = primitive.rules.get("partial_eval")
        if rule is not None:
            return rule(self, args, params)
        return StageTrace.process(self, primitive, args, params)

    def cast(self, x, axes):
        return super().cast(x, axes) if self.is_unknown(x) else self.parent.cast(x, axes)

    def serving(self, args):
        return self if any(map(self.is_unknown, args)) else self.parent

    def is_unknown(self, x) -> bool:
        return type(x) is StageTracer and x._trace is self


def linearize_flat(
    fun: Callable, primals: Sequence, nonzero: Sequence[bool] | None = None
) -> tuple[list, Jaxpr, list[bool]]:
    """Values of flat `fun`, its linear program from the tangents of the inputs (`nonzero` ones) to the nonzero tangents of
    the outputs, and which outputs those are. The program's `consts` are the residuals."""
    if nonzero is None:
        nonzero = [True] * len(primals)
    linear = LinearTrace(current_trace())
    jvp = JVPTrace(linear)
    tangents = [
        linear.new_arg(typeof(p).to_tangent_aval()) if nz else Zero(typeof(p).to_tangent_aval())
        for p, nz in zip(primals, nonzero)
    ]
    guard[0] += 1
    try:
        with set_trace(jvp):
            outs = fun(*[jvp.join(p, t) for p, t in zip(primals, tangents)])
        pairs = [jvp.split(o) for o in outs]
        jvp.finished = True
        out_nonzero = [type(t) is not Zero for _, t in pairs]
        program = linear.to_jaxpr(
            [t for t in tangents if type(t) is not Zero],
            [t for _, t in pairs if type(t) is not Zero],
        )
    finally:
        guard[0] -= 1
        linear.finished = jvp.finished = True
    values = [p for p, _ in pairs]
    del outs, pairs, tangents
    if config.check_tracer_leaks:
        check_leaks(jvp)
        check_leaks(linear)
    return values, program, out_nonzero


class Partial:
    """Result of `partial_eval_jaxpr`.

    known:    program of the known inputs; its outputs are the known results, then the residuals it had to compute
    unknown:  program of (residuals..., unknown inputs); its outputs are the unknown results
    out_unknown: per original output, whether it is unknown
    forwarded:   for each residual, the index of the known input that it is, or None if `known` computes it
    """

    __slots__ = ("known", "unknown", "out_unknown", "forwarded")

    def __init__(self, known, unknown, out_unknown, forwarded):
        self.known, self.unknown, self.out_unknown, self.forwarded = (
            known,
            unknown,
            out_unknown,
            forwarded,
        )


def partial_eval_jaxpr(
    jaxpr: Jaxpr,
    in_unknown: Sequence[bool],
    force_unknown: Sequence[bool] = (),
    saveable: Callable[[Eqn], bool] | None = None,
) -> Partial:
    """Split `jaxpr` into what the known inputs determine and the rest.

    `force_unknown` marks outputs to be treated as unknown whatever they are. With `saveable` (a checkpoint policy), only
    results of equations for which it holds are residuals; everything else the unknown side needs is computed again there.
    """
    in_unknown = tuple(in_unknown)
    force_unknown = tuple(force_unknown) or (False,) * len(jaxpr.outvars)
    if saveable is None:
        return jaxpr.memo(
            ("partial", in_unknown, force_unknown),
            lambda: _partial(jaxpr, in_unknown, force_unknown, None),
        )
    return _partial(jaxpr, in_unknown, force_unknown, saveable)


def _partial(jaxpr: Jaxpr, in_unknown, force_unknown, saveable) -> Partial:
    unknown_vars = {v for v, u in zip(jaxpr.invars, in_unknown) if u}
    known_eqns: list[Eqn] = []
    unknown_eqns: list[Eqn] = []
    saved: set[Var] = set()  # residuals that a policy allowed inside of an operation
    for eqn in jaxpr.eqns:
        mask = [type(a) is not Literal and a in unknown_vars for a in eqn.invars]
        if not any(mask):
            known_eqns.append(eqn)
            inside = eqn.primitive.rules.get("saved_inside")
            if saveable is not None and inside is not None:
                saved.update(inside(eqn, saveable))
            continue
        split = eqn.primitive.rules.get("partial_eval_eqn")
        under_policy = (
            eqn.primitive.rules.get("partial_eval_saveable") if saveable is not None else None
        )
        if split is not None:
            # each side an equation, a list of them, or None
            known, unknown, new_unknown, *allowed = (
                split(eqn, mask) if under_policy is None else under_policy(eqn, mask, saveable)
            )
            saved.update(*allowed)
            known_eqns.extend(_as_list(known))
            unknown_eqns.extend(_as_list(unknown))
            unknown_vars.update(new_unknown)
        else:
            unknown_eqns.append(eqn)
            unknown_vars.update(eqn.outvars)
    out_unknown = tuple(
        (type(a) is not Literal and a in unknown_vars) or force
        for a, force in zip(jaxpr.outvars, force_unknown)
    )
    unknown_outs = [a for a, u in zip(jaxpr.outvars, out_unknown) if u]
    if saveable is not None:
        unknown_eqns, unknown_outs = _recompute(
            known_eqns, unknown_eqns, unknown_outs, saveable, saved
        )
    consts = dict(zip(jaxpr.constvars, jaxpr.consts))
    defined_unknown = {v for e in unknown_eqns for v in e.outvars} | {
        v for v, u in zip(jaxpr.invars, in_unknown) if u
    }
    residuals: dict[Var, None] = {}
    unknown_consts: dict[Var, None] = {}
    for a in [*(a for e in unknown_eqns for a in e.invars), *unknown_outs]:
        if type(a) is Literal or a in defined_unknown:
            continue
        (unknown_consts if a in consts else residuals).setdefault(a)
    known_invars = [v for v, u in zip(jaxpr.invars, in_unknown) if not u]
    position = {v: i for i, v in enumerate(known_invars)}
    computed = [v for v in residuals if v not in position]
    known = Jaxpr(
        jaxpr.constvars,
        jaxpr.consts,
        known_invars,
        [a for a, u in zip(jaxpr.outvars, out_unknown) if not u] + computed,
        known_eqns,
        name=jaxpr.name,
    )
    unknown = Jaxpr(
        tuple(unknown_consts),
        [consts[v] for v in unknown_consts],
        [*residuals, *(v for v, u in zip(jaxpr.invars, in_unknown) if u)],
        unknown_outs,
        unknown_eqns,
        name=jaxpr.name,
    )
    return Partial(known, unknown, out_unknown, [position.get(v) for v in residuals])


def _as_list(eqns) -> list[Eqn]:
    return [] if eqns is None else eqns if isinstance(eqns, list) else [eqns]


def _recompute(known_eqns, unknown_eqns, unknown_outs, saveable, saved) -> tuple[list[Eqn], list]:
    """`unknown_eqns` preceded by the known equations that they and `unknown_outs` need and that the policy does not save, and these
    outputs; the values `saved` are."""
    wanted = {a for e in unknown_eqns for a in e.invars if type(a) is not Literal}
    wanted |= {a for a in unknown_outs if type(a) is not Literal}
    again: list[Eqn] = []
    for eqn in reversed(known_eqns):
        if (
            any(v in wanted and v not in saved for v in eqn.outvars)
            and not eqn.effects
            and not saveable(eqn)
        ):
            again.append(eqn)
            wanted.update(a for a in eqn.invars if type(a) is not Literal)
    again.reverse()
    fresh: dict[Var, Var] = {}
    copies = []
    for eqn in again:
        invars = [fresh.get(a, a) if type(a) is not Literal else a for a in eqn.invars]
        outvars = []
        for v in eqn.outvars:
            w = DropVar(v.aval) if type(v) is DropVar or v in saved else Var(v.aval)
            if v not in saved:
                fresh[v] = w
            outvars.append(w)
        source = None if eqn.source is None else eqn.source.within("rematted_computation")
        copies.append(eqn.replace(invars=invars, outvars=outvars, source=source))
    rename = lambda a: fresh.get(a, a) if type(a) is not Literal else a
    return copies + [e.replace(invars=[rename(a) for a in e.invars]) for e in unknown_eqns], [
        rename(a) for a in unknown_outs
    ]


def run_partial(
    trace: LinearTrace,
    partial: Partial,
    known_args: Sequence,
    unknown_args: Sequence,
    bind_known: Callable[[Jaxpr, Sequence], list],
    bind_unknown: Callable[[Jaxpr, Sequence], list],
) -> list:
    """Outputs of a split program under `trace`: the known part bound by the parent, the unknown part staged."""
    with set_trace(trace.parent):
        known_outs = bind_known(partial.known, known_args)
    n_known = sum(not u for u in partial.out_unknown)
    computed = iter(known_outs[n_known:])
    residuals = [known_args[i] if i is not None else next(computed) for i in partial.forwarded]
    unknown_outs = iter(bind_unknown(partial.unknown, [*residuals, *unknown_args]))
    results = iter(known_outs[:n_known])
    return [next(unknown_outs) if u else next(results) for u in partial.out_unknown]
