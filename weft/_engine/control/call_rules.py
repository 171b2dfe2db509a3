"""The ops that call a program, and their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.control.custom_values import to_front
from weft._engine.control.effect_guards import add_guard_input
from weft._engine.control.ref import call_on_values
from weft._engine.core.interpret import evaluate, run_reference
from weft._engine.core.primitive import CallLike, declare_unsupported, registry
from weft._engine.core.stage import StageTrace
from weft._engine.core.trace import EvalTrace, Zero, is_undef
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import dce as dce_jaxpr, used_vars
from weft._engine.transforms.batch import batch_jaxpr, to_dim
from weft._engine.transforms.jvp import jvp_jaxpr
from weft._engine.transforms.linearize import PartialEvalResult, partial_eval_jaxpr, run_partial
from weft._engine.transforms.transpose import transpose_with_refs

#: plain calls; `control.call` imports this module on the first use of a rule
jit_p: CallLike = registry["jit"]


def plain_params(jaxpr: Jaxpr, name: str) -> dict:
    """Return the parameters of a `jit` call without shardings or donation."""
    n_in, n_out = len(jaxpr.invars), len(jaxpr.outvars)
    return {
        "jaxpr": jaxpr,
        "name": name,
        "in_shardings": (None,) * n_in,
        "out_shardings": (None,) * n_out,
        "donated": (False,) * n_in,
        "inline": False,
        "keep_unused": False,
    }


def call_params(jaxpr: Jaxpr, params: dict, in_shardings=None, out_shardings=None) -> dict:
    """Return the parameters of a call of a transformed program."""
    changes: dict[str, Any] = dict(params, jaxpr=jaxpr)
    if "in_shardings" in params:
        n_in, n_out = len(jaxpr.invars), len(jaxpr.outvars)
        changes.update(
            in_shardings=tuple(in_shardings) if in_shardings is not None else (None,) * n_in,
            out_shardings=tuple(out_shardings) if out_shardings is not None else (None,) * n_out,
            donated=(False,) * n_in,
        )
    return changes


def call_type(*avals, jaxpr, **_):
    return jaxpr.out_avals


def call_reference(*args, jaxpr, **_):
    return run_reference(jaxpr, *args)


def _pick(values, mask):
    return [v for v, m in zip(values, mask) if m]


def keep_whole(eqn: Eqn, used: Sequence[bool]) -> Eqn:
    """Return the equation unchanged.

    This is the `dce` rule of operations that need all operands and results.
    """
    return eqn.replace(
        outvars=[
            v if u or type(v) is DropVar else DropVar(v.aval) for v, u in zip(eqn.outvars, used)
        ]
    )


class ProgramCallOp(CallLike):
    """A call of params["jaxpr"].

    Each transformation maps that program and memoizes the result on it.

    The rules of a call with derivative rules (`only_derivatives`) describe the whole program: its
    parts and its transpose become plain calls.
    """

    ref_effects = staticmethod(lambda params: params["jaxpr"].effects)
    type = staticmethod(call_type)
    reference = staticmethod(call_reference)
    factors = declare_unsupported("calls are inlined before partitioning")
    lower = declare_unsupported("calls are inlined before fusion")

    def call(self, jaxpr: Jaxpr, args: Sequence, params: dict, shardings: Sequence = (None, None)):
        """Bind the op on a transformed program; shardings default to unspecified."""
        return self.bind(*args, **call_params(jaxpr, params, *shardings))

    def call_part(self, jaxpr: Jaxpr, args: Sequence, params: dict) -> list:
        """Call a program that was derived from a part of the whole program."""
        if self.only_derivatives:
            return jit_p.bind(*args, **plain_params(jaxpr, params.get("name", "")))
        return self.call(jaxpr, args, params)

    def divide(self, jaxpr: Jaxpr, unknown: Sequence[bool], params: dict) -> PartialEvalResult:
        """Divide the program for partial evaluation. The known part is computed once."""
        return partial_eval_jaxpr(jaxpr, unknown)

    def unknown_params(
        self, partial: PartialEvalResult, unknown: Sequence[bool], params: dict
    ) -> dict | None:
        """Return the parameters of a call of this op for the unknown part.

        Return None if the part becomes a plain call.
        """
        return None

    def jvp(self, primals, tangents, *, jaxpr, **params):
        nonzero = tuple(not isinstance(t, Zero) for t in tangents)
        jvp_program, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
        params["jaxpr"] = jaxpr
        ins, outs = params.get("in_shardings"), params.get("out_shardings")
        if ins is not None and outs is not None:
            ins = [*ins, *_pick(ins, nonzero)]
            outs = [*outs, *_pick(outs, out_nonzero)]
        barred = params.get("prevent_cse")  # of a checkpoint: one flag per input
        if isinstance(barred, tuple):
            params["prevent_cse"] = (*barred, *_pick(barred, nonzero))
        operands = [*primals, *_pick(tangents, nonzero)]
        results = self.call(jvp_program, operands, params, (ins, outs))
        n = len(jaxpr.outvars)
        out_tangents = iter(results[n:])
        return results[:n], [
            next(out_tangents) if nz else Zero(a.to_tangent_aval())
            for a, nz in zip(jaxpr.out_avals, out_nonzero)
        ]

    def batch(self, axis, args, dims, *, jaxpr, **params):
        batched = tuple(d is not None for d in dims)
        args = [to_dim(x, d, axis, 0) if b else x for x, d, b in zip(args, dims, batched)]
        mapped, out_batched = batch_jaxpr(jaxpr, axis, batched)
        params["jaxpr"] = jaxpr
        outs = self.call(mapped, args, params)
        return outs, [0 if b else None for b in out_batched]

    def transpose(self, cts, *args, jaxpr, **params):
        linear = tuple(map(is_undef, args))
        ct_nonzero = tuple(not isinstance(ct, Zero) for ct in cts)
        backward, nonzero, refs = transpose_with_refs(jaxpr, linear, ct_nonzero)
        params["jaxpr"] = jaxpr
        operands = [*(x for x in args if not is_undef(x)), *_pick(cts, ct_nonzero)]
        call = lambda *xs: self.call_part(backward, xs, params)
        outs, flags = iter(call_on_values(refs, call, operands)), iter(nonzero)
        return [(next(outs) if next(flags) else None) if lin else None for lin in linear]

    def partial_eval(self, trace, args, params):
        unknown = [trace.is_unknown(x) for x in args]
        partial = self.divide(params["jaxpr"], unknown, params)
        unknown_params = self.unknown_params(partial, unknown, params)

        def bind_known(program, operands):
            nothing = not program.eqns and not program.constvars  # only returns inputs
            if nothing or (unknown_params is not None and not isinstance(trace.parent, EvalTrace)):
                return evaluate(program, *operands)
            if self.only_derivatives or params.get("in_shardings") is None:
                return self.call_part(program, operands, params)
            shardings = _known_part_shardings(program, partial, unknown, params)
            return self.call(program, operands, params, shardings)

        def bind_unknown(program, operands):
            primitive, call_parameters = self, call_params(program, params)
            if not all(unknown):
                if unknown_params is not None:
                    call_parameters = call_params(program, unknown_params)
                elif self.only_derivatives:
                    primitive, call_parameters = (
                        jit_p,
                        plain_params(program, params.get("name", "")),
                    )
            return StageTrace.process(trace, primitive, operands, call_parameters)

        known_args = [x for x, u in zip(args, unknown) if not u]
        unknown_args = _pick(args, unknown)
        return run_partial(trace, partial, known_args, unknown_args, bind_known, bind_unknown)

    def partial_eval_eqn(self, eqn, mask):
        """Split a call equation inside a program.

        Return (known equations, unknown equation, unknown variables).
        """
        partial = self.divide(eqn.params["jaxpr"], mask, eqn.params)
        unknown_params = self.unknown_params(partial, mask, eqn.params)
        known_ins = [a for a, u in zip(eqn.invars, mask) if not u]
        n_known = len(partial.out_unknown) - sum(partial.out_unknown)
        computed = [Var(a.aval) for a in partial.known.outvars[n_known:]]
        computed_iter = iter(computed)
        residuals = [
            known_ins[i] if i is not None else next(computed_iter) for i in partial.forwarded
        ]
        known_outs = [v for v, u in zip(eqn.outvars, partial.out_unknown) if not u]
        unknown_outs = _pick(eqn.outvars, partial.out_unknown)
        called = _plain_eqn if self.only_derivatives and not all(mask) else _call_eqn
        known = unknown = None
        if known_outs or computed or partial.known.effects:
            known = called(eqn, partial.known, known_ins, [*known_outs, *computed])
            if unknown_params is not None:
                known = _inline_forwarding_call(known)
        if unknown_outs or partial.unknown.effects:
            operands = [*residuals, *_pick(eqn.invars, mask)]
            if unknown_params is not None and not all(mask):
                eqn, called = eqn.replace(params=unknown_params), _call_eqn
            unknown = called(eqn, partial.unknown, operands, unknown_outs)
        return known, unknown, unknown_outs

    def dce(self, eqn, used):
        return shorten_call(eqn, used)

    def guard(self, on, operands, params):
        counts: dict[str, Any] = {}
        if "num_consts" in params:
            counts["num_consts"] = params["num_consts"] + 1
        if isinstance(barred := params.get("prevent_cse"), tuple):
            counts["prevent_cse"] = (False, *barred)
        return self.call(add_guard_input(params["jaxpr"]), [on, *operands], {**params, **counts})


class WholeCall(ProgramCallOp):
    """A call whose rules need all operands and results."""

    def dce(self, eqn, used):
        return keep_whole(eqn, used)


def shorten_call(eqn: Eqn, used: Sequence[bool]) -> Eqn:
    """Return a call without unused results and without the operands that only they needed."""
    jaxpr = eqn.params["jaxpr"]
    inner, keep = jaxpr.memo(("called", *used), lambda: _without_unused(jaxpr, used))
    if inner is jaxpr:
        return eqn
    call = _call_eqn(eqn, inner, _pick(eqn.invars, keep), _pick(eqn.outvars, used))
    if isinstance(barred := eqn.params.get("prevent_cse"), tuple):
        call.params["prevent_cse"] = tuple(_pick(barred, keep))
    if "in_shardings" in call.params:
        call.params.update(
            in_shardings=tuple(_pick(eqn.params["in_shardings"], keep)),
            out_shardings=tuple(_pick(eqn.params["out_shardings"], used)),
        )
    return call


def _known_part_shardings(
    program: Jaxpr, partial: PartialEvalResult, unknown: Sequence[bool], params: dict
):
    """Return the shardings of the operands and results of the known part."""
    outs = [s for s, u in zip(params["out_shardings"], partial.out_unknown) if not u]
    outs += [None] * (len(program.outvars) - len(outs))
    return [s for s, u in zip(params["in_shardings"], unknown) if not u], outs


def _without_unused(jaxpr: Jaxpr, used: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Return the program without unused results and unread inputs.

    Also return the mask of remaining inputs.
    """
    inner = dce_jaxpr(jaxpr, used)
    needed = used_vars(inner)
    keep = [v in needed for v in inner.invars]
    return inner if all(keep) else inner.replace(invars=_pick(inner.invars, keep)), keep


