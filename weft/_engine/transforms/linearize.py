"""Linearization: the derivative at a point, as a program that is linear in the tangents.

`linearize_flat` runs a function under forward mode whose parent is a `LinearTrace`: what depends on values alone is computed
at once by the enclosing trace, what depends on tangents is staged. The staged program's constants are the residuals.
`partial_eval_jaxpr` makes the same split on a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.primitive import Primitive
from weft._engine.core.stage import StageTrace, StageTracer
from weft._engine.core.trace import Trace, Zero, check_leaks, current_trace, set_trace, typeof
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.transforms.jvp import JVPTrace
from weft._engine.util.config import config
from weft._engine.util.state import guard


class LinearTrace(StageTrace):
    """Stages what depends on its own tracers; passes everything else to its parent."""

    __slots__ = ("outer",)
    records_constants = False

    def __init__(self, parent: Trace, name: str = ""):
        super().__init__(parent, name)
        self.outer = parent

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if not any(type(x) is StageTracer and x.owning_trace is self for x in args):
            return self.outer.process(primitive, args, params)
        rule = primitive.partial_eval
        if rule is not None:
            return rule(self, args, params)
        return StageTrace.process(self, primitive, args, params)

    def cast(self, x: Any, axes: frozenset[Any]) -> Any:
        return super().cast(x, axes) if self.is_unknown(x) else self.outer.cast(x, axes)

    def serving(self, args: Sequence[Any]) -> Trace:
        return self if any(map(self.is_unknown, args)) else self.outer

    def is_unknown(self, x: Any) -> bool:
        return type(x) is StageTracer and x.owning_trace is self


def linearize_flat(
    fun: Callable[..., Any], primals: Sequence[Any], nonzero: Sequence[bool] | None = None
) -> tuple[list[Any], Jaxpr, list[bool]]:
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

    def __init__(
        self,
        known: Jaxpr,
        unknown: Jaxpr,
        out_unknown: tuple[bool, ...],
        forwarded: Sequence[int | None],
    ):
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


def _partial(
    jaxpr: Jaxpr,
    in_unknown: Sequence[bool],
    force_unknown: Sequence[bool],
    saveable: Callable[..., Any] | None,
) -> Partial:
    unknown_ins = [v for v, u in zip(jaxpr.invars, in_unknown) if u]
    sides = _Sides(set(unknown_ins), saveable)
    for eqn in jaxpr.eqns:
        sides.add(eqn)
    out_unknown = tuple(
        sides.is_unknown(a) or force for a, force in zip(jaxpr.outvars, force_unknown)
    )
    unknown_eqns = sides.unknown
    unknown_outs = [a for a, u in zip(jaxpr.outvars, out_unknown) if u]
    if saveable is not None:
        unknown_eqns, unknown_outs = _recompute(sides, unknown_outs, saveable)
    consts = dict(zip(jaxpr.constvars, jaxpr.consts))
    read = _read_from_outside(unknown_eqns, unknown_outs, unknown_ins)
    unknown_consts = [v for v in read if v in consts]
    residuals = [v for v in read if v not in consts]
    known_ins = [v for v, u in zip(jaxpr.invars, in_unknown) if not u]
    position = {v: i for i, v in enumerate(known_ins)}
    known_outs = [a for a, u in zip(jaxpr.outvars, out_unknown) if not u]
    known_outs += [v for v in residuals if v not in position]
    known = Jaxpr(
        jaxpr.constvars, jaxpr.consts, known_ins, known_outs, sides.known, name=jaxpr.name
    )
    unknown = Jaxpr(
        tuple(unknown_consts),
        [consts[v] for v in unknown_consts],
        [*residuals, *unknown_ins],
        unknown_outs,
        unknown_eqns,
        name=jaxpr.name,
    )
    return Partial(known, unknown, out_unknown, [position.get(v) for v in residuals])


class _Sides:
    """The equations of a program, divided into known and unknown ones."""

    def __init__(self, unknown_vars: set[Var], saveable: Callable[[Eqn], bool] | None):
        self.unknown_vars, self.saveable = unknown_vars, saveable
        self.known: list[Eqn] = []
        self.unknown: list[Eqn] = []
        #: residuals that a policy allowed inside of an op
        self.saved: set[Var] = set()

    def is_unknown(self, atom: Atom) -> bool:
        return type(atom) is not Literal and atom in self.unknown_vars

    def add(self, eqn: Eqn) -> None:
        """Add the next equation to its side, or a part of it to each."""
        primitive, saveable = eqn.primitive, self.saveable
        mask = [self.is_unknown(a) for a in eqn.invars]
        if not any(mask):
            self.known.append(eqn)
            if saveable is not None and primitive.saved_inside is not None:
                self.saved.update(primitive.saved_inside(eqn, saveable))
        elif saveable is not None and primitive.partial_eval_saveable is not None:
            self.extend(*primitive.partial_eval_saveable(eqn, mask, saveable))
        elif primitive.partial_eval_eqn is not None:
            self.extend(*primitive.partial_eval_eqn(eqn, mask))
        else:
            self.extend(None, eqn, eqn.outvars)

    def extend(
        self,
        known: Eqn | list[Eqn] | None,
        unknown: Eqn | list[Eqn] | None,
        new_unknown: Sequence[Var],
        *saved: Sequence[Var],
    ) -> None:
        """Add the parts of an equation, each an equation, a list of them, or None."""
        self.known += _as_list(known)
        self.unknown += _as_list(unknown)
        self.unknown_vars.update(new_unknown)
        self.saved.update(*saved)


def _read_from_outside(
    eqns: Sequence[Eqn], outs: Sequence[Atom], ins: Sequence[Var]
) -> dict[Var, None]:
    """The variables that equations and results read and that neither the equations nor `ins` define, in order."""
    defined = {v for e in eqns for v in e.outvars}.union(ins)
    atoms = [*(a for e in eqns for a in e.invars), *outs]
    return dict.fromkeys(a for a in atoms if type(a) is not Literal and a not in defined)


def _as_list(eqns: Eqn | list[Eqn] | None) -> list[Eqn]:
    return [] if eqns is None else eqns if isinstance(eqns, list) else [eqns]


def _recompute(
    sides: _Sides, unknown_outs: Sequence[Atom], saveable: Callable[[Eqn], bool]
) -> tuple[list[Eqn], list[Atom]]:
    """The unknown equations preceded by the known ones that they and `unknown_outs` need and that the policy does not save, and
    these outputs."""
    fresh: dict[Var, Var] = {}
    copies: list[Eqn] = []

    def rename(a: Atom) -> Atom:
        return a if type(a) is Literal else fresh.get(a, a)

    for eqn in _not_saved(sides, unknown_outs, saveable):
        invars = [rename(a) for a in eqn.invars]
        outvars: list[Var] = []
        for v in eqn.outvars:
            if v in sides.saved:
                outvars.append(DropVar(v.aval))
            else:
                fresh[v] = DropVar(v.aval) if type(v) is DropVar else Var(v.aval)
                outvars.append(fresh[v])
        source = None if eqn.source is None else eqn.source.within("rematted_computation")
        copies.append(eqn.replace(invars=invars, outvars=outvars, source=source))
    unknown = [e.replace(invars=[rename(a) for a in e.invars]) for e in sides.unknown]
    return copies + unknown, [rename(a) for a in unknown_outs]


def _not_saved(
    sides: _Sides, unknown_outs: Sequence[Atom], saveable: Callable[[Eqn], bool]
) -> list[Eqn]:
    """The known equations to compute again."""
    read = [*(a for e in sides.unknown for a in e.invars), *unknown_outs]
    wanted = {a for a in read if type(a) is not Literal}
    again: list[Eqn] = []
    for eqn in reversed(sides.known):
        needed = any(v in wanted and v not in sides.saved for v in eqn.outvars)
        if needed and not eqn.effects and not saveable(eqn):
            again.append(eqn)
            wanted.update(a for a in eqn.invars if type(a) is not Literal)
    again.reverse()
    return again


def run_partial(
    trace: LinearTrace,
    partial: Partial,
    known_args: Sequence[Any],
    unknown_args: Sequence[Any],
    bind_known: Callable[[Jaxpr, Sequence[Any]], list[Any]],
    bind_unknown: Callable[[Jaxpr, Sequence[Any]], list[Any]],
) -> list[Any]:
    """Outputs of a split program under `trace`: the known part bound by the parent, the unknown part staged."""
    with set_trace(trace.outer):
        known_outs = bind_known(partial.known, known_args)
    n_known = sum(not u for u in partial.out_unknown)
    computed = iter(known_outs[n_known:])
    residuals = [known_args[i] if i is not None else next(computed) for i in partial.forwarded]
    unknown_outs = iter(bind_unknown(partial.unknown, [*residuals, *unknown_args]))
    results = iter(known_outs[:n_known])
    return [next(unknown_outs) if u else next(results) for u in partial.out_unknown]
