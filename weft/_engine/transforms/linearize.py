"""Linearization: the derivative of a function at a point, as a program that is linear in the tangents.

`linearize_flat` runs a function under a `JVPTrace` whose parent is a `LinearTrace`. The enclosing trace computes operations that depend
on primal values only; operations that depend on tangents are staged. The constants of the staged program are the residuals.
`partial_eval_jaxpr` divides a program in the same way.
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
from weft._engine.util.dispatch_state import guard


class LinearTrace(StageTrace):
    """A trace that stages operations on its own tracers and passes all other operations to its parent."""

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

    def processing_trace(self, args: Sequence[Any]) -> Trace:
        return self if any(map(self.is_unknown, args)) else self.outer

    def is_unknown(self, x: Any) -> bool:
        return type(x) is StageTracer and x.owning_trace is self


def linearize_flat(
    fun: Callable[..., Any], primals: Sequence[Any], nonzero: Sequence[bool] | None = None
) -> tuple[list[Any], Jaxpr, list[bool]]:
    """Linearize the flat function `fun` at `primals`.

    Return its values, the linear program from the tangents of the inputs marked in `nonzero` to the nonzero tangents of the results, and
    for each result whether its tangent is nonzero. The constants of the program are the residuals.
    """
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


class PartialEvalResult:
    """The result of `partial_eval_jaxpr`.

    known         the program of the known inputs; its results are the known results, then the computed residuals
    unknown       the program of (residuals..., unknown inputs); its results are the unknown results
    out_unknown   per original result, whether it is unknown
    forwarded     per residual, its index among the known inputs, or None if `known` computes it
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
) -> PartialEvalResult:
    """Split `jaxpr` into a program of the known inputs and a program of the unknown inputs.

    `force_unknown` marks results that are unknown even if only known inputs determine them. With `saveable`, a checkpoint policy, only
    known inputs and results of equations that the policy accepts are residuals. The unknown program recomputes the
    other values that it needs.
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
) -> PartialEvalResult:
    unknown_ins = [v for v, u in zip(jaxpr.invars, in_unknown) if u]
    sides = _EquationPartition(set(unknown_ins), saveable)
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
    read = _free_variables(unknown_eqns, unknown_outs, unknown_ins)
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
    return PartialEvalResult(known, unknown, out_unknown, [position.get(v) for v in residuals])


class _EquationPartition:
    """The known and the unknown equations of a program."""

    def __init__(self, unknown_vars: set[Var], saveable: Callable[[Eqn], bool] | None):
        self.unknown_vars, self.saveable = unknown_vars, saveable
        self.known: list[Eqn] = []
        self.unknown: list[Eqn] = []
        #: residuals that the policy allows and that an op with inner programs computes
        self.saved: set[Var] = set()

    def is_unknown(self, atom: Atom) -> bool:
        return type(atom) is not Literal and atom in self.unknown_vars

    def add(self, eqn: Eqn) -> None:
        """Add the next equation to the known or the unknown equations, or a part of it to both."""
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
        """Add the known and the unknown part of an equation. Each part is an equation, a list of equations, or None."""
        self.known += _as_list(known)
        self.unknown += _as_list(unknown)
        self.unknown_vars.update(new_unknown)
        self.saved.update(*saved)


def _free_variables(
    eqns: Sequence[Eqn], outs: Sequence[Atom], ins: Sequence[Var]
) -> dict[Var, None]:
    """Return the variables that `eqns` and `outs` read and that neither `eqns` nor `ins` define, in order of use."""
    defined = {v for e in eqns for v in e.outvars}.union(ins)
    atoms = [*(a for e in eqns for a in e.invars), *outs]
    return dict.fromkeys(a for a in atoms if type(a) is not Literal and a not in defined)


def _as_list(eqns: Eqn | list[Eqn] | None) -> list[Eqn]:
    return [] if eqns is None else eqns if isinstance(eqns, list) else [eqns]


def _recompute(
    sides: _EquationPartition, unknown_outs: Sequence[Atom], saveable: Callable[[Eqn], bool]
) -> tuple[list[Eqn], list[Atom]]:
    """Prepend to the unknown equations copies of the known equations that they need and that the policy does not save.

    Return all these equations, and `unknown_outs` in terms of the copies.
    """
    new_vars: dict[Var, Var] = {}
    copies: list[Eqn] = []

    def rename(a: Atom) -> Atom:
        return a if type(a) is Literal else new_vars.get(a, a)

    for eqn in _recomputed_equations(sides, unknown_outs, saveable):
        invars = [rename(a) for a in eqn.invars]
        outvars: list[Var] = []
        for v in eqn.outvars:
            if v in sides.saved:
                outvars.append(DropVar(v.aval))
            else:
                new_vars[v] = DropVar(v.aval) if type(v) is DropVar else Var(v.aval)
                outvars.append(new_vars[v])
        source = None if eqn.source is None else eqn.source.with_outer_name("rematted_computation")
        copies.append(eqn.replace(invars=invars, outvars=outvars, source=source))
    unknown = [e.replace(invars=[rename(a) for a in e.invars]) for e in sides.unknown]
    return copies + unknown, [rename(a) for a in unknown_outs]


def _recomputed_equations(
    sides: _EquationPartition, unknown_outs: Sequence[Atom], saveable: Callable[[Eqn], bool]
) -> list[Eqn]:
    """Return the known equations to recompute, in program order."""
    read = [*(a for e in sides.unknown for a in e.invars), *unknown_outs]
    live = {a for a in read if type(a) is not Literal}
    recomputed: list[Eqn] = []
    for eqn in reversed(sides.known):
        needed = any(v in live and v not in sides.saved for v in eqn.outvars)
        if needed and not eqn.effects and not saveable(eqn):
            recomputed.append(eqn)
            live.update(a for a in eqn.invars if type(a) is not Literal)
    recomputed.reverse()
    return recomputed


def run_partial(
    trace: LinearTrace,
    partial: PartialEvalResult,
    known_args: Sequence[Any],
    unknown_args: Sequence[Any],
    bind_known: Callable[[Jaxpr, Sequence[Any]], list[Any]],
    bind_unknown: Callable[[Jaxpr, Sequence[Any]], list[Any]],
) -> list[Any]:
    """Run a split program under `trace` and return its results. The parent trace runs the known part; `trace` stages the unknown part."""
    with set_trace(trace.outer):
        known_outs = bind_known(partial.known, known_args)
    n_known = sum(not u for u in partial.out_unknown)
    computed = iter(known_outs[n_known:])
    residuals = [known_args[i] if i is not None else next(computed) for i in partial.forwarded]
    unknown_outs = iter(bind_unknown(partial.unknown, [*residuals, *unknown_args]))
    results = iter(known_outs[:n_known])
    return [next(unknown_outs) if u else next(results) for u in partial.out_unknown]