def _inline_forwarding_call(call: Eqn) -> list[Eqn]:
    """Return the equations of the called program if they compute all results of the call.

    Otherwise return the call.
    """
    program = call.params["jaxpr"]
    computed = {v for eqn in program.eqns for v in eqn.outvars}
    names: dict[Var, Atom] = dict(zip(program.invars, call.invars))
    for atom, var in zip(program.outvars, call.outvars):
        if type(var) is not DropVar:
            if type(atom) is Literal or atom not in computed or atom in names or program.constvars:
                return [call]
            names[atom] = var
    eqns = []
    for eqn in program.eqns:
        names.update(
            (v, DropVar(v.aval) if type(v) is DropVar else Var(v.aval))
            for v in eqn.outvars
            if v not in names
        )
        source = (
            call.source
            if eqn.source is None
            else eqn.source.with_outer_name(call.source.scope)
            if call.source is not None
            else eqn.source
        )
        invars = [a if type(a) is Literal else names[a] for a in eqn.invars]
        eqns.append(
            eqn.replace(invars=invars, outvars=[names[v] for v in eqn.outvars], source=source)
        )
    return eqns


def _plain_eqn(eqn: Eqn, jaxpr: Jaxpr, invars, outvars) -> Eqn:
    params = plain_params(jaxpr, eqn.params.get("name", ""))
    return eqn.replace(
        primitive=jit_p, invars=invars, outvars=outvars, params=params, effects=jaxpr.effects
    )


def _call_eqn(eqn: Eqn, jaxpr: Jaxpr, invars, outvars) -> Eqn:
    params: dict[str, Any] = dict(eqn.params, jaxpr=jaxpr)
    if "in_shardings" in params:
        params.update(
            in_shardings=(None,) * len(invars),
            out_shardings=(None,) * len(outvars),
            donated=(False,) * len(invars),
        )
    return eqn.replace(invars=invars, outvars=outvars, params=params, effects=jaxpr.effects)


#: the forward half of a rule, which the function replaces if no residual is read; params: jaxpr
#: (results, then residuals), fun (a program of the same operands with results only), name
remat_opt_p = ProgramCallOp("remat_opt", multiple_results=True, only_derivatives=("fun",))


@remat_opt_p.def_batch
def _remat_opt_batch(axis, args, dims, *, jaxpr, fun, name):
    args, flags = to_front(args, dims)
    whole, fun = [batch_jaxpr(j, axis, tuple(flags), True)[0] for j in (jaxpr, fun)]
    outs = remat_opt_p.bind(*args, jaxpr=whole, fun=fun, name=name)
    return outs, [0] * len(outs)


@remat_opt_p.def_dce
def _remat_opt_dce(eqn, used):
    """Return a call of the function if no residual is used, else the whole forward half."""
    fun = eqn.params["fun"]
    n = len(fun.outvars)
    if any(used[n:]):
        return keep_whole(eqn, used)
    call = eqn.replace(
        primitive=jit_p,
        outvars=eqn.outvars[:n],
        params=plain_params(fun, eqn.params["name"]),
        effects=fun.effects,
    )
    return shorten_call(call, used[:n])
